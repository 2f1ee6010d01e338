/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Checkpoints: what goes home, when the tail may move, and that the log never runs full. */
#include "small_fs.h"

#include <unistd.h>

START_TEST(everything_goes_home_and_the_log_is_empty)
{
	struct small s;

	small_start(&s);
	for (uint64_t n = 0; n < 300; n++) {
		uint64_t seq = small_change(&s, SMALL_FREE + n % 70, n);

		if (n % 9 == 0)
			ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	}
	ck_assert_int_eq(journal_checkpoint(s.journal), OK);
	for (uint64_t n = 230; n < 300; n++)
		ck_assert(small_holds(small_home(&s, SMALL_FREE + n % 70), n));
	ck_assert_uint_eq(small_stats(&s).used, 0);
	ck_assert_uint_eq(small_stats(&s).pending, 0);
	ck_assert_uint_eq(be32_get(small_super(&s)->s_start), 0);
	ck_assert_uint_eq(
		be32_get(small_super(&s)->s_sequence), (uint32_t)journal_running(s.journal));
	ck_assert_int_eq(journal_checkpoint(s.journal), OK); /* again: nothing to do */
	small_stop(&s);
}
END_TEST

START_TEST(a_block_goes_home_once_for_many_transactions)
{
	struct small s;

	small_start(&s);
	for (uint64_t n = 0; n < 50; n++)
		ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, n)), OK);
	ck_assert_uint_eq(small_stats(&s).pending, 1);
	ck_assert_int_eq(journal_checkpoint(s.journal), OK);
	ck_assert_uint_eq(small_stats(&s).home_blocks, 1);
	ck_assert(small_holds(small_home(&s, SMALL_FREE), 49));
	small_stop(&s);
}
END_TEST

/* A block that the running transaction holds cannot go home, so that transaction has to commit. */
START_TEST(a_block_that_is_always_in_use_does_not_hold_the_log)
{
	struct small s;
	struct journal_handle h;
	uint32_t most;

	small_start(&s);
	most = journal_max_credits(s.journal);
	for (uint64_t n = 0; n < 40; n++) {
		small_begin(&s, most, &h);
		for (uint32_t k = 0; k < most; k++)
			small_put(&s, &h, SMALL_FREE + k, n);
		ck_assert_int_eq(journal_stop(&h), OK);
		ck_assert_uint_lt(small_stats(&s).used, SMALL_LOG);
	}
	ck_assert_uint_gt(small_stats(&s).checkpoints, 5);
	ck_assert_int_eq(journal_commit(s.journal, journal_running(s.journal)), OK);
	for (uint32_t k = 0; k < most; k++)
		ck_assert(small_replayed(&s, SMALL_FREE + k, 39));
	small_stop(&s);
}
END_TEST

START_TEST(a_limit_on_dirty_blocks_is_kept_without_asking)
{
	struct small s;

	small_make(&s);
	s.config.dirty_limit_bytes = 10 * SMALL_BLOCK;
	ck_assert_int_eq(small_open(&s), OK);
	for (uint64_t n = 0; n < 100; n++)
		(void)small_change(&s, SMALL_FREE + n, n);
	ck_assert_int_eq(journal_commit(s.journal, journal_running(s.journal)), OK);
	small_wait(small_stats(&s).pending <= 10);
	small_stop(&s);
}
END_TEST

/* --- at certain moments ---------------------------------------------------------------------- */

/* In the journal's thread, after the homes are written and before the tail moves. */
static void forget_before_the_tail_moves(struct small *s)
{
	struct journal_handle h;

	if (s->turn++ != 0)
		return;
	small_begin(s, 2, &h);
	small_put(s, &h, SMALL_FREE, 5);
	ck_assert_int_eq(journal_forget(&h, SMALL_FREE, 1), OK); /* the log has a copy: revoked */
	ck_assert_int_eq(journal_forget(&h, SMALL_FREE + 1, 1), OK);
	small_put(s, &h, SMALL_FREE + 2, 7);
	ck_assert_int_eq(journal_stop(&h), OK);
}

START_TEST(a_revoke_of_what_has_left_the_log_is_dropped)
{
	struct small s;

	small_start(&s);
	for (uint64_t n = 0; n < 3; n++)
		(void)small_change(&s, SMALL_FREE + n, n);
	ck_assert_int_eq(journal_commit(s.journal, journal_running(s.journal)), OK);
	s.hook.before_flush = forget_before_the_tail_moves;
	ck_assert_int_eq(journal_checkpoint(s.journal), OK);
	ck_assert_uint_eq(small_stats(&s).used, 0);
	ck_assert_int_eq(journal_commit(s.journal, journal_running(s.journal)), OK);
	ck_assert_uint_eq(small_stats(&s).revoked_blocks, 0);
	ck_assert(small_replayed(&s, SMALL_FREE, 0));
	ck_assert(small_cached(&s, SMALL_FREE, 0));
	ck_assert(small_replayed(&s, SMALL_FREE + 1, 1));
	ck_assert(small_replayed(&s, SMALL_FREE + 2, 7));
	small_stop(&s);
}
END_TEST

