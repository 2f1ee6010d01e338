/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reading many blocks at once: the number of requests, and how ranges split at the overlay. */
#include "rig.h"

enum { BLOCK = 1024, BLOCKS = 512 };

static struct overlay *make_overlay(const struct overlay_entry *entries, size_t count)
{
	struct overlay *o;

	ck_assert_int_eq(overlay_create(entries, count, &o), OK);
	return o;
}

static void expect_hit(struct rig *r, fsblk_t nr, fsblk_t content)
{
	struct cache_block *b;
	uint64_t reads = rig_reads(r);

	ck_assert_int_eq(cache_get(r->cache, nr, &b), OK);
	ck_assert_uint_eq(rig_reads(r), reads);
	ck_assert(rig_holds(b->data, content, BLOCK));
	cache_put(r->cache, b);
}

START_TEST(prefetch_reads_a_range_in_one_request)
{
	struct rig r;
	struct cache_stats stats;

	rig_start(&r, BLOCK, BLOCKS, 4 * BLOCKS * BLOCK, NULL);
	cache_prefetch(r.cache, 100, 50);
	ck_assert_uint_eq(rig_reads(&r), 1);
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.pinned_blocks, 0);
	ck_assert_uint_eq(stats.resident_bytes, 50 * BLOCK);
	for (fsblk_t nr = 100; nr < 150; nr++)
		expect_hit(&r, nr, nr);
	rig_stop(&r);
}
END_TEST

START_TEST(prefetch_leaves_out_what_is_there)
{
	struct rig r;
	struct cache_block *b;

	rig_start(&r, BLOCK, BLOCKS, 4 * BLOCKS * BLOCK, NULL);
	ck_assert_int_eq(cache_get(r.cache, 20, &b), OK);
	cache_prefetch(r.cache, 10, 20);
	ck_assert_uint_eq(rig_reads(&r), 3);
	cache_prefetch(r.cache, 10, 20);
	ck_assert_uint_eq(rig_reads(&r), 3);
	cache_put(r.cache, b);
	rig_stop(&r);
}
END_TEST

START_TEST(prefetch_stops_at_the_end)
{
	struct rig r;
	struct cache_stats stats;

	rig_start(&r, BLOCK, BLOCKS, 4 * BLOCKS * BLOCK, NULL);
	cache_prefetch(r.cache, BLOCKS - 3, UINT32_MAX);
	cache_prefetch(r.cache, BLOCKS, 1);
	cache_prefetch(r.cache, UINT64_MAX, UINT32_MAX);
	cache_prefetch(r.cache, 0, 0);
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.resident_bytes, 3 * BLOCK);
	rig_stop(&r);
}
END_TEST

START_TEST(prefetch_larger_than_the_cache_stays_inside_it)
{
	struct rig r;
	struct cache_stats stats;

	rig_start(&r, BLOCK, BLOCKS, 40 * BLOCK, NULL);
	cache_prefetch(r.cache, 0, BLOCKS);
	cache_stats(r.cache, &stats);
	ck_assert_uint_le(stats.resident_bytes, 40 * BLOCK);
	ck_assert_uint_eq(stats.pinned_blocks, 0);
	rig_stop(&r);
}
END_TEST

START_TEST(prefetch_takes_the_overlay_s_copy)
{
	static const struct overlay_entry entries[] = {
		{.block = 105, .log = 400}, {.block = 106, .log = 301}, {.block = 109, .log = 402}};
	struct rig r;

	rig_start(
		&r, BLOCK, BLOCKS, 4 * BLOCKS * BLOCK, make_overlay(entries, ARRAY_SIZE(entries)));
	cache_prefetch(r.cache, 100, 10);
	ck_assert_uint_eq(rig_reads(&r), 5); /* 100-104, 105, 106, 107-108, 109 */
	for (fsblk_t nr = 100; nr < 110; nr++)
		expect_hit(&r, nr, nr == 105 ? 400 : nr == 106 ? 301 : nr == 109 ? 402 : nr);
	rig_stop(&r);
}
END_TEST

START_TEST(a_failed_prefetch_leaves_nothing)
{
	static const struct overlay_entry entries[] = {{.block = 12, .log = 400}};

	for (uint64_t nth = 1; nth <= 3; nth++) {
		struct rig r;
		struct cache_stats stats;
		struct cache_block *b;

		rig_start(&r, BLOCK, BLOCKS, 4 * BLOCKS * BLOCK, make_overlay(entries, 1));
		dev_fault_arm(r.m.fault, DEV_FAULT_READ, nth, false, ERR_IO);
		cache_prefetch(r.cache, 10, 5);
		cache_stats(r.cache, &stats);
		ck_assert_uint_lt(stats.resident_bytes, 5 * BLOCK);
		ck_assert_uint_eq(stats.pinned_blocks, 0);
		ck_assert_str_eq(err_detail(), "");
		for (fsblk_t nr = 10; nr < 15; nr++) {
			ck_assert_int_eq(cache_get(r.cache, nr, &b), OK);
			ck_assert(rig_holds(b->data, nr == 12 ? 400 : nr, BLOCK));
			cache_put(r.cache, b);
		}
		rig_stop(&r);
	}
}
END_TEST

/* --- past the cache -------------------------------------------------------------------------- */

