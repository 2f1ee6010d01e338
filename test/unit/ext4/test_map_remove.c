/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Maps that shrink: deep trees taken down from the end, holes punched, what is damaged refused. */
#include "image.h"
#include "map_rig.h"

enum { WINDOW = 3000 };
static const char layout[] = "-t ext4 -b 1024 -J size=4";

struct state {
	struct image im;
	struct map_file f;
	uint64_t free_blocks;
};

static uint64_t free_blocks(struct image *im)
{
	uint64_t blocks, inodes;

	write_commit(im);
	ext4_alloc_counts(im->fs, &blocks, &inodes);
	return blocks;
}

/* Every second block of all windows: one extent each. */
static void start(struct state *s, uint32_t window)
{
	map_make(&s->im, layout, "32M", 1);
	write_open(&s->im);
	map_open(&s->f, &s->im, 0, window);
	s->free_blocks = free_blocks(&s->im);
	for (uint32_t at = 0; at < map_blocks(&s->f); at += 2)
		ck_ok(map_do_insert(&s->f, at, 1, at % 3 == 0));
}

static void finish(struct state *s)
{
	map_check(&s->f);
	map_close(&s->f);
	write_close(&s->im);
	write_dump(&s->im, "written");
	write_judge("written");
	map_check_debugfs(&s->f, 0);
	image_close(&s->im);
	free(s->f.block);
}

static void check_empty(struct state *s)
{
	ck_assert_uint_eq(map_depth(&s->f), 0);
	ck_assert_uint_eq(s->f.inode->attr.blocks_512, 0);
	ck_assert_uint_eq(free_blocks(&s->im), s->free_blocks);
}

START_TEST(from_the_end_to_nothing)
{
	static const uint32_t credits[] = {0, 40, 100};
	struct state s;
	unsigned depth;

	start(&s, WINDOW);
	ck_assert_uint_ge(map_depth(&s.f), 2);
	for (int window = MAP_WINDOWS - 1; window >= 0; window--) {
		ck_ok(map_do_remove(&s.f, (uint32_t)window * WINDOW, WINDOW, credits[_i]));
		map_check(&s.f);
	}
	check_empty(&s);
	/* And up again. */
	depth = map_depth(&s.f);
	for (uint32_t at = 0; at < 20; at += 2)
		ck_ok(map_do_insert(&s.f, at, 1, false));
	ck_assert_uint_gt(map_depth(&s.f), depth);
	finish(&s);
}
END_TEST

/* From the front, so that first entries go and keys change at every level. */
START_TEST(from_the_front_to_nothing)
{
	struct state s;

	start(&s, WINDOW);
	for (uint32_t at = 0; at < map_blocks(&s.f); at += 50)
		ck_ok(map_do_remove(&s.f, at, 50, at % 100 ? 0 : 40));
	map_check(&s.f);
	check_empty(&s);
	finish(&s);
}
END_TEST

/* A tree that lost all but a few blocks is as flat as one that never had more. */
START_TEST(a_small_rest_is_flat)
{
	struct state s;

	start(&s, WINDOW);
	ck_ok(map_do_remove(&s.f, WINDOW, WINDOW, 0));
	ck_ok(map_do_remove(&s.f, 8, WINDOW - 8, 0));
	ck_ok(map_do_remove(&s.f, 2 * WINDOW, WINDOW, 0));
	ck_assert_uint_eq(map_depth(&s.f), 0);
	ck_assert_uint_eq(s.f.inode->attr.blocks_512, 4 * 2);
	finish(&s);
}
END_TEST

/* One long extent is cut into many by holes; then the holes meet. */
START_TEST(holes_in_one_extent)
{
	struct state s;

	start(&s, 900);
	ck_ok(map_do_remove(&s.f, 0, 900, 0));
	for (uint32_t at = 0; at < 900;) {
		uint32_t before = at;
		ck_ok(map_do_insert(&s.f, at, 900 - at, false));
		while (at < 900 && s.f.block[at].physical)
			at++;
		ck_assert_uint_gt(at, before);
	}
	for (uint32_t at = 1; at < 900; at += 4)
		ck_ok(map_do_remove(&s.f, at, 2, 0));
	map_check(&s.f);
	for (uint32_t at = 0; at < 900; at += 100)
		ck_ok(map_do_remove(&s.f, at, 99, 0));
	finish(&s);
}
END_TEST