/* In the journal's thread, while a copy of the block is on its way home. */
static void change_on_the_way_home(struct small *s, uint64_t offset_bytes, uint64_t len_bytes)
{
	if (offset_bytes != SMALL_FREE * SMALL_BLOCK || s->turn++ != 0)
		return;
	ck_assert_uint_eq(len_bytes, 2 * SMALL_BLOCK);
	(void)small_change(s, SMALL_FREE, 5);
	(void)small_forget(s, SMALL_FREE + 1, 1);
}

START_TEST(a_block_changed_on_its_way_home_is_home_as_it_was)
{
	struct small s;

	small_start(&s);
	(void)small_change(&s, SMALL_FREE, 1);
	(void)small_change(&s, SMALL_FREE + 1, 2);
	ck_assert_int_eq(journal_commit(s.journal, journal_running(s.journal)), OK);
	s.hook.before_write = change_on_the_way_home;
	ck_assert_int_eq(journal_checkpoint(s.journal), OK);
	ck_assert(small_holds(small_home(&s, SMALL_FREE), 1));
	ck_assert(small_holds(small_home(&s, SMALL_FREE + 1), 2));
	ck_assert(small_cached(&s, SMALL_FREE, 5));
	ck_assert(small_replayed(&s, SMALL_FREE, 1));
	ck_assert_int_eq(journal_checkpoint(s.journal), OK);
	ck_assert(small_holds(small_home(&s, SMALL_FREE), 5));
	small_stop(&s);
}
END_TEST

/* In the journal's thread, in the middle of many homes: a commit that is due comes between. */
static uint64_t due_seq;

static void ask_for_a_commit(struct small *s, uint64_t offset_bytes, uint64_t len_bytes)
{
	(void)len_bytes;
	if (offset_bytes < SMALL_FREE * SMALL_BLOCK || s->turn++ != 2)
		return;
	due_seq = small_change(s, SMALL_FREE + 5000, 5);
	journal_lock(&s->journal->lock);
	s->journal->commit_wanted = due_seq;
	journal_unlock(&s->journal->lock);
	ck_assert_uint_gt(small_stats(s).pending, 100);
}

static void the_commit_came_first(struct small *s)
{
	struct journal_stats stats = small_stats(s);

	if (due_seq != 0 && s->turn++ == 3)
		ck_assert_uint_gt(stats.pending, 50);
}

START_TEST(a_commit_that_is_due_does_not_wait_for_all_homes)
{
	struct small s;

	small_start(&s);
	due_seq = 0;
	for (uint64_t n = 0; n < 200; n++)
		(void)small_change(&s, SMALL_FREE + 3 * n, n);
	ck_assert_int_eq(journal_commit(s.journal, journal_running(s.journal)), OK);
	s.hook.before_write = ask_for_a_commit;
	s.hook.before_flush = the_commit_came_first;
	ck_assert_int_eq(journal_checkpoint(s.journal), OK);
	ck_assert_uint_gt(s.turn, 3);
	for (uint64_t n = 0; n < 200; n++)
		ck_assert(small_holds(small_home(&s, SMALL_FREE + 3 * n), n));
	ck_assert_uint_ge(journal_durable(s.journal), due_seq);
	small_stop(&s);
}
END_TEST

/* --- many ------------------------------------------------------------------------------------ */

enum { THREADS = 4, TURNS = 400 };

static void fill_run(unsigned index, void *arg)
{
	struct small *s = arg;
	uint64_t random = index;

	for (uint64_t n = 0; n < TURNS; n++) {
		struct journal_handle h;
		uint32_t credits = 1 + (uint32_t)(rig_random(&random) % 60);

		small_begin(s, credits, &h);
		for (uint32_t k = 0; k < credits; k++)
			small_put(s, &h, SMALL_FREE + 1000 * index + (n * 7 + k) % 900, n);
		ck_assert_int_eq(journal_stop(&h), OK);
		if (n % 50 == 0)
			ck_assert_int_eq(
				journal_commit(s->journal, journal_running(s->journal)), OK);
	}
}

START_TEST(the_log_never_runs_full)
{
	struct small s;

	small_start(&s);
	rig_run_threads(THREADS, fill_run, &s);
	ck_assert_uint_gt(small_stats(&s).logged_blocks, 5 * SMALL_LOG);
	ck_assert_int_eq(journal_close(s.journal), OK);
	for (uint64_t index = 0; index < THREADS; index++)
		ck_assert(small_holds(
			small_home(&s, SMALL_FREE + 1000 * index + (TURNS - 1) * 7 % 900),
			TURNS - 1));
	small_free(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("checkpoint");
	TCase *tc = rig_case(suite, "checkpoint");

	tcase_add_test(tc, everything_goes_home_and_the_log_is_empty);
	tcase_add_test(tc, a_block_goes_home_once_for_many_transactions);
	tcase_add_test(tc, a_block_that_is_always_in_use_does_not_hold_the_log);
	tcase_add_test(tc, a_limit_on_dirty_blocks_is_kept_without_asking);
	tcase_add_test(tc, a_revoke_of_what_has_left_the_log_is_dropped);
	tcase_add_test(tc, a_block_changed_on_its_way_home_is_home_as_it_was);
	tcase_add_test(tc, a_commit_that_is_due_does_not_wait_for_all_homes);
	tcase_add_test(tc, the_log_never_runs_full);
	return rig_run_suite(suite);
}
