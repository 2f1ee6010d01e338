/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What ends the log and what is damage, in every checksum version. */
#include "log_maker.h"

static const int versions[] = {0, 1, 2, 3};
static const uint32_t widths[] = {0, JBD2_INCOMPAT_64BIT};

static void flip(struct maker *k, uint32_t position, size_t byte)
{
	maker_block(k, position)[byte] ^= 0x10;
}

START_TEST(every_version_and_width_is_read)
{
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
			struct maker k;
			struct journal_info info;
			struct overlay *o;

			maker_start(&k, versions[v], widths[w], 1, 40);
			maker_begin(&k);
			for (uint64_t i = 0; i < 12; i++)
				maker_log(&k, 500 + i, 10 + i, false);
			maker_end(&k);
			maker_begin(&k);
			maker_log(&k, 600, 30, false);
			maker_end(&k);
			maker_commit(&k, 1000);
			maker_transaction(&k, 601, 31, 1001);
			ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
			ck_assert_uint_eq(info.transactions, 2);
			ck_assert_uint_eq(info.sequence, 42);
			ck_assert_uint_eq(info.blocks, 14);
			ck_assert(!info.clean);
			for (uint64_t i = 0; i < 12; i++)
				maker_expect(&k, o, 500 + i, 10 + i, false);
			maker_expect(&k, o, 600, 30, false);
			maker_expect(&k, o, 601, 31, false);
			overlay_destroy(o);
			maker_stop(&k);
		}
	}
}
END_TEST

START_TEST(the_log_and_the_numbers_wrap)
{
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct maker k;
		struct journal_info info;
		struct overlay *o;

		/* From block 80 of 96 on, and from transaction 2^32 - 2 on. */
		maker_start(&k, versions[v], 0, 80, UINT32_MAX - 1);
		for (uint64_t i = 0; i < 8; i++) {
			maker_begin(&k);
			maker_log(&k, 500 + i, 10 + i, false);
			maker_log(&k, 700, 100 + i, false);
			maker_end(&k);
			maker_commit(&k, 1000 + i);
		}
		ck_assert_uint_lt(k.position, 80);
		ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
		ck_assert_uint_eq(info.transactions, 8);
		ck_assert_uint_eq(info.sequence, 6);
		for (uint64_t i = 0; i < 8; i++)
			maker_expect(&k, o, 500 + i, 10 + i, false);
		maker_expect(&k, o, 700, 107, false);
		overlay_destroy(o);
		maker_stop(&k);
	}
}
END_TEST

START_TEST(what_was_not_committed_is_left_out)
{
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct maker k;
		struct journal_info info;
		struct overlay *o;
		const fsblk_t revoked = 500;

		maker_start(&k, versions[v], 0, 1, 7);
		maker_transaction(&k, 500, 1, 100);
		maker_revoke(&k, &revoked, 1);
		maker_begin(&k);
		maker_log(&k, 501, 2, false);
		maker_end(&k);
		ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
		ck_assert_uint_eq(info.transactions, 1);
		ck_assert_uint_eq(info.sequence, 8);
		maker_expect(&k, o, 500, 1, false);
		maker_expect(&k, o, 501, 0, false);
		overlay_destroy(o);
		maker_stop(&k);
	}
}
END_TEST

START_TEST(another_number_or_type_ends_the_log)
{
	struct maker k;

	maker_start(&k, 3, 0, 1, 7);
	maker_transaction(&k, 500, 1, 100);
	k.sequence++;
	maker_transaction(&k, 501, 2, 101);
	maker_expect_scan(&k, OK, 1);
	maker_stop(&k);

	maker_start(&k, 3, 0, 1, 7);
	maker_transaction(&k, 500, 1, 100);
	(void)maker_header(&k, maker_next(&k), 6);
	maker_expect_scan(&k, OK, 1);
	maker_stop(&k);

	maker_start(&k, 3, 0, 1, 7); /* nothing at all */
	maker_expect_scan(&k, OK, 0);
	maker_stop(&k);
}
END_TEST

