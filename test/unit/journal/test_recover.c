/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Replay for real: what ends up where, in which order, and that it may fail or be cut anywhere.
 * That the result is e2fsck's is shown in test_journal.c.
 */
#include "log_maker.h"

enum { HOMES = 40, FIRST_HOME = 500, SEQUENCE = 7, TRANSACTIONS = 4 };

/* Four transactions that overwrite, revoke and escape, and half of a fifth. */
static void make_log(struct maker *k, int version)
{
	const fsblk_t revoked[] = {FIRST_HOME + 3, FIRST_HOME + 30};

	maker_start(k, version, JBD2_INCOMPAT_64BIT, 60, SEQUENCE); /* wraps */
	for (uint64_t t = 0; t < TRANSACTIONS; t++) {
		if (t == 2)
			maker_revoke(k, revoked, ARRAY_SIZE(revoked));
		maker_begin(k);
		for (fsblk_t b = 0; b < 9; b++)
			maker_log(k, FIRST_HOME + (t * 8 + b * 3) % HOMES, 100 * t + b, b == 4);
		maker_end(k);
		maker_commit(k, 100 + t);
	}
	maker_begin(k);
	maker_log(k, FIRST_HOME, 999, false);
	maker_end(k);
}

/* What the homes must be, by the overlay that the reading suites test. */
static void expected_homes(struct maker *k, uint8_t *out)
{
	struct overlay *o;
	struct journal_info info;
	const struct overlay_entry *entry;

	memcpy(out, k->m.bytes, k->m.size_bytes);
	ck_assert_int_eq(maker_scan(k, &o, &info), OK);
	ck_assert_uint_eq(info.transactions, TRANSACTIONS);
	for (fsblk_t at = 0; (entry = overlay_find(o, at, UINT64_MAX)) != NULL;
		at = entry->block + 1)
		ck_assert_int_eq(overlay_read(entry, k->m.volume, MAKER_BLOCK,
					 out + entry->block * MAKER_BLOCK),
			OK);
	overlay_destroy(o);
}

/* All but the journal's superblock. */
static bool homes_are(const struct maker *k, const uint8_t *bytes, const uint8_t *want)
{
	size_t super = k->runs[0].physical * MAKER_BLOCK;

	return memcmp(bytes, want, super) == 0 &&
	       memcmp(bytes + super + MAKER_BLOCK, want + super + MAKER_BLOCK,
		       MAKER_FS_BLOCKS * MAKER_BLOCK - super - MAKER_BLOCK) == 0;
}

static void expect_empty(struct maker *k, uint32_t sequence)
{
	struct journal_info info;
	struct overlay *o;

	ck_assert_int_eq(maker_scan(k, &o, &info), OK);
	ck_assert(info.clean && o == NULL);
	ck_assert_uint_eq(info.sequence, sequence);
}

START_TEST(homes_are_written_and_the_log_is_empty)
{
	struct maker k;
	struct journal_info info;
	uint8_t *want = malloc(MAKER_FS_BLOCKS * MAKER_BLOCK);

	make_log(&k, _i);
	expected_homes(&k, want);
	ck_assert_int_eq(journal_recover(&k.config, &info), OK);
	ck_assert(!info.clean);
	ck_assert_uint_eq(info.transactions, TRANSACTIONS);
	ck_assert_uint_eq(info.sequence, SEQUENCE + TRANSACTIONS);
	ck_assert_int_eq(info.checksum_version, _i);
	ck_assert(homes_are(&k, k.m.bytes, want));
	/* The half transaction has the number SEQUENCE + TRANSACTIONS, which is skipped. */
	expect_empty(&k, SEQUENCE + TRANSACTIONS + 1);
	ck_assert_uint_eq(dev_fault_calls(k.m.fault, DEV_FAULT_FLUSH), 2);
	uint64_t writes = dev_fault_calls(k.m.fault, DEV_FAULT_WRITE);

	ck_assert_int_eq(journal_recover(&k.config, &info), OK);
	ck_assert(info.clean);
	ck_assert_uint_eq(dev_fault_calls(k.m.fault, DEV_FAULT_WRITE), writes);
	ck_assert_uint_eq(dev_fault_calls(k.m.fault, DEV_FAULT_FLUSH), 2);
	free(want);
	maker_stop(&k);
}
END_TEST

