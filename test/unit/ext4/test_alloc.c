/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where blocks are taken: goals, runs, few reads on a nearly full volume, many threads. */
#include "write_rig.h"

static void open_image(struct image *im, const char *options, const char *size)
{
	image_make("image", options, size);
	image_load(im, "image");
	write_open(im);
}

static const char plain[] = "-t ext4 -b 4096 -g 1024 -J size=4 -E lazy_itable_init=1";

static struct ext4_take take(struct image *im, fsblk_t goal, uint32_t want)
{
	struct ext4_take out;

	ck_ok(ext4_reserve(im->fs, want, true));
	ck_ok(ext4_alloc_take(im->fs, goal, want, &out));
	ext4_unreserve(im->fs, want - out.count);
	return out;
}

START_TEST(at_the_goal)
{
	struct image im;
	struct ext4_take a, b, c;
	fsblk_t goal;

	open_image(&im, plain, "24M");
	goal = ext4_group_first_block(im.fs, 3) + 500;
	a = take(&im, goal, 10);
	ck_assert_uint_eq(a.first, goal);
	ck_assert_uint_eq(a.count, 10);
	/* What continues it is taken, however short; then the next run that holds all. */
	b = take(&im, goal + 13, 5);
	ck_assert_uint_eq(b.first, goal + 13);
	c = take(&im, goal + 10, 8);
	ck_assert_uint_eq(c.first, goal + 10);
	ck_assert_uint_eq(c.count, 3);
	c = take(&im, goal + 10, 8);
	ck_assert_uint_eq(c.first, goal + 18);
	ck_assert_uint_eq(c.count, 8);
	ext4_alloc_untake(im.fs, &a);
	c = take(&im, goal + 18, 8); /* not behind: there is nothing more at the goal itself */
	ck_assert_uint_eq(c.first, goal + 26);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* Takes every second run of 8 of the group, as far as it is free; *last is the last one. */
static void comb(struct image *im, group_t n, struct ext4_take *last)
{
	fsblk_t first = ext4_group_first_block(im->fs, n);
	struct alloc_group *g = &im->fs->alloc->group[n];

	ck_ok(alloc_group_load(im->fs, n));
	for (uint32_t i = 0; i + 8 <= ext4_group_blocks(im->fs, n); i += 16) {
		uint32_t count;

		group_lock(&g->lock);
		count = bitmap_next(g->used, i, i + 8, true) - i;
		group_unlock(&g->lock);
		if (count)
			*last = take(im, first + i, count);
	}
}

/* In the goal's group when a run of all is there, else elsewhere, else the longest. */
START_TEST(runs_before_nearness)
{
	struct image im;
	struct ext4_take t, last = {0};
	group_t group = 0;
	fsblk_t first;

	open_image(&im, plain, "24M");
	while (im.fs->alloc->hint[group].available < im.fs->blocks_per_group)
		group++;
	first = ext4_group_first_block(im.fs, group);
	comb(&im, group, &last);
	t = take(&im, first, 8);
	ck_assert_uint_eq(t.count, 8);
	ck_assert_uint_eq(alloc_group_of(im.fs, t.first), group);
	t = take(&im, first, 9);
	ck_assert_uint_eq(t.count, 9);
	ck_assert_uint_ne(alloc_group_of(im.fs, t.first), group);
	ext4_alloc_untake(im.fs, &t);
	/* The same everywhere. */
	for (group_t n = 0; n < im.fs->groups; n++)
		comb(&im, n, &last);
	t = take(&im, first, 500);
	ck_assert_uint_ge(t.count, 7);
	ck_assert_uint_le(t.count, 16);
	/* One comes back somewhere, and with its neighbours it is long enough again. */
	ck_assert_uint_ne(alloc_group_of(im.fs, last.first), group);
	ck_assert_uint_eq(last.count, 8);
	ext4_alloc_untake(im.fs, &last);
	t = take(&im, first, 17);
	ck_assert_uint_eq(t.count, 17);
	ck_assert_uint_eq(alloc_group_of(im.fs, t.first), alloc_group_of(im.fs, last.first));
	write_close(&im);
	image_close(&im);
}
END_TEST

/* Small files fill up from the group's start; a large one gets a quarter of a group in one piece.
 */
START_TEST(packed_and_long)
{
	struct image im;
	struct ext4_take a, b;
	fsblk_t goal;

	open_image(&im, plain, "24M");
	goal = ext4_group_first_block(im.fs, 4);
	a = take(&im, goal, 3);
	for (int i = 0; i < 20; i++) {
		b = take(&im, goal, 3);
		ck_assert_uint_eq(b.first, a.first + a.count);
		a = b;
	}
	a = take(&im, goal, 1u << 20 >> 9);
	ck_assert_uint_eq(a.count, im.fs->blocks_per_group / 4);
	ck_assert_uint_eq(a.first, b.first + b.count);
	write_close(&im);
	image_close(&im);
}
END_TEST

START_TEST(untaken_is_as_before)
{
	struct image im;
	struct ext4_take t[64];
	uint64_t blocks, inodes, before;

	open_image(&im, plain, "24M");
	ext4_alloc_counts(im.fs, &before, &inodes);
	for (int i = 0; i < 64; i++)
		t[i] = take(&im, scratch_random(im.fs->blocks), 1 + (uint32_t)scratch_random(30));
	for (int i = 0; i < 64; i++)
		ext4_alloc_untake(im.fs, &t[i]);
	ext4_alloc_counts(im.fs, &blocks, &inodes);
	ck_assert_uint_eq(blocks, before);
	write_compare_views(&im);
	write_close_and_judge(&im);
}
END_TEST

/* A promise that nobody was given: there is nothing to take, and that is said. */
START_TEST(nothing_to_take)
{
	struct image im;
	struct ext4_take t;
	uint64_t blocks, inodes;

	open_image(&im, plain, "24M");
	ext4_alloc_counts(im.fs, &blocks, &inodes);
	while (blocks > 0)
		blocks -= take(&im, 0, (uint32_t)MIN(blocks, 100u)).count;
	ck_err(ext4_alloc_take(im.fs, 0, 1, &t), ERR_CORRUPT);
	write_close(&im);
	image_close(&im);
}
END_TEST

/*
 * 200 groups with a few single blocks free in each, and none of them loaded. A run is wanted that
 * no group has, which only their bitmaps tell: a take reads a few of them, not all, and what was
 * read once is known.
 */
START_TEST(few_reads_when_nearly_full)
{
	enum { TAKES = 100, MOST = 9 }; /* the goal's, LOADS_MAX, one more; blocks of descriptors */
	struct cache_stats before, after;
	uint64_t most = 0, all = 0;
	struct image im;

	image_make("image", "-t ext4 -b 1024 -g 256 -N 2000 -m 0 -J size=1", "50M");
	image_load(&im, "image");
	write_open(&im);
	for (group_t n = 0; n < im.fs->groups; n++) {
		struct ext4_take t = {0};

		while (im.fs->alloc->hint[n].available > 0)
			t = write_take(&im, ext4_group_first_block(im.fs, n),
				im.fs->alloc->hint[n].available);
		for (uint32_t i = 1; i < MIN(t.count, 20u); i += 2)
			ck_ok(write_free(&im, t.first + i, 1, false));
	}
	write_close(&im);
	write_open(&im);
	ck_assert_uint_ge(im.fs->groups, 190);
	for (int i = 0; i < TAKES; i++) {
		cache_stats(im.fs->cache, &before);
		ck_assert_uint_eq(take(&im, 0, 4).count, 1);
		cache_stats(im.fs->cache, &after);
		most = MAX(most, after.misses - before.misses);
		all += after.misses - before.misses;
	}
	ck_assert_uint_le(most, MOST);
	ck_assert_uint_le(all, im.fs->groups + im.fs->desc_blocks);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* --- goals of inodes ------------------------------------------------------------------------- */

/* A file with holes made by debugfs: behind, before and within what it has. */
START_TEST(goals_of_a_file)
{
	struct image im;
	struct ext4_inode *inode;
	struct ext4_run run;

	image_make("image", plain, "24M");
	pattern_write("f", 1, 40960, 81920);
	pattern_write("f", 1, 409600, 450560);
	image_debugfs("image", "write f f\n");
	image_load(&im, "image");
	write_open(&im);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM, &inode));
	inode_lock_shared(&inode->lock);
	ck_ok(ext4_map(inode, 10, 1, &run));
	ck_assert_uint_ne(run.physical, 0);
	ck_assert_uint_eq(ext4_alloc_goal(inode, 20), run.physical + 10);
	ck_assert_uint_eq(ext4_alloc_goal(inode, 12), run.physical + 2);
	if (run.physical > 10)
		ck_assert_uint_eq(ext4_alloc_goal(inode, 9), run.physical - 1);
	ck_ok(ext4_map(inode, 100, 1, &run));
	ck_assert_uint_ne(run.physical, 0);
	ck_assert_uint_eq(ext4_alloc_goal(inode, 110), run.physical + 10);
	ck_assert_uint_eq(ext4_alloc_goal(inode, 99), run.physical - 1);
	inode_unlock_shared(&inode->lock);
	ext4_inode_put(inode);
	write_close_and_judge(&im);
}
END_TEST

