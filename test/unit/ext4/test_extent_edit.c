/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The shapes that trees grow into, what an edit costs at most, and where a tree cannot grow. */
#include "image.h"
#include "map_rig.h"

enum { WINDOW = 4000, FIT = 84 };
static const char layout[] = "-t ext4 -b 1024 -J size=4";

static void start(struct image *im, struct map_file *f)
{
	map_make(im, layout, "32M", 1);
	write_open(im);
	map_open(f, im, 0, WINDOW);
}

static void finish(struct image *im, struct map_file *f)
{
	map_check(f);
	map_close(f);
	write_close(im);
	write_dump(im, "written");
	write_judge("written");
	map_check_debugfs(f, 0);
	image_close(im);
	free(f->block);
}

/* Blocks of the tree, from what i_blocks counts beside the data. */
static uint64_t tree_blocks(const struct map_file *f)
{
	uint64_t data = 0;

	for (uint32_t at = 0; at < map_blocks(f); at++)
		data += f->block[at].physical != 0;
	return f->inode->attr.blocks_512 / 2 - data;
}

/* A file that is written in order, with gaps, has full leaves. */
START_TEST(in_order_leaves_are_full)
{
	struct image im;
	struct map_file f;
	const uint32_t extents = 10 * FIT;

	start(&im, &f);
	for (uint32_t i = 0; i < extents; i++)
		ck_ok(map_do_insert(&f, 2 * i, 1, false));
	ck_assert_uint_eq(map_depth(&f), 2);
	/* Ten leaves and one node above them. */
	ck_assert_uint_eq(tree_blocks(&f), 11);
	finish(&im, &f);
}
END_TEST

/* Backwards, and from the middle outwards: keys change at every level, leaves are half full. */
START_TEST(backwards_leaves_are_half_full)
{
	struct image im;
	struct map_file f;
	const uint32_t extents = 10 * FIT;

	start(&im, &f);
	for (uint32_t i = extents; i-- > 0;)
		ck_ok(map_do_insert(&f, 2 * i, 1, false));
	ck_assert_uint_le(tree_blocks(&f), 2 * 11);
	finish(&im, &f);
}
END_TEST

/* The last hole between two extents joins all three, also across what was two entries. */
START_TEST(a_filled_hole_joins)
{
	struct image im;
	struct map_file f;

	start(&im, &f);
	ck_ok(map_do_insert(&f, 0, 30, false));
	for (uint32_t at = 0; at < 30; at++)
		ck_assert_uint_eq(f.block[at].physical, f.block[0].physical + at);
	ck_ok(map_do_convert(&f, 10, 10, true));
	ck_assert_uint_eq(
		le16_get(((const struct ext4_extent_header *)(const void *)ext4_inode_disk(f.inode)
				  ->i_block)
				 ->eh_entries),
		3);
	map_check(&f);
	ck_ok(map_do_convert(&f, 10, 10, false));
	ck_assert_uint_eq(
		le16_get(((const struct ext4_extent_header *)(const void *)ext4_inode_disk(f.inode)
				  ->i_block)
				 ->eh_entries),
		1);
	ck_ok(map_do_convert(&f, 0, 30, true));
	finish(&im, &f);
}
END_TEST