/* A descriptor or revoke block with a bad checksum: the commit block behind it decides. */
START_TEST(a_bad_descriptor_is_judged_by_the_commit_time)
{
	for (int version = 2; version <= 3; version++) {
		for (int revoke = 0; revoke < 2; revoke++) {
			for (int stale = 0; stale < 2; stale++) {
				struct maker k;
				const fsblk_t block = 500;

				maker_start(&k, version, 0, 1, 7);
				maker_transaction(&k, 500, 1, 100);
				maker_revoke(&k, &block, 1);
				maker_begin(&k);
				maker_log(&k, 501, 2, false);
				maker_end(&k);
				flip(&k, revoke ? k.revoke_at : k.descriptor_at, 900);
				maker_expect_scan(&k, OK, 1); /* no commit block */
				maker_commit(&k, stale ? 99 : 100);
				maker_expect_scan(&k, stale ? OK : ERR_JOURNAL, 1);
				maker_stop(&k);
			}
		}
	}
}
END_TEST

START_TEST(a_bad_commit_block_is_damage_unless_stale_or_async)
{
	for (int version = 1; version <= 3; version++) {
		struct maker k;

		for (int stale = 0; stale < 2; stale++) {
			maker_start(&k, version, 0, 1, 7);
			maker_transaction(&k, 500, 1, 100);
			maker_transaction(&k, 501, 2, stale ? 99 : 100);
			maker_expect_scan(&k, OK, 2);
			flip(&k, k.commit_at, offsetof(struct disk_commit, h_chksum));
			maker_expect_scan(&k, stale ? OK : ERR_JOURNAL, 1);
			maker_stop(&k);
		}

		maker_start(&k, version, JBD2_INCOMPAT_ASYNC_COMMIT, 1, 7);
		maker_transaction(&k, 500, 1, 100);
		maker_transaction(&k, 501, 2, 101);
		flip(&k, k.commit_at, offsetof(struct disk_commit, h_chksum));
		maker_expect_scan(&k, OK, 1);
		/* A whole transaction behind it: it had been on the disk once. */
		maker_begin(&k);
		maker_log(&k, 502, 3, false);
		maker_end(&k);
		maker_expect_scan(&k, OK, 1);
		maker_commit(&k, 102);
		maker_expect_scan(&k, ERR_JOURNAL, 0);
		maker_stop(&k);
	}
}
END_TEST

START_TEST(a_bad_first_transaction_leaves_nothing)
{
	struct maker k;
	struct journal_info info;
	struct overlay *o;

	maker_start(&k, 1, JBD2_INCOMPAT_ASYNC_COMMIT, 1, 7);
	maker_transaction(&k, 500, 1, 100);
	flip(&k, k.data_at, 0);
	ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
	ck_assert_ptr_null(o);
	ck_assert_uint_eq(info.transactions, 0);
	ck_assert_uint_eq(info.sequence, 7);
	ck_assert(!info.clean);
	maker_stop(&k);
}
END_TEST

START_TEST(version_1_is_over_every_block_of_the_transaction)
{
	for (int which = 0; which < 3; which++) {
		struct maker k;

		maker_start(&k, 1, 0, 1, 7);
		maker_transaction(&k, 500, 1, 100);
		maker_begin(&k);
		maker_log(&k, 501, 2, false);
		maker_log(&k, 502, 3, false);
		maker_end(&k);
		maker_commit(&k, 101);
		flip(&k, which == 0 ? k.descriptor_at : k.data_at + 1 - (uint32_t)which, 800);
		maker_expect_scan(&k, ERR_JOURNAL, 0);
		maker_stop(&k);
	}
}
END_TEST

START_TEST(version_1_takes_a_commit_without_a_checksum)
{
	struct maker k;
	struct disk_commit *c;

	maker_start(&k, 1, 0, 1, 7);
	maker_transaction(&k, 500, 1, 100);
	c = (void *)maker_block(&k, k.commit_at);
	c->h_chksum_type = c->h_chksum_size = 0;
	memset(c->h_chksum, 0, sizeof(c->h_chksum));
	maker_transaction(&k, 501, 2, 101);
	maker_expect_scan(&k, OK, 2);
	c = (void *)maker_block(&k, k.commit_at);
	c->h_chksum_type = JBD2_CHKSUM_CRC32C; /* no such type here */
	maker_expect_scan(&k, ERR_JOURNAL, 0);
	maker_stop(&k);
}
END_TEST

