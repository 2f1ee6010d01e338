/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of base/lock.c with the rank checker on, whatever the build has: the file is compiled into
 * the suite, so the archive's copy is not linked.
 */
#undef CRYPTFS_DEBUG_LOCKS
#define CRYPTFS_DEBUG_LOCKS 1
#include "lock.c"
#include "rig_run.h"

#include <signal.h>

/* Half of these tests break the rules on purpose, which clang sees before they run. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wthread-safety-analysis"
#endif

static struct mutex outer, inner, other;
static struct rwlock first, second;

static void locks_init(void)
{
	mutex_init(&outer);
	mutex_init(&inner);
	mutex_init(&other);
	rwlock_init(&first);
	rwlock_init(&second);
}

static void locks_destroy(void)
{
	mutex_destroy(&outer);
	mutex_destroy(&inner);
	mutex_destroy(&other);
	rwlock_destroy(&first);
	rwlock_destroy(&second);
}

START_TEST(rising_order_is_fine_whatever_the_order_of_dropping)
{
	nodes_lock(&outer);
	inode_lock_shared(&first);
	ioq_lock(&inner);
	inode_unlock_shared(&first);
	nodes_unlock(&outer);
	ioq_unlock(&inner);
	ck_assert_uint_eq(held_count, 0);
	inode_lock(&first);
	inode_lock_second(&second);
	inode_unlock_second(&second);
	inode_unlock(&first);
	ck_assert_uint_eq(held_count, 0);
}
END_TEST

START_TEST(falling_order_aborts)
{
	page_lock(&inner);
	group_lock(&outer);
}
END_TEST

START_TEST(same_rank_aborts_unless_second)
{
	inode_lock_shared(&first);
	inode_lock_shared(&second);
}
END_TEST

START_TEST(second_below_a_higher_rank_aborts)
{
	inode_lock(&first);
	page_lock(&inner);
	inode_lock_second(&second);
}
END_TEST

START_TEST(one_lock_twice_aborts)
{
	inode_lock_shared(&first);
	inode_lock_second(&first);
}
END_TEST

START_TEST(trylock_of_a_lock_held_aborts)
{
	page_lock(&inner);
	if (page_trylock(&inner))
		page_unlock(&inner);
	page_unlock(&inner);
}
END_TEST

START_TEST(dropping_what_is_not_held_aborts)
{
	lock_mutex_drop(&inner, LOCK_RANK_page);
}
END_TEST

START_TEST(dropping_as_another_class_aborts)
{
	page_lock(&inner);
	lock_mutex_drop(&inner, LOCK_RANK_ioq);
	page_unlock(&inner);
}
END_TEST

START_TEST(waiting_without_the_mutex_aborts)
{
	struct cond c;
	cond_init(&c);
	cond_wait(&c, &inner);
}
END_TEST

static void try_while_held(unsigned index, void *arg)
{
	(void)index;
	bool *got = arg;
	*got = page_trylock(&inner);
	if (*got)
		page_unlock(&inner);
}

START_TEST(trylock_says_no_to_another_thread_and_may_be_out_of_order)
{
	bool got = true;
	page_lock(&inner);
	rig_run_threads(1, try_while_held, &got);
	ck_assert(!got);
	if (!shard_trylock(&other))
		ck_abort();
	shard_unlock(&other);
	page_unlock(&inner);
	rig_run_threads(1, try_while_held, &got);
	ck_assert(got);
}
END_TEST

struct handover {
	struct cond changed;
	unsigned turn;
	unsigned rounds;
};

static void take_turns(unsigned index, void *arg)
{
	struct handover *h = arg;
	for (unsigned i = 0; i < h->rounds; i++) {
		ioq_lock(&inner);
		while (h->turn % 2 != index)
			cond_wait(&h->changed, &inner);
		h->turn++;
		cond_broadcast(&h->changed);
		ioq_unlock(&inner);
	}
}

START_TEST(condition_wakes_the_other_side)
{
	struct handover h = {.rounds = 1000};
	cond_init(&h.changed);
	rig_run_threads(2, take_turns, &h);
	ck_assert_uint_eq(h.turn, 2000);
	cond_destroy(&h.changed);
}
END_TEST

START_TEST(wait_until_ends_at_its_deadline)
{
	struct cond c;
	cond_init(&c);
	ioq_lock(&inner);
	uint64_t deadline = clock_ns() + 5000000;
	/* A wait may wake early without a signal; it may not say "deadline" before it. */
	while (cond_wait_until(&c, &inner, deadline))
		;
	ck_assert(clock_ns() >= deadline);
	ck_assert(!cond_wait_until(&c, &inner, 0));
	ioq_unlock(&inner);
	cond_destroy(&c);
}
END_TEST

static uint64_t shared_count;

static void count_under_locks(unsigned index, void *arg)
{
	(void)index, (void)arg;
	for (int i = 0; i < 2000; i++) {
		extent_lock(&first);
		shared_count++;
		extent_unlock(&first);
		extent_lock_shared(&first);
		ck_assert(shared_count > 0);
		extent_unlock_shared(&first);
	}
}

START_TEST(rwlock_excludes)
{
	rig_run_threads(8, count_under_locks, NULL);
	ck_assert_uint_eq(shared_count, 16000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base/lock");
	TCase *tc = rig_case(s, "order");
	tcase_add_checked_fixture(tc, locks_init, locks_destroy);
	tcase_add_test(tc, rising_order_is_fine_whatever_the_order_of_dropping);
	tcase_add_test(tc, trylock_says_no_to_another_thread_and_may_be_out_of_order);
	tcase_add_test(tc, condition_wakes_the_other_side);
	tcase_add_test(tc, wait_until_ends_at_its_deadline);
	tcase_add_test(tc, rwlock_excludes);
	TCase *bugs = rig_case(s, "bugs");
	tcase_add_checked_fixture(bugs, locks_init, locks_destroy);
	tcase_add_test_raise_signal(bugs, falling_order_aborts, SIGABRT);
	tcase_add_test_raise_signal(bugs, same_rank_aborts_unless_second, SIGABRT);
	tcase_add_test_raise_signal(bugs, second_below_a_higher_rank_aborts, SIGABRT);
	tcase_add_test_raise_signal(bugs, one_lock_twice_aborts, SIGABRT);
	tcase_add_test_raise_signal(bugs, trylock_of_a_lock_held_aborts, SIGABRT);
	tcase_add_test_raise_signal(bugs, dropping_what_is_not_held_aborts, SIGABRT);
	tcase_add_test_raise_signal(bugs, dropping_as_another_class_aborts, SIGABRT);
	tcase_add_test_raise_signal(bugs, waiting_without_the_mutex_aborts, SIGABRT);
	return rig_run_suite(s);
}
