/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cached map: answers, merging, bounds, and many threads filling it at once. */
#include "image.h"

enum { BLOCK = 1024, COMB = IMAGE_FIRST_INUM, PLAIN, COMB_BLOCKS = 3000, PLAIN_BLOCKS = 4000 };

static void start(struct image *im, const char *options)
{
	image_run("rm -f comb plain");
	for (uint64_t b = 0; b < COMB_BLOCKS; b += 2)
		pattern_write("comb", COMB, b * BLOCK, (b + 1) * BLOCK);
	pattern_write("plain", PLAIN, 0, PLAIN_BLOCKS * BLOCK);
	image_make("image", options, "16M");
	image_debugfs("image", "write comb comb\nwrite plain plain\n");
	image_load(im, "image");
	ck_ok(image_mount(im));
}

START_TEST(runs_grow_together)
{
	struct ext4_runs runs = {0};

	ck_ok(ext4_runs_add(&runs, (struct ext4_run){.logical = 5, .count = 3, .physical = 100}));
	ck_ok(ext4_runs_add(&runs, (struct ext4_run){.logical = 8, .count = 2, .physical = 103}));
	ck_assert_uint_eq(runs.count, 1);
	ck_assert_uint_eq(runs.run[0].count, 5);
	ck_ok(ext4_runs_add(&runs, (struct ext4_run){.logical = 10, .count = 1}));
	ck_ok(ext4_runs_add(&runs, (struct ext4_run){.logical = 11, .count = 7}));
	ck_assert_uint_eq(runs.count, 2);
	ck_ok(ext4_runs_add(&runs, (struct ext4_run){.logical = 18, .count = 1, .physical = 105}));
	ck_ok(ext4_runs_add(&runs,
		(struct ext4_run){.logical = 19, .count = 1, .physical = 106, .unwritten = true}));
	ck_ok(ext4_runs_add(&runs, (struct ext4_run){.logical = 20, .count = 1, .physical = 108}));
	ck_assert_uint_eq(runs.count, 5);
	free(runs.run);
}
END_TEST

static void check_comb(struct ext4_inode *inode, uint32_t step)
{
	for (uint64_t i = 0; i < COMB_BLOCKS; i++) {
		lblk_t b = (lblk_t)(i * step % COMB_BLOCKS);
		struct ext4_run run;
		ck_ok(ext4_map(inode, b, 1000, &run));
		ck_assert_uint_eq(run.logical, b);
		ck_assert_int_eq(run.physical == 0, b % 2);
		if (b < COMB_BLOCKS - 1)
			ck_assert_uint_eq(run.count, 1);
	}
}

static const char *const kinds[] = {"-t ext4 -b 1024 -O ^has_journal", "-t ext2 -b 1024"};

START_TEST(answers_in_any_order)
{
	static const uint32_t steps[] = {1, 2999, 7, 1501};
	struct image im;
	struct ext4_inode *inode;

	start(&im, kinds[_i % 2]);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		ck_ok(ext4_inode_get(im.fs, COMB, &inode));
		check_comb(inode, steps[i]);
		/* All leaves are there now, each hole and each block once. */
		ck_assert_int_le(atomic_load(&im.fs->map_runs), COMB_BLOCKS + 1);
		ext4_map_forget(inode);
		ck_assert_int_eq(atomic_load(&im.fs->map_runs), 0);
		ext4_inode_put(inode);
	}
	image_close(&im);
}
END_TEST