/* An extent over several groups goes a group at a time, in handles that have room for one. */
START_TEST(an_extent_over_many_groups)
{
	struct image im;
	struct map_file f;
	uint32_t longest = 0;

	map_make(&im, "-t ext4 -b 1024 -g 1024 -J size=1 -O ^resize_inode,sparse_super2", "64M", 1);
	write_open(&im);
	map_open(&f, &im, 0, 20000);
	for (uint32_t at = 0; at < 20000;) {
		ck_ok(map_do_insert(&f, at, MIN(20000 - at, 700u), false));
		while (at < 20000 && f.block[at].physical)
			at++;
	}
	for (uint32_t at = 0; at < 20000;) {
		struct ext4_run run;
		ck_ok(ext4_map(f.inode, at, 20000, &run));
		longest = MAX(longest, run.count);
		at += run.count;
	}
	/* Each group has a bitmap of its own: more blocks than the handles below have. */
	ck_assert_uint_gt(longest, 12 * 1024);
	write_commit(&im);
	ck_ok(map_do_remove(&f, 10, 19980, extent_edit_credits(map_depth(&f)) + 2));
	map_check(&f);
	map_close(&f);
	write_close_and_judge(&im);
	free(f.block);
}
END_TEST

/* A handle that is too small for a step, and a tree that may not grow for want of promises. */
START_TEST(too_small_a_reservation_changes_nothing)
{
	struct state s;
	struct ext4_span span = {1, 2};
	struct journal_handle h;

	map_make(&s.im, layout, "32M", 1);
	write_open(&s.im);
	map_open(&s.f, &s.im, 0, WINDOW);
	s.free_blocks = free_blocks(&s.im);
	for (uint32_t at = 0; at < 12; at += 3)
		ck_ok(map_do_insert(&s.f, at * 10, 3, false));
	ck_assert_uint_eq(map_depth(&s.f), 0);
	h = write_start(&s.im, ext4_map_credits(s.f.inode));
	extent_lock(&s.f.inode->map_lock);
	ck_err(ext4_map_remove(&h, s.f.inode, &span, NULL), ERR_BUSY);
	extent_unlock(&s.f.inode->map_lock);
	ck_ok(journal_stop(&h));
	ck_assert_uint_eq(span.end, 2);
	map_check(&s.f);
	/* With one it grows. */
	ck_ok(map_do_remove(&s.f, 1, 1, 0));
	ck_assert_uint_eq(map_depth(&s.f), 1);
	finish(&s);
}
END_TEST

START_TEST(an_empty_span_and_a_hole_are_done_at_once)
{
	struct state s;
	struct ext4_span span = {5, 5};
	struct journal_handle h;

	start(&s, 30);
	h = write_start(&s.im, ext4_map_credits(s.f.inode));
	extent_lock(&s.f.inode->map_lock);
	ck_ok(ext4_map_remove(&h, s.f.inode, &span, NULL));
	span = (struct ext4_span){1000, 100000};
	ck_ok(ext4_map_remove(&h, s.f.inode, &span, NULL));
	ck_assert_uint_eq(span.end, 1000);
	extent_unlock(&s.f.inode->map_lock);
	ck_ok(journal_stop(&h));
	finish(&s);
}
END_TEST

/* A block that the bitmap has free already: nothing is freed, and the file system stays usable. */
START_TEST(a_double_free_is_refused)
{
	struct state s;
	struct map_file *f = &s.f;
	fsblk_t nr;

	start(&s, 30);
	nr = f->block[4].physical;
	ck_ok(write_free(&s.im, nr, 1, false));
	ck_err(map_do_remove(f, 4, 1, 0), ERR_CORRUPT);
	ck_assert(!journal_failed(s.im.fs->journal));
	map_check(f);
	ck_ok(map_do_remove(f, 6, 1, 0));
	map_check(f);
	map_close(f);
	write_close(&s.im);
	image_close(&s.im);
	free(f->block);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/map_remove");
	TCase *tcase = tcase_create("map_remove");

	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, from_the_end_to_nothing, 0, 3);
	tcase_add_test(tcase, from_the_front_to_nothing);
	tcase_add_test(tcase, a_small_rest_is_flat);
	tcase_add_test(tcase, holes_in_one_extent);
	tcase_add_test(tcase, an_extent_over_many_groups);
	tcase_add_test(tcase, too_small_a_reservation_changes_nothing);
	tcase_add_test(tcase, an_empty_span_and_a_hole_are_done_at_once);
	tcase_add_test(tcase, a_double_free_is_refused);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