/* Each kind of change at each depth in a handle of just the credits, and just the promises. */
START_TEST(no_more_than_counted)
{
	struct image im;
	struct map_file f;
	unsigned deepest = 0;

	start(&im, &f);
	for (uint32_t at = 0; at < map_blocks(&f); at += 2) {
		/* A stride that is prime to the number of places scatters the inserts. */
		uint32_t place = (uint32_t)(at * 1009ull % map_blocks(&f)) & ~1u;
		unsigned depth = map_depth(&f);
		uint32_t reserved = extent_edit_blocks(depth), credits;
		struct ext4_take take;
		struct journal_handle h;
		struct ext4_run run;

		if (f.block[place].physical)
			continue;
		/* In a new transaction every block costs its credit. */
		write_commit(&im);
		ck_ok(ext4_reserve(im.fs, reserved + 1, true));
		ck_ok(ext4_alloc_take(im.fs, ext4_alloc_goal(f.inode, 0), 1, &take));
		h = write_start(&im, 2 + extent_edit_credits(depth));
		credits = h.credits;
		ck_ok(ext4_alloc_commit(&h, im.fs, &take));
		run = (struct ext4_run){
			.logical = map_logical(&f, place), .count = 1, .physical = take.first};
		extent_lock(&f.inode->map_lock);
		ck_ok(ext4_map_insert(&h, f.inode, &run, &reserved));
		extent_unlock(&f.inode->map_lock);
		/* It never had to ask for more. */
		ck_assert_uint_le(h.credits, credits);
		ck_ok(journal_stop(&h));
		ext4_unreserve(im.fs, reserved);
		f.block[place] = (struct map_block){take.first, false};
		deepest = MAX(deepest, map_depth(&f));
	}
	ck_assert_uint_ge(deepest, 2);
	finish(&im, &f);
}
END_TEST

/* --- refusals -------------------------------------------------------------------------------- */

static enum err insert_at(struct map_file *f, struct ext4_run run, uint32_t *reserved)
{
	struct journal_handle h = write_start(f->im, ext4_map_credits(f->inode));
	enum err e;

	extent_lock(&f->inode->map_lock);
	e = ext4_map_insert(&h, f->inode, &run, reserved);
	extent_unlock(&f->inode->map_lock);
	ck_ok(journal_stop(&h));
	return e;
}

static enum err convert_at(struct map_file *f, struct ext4_run want)
{
	struct journal_handle h = write_start(f->im, ext4_map_credits(f->inode));
	uint32_t reserved = 0, done;
	enum err e;

	extent_lock(&f->inode->map_lock);
	e = ext4_map_convert(&h, f->inode, &want, &reserved, &done);
	extent_unlock(&f->inode->map_lock);
	ck_ok(journal_stop(&h));
	return e;
}

START_TEST(what_is_there_already)
{
	struct image im;
	struct map_file f;
	uint32_t none = 0;

	start(&im, &f);
	ck_ok(map_do_insert(&f, 10, 5, false));
	ck_err(insert_at(&f, (struct ext4_run){12, 1, 6000, false}, &none), ERR_CORRUPT);
	ck_err(insert_at(&f, (struct ext4_run){8, 3, 6000, false}, &none), ERR_CORRUPT);
	ck_err(insert_at(&f, (struct ext4_run){14, 9, 6000, false}, &none), ERR_CORRUPT);
	ck_err(insert_at(&f, (struct ext4_run){EXT4_LBLK_END - 1, 2, 6000, false}, &none),
		ERR_CORRUPT);
	ck_err(convert_at(&f, (struct ext4_run){15, 1, 0, true}), ERR_CORRUPT);
	ck_err(convert_at(&f, (struct ext4_run){9, 3, 0, true}), ERR_CORRUPT);
	ck_assert(!journal_failed(im.fs->journal));
	finish(&im, &f);
}
END_TEST

START_TEST(no_promise_no_growth)
{
	struct image im;
	struct map_file f;
	uint32_t none = 0;

	start(&im, &f);
	for (uint32_t at = 0; at < 8; at += 2)
		ck_ok(map_do_insert(&f, at, 1, false));
	ck_err(insert_at(&f, (struct ext4_run){100, 1, 6000, false}, &none), ERR_BUSY);
	ck_assert_uint_eq(map_depth(&f), 0);
	map_check(&f);
	ck_ok(map_do_insert(&f, 100, 1, false));
	ck_assert_uint_eq(map_depth(&f), 1);
	finish(&im, &f);
}
END_TEST

