/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Bits and runs of bits beside a slow truth; groups that are damaged are left alone. */
#include "write_rig.h"

enum { BITS = 8192, BYTES = BITS / 8 };

static bool slow_get(const uint8_t *bytes, uint32_t n)
{
	return bytes[n / 8] >> n % 8 & 1;
}

/* Bits in runs of about `mean`. */
static void fill_runs(uint8_t *bytes, uint32_t mean)
{
	bool value = scratch_random(2);

	for (uint32_t at = 0; at < BITS;) {
		uint32_t run = 1 + (uint32_t)scratch_random(2ull * mean);
		for (uint32_t i = at; i < MIN(at + run, (uint32_t)BITS); i++)
			bytes[i / 8] = (uint8_t)((bytes[i / 8] & ~(1u << i % 8)) |
						 (unsigned)value << i % 8);
		at += run;
		value = !value;
	}
}

START_TEST(next_and_previous)
{
	uint8_t bytes[BYTES];

	for (int round = 0; round < 2000; round++) {
		uint32_t from = (uint32_t)scratch_random(BITS);
		uint32_t end = from + (uint32_t)scratch_random(BITS - from + 1), n;
		bool value = scratch_random(2);

		if (round % 50 == 0)
			fill_runs(bytes, 1u << scratch_random(10));
		for (n = from; n < end && slow_get(bytes, n) != value; n++)
			;
		ck_assert_uint_eq(bitmap_next(bytes, from, end, value), n);
		for (n = end; n > 0 && slow_get(bytes, n - 1) != value; n--)
			;
		ck_assert_uint_eq(bitmap_previous_end(bytes, end, value), n);
	}
}
END_TEST

START_TEST(fill_is_and_count)
{
	uint8_t bytes[BYTES], truth[BITS];

	memset(bytes, 0, sizeof(bytes));
	memset(truth, 0, sizeof(truth));
	for (int round = 0; round < 2000; round++) {
		uint32_t first = (uint32_t)scratch_random(BITS);
		uint32_t count = (uint32_t)scratch_random(MIN(BITS - first, 200u) + 1);
		uint32_t bits = (uint32_t)scratch_random(BITS + 1), clear = 0;
		bool value = scratch_random(2), all = true;

		for (uint32_t i = 0; i < count; i++)
			all &= truth[first + i] == value;
		ck_assert_int_eq(bitmap_is(bytes, first, count, value), all);
		bitmap_fill(bytes, first, count, value);
		memset(truth + first, value, count);
		all = true;
		for (uint32_t i = 0; i < BITS; i++) {
			all &= slow_get(bytes, i) == truth[i];
			clear += i < bits && !truth[i];
		}
		ck_assert(all);
		ck_assert_uint_eq(bitmap_count_clear(bytes, bits), clear);
	}
}
END_TEST

/* The first run of `want` from `from` on, then from the start, else the longest. */
START_TEST(find)
{
	uint8_t bytes[BYTES];

	for (int round = 0; round < 3000; round++) {
		uint32_t from = (uint32_t)scratch_random(BITS), longest = 0, first = BITS, run = 0;
		uint32_t end = BITS - (uint32_t)scratch_random(70);
		uint32_t want = 1 + (uint32_t)scratch_random(1u << scratch_random(12));
		struct bitmap_run got;
		bool complete;

		if (round % 20 == 0)
			fill_runs(bytes, 1u << scratch_random(10));
		for (uint32_t i = 0; i < end; i++) {
			run = slow_get(bytes, i) ? 0 : run + 1;
			longest = MAX(longest, run);
		}
		got = bitmap_find(bytes, from, end, want, &complete);
		ck_assert_uint_eq(got.count, MIN(want, longest));
		ck_assert_int_eq(complete, longest < want);
		if (got.count == 0)
			continue;
		ck_assert_uint_le(got.first + got.count, end);
		ck_assert(bitmap_is(bytes, got.first, got.count, false));
		if (longest < want)
			continue;
		run = 0;
		for (uint32_t i = from; i < end && first == BITS; i++) {
			run = slow_get(bytes, i) ? 0 : run + 1;
			if (run == want)
				first = i + 1 - want;
		}
		if (first != BITS)
			ck_assert_uint_eq(got.first, first);
	}
}
END_TEST

