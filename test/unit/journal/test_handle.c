/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Handles: credits, who waits for what, and what blocks do in a transaction. */
#include "small_fs.h"

#include <unistd.h>

/* --- credits --------------------------------------------------------------------------------- */

START_TEST(a_block_costs_one_credit_a_transaction)
{
	struct small s;
	struct journal_handle h;

	small_start(&s);
	small_begin(&s, 4, &h);
	small_put(&s, &h, SMALL_FREE, 1);
	small_put(&s, &h, SMALL_FREE + 1, 2);
	small_put(&s, &h, SMALL_FREE, 3);
	ck_assert_uint_eq(h.credits, 2);
	ck_assert_uint_eq(h.seq, journal_running(s.journal));
	ck_assert_int_eq(journal_stop(&h), OK);
	small_begin(&s, 1, &h); /* the block is in already */
	small_put(&s, &h, SMALL_FREE, 4);
	small_put(&s, &h, SMALL_FREE + 1, 5);
	ck_assert_uint_eq(h.credits, 1);
	ck_assert_int_eq(journal_forget(&h, SMALL_FREE, 2), OK); /* and gives them back */
	ck_assert_uint_eq(h.credits, 3);
	ck_assert_int_eq(journal_stop(&h), OK);
	small_stop(&s);
}
END_TEST

START_TEST(unused_credits_come_back)
{
	struct small s;
	struct journal_handle h;

	small_start(&s);
	for (int n = 0; n < 1000; n++) {
		small_begin(&s, journal_max_credits(s.journal) - 1, &h);
		small_put(&s, &h, SMALL_FREE, (uint64_t)n);
		ck_assert_int_eq(journal_stop(&h), OK);
	}
	ck_assert_uint_eq(small_stats(&s).commits, 0);
	small_stop(&s);
}
END_TEST

START_TEST(too_many_credits_are_refused)
{
	struct small s;
	struct journal_handle h;
	uint32_t most;

	small_start(&s);
	most = journal_max_credits(s.journal);
	ck_assert_uint_gt(most, SMALL_LOG / 5);
	ck_assert_uint_le(most, SMALL_LOG / 4);
	ck_assert_int_eq(journal_start(s.journal, most + 1, &h), ERR_NOSPC);
	ck_assert_int_eq(journal_start(s.journal, UINT32_MAX, &h), ERR_NOSPC);
	small_begin(&s, most - 2, &h);
	ck_assert(!journal_extend(&h, 3));
	ck_assert(!journal_extend(&h, UINT32_MAX));
	ck_assert(journal_extend(&h, 2));
	ck_assert(!journal_extend(&h, 1));
	ck_assert_uint_eq(h.credits, most);
	for (uint32_t n = 0; n < most; n++)
		small_put(&s, &h, SMALL_FREE + n, n);
	ck_assert_uint_eq(h.credits, 0);
	ck_assert_int_eq(journal_stop(&h), OK);
	small_stop(&s);
}
END_TEST

/* --- waiting --------------------------------------------------------------------------------- */

struct waiter {
	struct small *s;
	uint32_t credits;
	uint64_t seq, value;
	_Atomic bool let_in;
	pthread_t thread;
};

static void *waiter_run(void *arg)
{
	struct waiter *w = arg;
	struct journal_handle h;

	ck_assert_int_eq(journal_start(w->s->journal, w->credits, &h), OK);
	w->seq = h.seq;
	atomic_store(&w->let_in, true);
	small_put(w->s, &h, SMALL_FREE + 1000, w->value);
	ck_assert_int_eq(journal_stop(&h), OK);
	return NULL;
}

static void waiter_start(struct waiter *w, struct small *s, uint32_t credits)
{
	*w = (struct waiter){.s = s, .credits = credits, .value = 77};
	ck_assert_int_eq(pthread_create(&w->thread, NULL, waiter_run, w), 0);
}

static enum transaction_state running_state(struct small *s)
{
	journal_lock(&s->journal->lock);
	enum transaction_state state = s->journal->running->state;

	journal_unlock(&s->journal->lock);
	return state;
}