START_TEST(the_limit_and_the_end)
{
	struct image im;
	struct ext4_inode *inode;
	struct ext4_run run;

	start(&im, kinds[_i]);
	ck_ok(ext4_inode_get(im.fs, PLAIN, &inode));
	ck_ok(ext4_map(inode, 3, 5, &run));
	ck_assert_uint_eq(run.count, 5);
	ck_ok(ext4_map(inode, PLAIN_BLOCKS - 1, UINT32_MAX, &run));
	ck_assert_uint_eq(run.count, 1);
	ck_assert_uint_ne(run.physical, 0);
	ck_ok(ext4_map(inode, PLAIN_BLOCKS + 100000, UINT32_MAX, &run));
	ck_assert_uint_eq(run.physical, 0);
	ck_ok(ext4_map(inode, EXT4_LBLK_END - 1, UINT32_MAX, &run));
	ck_assert_uint_eq(run.physical, 0);
	ck_assert_uint_eq(run.count, 1);
	ck_err(ext4_map(inode, EXT4_LBLK_END, 1, &run), ERR_FBIG);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

START_TEST(blocks_and_holes_of_metadata)
{
	struct image im;
	struct ext4_inode *inode;
	struct cache_block *b = NULL;
	uint8_t value[5000];

	start(&im, kinds[_i]);
	ck_ok(ext4_inode_get(im.fs, COMB, &inode));
	ck_ok(ext4_map_block(inode, 2, &b));
	image_check_range(b->data, COMB, 2 * BLOCK, BLOCK, image_all_data);
	cache_put(im.fs->cache, b);
	ck_err(ext4_map_block(inode, 3, &b), ERR_CORRUPT);
	ck_err(ext4_inode_read_all(inode, value, sizeof(value)), ERR_CORRUPT);
	ext4_inode_put(inode);
	ck_ok(ext4_inode_get(im.fs, PLAIN, &inode));
	ck_ok(ext4_inode_read_all(inode, value, sizeof(value)));
	image_check_range(value, PLAIN, 0, sizeof(value), image_all_data);
	ck_err(ext4_inode_read_all(inode, value, PLAIN_BLOCKS * BLOCK + 1), ERR_CORRUPT);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

static void *fill(void *arg)
{
	struct ext4_inode *inode = arg;

	for (int round = 0; round < 20; round++)
		for (uint64_t i = 0; i < COMB_BLOCKS; i += 3) {
			lblk_t b = (lblk_t)(i * 1009 % COMB_BLOCKS);
			struct ext4_run run;
			if (ext4_map(inode, b, 1, &run) || (run.physical == 0) != b % 2)
				return inode;
		}
	return NULL;
}

START_TEST(many_threads_fill_one_map)
{
	struct image im;
	struct ext4_inode *inode;
	pthread_t threads[4];

	start(&im, kinds[_i]);
	ck_ok(ext4_inode_get(im.fs, COMB, &inode));
	for (int i = 0; i < 4; i++)
		ck_ok(thread_start(&threads[i], "fill", fill, inode));
	for (int i = 0; i < 4; i++) {
		void *wrong;
		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	check_comb(inode, 1);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

/* --- changes --------------------------------------------------------------------------------- */

static struct ext4_run truth_run(const struct ext4_run *truth, lblk_t at)
{
	struct ext4_run run = truth[at];

	run.logical = at;
	run.count = 1;
	while (at + run.count < COMB_BLOCKS) {
		const struct ext4_run *next = &truth[at + run.count];
		if (next->unwritten != run.unwritten ||
			next->physical != (run.physical ? run.physical + run.count : 0))
			break;
		run.count++;
	}
	return run;
}

static void check_truth(struct ext4_inode *inode, const struct ext4_run *truth, lblk_t at)
{
	struct ext4_run want = truth_run(truth, at), got;

	ck_ok(ext4_map(inode, at, COMB_BLOCKS - at, &got));
	ck_assert_uint_eq(got.logical, at);
	ck_assert_uint_eq(got.physical, want.physical);
	ck_assert_uint_eq(got.count, want.count);
	ck_assert_int_eq(got.unwritten, want.unwritten);
}

/* Few physical places, so that runs continue each other often. */
static struct ext4_run random_change(struct ext4_run *truth)
{
	struct ext4_run run = {.logical = (lblk_t)scratch_random(COMB_BLOCKS)};

	run.count = 1 + (uint32_t)scratch_random(scratch_random(4) ? 4 : COMB_BLOCKS);
	run.count = MIN(run.count, COMB_BLOCKS - run.logical);
	if (scratch_random(3)) {
		run.physical = 5000 * (1 + scratch_random(2)) + run.logical;
		run.unwritten = scratch_random(3) == 0;
	}
	for (uint32_t i = 0; i < run.count; i++)
		truth[run.logical + i] =
			(struct ext4_run){.physical = run.physical ? run.physical + i : 0,
				.unwritten = run.unwritten};
	return run;
}

START_TEST(changes_show_at_once)
{
	struct image im;
	struct ext4_inode *inode;
	struct ext4_run *truth = calloc(COMB_BLOCKS, sizeof(*truth));

	ensure(truth != NULL);
	start(&im, kinds[0]);
	ck_ok(ext4_inode_get(im.fs, COMB, &inode));
	check_comb(inode, 1);
	for (lblk_t b = 0; b < COMB_BLOCKS; b++)
		ck_ok(ext4_map(inode, b, 1, &truth[b]));
	for (int round = 0; round < 3000; round++) {
		struct ext4_run run = random_change(truth);
		extent_lock(&inode->map_lock);
		ext4_map_changed(inode, run);
		extent_unlock(&inode->map_lock);
		check_truth(inode, truth, run.logical);
		check_truth(inode, truth, run.logical ? run.logical - 1 : 0);
		check_truth(inode, truth, (run.logical + run.count) % COMB_BLOCKS);
	}
	for (lblk_t b = 0; b < COMB_BLOCKS; b++)
		check_truth(inode, truth, b);
	ext4_map_forget(inode);
	ck_assert_int_eq(atomic_load(&im.fs->map_runs), 0);
	ext4_inode_put(inode);
	free(truth);
	image_close(&im);
}
END_TEST

/* A part of the map that was never read: what changed is known, what lies around it is read. */
START_TEST(a_change_of_what_was_not_read)
{
	struct image im;
	struct ext4_inode *inode;
	struct ext4_run run;

	start(&im, kinds[0]);
	ck_ok(ext4_inode_get(im.fs, COMB, &inode));
	ck_ok(ext4_map(inode, 0, 1, &run));
	extent_lock(&inode->map_lock);
	ext4_map_changed(inode, (struct ext4_run){.logical = 2001, .count = 1, .physical = 7777});
	extent_unlock(&inode->map_lock);
	ck_ok(ext4_map(inode, 2001, 9, &run));
	ck_assert_uint_eq(run.physical, 7777);
	ck_assert_uint_eq(run.count, 1);
	ck_ok(ext4_map(inode, 2000, 1, &run));
	ck_assert_uint_ne(run.physical, 0);
	ck_ok(ext4_map(inode, 2003, 1, &run));
	ck_assert_uint_eq(run.physical, 0);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/map");
	TCase *tcase = tcase_create("map");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, runs_grow_together);
	tcase_add_loop_test(tcase, answers_in_any_order, 0, 2);
	tcase_add_loop_test(tcase, the_limit_and_the_end, 0, 2);
	tcase_add_loop_test(tcase, blocks_and_holes_of_metadata, 0, 2);
	tcase_add_loop_test(tcase, many_threads_fill_one_map, 0, 2);
	tcase_add_test(tcase, changes_show_at_once);
	tcase_add_test(tcase, a_change_of_what_was_not_read);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
