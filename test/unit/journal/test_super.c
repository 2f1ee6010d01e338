/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The journal's superblock and runs: one damage at a time, and reading by position. */
#include "log_maker.h"

static const int versions[] = {0, 1, 2, 3};

START_TEST(a_clean_journal_has_nothing_to_replay)
{
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		struct maker k;
		struct journal_info info;
		struct overlay *o;

		maker_start(&k, versions[i], JBD2_INCOMPAT_64BIT, 0, 77);
		maker_super(&k)->s_errno = be32_make(5);
		maker_seal_super(&k);
		ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
		ck_assert_ptr_null(o);
		ck_assert(info.clean && info.has_64bit && !info.fast_commit);
		ck_assert_uint_eq(info.sequence, 77);
		ck_assert_uint_eq(info.transactions, 0);
		ck_assert_int_eq(info.checksum_version, versions[i]);
		ck_assert_uint_eq(info.error, 5);
		ck_assert_mem_eq(info.uuid, k.uuid, sizeof(k.uuid));
		maker_stop(&k);
	}
}
END_TEST

START_TEST(version_1_has_no_features)
{
	struct maker k;
	struct journal_info info;
	struct overlay *o;

	maker_start(&k, 0, 0, 1, 5);
	maker_super(&k)->s_header.h_blocktype = be32_make(JBD2_SUPERBLOCK_V1);
	maker_super(&k)->s_feature_incompat = be32_make(0xffffffff);
	maker_transaction(&k, 50, 1, 100);
	ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
	ck_assert_uint_eq(info.transactions, 1);
	ck_assert(!info.has_64bit && info.checksum_version == 0);
	maker_expect(&k, o, 50, 1, false);
	overlay_destroy(o);
	maker_stop(&k);
}
END_TEST

/* Each row sets one word of a good superblock of version 3 (s_start is 5), which is sealed again.
 */
#define WORD(field) offsetof(struct disk_super, field)
#define INCOMPAT    (JBD2_INCOMPAT_REVOKE | JBD2_INCOMPAT_CSUM_V3)
static const struct {
	size_t offset;
	uint32_t value;
	enum err want;
} damages[] = {
	{0, 0xc03b3999, ERR_JOURNAL},
	{WORD(s_header.h_blocktype), JBD2_DESCRIPTOR, ERR_JOURNAL},
	{WORD(s_blocksize), 4096, ERR_JOURNAL},
	{WORD(s_blocksize), 0, ERR_JOURNAL},
	{WORD(s_maxlen), MAKER_BLOCKS + 1, ERR_JOURNAL},
	{WORD(s_maxlen), UINT32_MAX, ERR_JOURNAL},
	{WORD(s_maxlen), 0, ERR_JOURNAL},
	{WORD(s_maxlen), 1, ERR_JOURNAL},
	{WORD(s_first), 0, ERR_JOURNAL},
	{WORD(s_first), MAKER_BLOCKS, ERR_JOURNAL},
	{WORD(s_first), UINT32_MAX, ERR_JOURNAL},
	{WORD(s_first), 8, ERR_JOURNAL},
	{WORD(s_start), MAKER_BLOCKS, ERR_JOURNAL},
	{WORD(s_start), UINT32_MAX, ERR_JOURNAL},
	{WORD(s_feature_incompat), INCOMPAT | JBD2_INCOMPAT_CSUM_V2, ERR_JOURNAL},
	{WORD(s_feature_compat), JBD2_COMPAT_CHECKSUM, ERR_JOURNAL},
	{WORD(s_checksum_type), (uint32_t)JBD2_CHKSUM_CRC32 << 24, ERR_JOURNAL},
	/* The default of 256 blocks for fast commits is more than there are. */
	{WORD(s_feature_incompat), INCOMPAT | JBD2_INCOMPAT_FAST_COMMIT, ERR_JOURNAL},
	{WORD(s_feature_incompat), INCOMPAT | 0x40, ERR_JOURNAL_FEATURE},
	{WORD(s_feature_ro_compat), 0x40, ERR_JOURNAL_FEATURE},
};

START_TEST(every_damaged_field_is_found)
{
	for (size_t i = 0; i < ARRAY_SIZE(damages); i++) {
		struct maker k;
		struct journal_info info;
		struct overlay *o;
		be32 value = be32_make(damages[i].value);

		maker_start(&k, 3, 0, 5, 9);
		maker_transaction(&k, 50, 1, 100);
		memcpy(maker_block(&k, 0) + damages[i].offset, &value, sizeof(value));
		maker_seal_super(&k);
		enum err e = maker_scan(&k, &o, &info);
		ck_assert_msg(e == damages[i].want, "row %zu: %s", i, err_name(e));
		ck_assert_ptr_nonnull(strstr(err_detail(), "noload"));
		if (e == ERR_JOURNAL_FEATURE)
			ck_assert_ptr_nonnull(strstr(err_detail(), "0x40"));
		maker_stop(&k);
	}
}
END_TEST

START_TEST(a_fast_commit_area_that_does_not_fit_is_damage)
{
	/* Larger than the journal; all of it; so large that the log's start lies inside. */
	static const uint32_t sizes[] = {UINT32_MAX, MAKER_BLOCKS, MAKER_BLOCKS - 5};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct maker k;

		maker_start(&k, 3, JBD2_INCOMPAT_FAST_COMMIT, 5, 9);
		maker_super(&k)->s_num_fc_blks = be32_make(sizes[i]);
		maker_seal_super(&k);
		maker_expect_scan(&k, ERR_JOURNAL, 0);
		maker_super(&k)->s_num_fc_blks = be32_make(10);
		maker_seal_super(&k);
		maker_expect_scan(&k, OK, 0);
		maker_stop(&k);
	}
}
END_TEST