START_TEST(a_full_transaction_is_committed_for_who_does_not_fit)
{
	struct small s;
	struct waiter w;
	struct journal_handle h;

	small_start(&s);
	small_begin(&s, journal_max_credits(s.journal), &h);
	small_put(&s, &h, SMALL_FREE, 1);
	waiter_start(&w, &s, 1);
	/* The commit waits for the open handle, which goes on in its transaction. */
	small_wait(running_state(&s) == TRANSACTION_LOCKED);
	ck_assert(!journal_extend(&h, 1));
	small_put(&s, &h, SMALL_FREE + 1, 2);
	uint64_t seq = h.seq;

	ck_assert(!atomic_load(&w.let_in));
	ck_assert_uint_lt(journal_durable(s.journal), seq);
	ck_assert_int_eq(journal_stop(&h), OK);
	ck_assert_int_eq(pthread_join(w.thread, NULL), 0);
	ck_assert_uint_eq(w.seq, seq + 1);
	ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	ck_assert(small_replayed(&s, SMALL_FREE + 1, 2));
	small_stop(&s);
}
END_TEST

START_TEST(a_full_transaction_of_nothing_is_not_committed)
{
	struct small s;
	struct waiter w;
	struct journal_handle h;

	small_start(&s);
	small_begin(&s, journal_max_credits(s.journal), &h);
	waiter_start(&w, &s, 1);
	small_wait(running_state(&s) == TRANSACTION_LOCKED);
	uint64_t seq = h.seq;

	ck_assert_int_eq(journal_stop(&h), OK);
	ck_assert_int_eq(pthread_join(w.thread, NULL), 0);
	ck_assert_uint_eq(w.seq, seq);
	ck_assert_uint_eq(small_writes(&s), 0);
	small_stop(&s);
}
END_TEST

START_TEST(a_restart_goes_on_in_the_next_transaction_when_one_is_due)
{
	struct small s;
	struct waiter w;
	struct journal_handle h;

	small_start(&s);
	small_begin(&s, journal_max_credits(s.journal), &h);
	uint64_t seq = h.seq;

	small_put(&s, &h, SMALL_FREE, 1);
	ck_assert_int_eq(journal_restart(&h, journal_max_credits(s.journal)), OK);
	ck_assert_uint_eq(h.seq, seq + 1); /* 1 + max do not fit */
	ck_assert_int_eq(journal_restart(&h, 2), OK);
	ck_assert_uint_eq(h.seq, seq + 1);
	ck_assert_uint_eq(h.credits, 2);
	small_put(&s, &h, SMALL_FREE + 1, 2);
	waiter_start(&w, &s, journal_max_credits(s.journal));
	small_wait(running_state(&s) == TRANSACTION_LOCKED);
	ck_assert_int_eq(journal_restart(&h, 1), OK);
	ck_assert_uint_gt(h.seq, seq + 1);
	ck_assert_int_eq(journal_stop(&h), OK);
	ck_assert_int_eq(pthread_join(w.thread, NULL), 0);
	small_stop(&s);
}
END_TEST

/* --- forgetting ------------------------------------------------------------------------------ */

static uint32_t revoked(struct small *s)
{
	struct overlay *o = NULL;
	struct journal_info info;

	ck_assert_int_eq(journal_scan(&s->config.log, &o, &info), OK);
	overlay_destroy(o);
	return info.revoked;
}

START_TEST(what_was_never_logged_leaves_without_a_trace)
{
	struct small s;
	struct journal_handle h;

	small_start(&s);
	small_begin(&s, 3, &h);
	small_put(&s, &h, SMALL_FREE, 1);
	small_put(&s, &h, SMALL_FREE + 1, 2);
	ck_assert_int_eq(journal_forget(&h, SMALL_FREE, 1), OK);
	uint64_t seq = h.seq;

	ck_assert_int_eq(journal_stop(&h), OK);
	ck_assert(small_cached(&s, SMALL_FREE, SMALL_FREE)); /* read again from home */
	ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	ck_assert_uint_eq(small_stats(&s).logged_blocks, 1);
	ck_assert_uint_eq(small_stats(&s).revoked_blocks, 0);
	ck_assert(small_replayed(&s, SMALL_FREE, SMALL_FREE));
	ck_assert(small_replayed(&s, SMALL_FREE + 1, 2));
	small_stop(&s);
	/* All of it: nothing is left to commit. */
	small_start(&s);
	seq = small_change(&s, SMALL_FREE, 1);
	(void)small_forget(&s, SMALL_FREE, 1);
	ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	ck_assert_uint_eq(small_writes(&s), 0);
	small_stop(&s);
}
END_TEST