/* What a group without a bitmap would hold is what mke2fs writes when it has to. */
START_TEST(bitmap_of_an_uninitialised_group)
{
	struct image im;
	uint8_t *bytes;
	unsigned compared = 0;

	image_make("image", write_layouts[_i], "24M");
	image_load(&im, "image");
	write_open(&im);
	bytes = malloc(im.fs->block_bytes);
	ensure(bytes != NULL);
	for (group_t n = 0; n < im.fs->groups; n++) {
		const struct ext4_group *g = &im.fs->group[n];
		uint32_t blocks = ext4_group_blocks(im.fs, n);

		alloc_group_init_bitmap(im.fs, n, bytes);
		if (g->flags & EXT4_BG_BLOCK_UNINIT) {
			ck_assert_uint_eq(bitmap_count_clear(bytes, blocks), g->free_blocks);
			compared++;
		}
		ck_assert(bitmap_is(bytes, blocks, 8 * im.fs->block_bytes - blocks, true));
	}
	if (group_has_flags(im.fs))
		ck_assert_uint_gt(compared, 0);
	free(bytes);
	write_close_and_judge(&im);
}
END_TEST

/* Any byte of a bitmap or of a descriptor changed: nothing is taken from that group. */
START_TEST(damaged_groups_are_left_alone)
{
	struct image im;
	struct ext4_take take;
	uint32_t offset, available;
	fsblk_t goal;

	image_make("image", write_layouts[0], "24M");
	image_load(&im, "image");
	write_open(&im);
	goal = ext4_group_first_block(im.fs, 0);
	available = im.fs->alloc->hint[0].available;
	ck_assert_uint_gt(available, 0);
	if (_i == 0)
		image_block(&im, im.fs->group[0].block_bitmap)[100] ^= 1;
	else
		image_block(&im, ext4_group_desc_block(im.fs, 0, &offset))[offset + 4] ^= 1;
	ck_ok(ext4_reserve(im.fs, 1, false));
	ck_ok(ext4_alloc_take(im.fs, goal, 1, &take));
	ck_assert_uint_ne(alloc_group_of(im.fs, take.first), 0);
	ext4_alloc_untake(im.fs, &take);
	ck_assert_uint_eq(im.fs->alloc->hint[0].available, 0);
	ck_err(alloc_group_load(im.fs, 0), ERR_CORRUPT);
	/* What was promised of it is not promised again. */
	ck_assert_int_eq(credit_counter_sum(&im.fs->alloc->credit) + im.fs->alloc->kept,
		(int64_t)(im.fs->free_clusters - available));
	write_close(&im);
	image_close(&im);
}
END_TEST

/* The bitmap says that the inode table is free, and everything else fits that. */
START_TEST(a_bitmap_that_frees_our_own_blocks)
{
	struct image im;
	struct ext4_disk_group *d;
	uint8_t *bitmap;
	uint32_t bit, offset;

	image_make("image", write_layouts[0], "24M");
	image_load(&im, "image");
	write_open(&im);
	bitmap = image_block(&im, im.fs->group[0].block_bitmap);
	d = (void *)(image_block(&im, ext4_group_desc_block(im.fs, 0, &offset)) + offset);
	bit = (uint32_t)im.fs->group[0].inode_table;
	bitmap_fill(bitmap, bit, 1, false);
	d->bg_free_blocks_count_lo =
		le16_make((uint16_t)(le16_get(d->bg_free_blocks_count_lo) + 1));
	d->bg_block_bitmap_csum_lo =
		le16_make((uint16_t)ext4_csum_bitmap(im.fs, bitmap, im.fs->clusters_per_group));
	d->bg_block_bitmap_csum_hi = le16_make(
		(uint16_t)(ext4_csum_bitmap(im.fs, bitmap, im.fs->clusters_per_group) >> 16));
	ext4_csum_group_set(im.fs, 0, d);
	ck_err(alloc_group_load(im.fs, 0), ERR_CORRUPT);
	ck_detail("own blocks");
	write_close(&im);
	image_close(&im);
}
END_TEST

START_TEST(a_bitmap_that_cannot_be_read)
{
	struct image im;
	struct ext4_take take;

	image_make("image", write_layouts[0], "24M");
	image_load(&im, "image");
	write_open(&im);
	ck_ok(ext4_reserve(im.fs, 1, false));
	dev_fault_arm(im.device.fault, DEV_FAULT_READ, 1, false, ERR_IO);
	ck_ok(ext4_alloc_take(im.fs, 0, 1, &take));
	ck_assert_uint_ne(alloc_group_of(im.fs, take.first), 0);
	ext4_alloc_untake(im.fs, &take);
	write_close(&im);
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bitmap");
	TCase *tc = tcase_create("bitmap");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, next_and_previous);
	tcase_add_test(tc, fill_is_and_count);
	tcase_add_test(tc, find);
	tcase_add_loop_test(
		tc, bitmap_of_an_uninitialised_group, 0, (int)ARRAY_SIZE(write_layouts));
	tcase_add_loop_test(tc, damaged_groups_are_left_alone, 0, 2);
	tcase_add_test(tc, a_bitmap_that_frees_our_own_blocks);
	tcase_add_test(tc, a_bitmap_that_cannot_be_read);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