/* Without blocks: the flex group's second group, its first for directories. */
START_TEST(goals_of_an_empty_file)
{
	struct image im;
	struct ext4_inode *root, *inode;

	image_make("image", plain, "24M");
	pattern_write("e", 1, 0, 0);
	image_debugfs("image", "write e e\n");
	image_load(&im, "image");
	write_open(&im);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM, &inode));
	inode_lock_shared(&inode->lock);
	ck_assert_uint_eq(ext4_alloc_goal(inode, 0), ext4_group_first_block(im.fs, 1));
	ck_assert_uint_eq(ext4_alloc_goal(inode, 1000), ext4_group_first_block(im.fs, 1));
	inode_unlock_shared(&inode->lock);
	ext4_inode_put(inode);
	ck_ok(ext4_inode_get(im.fs, EXT4_ROOT_INUM, &root));
	inode_lock_shared(&root->lock);
	ck_assert_uint_lt(ext4_alloc_goal(root, 1), ext4_group_first_block(im.fs, 1));
	inode_unlock_shared(&root->lock);
	ext4_inode_put(root);
	write_close(&im);
	image_close(&im);
}
END_TEST

START_TEST(bigalloc_is_refused)
{
	struct image im;

	image_make("image", "-t ext4 -b 4096 -J size=4 -O bigalloc", "64M");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	write_mark(&im, true);
	ck_ok(write_open_journal(&im));
	ck_err(ext4_alloc_open(im.fs), ERR_EXT4_FEATURE);
	ck_ok(journal_close(im.fs->journal));
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("alloc");
	TCase *tc = tcase_create("alloc");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, at_the_goal);
	tcase_add_test(tc, runs_before_nearness);
	tcase_add_test(tc, packed_and_long);
	tcase_add_test(tc, untaken_is_as_before);
	tcase_add_test(tc, nothing_to_take);
	tcase_add_test(tc, few_reads_when_nearly_full);
	tcase_add_test(tc, goals_of_a_file);
	tcase_add_test(tc, goals_of_an_empty_file);
	tcase_add_test(tc, bigalloc_is_refused);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