START_TEST(what_was_logged_is_revoked_and_stays_cached_until_then)
{
	struct small s;
	uint64_t seq;

	small_start(&s);
	ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, 1)), OK);
	seq = small_change(&s, SMALL_FREE, 2);
	ck_assert_uint_eq(small_forget(&s, SMALL_FREE, 1), seq);
	/* Until it is durable a crash needs the logged copy, and the home has neither. */
	ck_assert(small_cached(&s, SMALL_FREE, 2));
	ck_assert(small_replayed(&s, SMALL_FREE, 1));
	ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	ck_assert_uint_eq(revoked(&s), 1);
	ck_assert(small_cached(&s, SMALL_FREE, SMALL_FREE));
	ck_assert(small_replayed(&s, SMALL_FREE, SMALL_FREE));
	ck_assert_uint_eq(small_stats(&s).pending, 0);
	small_stop(&s);
}
END_TEST

START_TEST(a_block_written_again_is_not_revoked)
{
	struct small s;
	struct journal_handle h;

	for (int again = 0; again < 2; again++) {
		small_start(&s);
		ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, 1)), OK);
		small_begin(&s, 2, &h);
		ck_assert_int_eq(journal_forget(&h, SMALL_FREE, 1), OK);
		ck_assert_int_eq(journal_forget(&h, SMALL_FREE, 1), OK); /* twice is once */
		small_put(&s, &h, SMALL_FREE, 2);
		if (again)
			ck_assert_int_eq(journal_forget(&h, SMALL_FREE, 1), OK);
		uint64_t seq = h.seq;

		ck_assert_int_eq(journal_stop(&h), OK);
		ck_assert_int_eq(journal_commit(s.journal, seq), OK);
		ck_assert_uint_eq(revoked(&s), again ? 1 : 0);
		ck_assert(small_replayed(&s, SMALL_FREE, again ? SMALL_FREE : 2));
		ck_assert(small_cached(&s, SMALL_FREE, again ? SMALL_FREE : 2));
		small_stop(&s);
	}
}
END_TEST

/* After the revoke is durable; the copy of the later transaction is replayed, data is not harmed.
 */
START_TEST(a_revoked_block_lives_again_as_data_and_as_metadata)
{
	struct small s;
	uint8_t data[SMALL_BLOCK];
	struct iovec iov = {data, sizeof(data)};
	struct cache_block *b;
	struct journal_handle h;

	small_start(&s);
	ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, 1)), OK);
	ck_assert_int_eq(journal_commit(s.journal, small_forget(&s, SMALL_FREE, 1)), OK);
	small_fill(data, 50);
	ck_assert_int_eq(cache_write_past(s.cache, SMALL_FREE, 1, &iov, 1), OK);
	ck_assert(small_replayed(&s, SMALL_FREE, 50));
	small_begin(&s, 1, &h);
	ck_assert_int_eq(cache_get_new(s.cache, SMALL_FREE, &b), OK);
	ck_assert_int_eq(journal_write(&h, b), OK);
	small_fill(b->data, 3);
	cache_put(s.cache, b);
	uint64_t seq = h.seq;

	ck_assert_int_eq(journal_stop(&h), OK);
	ck_assert(small_replayed(&s, SMALL_FREE, 50));
	ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	ck_assert(small_replayed(&s, SMALL_FREE, 3));
	ck_assert_int_eq(journal_commit(s.journal, small_forget(&s, SMALL_FREE, 1)), OK);
	ck_assert(small_replayed(&s, SMALL_FREE, 50));
	small_stop(&s);
}
END_TEST

START_TEST(many_blocks_are_forgotten_at_once)
{
	enum { LOGGED = 500, FREED = 5000 };
	struct small s;
	uint64_t seq = 0;

	small_start(&s);
	for (fsblk_t n = 0; n < LOGGED; n++) {
		seq = small_change(&s, SMALL_FREE + n * 3, n);
		if (n % 100 == 99)
			ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	}
	uint32_t before = small_stats(&s).used;

	seq = small_forget(&s, SMALL_FREE, FREED);
	ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	ck_assert_uint_eq(small_stats(&s).revoked_blocks, LOGGED);
	/* 125 records of 8 bytes a block behind its header, before its tail. */
	ck_assert_uint_eq(small_stats(&s).used - before, (LOGGED + 124) / 125 + 1);
	ck_assert_uint_eq(revoked(&s), LOGGED);
	for (fsblk_t n = 0; n < LOGGED; n++)
		ck_assert(small_replayed(&s, SMALL_FREE + n * 3, SMALL_FREE + n * 3));
	small_stop(&s);
}
END_TEST

/* --- our own bugs ---------------------------------------------------------------------------- */

