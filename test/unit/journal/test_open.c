/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Opening and closing the writer: formats, numbers, refusals, and what fails half-way. */
#include "small_fs.h"

#include <unistd.h>

enum {
	REVOKE = JBD2_INCOMPAT_REVOKE,
	WIDE = JBD2_INCOMPAT_64BIT,
	ASYNC = JBD2_INCOMPAT_ASYNC_COMMIT,
	V2 = JBD2_INCOMPAT_CSUM_V2,
	V3 = JBD2_INCOMPAT_CSUM_V3,
	FAST = JBD2_INCOMPAT_FAST_COMMIT,
	V1 = JBD2_COMPAT_CHECKSUM,
};
static const struct {
	uint32_t compat, incompat; /* before */
	bool fs_64bit, metadata_csum;
	uint32_t compat_after, incompat_after;
} formats[] = {
	{0, 0, true, true, 0, REVOKE | WIDE | V3}, /* what mke2fs leaves, default */
	{0, 0, false, true, 0, REVOKE | V3},
	{0, 0, true, false, 0, REVOKE | WIDE},
	{0, 0, false, false, 0, REVOKE}, /* ext3 */
	{V1, ASYNC, false, true, 0, REVOKE | V3},
	{V1, ASYNC, false, false, V1, REVOKE},
	{0, V2, true, true, 0, REVOKE | WIDE | V3},
	{0, V2 | WIDE, false, false, 0, REVOKE | WIDE | V2},
	{0, V3 | FAST | WIDE | REVOKE, true, true, 0, REVOKE | WIDE | V3},
	{0, V3, false, false, 0, REVOKE | V3},
};

START_TEST(the_format_becomes_the_kernel_s_choice)
{
	struct small s;
	struct journal_info info;
	struct overlay *o;

	small_make(&s);
	small_super(&s)->s_feature_compat = be32_make(formats[_i].compat);
	small_super(&s)->s_feature_incompat = be32_make(formats[_i].incompat);
	if ((formats[_i].incompat & (V2 | V3)) == 0)
		small_super(&s)->s_checksum_type = 0;
	small_seal(&s);
	s.config.fs_64bit = formats[_i].fs_64bit;
	s.config.fs_metadata_csum = formats[_i].metadata_csum;
	ck_assert_int_eq(small_open(&s), OK);
	ck_assert_uint_eq(be32_get(small_super(&s)->s_feature_compat), formats[_i].compat_after);
	ck_assert_uint_eq(
		be32_get(small_super(&s)->s_feature_incompat), formats[_i].incompat_after);
	ck_assert_uint_eq(be32_get(small_super(&s)->s_sequence), 10);
	ck_assert_int_eq(journal_scan(&s.config.log, &o, &info), OK); /* its checksum holds */
	ck_assert(info.clean);
	/* And what is written in it is read back. */
	ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, 99)), OK);
	ck_assert(small_replayed(&s, SMALL_FREE, 99));
	ck_assert(small_holds(small_home(&s, SMALL_FREE), SMALL_FREE));
	small_stop(&s);
}
END_TEST

START_TEST(an_old_superblock_becomes_one_with_features)
{
	struct small s;

	small_make(&s);
	memset((uint8_t *)small_super(&s) + offsetof(struct disk_super, s_feature_compat), 0xee,
		SMALL_BLOCK - offsetof(struct disk_super, s_feature_compat));
	small_super(&s)->s_header.h_blocktype = be32_make(JBD2_SUPERBLOCK_V1);
	ck_assert_int_eq(small_open(&s), OK);
	ck_assert_uint_eq(be32_get(small_super(&s)->s_header.h_blocktype), JBD2_SUPERBLOCK_V2);
	ck_assert_uint_eq(be32_get(small_super(&s)->s_feature_incompat), REVOKE | WIDE | V3);
	ck_assert_uint_eq(be32_get(small_super(&s)->s_nr_users), 1);
	ck_assert_uint_eq(small_super(&s)->s_users[767], 0);
	ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, 99)), OK);
	ck_assert(small_replayed(&s, SMALL_FREE, 99));
	small_stop(&s);
}
END_TEST

START_TEST(a_log_that_is_not_empty_is_refused)
{
	struct small s;

	small_make(&s);
	small_super(&s)->s_start = be32_make(5);
	small_seal(&s);
	ck_assert_int_eq(small_open(&s), ERR_JOURNAL);
	ck_assert_ptr_nonnull(strstr(err_detail(), "not empty"));
	ck_assert_uint_eq(small_writes(&s), 0);
	small_free(&s);
}
END_TEST

START_TEST(a_short_log_is_refused_by_name)
{
	struct small s;

	small_make(&s);
	small_super(&s)->s_maxlen = be32_make(JOURNAL_BLOCKS_MIN - 1);
	small_seal(&s);
	ck_assert_int_eq(small_open(&s), ERR_JOURNAL_FEATURE);
	ck_assert_ptr_nonnull(strstr(err_detail(), "1024"));
	small_super(&s)->s_maxlen = be32_make(JOURNAL_BLOCKS_MIN);
	small_seal(&s);
	ck_assert_int_eq(small_open(&s), OK);
	small_stop(&s);
}
END_TEST

START_TEST(without_a_change_nothing_is_written)
{
	struct small s;
	struct journal_handle h;

	small_start(&s);
	small_begin(&s, 5, &h);
	ck_assert_int_eq(journal_stop(&h), OK);
	ck_assert_int_eq(journal_commit(s.journal, journal_running(s.journal)), OK);
	ck_assert_int_eq(journal_checkpoint(s.journal), OK);
	ck_assert_int_eq(journal_close(s.journal), OK);
	ck_assert_uint_eq(small_writes(&s), 0);
	ck_assert_uint_eq(small_flushes(&s), 0);
	small_free(&s);
}
END_TEST

