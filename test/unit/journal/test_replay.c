/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which copy of a block wins, what revoke records take away, and checksums of logged blocks. */
#include "log_maker.h"

static const int versions[] = {0, 1, 2, 3};
static const uint32_t widths[] = {0, JBD2_INCOMPAT_64BIT};

START_TEST(the_newest_copy_wins)
{
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct maker k;
		struct journal_info info;
		struct overlay *o;

		maker_start(&k, versions[v], 0, 1, 7);
		maker_transaction(&k, 500, 1, 100);
		maker_begin(&k);
		maker_log(&k, 500, 2, false);
		maker_log(&k, 501, 3, false);
		maker_log(&k, 501, 4, false); /* twice in one transaction: the later */
		maker_end(&k);
		maker_commit(&k, 101);
		ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
		ck_assert_uint_eq(info.blocks, 2);
		ck_assert_uint_eq(overlay_count(o), 2);
		maker_expect(&k, o, 500, 2, false);
		maker_expect(&k, o, 501, 4, false);
		overlay_destroy(o);
		maker_stop(&k);
	}
}
END_TEST

START_TEST(an_escaped_block_gets_its_magic_back)
{
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct maker k;
		struct journal_info info;
		struct overlay *o;

		maker_start(&k, versions[v], JBD2_INCOMPAT_64BIT, 1, 7);
		maker_begin(&k);
		maker_log(&k, 500, 1, true);
		maker_log(&k, 501, 2, false);
		maker_log(&k, 502, 3, true);
		maker_end(&k);
		maker_commit(&k, 100);
		ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
		maker_expect(&k, o, 500, 1, true);
		maker_expect(&k, o, 501, 2, false);
		maker_expect(&k, o, 502, 3, true);
		overlay_destroy(o);
		maker_stop(&k);
	}
}
END_TEST

/* Transactions 2^32 - 2 to 1: revoked before, in, and after the block's transactions. */
START_TEST(revoke_records_cover_their_own_and_earlier_transactions)
{
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		for (size_t w = 0; w < ARRAY_SIZE(widths); w++) {
			struct maker k;
			struct journal_info info;
			struct overlay *o;
			const fsblk_t first[] = {502, 999}, second[] = {501, 502, 503};

			maker_start(&k, versions[v], widths[w], 1, UINT32_MAX - 1);
			maker_transaction(&k, 500, 1, 100);
			maker_revoke(&k, first, ARRAY_SIZE(first));
			maker_begin(&k);
			maker_log(&k, 501, 2, false);
			maker_log(&k, 503, 3, false);
			maker_end(&k);
			maker_commit(&k, 101);
			maker_revoke(&k, second, ARRAY_SIZE(second));
			maker_begin(&k);
			maker_log(&k, 502, 4, false); /* in the record's own transaction */
			maker_end(&k);
			maker_commit(&k, 102);
			maker_transaction(&k, 503, 5, 103); /* after it */
			ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
			ck_assert_uint_eq(info.sequence, 2);
			ck_assert_uint_eq(info.revoked, 3);
			ck_assert_uint_eq(info.blocks, 2);
			maker_expect(&k, o, 500, 1, false);
			maker_expect(&k, o, 501, 0, false);
			maker_expect(&k, o, 502, 0, false);
			maker_expect(&k, o, 503, 5, false);
			overlay_destroy(o);
			maker_stop(&k);
		}
	}
}
END_TEST

START_TEST(all_revoked_leaves_no_overlay)
{
	struct maker k;
	struct journal_info info;
	struct overlay *o;
	const fsblk_t block = 500;

	maker_start(&k, 3, 0, 1, 7);
	maker_transaction(&k, 500, 1, 100);
	maker_revoke(&k, &block, 1);
	maker_commit(&k, 101);
	ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
	ck_assert_ptr_null(o);
	ck_assert_uint_eq(info.transactions, 2);
	ck_assert_uint_eq(info.revoked, 1);
	maker_stop(&k);
}
END_TEST