static void bug_nested(struct small *s)
{
	struct journal_handle a, b;

	small_begin(s, 1, &a);
	small_begin(s, 1, &b);
}
static void bug_no_credit(struct small *s)
{
	struct journal_handle h;

	small_begin(s, 1, &h);
	small_put(s, &h, SMALL_FREE, 1);
	small_put(s, &h, SMALL_FREE + 1, 2);
}
static void bug_close_with_a_handle(struct small *s)
{
	struct journal_handle h;

	small_begin(s, 1, &h);
	(void)!journal_close(s->journal);
}
static void (*const bugs[])(struct small *) = {bug_nested, bug_no_credit, bug_close_with_a_handle};

START_TEST(our_own_bugs_abort)
{
	struct small s;

	small_start(&s);
	bugs[_i](&s);
}
END_TEST

/* --- failure --------------------------------------------------------------------------------- */

static void *commit_run_in_thread(void *arg)
{
	struct waiter *w = arg;
	enum err *e = calloc(1, sizeof(*e));

	*e = journal_commit(w->s->journal, w->seq);
	return e;
}

START_TEST(a_failed_journal_refuses_everything_and_wakes_everyone)
{
	struct small s;
	struct waiter w = {.s = &s};
	struct journal_handle h;
	struct cache_block *b;
	void *told;

	small_start(&s);
	ck_assert_int_eq(cache_get(s.cache, SMALL_FREE, &b), OK);
	small_begin(&s, 3, &h);
	small_put(&s, &h, SMALL_FREE + 1, 1);
	w.seq = h.seq;
	ck_assert_int_eq(pthread_create(&w.thread, NULL, commit_run_in_thread, &w), 0);
	small_wait(running_state(&s) == TRANSACTION_LOCKED);
	ck_assert(!journal_failed(s.journal));
	journal_fail(s.journal, ERR_CORRUPT, "block 5 is not what it should be");
	journal_fail(s.journal, ERR_IO, "a second failure changes nothing");
	ck_assert(journal_failed(s.journal));
	ck_assert_int_eq(pthread_join(w.thread, &told), 0);
	ck_assert_int_eq(*(enum err *)told, ERR_CORRUPT);
	free(told);
	ck_assert_int_eq(journal_write(&h, b), ERR_ROFS);
	ck_assert_int_eq(journal_forget(&h, SMALL_FREE, 1), ERR_ROFS);
	ck_assert(!journal_extend(&h, 1));
	ck_assert_int_eq(journal_stop(&h), ERR_ROFS);
	ck_assert_int_eq(journal_start(s.journal, 1, &h), ERR_ROFS);
	ck_assert_int_eq(journal_commit(s.journal, w.seq), ERR_ROFS);
	ck_assert_int_eq(journal_checkpoint(s.journal), ERR_ROFS);
	ck_assert(small_cached(&s, SMALL_FREE + 1, 1)); /* reads go on */
	cache_put(s.cache, b);
	ck_assert_int_eq(journal_close(s.journal), ERR_ROFS);
	ck_assert_uint_eq(small_writes(&s), 0);
	ck_assert(small_cached(&s, SMALL_FREE + 1, SMALL_FREE + 1));
	small_free(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("handle");
	TCase *tc = rig_case(suite, "handle");

	tcase_add_test(tc, a_block_costs_one_credit_a_transaction);
	tcase_add_test(tc, unused_credits_come_back);
	tcase_add_test(tc, too_many_credits_are_refused);
	tcase_add_test(tc, a_full_transaction_is_committed_for_who_does_not_fit);
	tcase_add_test(tc, a_full_transaction_of_nothing_is_not_committed);
	tcase_add_test(tc, a_restart_goes_on_in_the_next_transaction_when_one_is_due);
	tcase_add_test(tc, what_was_never_logged_leaves_without_a_trace);
	tcase_add_test(tc, what_was_logged_is_revoked_and_stays_cached_until_then);
	tcase_add_test(tc, a_block_written_again_is_not_revoked);
	tcase_add_test(tc, a_revoked_block_lives_again_as_data_and_as_metadata);
	tcase_add_test(tc, many_blocks_are_forgotten_at_once);
	tcase_add_test(tc, a_failed_journal_refuses_everything_and_wakes_everyone);
	tc = rig_case(suite, "bugs");
	tcase_add_loop_test_raise_signal(tc, our_own_bugs_abort, 6, 0, (int)ARRAY_SIZE(bugs));
	return rig_run_suite(suite);
}