START_TEST(numbers_go_on_and_skip_one)
{
	struct small s;
	uint64_t before = 0;

	small_make(&s);
	small_super(&s)->s_sequence = be32_make(UINT32_MAX - 4);
	small_seal(&s);
	for (uint32_t time = 0; time < 4; time++) {
		uint32_t on_disk = be32_get(small_super(&s)->s_sequence);

		ck_assert_int_eq(small_open(&s), OK);
		ck_assert_uint_eq((uint32_t)journal_running(s.journal), on_disk + 1);
		ck_assert_uint_gt(journal_running(s.journal), before);
		ck_assert_uint_eq(journal_durable(s.journal), journal_running(s.journal) - 1);
		before = small_change(&s, SMALL_FREE, time);
		ck_assert_int_eq(journal_commit(s.journal, before), OK);
		ck_assert_uint_eq(be32_get(small_super(&s)->s_sequence), (uint32_t)before);
		ck_assert_uint_ne(be32_get(small_super(&s)->s_start), 0);
		ck_assert_int_eq(journal_close(s.journal), OK);
		ck_assert_uint_eq(be32_get(small_super(&s)->s_start), 0);
		ck_assert_uint_eq(be32_get(small_super(&s)->s_sequence), (uint32_t)before + 1);
		ck_assert(small_holds(small_home(&s, SMALL_FREE), time));
	}
	small_free(&s);
}
END_TEST

START_TEST(the_log_goes_on_where_it_ended)
{
	static const uint32_t heads[] = {0, 1, 700, SMALL_LOG - 1, SMALL_LOG, UINT32_MAX};

	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		struct small s;
		uint32_t at = heads[i] < SMALL_LOG && heads[i] > 0 ? heads[i] : 1;

		small_make(&s);
		small_super(&s)->s_head = be32_make(heads[i]);
		small_seal(&s);
		ck_assert_int_eq(small_open(&s), OK);
		ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, 99)), OK);
		ck_assert_uint_eq(be32_get(small_super(&s)->s_start), at);
		ck_assert(small_replayed(&s, SMALL_FREE, 99));
		ck_assert_int_eq(journal_close(s.journal), OK);
		/* A descriptor, a copy, a commit block. */
		at = (at - 1 + 3) % (SMALL_LOG - 1) + 1;
		ck_assert_uint_eq(be32_get(small_super(&s)->s_head), at);
		small_free(&s);
	}
}
END_TEST

START_TEST(what_fails_while_opening_leaves_nothing)
{
	static const unsigned kinds[] = {DEV_FAULT_READ, DEV_FAULT_WRITE, DEV_FAULT_FLUSH};

	for (size_t kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
		enum err e = ERR_IO;

		for (uint64_t nth = 1; e != OK; nth++) {
			struct small s;

			ck_assert_uint_lt(nth, 20);
			small_make(&s);
			small_super(&s)->s_feature_incompat = be32_make(0);
			small_super(&s)->s_checksum_type = 0;
			small_seal(&s);
			dev_fault_arm(s.m.fault, kinds[kind], nth, false, ERR_IO);
			e = small_open(&s);
			if (e == ERR_IO)
				ck_assert_int_eq(small_open(&s), OK);
			else
				ck_assert_int_eq(e, OK);
			dev_fault_arm(s.m.fault, DEV_FAULT_DISCARD, 1, false, ERR_IO);
			small_stop(&s);
		}
	}
}
END_TEST

START_TEST(closing_tells_what_failed)
{
	static const unsigned kinds[] = {DEV_FAULT_WRITE, DEV_FAULT_FLUSH};

	for (size_t kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
		enum err e = ERR_IO;

		for (uint64_t nth = 1; e != OK; nth++) {
			struct small s;
			struct cache_stats stats;

			ck_assert_uint_lt(nth, 30);
			small_start(&s);
			ck_assert_int_eq(
				journal_commit(s.journal, small_change(&s, SMALL_FREE, 1)), OK);
			(void)small_change(&s, SMALL_FREE, 2);
			(void)small_change(&s, SMALL_FREE + 2, 3);
			dev_fault_arm(s.m.fault, kinds[kind], nth, nth % 2 == 0, ERR_IO);
			e = journal_close(s.journal);
			ck_assert(e == OK || e == ERR_IO);
			cache_stats(s.cache, &stats);
			ck_assert_uint_eq(stats.dirty_blocks, 0);
			dev_fault_arm(s.m.fault, DEV_FAULT_DISCARD, 1, false, ERR_IO);
			ck_assert(small_replayed(&s, SMALL_FREE, 1) ||
				  small_replayed(&s, SMALL_FREE, 2));
			if (e == OK) {
				ck_assert(small_holds(small_home(&s, SMALL_FREE), 2));
				ck_assert(small_holds(small_home(&s, SMALL_FREE + 2), 3));
			}
			small_free(&s);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("open");
	TCase *tc = rig_case(suite, "open");

	tcase_add_loop_test(
		tc, the_format_becomes_the_kernel_s_choice, 0, (int)ARRAY_SIZE(formats));
	tcase_add_test(tc, an_old_superblock_becomes_one_with_features);
	tcase_add_test(tc, a_log_that_is_not_empty_is_refused);
	tcase_add_test(tc, a_short_log_is_refused_by_name);
	tcase_add_test(tc, without_a_change_nothing_is_written);
	tcase_add_test(tc, numbers_go_on_and_skip_one);
	tcase_add_test(tc, the_log_goes_on_where_it_ended);
	tcase_add_test(tc, what_fails_while_opening_leaves_nothing);
	tcase_add_test(tc, closing_tells_what_failed);
	return rig_run_suite(suite);
}