START_TEST(a_commit_block_torn_behind_its_header_is_good)
{
	for (int version = 2; version <= 3; version++) {
		struct maker k;

		maker_start(&k, version, 0, 1, 7);
		maker_transaction(&k, 500, 1, 100);
		memset(maker_block(&k, k.commit_at) + 512, 0xa5, 512);
		maker_transaction(&k, 501, 2, 101);
		maker_expect_scan(&k, OK, 2);
		flip(&k, k.commit_at, offsetof(struct disk_commit, h_commit_nsec));
		maker_expect_scan(&k, ERR_JOURNAL, 0);
		maker_stop(&k);
	}
}
END_TEST

/* A descriptor full of tags, none marked as the last: the tags end with the block. */
START_TEST(a_full_descriptor_needs_no_last_tag)
{
	struct maker k;
	struct journal_info info;
	struct overlay *o;
	uint64_t tags = (MAKER_BLOCK - 12 - 16 - 4) / 16;

	maker_start(&k, 3, 0, 1, 7);
	maker_begin(&k);
	for (uint64_t i = 0; i < tags; i++)
		maker_log(&k, 500 + i, 1 + i, false);
	maker_seal_tail(&k, k.descriptor_at);
	maker_commit(&k, 100);
	ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
	ck_assert_uint_eq(info.transactions, 1);
	ck_assert_uint_eq(info.blocks, tags);
	maker_expect(&k, o, 500 + tags - 1, tags, false);
	overlay_destroy(o);
	maker_stop(&k);
}
END_TEST

START_TEST(a_transaction_that_bites_its_tail_is_damage)
{
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct maker k;
		struct journal_info info;
		struct overlay *o;

		/* The last of the log's blocks is a descriptor with more tags than are left. */
		maker_start(&k, versions[v], 0, 1, 7);
		for (uint32_t i = 0; i < MAKER_BLOCKS - 2; i++) {
			const fsblk_t block = 900;

			maker_revoke(&k, &block, 1);
		}
		maker_begin(&k);
		k.tag[7] = JBD2_TAG_SAME_UUID;
		maker_seal_tail(&k, k.descriptor_at);
		ck_assert_int_eq(maker_scan(&k, &o, &info), ERR_JOURNAL);
		maker_stop(&k);
	}
}
END_TEST

START_TEST(a_log_full_of_one_transaction_ends)
{
	struct maker k;

	maker_start(&k, 0, 0, 1, 7);
	for (uint32_t i = 0; i < MAKER_BLOCKS - 1; i++)
		maker_revoke(&k, NULL, 0);
	maker_expect_scan(&k, OK, 0);
	maker_stop(&k);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scan");
	TCase *t = tcase_create("scan");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, every_version_and_width_is_read);
	tcase_add_test(t, the_log_and_the_numbers_wrap);
	tcase_add_test(t, what_was_not_committed_is_left_out);
	tcase_add_test(t, another_number_or_type_ends_the_log);
	tcase_add_test(t, a_bad_descriptor_is_judged_by_the_commit_time);
	tcase_add_test(t, a_bad_commit_block_is_damage_unless_stale_or_async);
	tcase_add_test(t, a_bad_first_transaction_leaves_nothing);
	tcase_add_test(t, version_1_is_over_every_block_of_the_transaction);
	tcase_add_test(t, version_1_takes_a_commit_without_a_checksum);
	tcase_add_test(t, a_commit_block_torn_behind_its_header_is_good);
	tcase_add_test(t, a_full_descriptor_needs_no_last_tag);
	tcase_add_test(t, a_transaction_that_bites_its_tail_is_damage);
	tcase_add_test(t, a_log_full_of_one_transaction_ends);
	suite_add_tcase(s, t);
	return maker_run(s);
}
