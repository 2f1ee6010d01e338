/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of base/thread.c.
 */
#include "base.h"
#include "rig_run.h"

#include <signal.h>
#include <sys/prctl.h>

enum { MANY = 200 };

struct slots {
	pthread_barrier_t all_have_one;
	unsigned slot[MANY];
};

static void take_slot(unsigned index, void *arg)
{
	struct slots *s = arg;
	s->slot[index] = thread_slot();
	ck_assert_uint_eq(thread_slot(), s->slot[index]);
	(void)pthread_barrier_wait(&s->all_have_one);
}

START_TEST(living_threads_have_slots_of_their_own_and_give_them_back)
{
	unsigned mine = thread_slot();
	/* Many more threads than slots in all: they only fit because slots come back. */
	for (unsigned round = 0; round < 2 * THREAD_SLOTS / MANY; round++) {
		struct slots s;
		bool seen[THREAD_SLOTS] = {false};
		seen[mine] = true;
		ck_assert_int_eq(pthread_barrier_init(&s.all_have_one, NULL, MANY), 0);
		rig_run_threads(MANY, take_slot, &s);
		for (unsigned i = 0; i < MANY; i++) {
			/* The lowest free one is taken, so the numbers stay dense. */
			ck_assert_uint_le(s.slot[i], MANY);
			ck_assert(!seen[s.slot[i]]);
			seen[s.slot[i]] = true;
		}
		ck_assert_int_eq(pthread_barrier_destroy(&s.all_have_one), 0);
	}
	ck_assert_uint_eq(thread_slot(), mine);
}
END_TEST

static uint64_t inherited[THREAD_SLOTS];

static void add_to_slot(unsigned index, void *arg)
{
	(void)index, (void)arg;
	/* Not atomic: the thread sanitizer shows if a slot is handed over without order. */
	inherited[thread_slot()]++;
}

START_TEST(the_next_owner_sees_what_the_last_one_left)
{
	for (int round = 0; round < 50; round++)
		rig_run_threads(16, add_to_slot, NULL);
	uint64_t sum = 0;
	for (unsigned i = 0; i < THREAD_SLOTS; i++)
		sum += inherited[i];
	ck_assert_uint_eq(sum, 800);
}
END_TEST

static pthread_key_t late_key;

static void use_slot_late(void *arg)
{
	/* A destructor of somebody else's that runs after the slot may have gone. */
	*(unsigned *)arg = thread_slot();
}

static void *end_with_late_user(void *arg)
{
	(void)thread_slot();
	ck_assert_int_eq(pthread_setspecific(late_key, arg), 0);
	return NULL;
}

START_TEST(a_slot_taken_in_a_destructor_comes_back_too)
{
	ck_assert_int_eq(pthread_key_create(&late_key, use_slot_late), 0);
	for (int i = 0; i < THREAD_SLOTS + 10; i++) {
		unsigned slot = THREAD_SLOTS;
		pthread_t t;
		ck_assert_int_eq(thread_start(&t, "late", end_with_late_user, &slot), OK);
		ck_assert_int_eq(pthread_join(t, NULL), 0);
		ck_assert_uint_lt(slot, THREAD_SLOTS);
	}
}
END_TEST

struct told {
	char name[16];
	sigset_t mask;
};

static void *tell(void *arg)
{
	struct told *t = arg;
	ck_assert_int_eq(prctl(PR_GET_NAME, t->name), 0);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &t->mask), 0);
	return arg;
}

START_TEST(thread_has_its_name_and_no_signals)
{
	struct told t;
	pthread_t thread;
	void *result;
	sigset_t before, after;
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
	ck_assert_int_eq(thread_start(&thread, "a-rather-long-name", tell, &t), OK);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
	ck_assert_ptr_eq(result, &t);
	ck_assert_str_eq(t.name, "a-rather-long-n");
	ck_assert_int_eq(sigismember(&t.mask, SIGTERM), 1);
	ck_assert_int_eq(sigismember(&t.mask, SIGHUP), 1);
	ck_assert_int_eq(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
}
END_TEST

static void *wait_at_barrier(void *barrier)
{
	(void)thread_slot();
	(void)pthread_barrier_wait(barrier);
	(void)pthread_barrier_wait(barrier);
	return NULL;
}

START_TEST(more_living_threads_than_slots_abort)
{

	for (int i = 0; i <= THREAD_SLOTS; i++) {
		pthread_t t;
		pthread_attr_t attr;
		ck_assert_int_eq(pthread_attr_init(&attr), 0);
		ck_assert_int_eq(pthread_attr_setstacksize(&attr, 64 << 10), 0);
		pthread_barrier_t *own = malloc(sizeof(*own));
		ck_assert_ptr_nonnull(own);
		ck_assert_int_eq(pthread_barrier_init(own, NULL, 2), 0);
		ck_assert_int_eq(pthread_create(&t, &attr, wait_at_barrier, own), 0);
		(void)pthread_barrier_wait(own);
	}
}
END_TEST

START_TEST(clock_does_not_go_back)
{
	uint64_t last = clock_ns();
	for (int i = 0; i < 1000; i++) {
		uint64_t now = clock_ns();
		ck_assert(now >= last);
		last = now;
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base/thread");
	TCase *tc = rig_case(s, "thread");
	tcase_add_test(tc, living_threads_have_slots_of_their_own_and_give_them_back);
	tcase_add_test(tc, the_next_owner_sees_what_the_last_one_left);
	tcase_add_test(tc, a_slot_taken_in_a_destructor_comes_back_too);
	tcase_add_test(tc, thread_has_its_name_and_no_signals);
	tcase_add_test_raise_signal(tc, more_living_threads_than_slots_abort, SIGABRT);
	tcase_add_test(tc, clock_does_not_go_back);
	return rig_run_suite(s);
}