static fsblk_t copy_of(const struct overlay_entry *entries, size_t count, fsblk_t nr)
{
	for (size_t i = 0; i < count; i++)
		if (entries[i].block == nr)
			return entries[i].log;
	return nr;
}

START_TEST(read_past_is_one_request_and_leaves_nothing)
{
	struct rig r;
	struct cache_stats stats;
	static uint8_t buf[30 * BLOCK];

	rig_start(&r, BLOCK, BLOCKS, 4 * BLOCKS * BLOCK, NULL);
	ck_assert_int_eq(cache_read_past(r.cache, 7, 30,
				 &(struct iovec){.iov_base = buf, .iov_len = sizeof(buf)}, 1),
		OK);
	ck_assert_uint_eq(rig_reads(&r), 1);
	for (fsblk_t i = 0; i < 30; i++)
		ck_assert(rig_holds(buf + i * BLOCK, 7 + i, BLOCK));
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.resident_bytes, 0);
	rig_stop(&r);
}
END_TEST

START_TEST(read_past_refuses_what_lies_past_the_end)
{
	struct rig r;
	static uint8_t buf[4 * BLOCK];
	struct iovec iov = {buf, sizeof(buf)};

	rig_start(&r, BLOCK, BLOCKS, BLOCK, NULL);
	ck_assert_int_eq(cache_read_past(r.cache, BLOCKS - 3, 4, &iov, 1), ERR_CORRUPT);
	ck_assert_int_eq(cache_read_past(r.cache, BLOCKS, 4, &iov, 1), ERR_CORRUPT);
	ck_assert_int_eq(cache_read_past(r.cache, UINT64_MAX, 4, &iov, 1), ERR_CORRUPT);
	ck_assert_int_eq(cache_read_past(r.cache, BLOCKS - 4, 4, &iov, 1), OK);
	rig_stop(&r);
}
END_TEST

/* Every way to cut a range into buffers of multiples of 512, with overlay blocks anywhere. */
START_TEST(read_past_scatters_over_any_buffers)
{
	enum { SPAN = 40 };
	unsigned seed = 4711;
	static uint8_t buf[SPAN * BLOCK];

	for (int round = 0; round < 200; round++) {
		struct rig r;
		struct overlay_entry entries[8];
		struct iovec iov[2 * SPAN];
		size_t count = (unsigned)rand_r(&seed) % 9;
		uint32_t want = 1 + (unsigned)rand_r(&seed) % SPAN;
		uint32_t sectors = want * BLOCK / SECTOR_BYTES;
		bool many = rand_r(&seed) % 2;
		int iov_count = 0;

		for (size_t i = 0; i < count; i++)
			entries[i] = (struct overlay_entry){
				.block = 100 + i * 5 + (unsigned)rand_r(&seed) % 5, .log = 300 + i};
		rig_start(&r, BLOCK, BLOCKS, BLOCK, make_overlay(entries, count));
		memset(buf, 0xee, sizeof(buf));
		for (uint32_t at = 0; at < sectors;) {
			uint32_t n = many ? 1 : 1 + (unsigned)rand_r(&seed) % 9;

			n = MIN(n, sectors - at);
			iov[iov_count++] = (struct iovec){
				buf + (size_t)at * SECTOR_BYTES, (size_t)n * SECTOR_BYTES};
			at += n;
		}
		ck_assert_int_eq(cache_read_past(r.cache, 100, want, iov, iov_count), OK);
		for (uint32_t i = 0; i < want; i++)
			ck_assert_msg(rig_holds(buf + (size_t)i * BLOCK,
					      copy_of(entries, count, 100 + i), BLOCK),
				"round %d, block %u", round, i);
		if (want < SPAN)
			ck_assert_uint_eq(buf[want * BLOCK], 0xee);
		rig_stop(&r);
	}
}
END_TEST

START_TEST(read_past_tells_every_error)
{
	static const struct overlay_entry entries[] = {{.block = 12, .log = 400}};
	static uint8_t buf[5 * BLOCK];
	struct iovec iov = {buf, sizeof(buf)};

	for (uint64_t nth = 1; nth <= 4; nth++) {
		struct rig r;

		rig_start(&r, BLOCK, BLOCKS, BLOCK, make_overlay(entries, 1));
		dev_fault_arm(r.m.fault, DEV_FAULT_READ, nth, false, ERR_IO);
		ck_assert_int_eq(cache_read_past(r.cache, 10, 5, &iov, 1), nth <= 3 ? ERR_IO : OK);
		rig_stop(&r);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("read");
	TCase *t = tcase_create("read");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, prefetch_reads_a_range_in_one_request);
	tcase_add_test(t, prefetch_leaves_out_what_is_there);
	tcase_add_test(t, prefetch_stops_at_the_end);
	tcase_add_test(t, prefetch_larger_than_the_cache_stays_inside_it);
	tcase_add_test(t, prefetch_takes_the_overlay_s_copy);
	tcase_add_test(t, a_failed_prefetch_leaves_nothing);
	tcase_add_test(t, read_past_is_one_request_and_leaves_nothing);
	tcase_add_test(t, read_past_refuses_what_lies_past_the_end);
	tcase_add_test(t, read_past_scatters_over_any_buffers);
	tcase_add_test(t, read_past_tells_every_error);
	suite_add_tcase(s, t);

	SRunner *sr = srunner_create(s);

	srunner_run_all(sr, CK_ENV);
	int failed = srunner_ntests_failed(sr);

	srunner_free(sr);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
