/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cache's door: hits, misses, eviction, pins, errors, and how the overlay shows. */
#include "rig.h"

enum { BLOCK = 1024 };

static void expect_block(struct rig *r, fsblk_t nr, fsblk_t content)
{
	struct cache_block *b;

	ck_assert_int_eq(cache_get(r->cache, nr, &b), OK);
	ck_assert_uint_eq(b->nr, nr);
	ck_assert(rig_holds(b->data, content, r->block_bytes));
	cache_put(r->cache, b);
}

START_TEST(a_second_get_is_a_hit)
{
	struct rig r;
	struct cache_block *a, *b;
	struct cache_stats stats;

	rig_start(&r, BLOCK, 64, 64 * BLOCK, NULL);
	ck_assert_uint_eq(cache_block_bytes(r.cache), BLOCK);
	ck_assert_int_eq(cache_get(r.cache, 5, &a), OK);
	ck_assert_uint_eq(a->verified, 0);
	a->verified = 7;
	ck_assert_int_eq(cache_get(r.cache, 5, &b), OK);
	ck_assert_ptr_eq(a, b);
	ck_assert_uint_eq(b->verified, 7);
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.hits, 1);
	ck_assert_uint_eq(stats.misses, 1);
	ck_assert_uint_eq(stats.pinned_blocks, 1);
	ck_assert_uint_eq(stats.resident_bytes, BLOCK);
	cache_put(r.cache, a);
	cache_put(r.cache, b);
	cache_put(r.cache, NULL);
	ck_assert_uint_eq(rig_reads(&r), 1);
	rig_stop(&r);
}
END_TEST

START_TEST(a_cached_get_reads_nothing)
{
	struct rig r;
	struct cache_block *a, *b = NULL;
	struct cache_stats stats;

	rig_start(&r, BLOCK, 64, 64 * BLOCK, NULL);
	ck_assert(!cache_get_cached(r.cache, 5, &b));
	ck_assert(!cache_get_cached(r.cache, 64, &b));
	ck_assert_ptr_null(b);
	ck_assert_uint_eq(rig_reads(&r), 0);
	ck_assert_int_eq(cache_get(r.cache, 5, &a), OK);
	ck_assert(cache_get_cached(r.cache, 5, &b));
	ck_assert_ptr_eq(a, b);
	cache_put(r.cache, a);
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.pinned_blocks, 1);
	cache_put(r.cache, b);
	/* Idle again: it is found there too. */
	ck_assert(cache_get_cached(r.cache, 5, &b));
	cache_put(r.cache, b);
	ck_assert_uint_eq(rig_reads(&r), 1);
	rig_stop(&r);
}
END_TEST

START_TEST(every_block_size_reads_right)
{
	for (uint32_t bytes = 1024; bytes <= 65536; bytes *= 2) {
		struct rig r;

		rig_start(&r, bytes, 20, 10 * (uint64_t)bytes, NULL);
		for (fsblk_t nr = 0; nr < 20; nr++)
			expect_block(&r, nr, nr);
		rig_stop(&r);
	}
}
END_TEST

START_TEST(a_block_past_the_end_is_corrupt)
{
	struct rig r;
	struct cache_block *b = NULL;

	rig_start(&r, BLOCK, 64, 64 * BLOCK, NULL);
	ck_assert_int_eq(cache_get(r.cache, 64, &b), ERR_CORRUPT);
	ck_assert_int_eq(cache_get(r.cache, UINT64_MAX, &b), ERR_CORRUPT);
	ck_assert_ptr_null(b);
	ck_assert_ptr_nonnull(strstr(err_detail(), "18446744073709551615"));
	rig_stop(&r);
}
END_TEST

START_TEST(a_size_no_device_has_is_refused)
{
	struct cache *c = NULL;
	struct cache_config config = {
		.block_bytes = 4096, .blocks = UINT64_MAX / 2, .capacity_bytes = 4096};

	ck_assert_int_eq(cache_create(&config, &c), ERR_CORRUPT);
	ck_assert_ptr_null(c);
	cache_destroy(NULL);
}
END_TEST

START_TEST(idle_blocks_stay_inside_the_capacity)
{
	static const uint64_t capacities[] = {0, 1, 3, 16, 100, 500};

	for (size_t i = 0; i < ARRAY_SIZE(capacities); i++) {
		struct rig r;
		struct cache_stats stats;
		uint64_t most = MAX(capacities[i], UINT64_C(1)) * BLOCK;

		rig_start(&r, BLOCK, 1000, capacities[i] * BLOCK, NULL);
		for (fsblk_t nr = 0; nr < 1000; nr++)
			expect_block(&r, nr, nr);
		for (fsblk_t nr = 1000; nr-- > 0;)
			expect_block(&r, nr, nr);
		cache_stats(r.cache, &stats);
		ck_assert_uint_le(stats.resident_bytes, most);
		ck_assert_uint_ge(stats.resident_bytes, most / 2);
		ck_assert_uint_eq(stats.pinned_blocks, 0);
		ck_assert_uint_eq(stats.hits + stats.misses, 2000);
		ck_assert_uint_eq(stats.misses - stats.evictions, stats.resident_bytes / BLOCK);
		rig_stop(&r);
	}
}
END_TEST