/* As if other extents had used up nearly all that 32 bits of sectors count. */
START_TEST(more_blocks_than_can_be_counted)
{
	struct image im;
	struct map_file f;
	uint32_t none = 0;

	map_make(&im, "-t ext4 -b 1024 -J size=4 -O ^huge_file", "32M", 1);
	write_open(&im);
	map_open(&f, &im, 0, WINDOW);
	f.inode->attr.blocks_512 = UINT32_MAX - 2;
	ck_err(insert_at(&f, (struct ext4_run){0, 2, 6000, false}, &none), ERR_FBIG);
	ck_detail("huge_file");
	ck_assert(!journal_failed(im.fs->journal));
	f.inode->attr.blocks_512 = 0;
	finish(&im, &f);
}
END_TEST

static void set_node(struct ext4_extent_header *h, unsigned entries, unsigned depth, fsblk_t child)
{
	struct ext4_extent_index *x = (void *)(h + 1);

	*h = (struct ext4_extent_header){.eh_magic = le16_make(EXT4_EXTENT_MAGIC),
		.eh_entries = le16_make((uint16_t)entries),
		.eh_max = le16_make((uint16_t)(depth == 5 ? 4 : FIT)),
		.eh_depth = le16_make((uint16_t)depth)};
	for (unsigned i = 0; i < entries; i++) {
		x[i] = (struct ext4_extent_index){.ei_block = le32_make(1000000 * depth + 2 * i),
			.ei_leaf_lo = le32_make((uint32_t)child)};
		if (depth == 0)
			((struct ext4_extent *)(void *)(h + 1))[i] =
				(struct ext4_extent){.ee_block = le32_make(6000000 + 2 * i),
					.ee_len = le16_make(1),
					.ee_start_lo = le32_make((uint32_t)(child + i))};
	}
}

/* A tree of five levels that is full along the path, as no real file has it. */
START_TEST(the_deepest_tree_is_full)
{
	struct image im;
	struct map_file f;
	uint32_t reserved = 6;
	struct ext4_extent_header *h;

	map_make(&im, "-t ext4 -b 1024 -J size=4 -O ^metadata_csum", "32M", 1);
	set_node((void *)image_inode(&im, IMAGE_FIRST_INUM)->i_block, 4, 5, 20000);
	for (unsigned depth = 5; depth-- > 0;)
		set_node((void *)image_block(&im, 20000 + 4 - depth), FIT, depth,
			depth ? 20000 + 5 - depth : 20100);
	/* Keys rise along the path: each node starts where its parent's last entry does. */
	for (unsigned depth = 5; depth-- > 0;) {
		struct ext4_extent_index *x;
		h = (void *)image_block(&im, 20000 + 4 - depth);
		x = (void *)(h + 1);
		for (unsigned i = 0; i < FIT; i++)
			x[i].ei_block = le32_make((5 - depth) * 1000 + 2 * i);
	}
	h = (void *)image_inode(&im, IMAGE_FIRST_INUM)->i_block;
	for (unsigned i = 0; i < 4; i++)
		((struct ext4_extent_index *)(void *)(h + 1))[i].ei_block = le32_make(2 * i);

	write_open(&im);
	map_open(&f, &im, 0, WINDOW);
	ck_ok(ext4_reserve(im.fs, reserved, true));
	ck_err(insert_at(&f, (struct ext4_run){100000, 1, 6000, false}, &reserved), ERR_FBIG);
	ck_assert_uint_eq(reserved, 6);
	ck_assert(!journal_failed(im.fs->journal));
	ext4_unreserve(im.fs, reserved);
	ext4_inode_put(f.inode);
	write_close(&im);
	image_close(&im);
	free(f.block);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/extent_edit");
	TCase *tcase = tcase_create("extent_edit");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, in_order_leaves_are_full);
	tcase_add_test(tcase, backwards_leaves_are_half_full);
	tcase_add_test(tcase, a_filled_hole_joins);
	tcase_add_test(tcase, no_more_than_counted);
	tcase_add_test(tcase, what_is_there_already);
	tcase_add_test(tcase, no_promise_no_growth);
	tcase_add_test(tcase, more_blocks_than_can_be_counted);
	tcase_add_test(tcase, the_deepest_tree_is_full);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