START_TEST(a_log_without_a_whole_transaction_is_emptied)
{
	struct maker k;
	struct journal_info info;

	maker_start(&k, 3, 0, 5, UINT32_MAX);
	maker_begin(&k);
	maker_log(&k, FIRST_HOME, 1, false);
	maker_end(&k);
	ck_assert_int_eq(journal_recover(&k.config, &info), OK);
	ck_assert_uint_eq(info.transactions, 0);
	expect_empty(&k, 0);
	maker_stop(&k);
}
END_TEST

START_TEST(a_log_of_its_own_blocks_is_refused)
{
	struct maker k;
	struct journal_info info;
	uint8_t *before = malloc(MAKER_FS_BLOCKS * MAKER_BLOCK);

	maker_start(&k, 3, 0, 5, 1);
	maker_transaction(&k, FIRST_HOME, 1, 100);
	maker_transaction(&k, 329, 2, 100);
	memcpy(before, k.m.bytes, k.m.size_bytes);
	ck_assert_int_eq(journal_recover(&k.config, &info), ERR_JOURNAL);
	ck_assert_ptr_nonnull(strstr(err_detail(), "329"));
	ck_assert_mem_eq(before, k.m.bytes, k.m.size_bytes);
	free(before);
	maker_stop(&k);
}
END_TEST

START_TEST(a_failed_recovery_is_repaired_by_the_next)
{
	static const unsigned kinds[] = {DEV_FAULT_READ, DEV_FAULT_WRITE, DEV_FAULT_FLUSH};
	uint8_t *want = malloc(MAKER_FS_BLOCKS * MAKER_BLOCK);

	for (size_t kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
		enum err e = ERR_IO;

		for (uint64_t nth = 1; e != OK; nth++) {
			struct maker k;
			struct journal_info info;

			make_log(&k, 3);
			expected_homes(&k, want);
			dev_fault_arm(k.m.fault, kinds[kind], nth, false, ERR_IO);
			e = journal_recover(&k.config, &info);
			ck_assert(e == OK || e == ERR_IO);
			ck_assert_uint_lt(nth, 100);
			if (e == ERR_IO)
				ck_assert_int_eq(journal_recover(&k.config, &info), OK);
			ck_assert(homes_are(&k, k.m.bytes, want));
			maker_stop(&k);
		}
	}
	free(want);
}
END_TEST

START_TEST(a_cut_recovery_is_repaired_by_the_next)
{
	struct maker k;
	struct journal_info info;
	struct memory_volume recorded;
	struct dev *memory, *recorder;
	uint8_t *want = malloc(MAKER_FS_BLOCKS * MAKER_BLOCK);
	unsigned emptied = 0, cuts = 0;

	make_log(&k, 3);
	expected_homes(&k, want);
	ck_assert_int_eq(dev_open_memory(k.m.size_bytes, &memory), OK);
	memcpy(dev_memory_bytes(memory), k.m.bytes, k.m.size_bytes);
	ck_assert_int_eq(dev_open_recorder(memory, &recorder), OK);
	ck_assert_int_eq(memory_volume_open_over(recorder, k.m.size_bytes, &recorded), OK);
	k.config.volume = recorded.volume;
	ck_assert_int_eq(journal_recover(&k.config, &info), OK);
	k.config.volume = k.m.volume;
	for (uint64_t stamp = 1; stamp <= dev_recorder_stamp(recorder); stamp++) {
		for (uint64_t seed = 0; seed < 12; seed++, cuts++) {
			dev_recorder_image(recorder,
				&(struct dev_cut){
					.stamp = stamp, .seed = seed, .tear_bytes = SECTOR_BYTES},
				k.m.bytes);
			ck_assert_int_eq(journal_recover(&k.config, &info), OK);
			emptied += info.clean;
			ck_assert_msg(homes_are(&k, k.m.bytes, want), "stamp %llu seed %llu",
				(unsigned long long)stamp, (unsigned long long)seed);
			expect_empty(&k, SEQUENCE + TRANSACTIONS + 1);
		}
	}
	ck_assert_uint_gt(emptied, 0);
	ck_assert_uint_lt(emptied, cuts / 2);
	memory_volume_close(&recorded);
	free(want);
	maker_stop(&k);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("recover");
	TCase *t = tcase_create("recover");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, homes_are_written_and_the_log_is_empty, 0, 4);
	tcase_add_test(t, a_log_without_a_whole_transaction_is_emptied);
	tcase_add_test(t, a_log_of_its_own_blocks_is_refused);
	tcase_add_test(t, a_failed_recovery_is_repaired_by_the_next);
	tcase_add_test(t, a_cut_recovery_is_repaired_by_the_next);
	suite_add_tcase(s, t);
	return maker_run(s);
}