START_TEST(the_block_used_longest_ago_goes_first)
{
	struct rig r;
	uint64_t reads;

	rig_start(&r, BLOCK, 64, 3 * BLOCK, NULL); /* so small that there is one shard */
	expect_block(&r, 1, 1);
	expect_block(&r, 2, 2);
	expect_block(&r, 3, 3);
	expect_block(&r, 1, 1);
	expect_block(&r, 4, 4); /* 2 goes */
	reads = rig_reads(&r);
	expect_block(&r, 1, 1);
	expect_block(&r, 3, 3);
	ck_assert_uint_eq(rig_reads(&r), reads);
	expect_block(&r, 2, 2);
	ck_assert_uint_eq(rig_reads(&r), reads + 1);
	rig_stop(&r);
}
END_TEST

START_TEST(a_recycled_block_is_not_verified)
{
	struct rig r;
	struct cache_block *b;

	rig_start(&r, BLOCK, 64, BLOCK, NULL);
	ck_assert_int_eq(cache_get(r.cache, 1, &b), OK);
	b->verified = 9;
	cache_put(r.cache, b);
	ck_assert_int_eq(cache_get(r.cache, 2, &b), OK);
	ck_assert_uint_eq(b->verified, 0);
	cache_put(r.cache, b);
	rig_stop(&r);
}
END_TEST

START_TEST(pins_may_exceed_the_capacity)
{
	struct rig r;
	struct cache_block *pinned[200];
	struct cache_stats stats;

	rig_start(&r, BLOCK, 1000, 50 * BLOCK, NULL);
	for (fsblk_t nr = 0; nr < 200; nr++)
		ck_assert_int_eq(cache_get(r.cache, nr, &pinned[nr]), OK);
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.pinned_blocks, 200);
	ck_assert_uint_eq(stats.resident_bytes, 200 * BLOCK);
	for (fsblk_t nr = 200; nr < 1000; nr++)
		expect_block(&r, nr, nr);
	for (fsblk_t nr = 0; nr < 200; nr++) {
		ck_assert(rig_holds(pinned[nr]->data, nr, BLOCK));
		cache_put(r.cache, pinned[nr]);
	}
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.pinned_blocks, 0);
	ck_assert_uint_le(stats.resident_bytes, 50 * BLOCK);
	rig_stop(&r);
}
END_TEST

START_TEST(a_failed_read_is_not_kept)
{
	struct rig r;
	struct cache_block *b = NULL;
	struct cache_stats stats;

	rig_start(&r, BLOCK, 64, 64 * BLOCK, NULL);
	dev_fault_arm(r.m.fault, DEV_FAULT_READ, 1, false, ERR_IO);
	ck_assert_int_eq(cache_get(r.cache, 9, &b), ERR_IO);
	ck_assert_ptr_null(b);
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.resident_bytes, 0);
	ck_assert_uint_eq(stats.pinned_blocks, 0);
	expect_block(&r, 9, 9);
	rig_stop(&r);
}
END_TEST

START_TEST(a_device_shorter_than_the_file_system_is_an_error)
{
	struct memory_volume m;
	struct cache *c;
	struct cache_block *b = NULL;

	ck_assert_int_eq(memory_volume_open(8 * BLOCK, &m), OK);
	ck_assert_int_eq(cache_create(&(struct cache_config){.volume = m.volume,
					      .block_bytes = BLOCK,
					      .blocks = 100,
					      .capacity_bytes = BLOCK},
				 &c),
		OK);
	ck_assert_int_eq(cache_get(c, 50, &b), ERR_DEV_BOUNDS);
	ck_assert_ptr_null(b);
	cache_destroy(c);
	memory_volume_close(&m);
}
END_TEST

START_TEST(the_overlay_is_in_front_of_the_home)
{
	static const struct overlay_entry entries[] = {
		{.block = 10, .log = 40}, {.block = 12, .log = 41}};
	struct rig r;
	struct overlay *o;

	ck_assert_int_eq(overlay_create(entries, ARRAY_SIZE(entries), &o), OK);
	rig_start(&r, BLOCK, 64, 64 * BLOCK, o);
	expect_block(&r, 9, 9);
	expect_block(&r, 10, 40);
	expect_block(&r, 11, 11);
	expect_block(&r, 12, 41);
	rig_stop(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache");
	TCase *t = tcase_create("cache");

	tcase_add_test(t, a_second_get_is_a_hit);
	tcase_add_test(t, a_cached_get_reads_nothing);
	tcase_add_test(t, every_block_size_reads_right);
	tcase_add_test(t, a_block_past_the_end_is_corrupt);
	tcase_add_test(t, a_size_no_device_has_is_refused);
	tcase_add_test(t, idle_blocks_stay_inside_the_capacity);
	tcase_add_test(t, the_block_used_longest_ago_goes_first);
	tcase_add_test(t, a_recycled_block_is_not_verified);
	tcase_add_test(t, pins_may_exceed_the_capacity);
	tcase_add_test(t, a_failed_read_is_not_kept);
	tcase_add_test(t, a_device_shorter_than_the_file_system_is_an_error);
	tcase_add_test(t, the_overlay_is_in_front_of_the_home);
	suite_add_tcase(s, t);

	SRunner *sr = srunner_create(s);

	srunner_run_all(sr, CK_ENV);
	int failed = srunner_ntests_failed(sr);

	srunner_free(sr);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