START_TEST(every_bit_of_the_superblock_is_under_its_checksum)
{
	for (int version = 2; version <= 3; version++) {
		struct maker k;

		maker_start(&k, version, 0, 5, 9);
		maker_transaction(&k, 50, 1, 100);
		maker_expect_scan(&k, OK, 1);
		for (size_t bit = 0; bit < sizeof(struct disk_super) * 8; bit += 13) {
			maker_block(&k, 0)[bit / 8] ^= (uint8_t)(1 << bit % 8);
			struct journal_info info;
			struct overlay *o;
			enum err e = maker_scan(&k, &o, &info);

			ck_assert_msg(e == ERR_JOURNAL || e == ERR_JOURNAL_FEATURE, "bit %zu: %s",
				bit, err_name(e));
			maker_block(&k, 0)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		maker_stop(&k);
	}
}
END_TEST

START_TEST(a_map_with_a_hole_or_past_the_end_is_damage)
{
	struct maker k;

	maker_start(&k, 0, 0, 0, 1);
	maker_expect_scan(&k, OK, 0);
	k.config.run_count = 0;
	maker_expect_scan(&k, ERR_JOURNAL, 0);
	k.config.run_count = 3;
	k.runs[1].logical = 11;
	maker_expect_scan(&k, ERR_JOURNAL, 0);
	k.runs[1].logical = 9;
	maker_expect_scan(&k, ERR_JOURNAL, 0);
	k.runs[1].logical = 10;
	k.runs[0].count = 0;
	maker_expect_scan(&k, ERR_JOURNAL, 0);
	k.runs[0].count = 10;
	k.runs[2].count = UINT32_MAX;
	maker_expect_scan(&k, ERR_JOURNAL, 0);
	k.runs[2].count = MAKER_BLOCKS - 40;
	k.runs[2].physical = MAKER_FS_BLOCKS - 5;
	maker_expect_scan(&k, ERR_JOURNAL, 0);
	k.runs[2].physical = UINT64_MAX;
	maker_expect_scan(&k, ERR_JOURNAL, 0);
	k.runs[2].physical = 200;
	k.config.fs_blocks = UINT64_MAX;
	maker_expect_scan(&k, ERR_JOURNAL, 0);
	maker_stop(&k);
}
END_TEST

START_TEST(blocks_are_read_by_their_position)
{
	struct maker k;
	struct log log;
	struct journal_info info = {0};

	maker_start(&k, 0, 0, 0, 1);
	ck_assert_int_eq(log_open(&k.config, &log, &info), OK);
	for (uint32_t step = 0; step < 500; step++) {
		uint32_t position = step * 29 % MAKER_BLOCKS;
		const uint8_t *block;

		if (step < MAKER_BLOCKS)
			position = step;
		ck_assert_int_eq(log_block(&log, position, &block), OK);
		ck_assert_mem_eq(block, maker_block(&k, position), MAKER_BLOCK);
		ck_assert_ptr_eq(k.m.bytes + log_physical(&log, position) * MAKER_BLOCK,
			maker_block(&k, position));
	}
	log_close(&log);
	maker_stop(&k);
}
END_TEST

START_TEST(a_log_is_read_ahead)
{
	struct maker k;
	uint64_t before;

	maker_start(&k, 3, 0, 1, 1);
	for (int i = 0; i < 15; i++)
		maker_transaction(&k, 50, 1, 100);
	before = dev_fault_calls(k.m.fault, DEV_FAULT_READ);
	maker_expect_scan(&k, OK, 15);
	/* Three runs, walked over by the scan and by the replay. */
	ck_assert_uint_le(dev_fault_calls(k.m.fault, DEV_FAULT_READ) - before, 6);
	maker_stop(&k);
}
END_TEST

START_TEST(every_failed_read_is_told)
{
	struct maker k;
	uint64_t before, reads;

	maker_start(&k, 3, 0, 1, 1);
	for (int i = 0; i < 15; i++)
		maker_transaction(&k, 50, 1, 100);
	before = dev_fault_calls(k.m.fault, DEV_FAULT_READ);
	maker_expect_scan(&k, OK, 15);
	reads = dev_fault_calls(k.m.fault, DEV_FAULT_READ) - before;
	for (uint64_t nth = 1; nth <= reads; nth++) {
		dev_fault_arm(k.m.fault, DEV_FAULT_READ, nth, false, ERR_IO);
		maker_expect_scan(&k, ERR_IO, 0);
	}
	maker_expect_scan(&k, OK, 15);
	maker_stop(&k);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("super");
	TCase *t = tcase_create("super");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_clean_journal_has_nothing_to_replay);
	tcase_add_test(t, version_1_has_no_features);
	tcase_add_test(t, every_damaged_field_is_found);
	tcase_add_test(t, a_fast_commit_area_that_does_not_fit_is_damage);
	tcase_add_test(t, every_bit_of_the_superblock_is_under_its_checksum);
	tcase_add_test(t, a_map_with_a_hole_or_past_the_end_is_damage);
	tcase_add_test(t, blocks_are_read_by_their_position);
	tcase_add_test(t, a_log_is_read_ahead);
	tcase_add_test(t, every_failed_read_is_told);
	suite_add_tcase(s, t);
	return maker_run(s);
}
