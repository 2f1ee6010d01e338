/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rig_run: what every suite does the same way: running itself, running threads together, and
 * numbers from a seed that it prints.
 */
#ifndef CRYPTFS_RIG_RUN_H
#define CRYPTFS_RIG_RUN_H

#include <check.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Runs the suite and frees it; the value is main()'s. */
static inline int rig_run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A case with a limit that only a hang reaches, also on a slow machine under a sanitizer. */
static inline TCase *rig_case(Suite *suite, const char *name)
{
	TCase *tc = tcase_create(name);
	tcase_set_timeout(tc, 100);
	suite_add_tcase(suite, tc);
	return tc;
}

struct rig_thread {
	pthread_t thread;
	pthread_barrier_t *start;
	void (*run)(unsigned index, void *arg);
	unsigned index;
	void *arg;
};

static inline void *rig_thread_main(void *p)
{
	struct rig_thread *t = p;
	(void)pthread_barrier_wait(t->start);
	t->run(t->index, t->arg);
	return NULL;
}

/* Runs `count` threads, lets them go at one moment and waits for all. */
static inline void rig_run_threads(unsigned count, void (*run)(unsigned, void *), void *arg)
{
	pthread_barrier_t start;
	struct rig_thread *t = calloc(count, sizeof(*t));
	ck_assert_ptr_nonnull(t);
	ck_assert_int_eq(pthread_barrier_init(&start, NULL, count), 0);
	for (unsigned i = 0; i < count; i++) {
		t[i] = (struct rig_thread){.start = &start, .run = run, .index = i, .arg = arg};
		ck_assert_int_eq(pthread_create(&t[i].thread, NULL, rig_thread_main, &t[i]), 0);
	}
	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(pthread_join(t[i].thread, NULL), 0);
	ck_assert_int_eq(pthread_barrier_destroy(&start), 0);
	free(t);
}

/* From $CRYPTFS_TEST_SEED, else from the clock; printed, so that a failing run can be repeated. */
static inline uint64_t rig_seed(const char *test)
{
	const char *given = getenv("CRYPTFS_TEST_SEED");
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t seed = given != NULL ? strtoull(given, NULL, 0)
				      : (uint64_t)now.tv_sec << 20 ^ (uint64_t)now.tv_nsec;
	printf("%s: CRYPTFS_TEST_SEED=%llu\n", test, (unsigned long long)seed);
	(void)fflush(stdout);
	return seed;
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t rig_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

#endif
