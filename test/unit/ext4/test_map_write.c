/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Maps that are written: random changes against the truth, e2fsck and debugfs. */
#include "image.h"
#include "map_rig.h"
#include "rig_run.h"

static const struct mix_case {
	const char *layout, *size;
	uint32_t window_blocks;
	struct map_mix mix;
	int rounds, operations;
	unsigned depth_min; /* that the tree reaches at some time */
} cases[] = {
	/* Single blocks with gaps: as many extents as can be, a deep tree. */
	{"-t ext4 -b 1024 -J size=4", "64M", 24000, {40, 1, 1, 1, 20, 2}, 3, 15000, 3},
	{"-t ext4 -b 1024 -J size=4", "64M", 1500, {10, 6, 3, 12, 100, 1}, 4, 2500, 1},
	{"-t ext4 -b 4096 -g 2048 -J size=4", "128M", 4000, {10, 6, 3, 500, 2000, 1}, 4, 1500, 1},
	{"-t ext4 -b 1024 -J size=4 -O ^metadata_csum,uninit_bg", "64M", 1500,
		{10, 6, 3, 12, 100, 1}, 3, 2500, 1},
	{"-t ext4 -b 2048 -g 4096 -J size=4 -I 128 -O ^64bit", "64M", 2000, {10, 6, 3, 30, 100, 1},
		3, 1500, 1},
};

START_TEST(random_changes)
{
	const struct mix_case *c = &cases[_i];
	struct image im;
	struct map_file f;
	unsigned depth = 0;

	map_make(&im, c->layout, c->size, 1);
	write_open(&im);
	map_open(&f, &im, 0, c->window_blocks);
	for (int round = 0; round < c->rounds; round++) {
		for (int i = 0; i < c->operations; i++) {
			ck_ok(map_do_random(&f, &c->mix));
			depth = MAX(depth, map_depth(&f));
			if (i % 500 == 0)
				map_check(&f);
		}
		map_check(&f);
		map_close(&f);
		write_close(&im);
		write_dump(&im, "written");
		write_judge("written");
		map_check_debugfs(&f, 0);
		/* Now everything is read from the device. */
		write_open(&im);
		ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM, &f.inode));
		map_check(&f);
	}
	ck_assert_uint_ge(depth, c->depth_min);
	map_close(&f);
	write_close(&im);
	image_close(&im);
	free(f.block);
}
END_TEST

/* --- many threads ---------------------------------------------------------------------------- */

enum { FILES = 4 };

static void change_own_file(unsigned index, void *arg)
{
	static const struct map_mix mix = {10, 4, 3, 12, 60, 1};
	struct map_file *f = &((struct map_file *)arg)[index];

	for (int i = 0; i < 800; i++)
		ck_ok(map_do_random(f, &mix));
}

START_TEST(each_thread_its_file)
{
	struct image im;
	struct map_file f[FILES];

	map_make(&im, "-t ext4 -b 1024 -J size=4", "64M", FILES);
	write_open(&im);
	for (unsigned i = 0; i < FILES; i++)
		map_open(&f[i], &im, i, 900);
	rig_run_threads(FILES, change_own_file, f);
	for (unsigned i = 0; i < FILES; i++) {
		map_check(&f[i]);
		map_close(&f[i]);
	}
	write_close(&im);
	write_dump(&im, "written");
	write_judge("written");
	for (unsigned i = 0; i < FILES; i++) {
		map_check_debugfs(&f[i], i);
		free(f[i].block);
	}
	image_close(&im);
}
END_TEST

struct shared_file {
	struct map_file f;
	_Atomic bool stop;
};

/* Thread 0 maps and converts one file's blocks, as write-back does; the others look them up. */
static void share_file(unsigned index, void *arg)
{
	struct shared_file *s = arg;
	struct map_file *f = &s->f;
	struct ext4_attr attr;
	uint64_t random = index;

	if (index == 0) {
		for (uint32_t at = 0; at < map_blocks(f); at += 2)
			ck_ok(map_do_insert(f, at, 1, at % 4 == 0));
		for (uint32_t at = 0; at < map_blocks(f); at += 8)
			ck_ok(map_do_convert(f, at, 1, false));
		s->stop = true;
		return;
	}
	while (!s->stop) {
		uint32_t at = (uint32_t)(rig_random(&random) % map_blocks(f));
		struct ext4_run run;

		inode_lock_shared(&f->inode->lock);
		ck_ok(ext4_map(f->inode, map_logical(f, at), 5, &run));
		inode_unlock_shared(&f->inode->lock);
		ck_assert(at % 2 == 0 || run.physical == 0);
		if (rig_random(&random) % 64 == 0)
			ext4_map_forget(f->inode);
		ck_ok(ext4_getattr(f->inode, &attr));
	}
}

START_TEST(readers_beside_a_writer)
{
	struct image im;
	struct shared_file s = {.stop = false};

	map_make(&im, "-t ext4 -b 1024 -J size=4", "64M", 1);
	write_open(&im);
	map_open(&s.f, &im, 0, 900);
	rig_run_threads(4, share_file, &s);
	map_check(&s.f);
	map_close(&s.f);
	write_close_and_judge(&im);
	free(s.f.block);
}
END_TEST

/* --- no space -------------------------------------------------------------------------------- */

/* Until the volume is full: refused before the handle, never inside it; then room again. */
START_TEST(until_it_is_full)
{
	struct image im;
	struct map_file f;
	uint32_t at = 0, refused;
	enum err e = OK;

	map_make(&im, "-t ext4 -b 1024 -J size=1", "8M", 1);
	write_open(&im);
	map_open(&f, &im, 0, 6000);
	for (; at < map_blocks(&f) && !e; at += 2)
		e = map_do_insert(&f, at, 1, false);
	ck_assert_int_eq(e, ERR_NOSPC);
	ck_assert(!journal_failed(im.fs->journal));
	map_check(&f);
	refused = at - 2;
	ck_ok(map_do_remove(&f, 0, 100, 0));
	ck_ok(map_do_insert(&f, refused, 1, false));
	map_check(&f);
	map_close(&f);
	write_close_and_judge(&im);
	free(f.block);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/map_write");
	TCase *tcase = tcase_create("map_write");

	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, random_changes, 0, (int)ARRAY_SIZE(cases));
	tcase_add_test(tcase, each_thread_its_file);
	tcase_add_test(tcase, readers_beside_a_writer);
	tcase_add_test(tcase, until_it_is_full);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