START_TEST(a_damaged_copy_is_damage_unless_revoked)
{
	for (int version = 2; version <= 3; version++) {
		for (int replaced = 0; replaced < 2; replaced++) {
			struct maker k;
			const fsblk_t block = 500;

			maker_start(&k, version, 0, 1, 7);
			maker_transaction(&k, 500, 1, 100);
			maker_block(&k, k.data_at)[77] ^= 1;
			if (replaced)
				maker_transaction(&k, 500, 2, 101);
			maker_expect_scan(&k, ERR_JOURNAL, 0);
			maker_revoke(&k, &block, 1);
			maker_commit(&k, 102);
			maker_expect_scan(&k, OK, replaced ? 3 : 2);
			maker_stop(&k);
		}
	}
}
END_TEST

START_TEST(a_home_past_the_file_system_is_damage)
{
	static const fsblk_t homes[] = {MAKER_FS_BLOCKS, UINT32_MAX, UINT64_C(1) << 40};

	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		for (size_t i = 0; i < ARRAY_SIZE(homes); i++) {
			struct maker k;

			maker_start(&k, versions[v], JBD2_INCOMPAT_64BIT, 1, 7);
			maker_transaction(&k, homes[i], 1, 100);
			maker_expect_scan(&k, ERR_JOURNAL, 0);
			maker_stop(&k);
		}
	}
}
END_TEST

START_TEST(a_revoke_block_that_claims_too_much_is_damage)
{
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct maker k;
		struct disk_revoke *r;
		uint32_t most = MAKER_BLOCK - (versions[v] >= 2 ? 4 : 0);

		maker_start(&k, versions[v], 0, 1, 7);
		maker_transaction(&k, 500, 1, 100);
		maker_revoke(&k, NULL, 0);
		maker_commit(&k, 101);
		r = (void *)maker_block(&k, k.revoke_at);
		r->r_count = be32_make(0); /* less than its own header: no records */
		maker_seal_tail(&k, k.revoke_at);
		maker_expect_scan(&k, OK, 2);
		r->r_count = be32_make(most);
		maker_seal_tail(&k, k.revoke_at);
		maker_expect_scan(&k, OK, 2);
		r->r_count = be32_make(most + 1);
		maker_seal_tail(&k, k.revoke_at);
		maker_expect_scan(&k, ERR_JOURNAL, 0);
		r->r_count = be32_make(UINT32_MAX);
		maker_seal_tail(&k, k.revoke_at);
		maker_expect_scan(&k, ERR_JOURNAL, 0);
		maker_stop(&k);
	}
}
END_TEST

START_TEST(the_overlay_points_into_the_log)
{
	struct maker k;
	struct journal_info info;
	struct overlay *o;

	maker_start(&k, 3, 0, 8, 7); /* descriptor at 8, data at 9 and 10: in two runs */
	maker_begin(&k);
	maker_log(&k, 500, 1, false);
	maker_log(&k, 501, 2, true);
	maker_end(&k);
	maker_commit(&k, 100);
	ck_assert_int_eq(maker_scan(&k, &o, &info), OK);
	ck_assert_uint_eq(overlay_find(o, 500, 1)->log, 109);
	ck_assert(!overlay_find(o, 500, 1)->escaped);
	ck_assert_uint_eq(overlay_find(o, 501, 1)->log, 300);
	ck_assert(overlay_find(o, 501, 1)->escaped);
	overlay_destroy(o);
	maker_stop(&k);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("replay");
	TCase *t = tcase_create("replay");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, the_newest_copy_wins);
	tcase_add_test(t, an_escaped_block_gets_its_magic_back);
	tcase_add_test(t, revoke_records_cover_their_own_and_earlier_transactions);
	tcase_add_test(t, all_revoked_leaves_no_overlay);
	tcase_add_test(t, a_damaged_copy_is_damage_unless_revoked);
	tcase_add_test(t, a_home_past_the_file_system_is_damage);
	tcase_add_test(t, a_revoke_block_that_claims_too_much_is_damage);
	tcase_add_test(t, the_overlay_points_into_the_log);
	suite_add_tcase(s, t);
	return maker_run(s);
}
