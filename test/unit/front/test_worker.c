/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * worker.c: a slow request never keeps a quick one waiting, the limit holds, workers end.
 */
#include "fake.h"

static void gate(bool open)
{
	ioq_lock(&fake_gate_lock);
	fake_gate_open = open;
	ioq_unlock(&fake_gate_lock);
	cond_broadcast(&fake_gate_cond);
}

static unsigned workers(struct front *f)
{
	unsigned n;

	nodes_lock(&f->workers_lock);
	n = f->worker_count;
	nodes_unlock(&f->workers_lock);
	return n;
}

START_TEST(blocked_reads_do_not_starve_others)
{
	enum { BLOCKED = 60 };
	struct front_options options = {0};
	struct harness *h = calloc(1, sizeof(*h));
	struct fuse_read_in read_in = {.size = 4096};
	struct fuse_getattr_in in = {0};
	uint64_t unique;

	harness_open(h, &options);
	gate(false);
	harness_serve(h);
	for (int i = 0; i < BLOCKED; i++)
		harness_send(h, FUSE_READ, 16, &read_in, sizeof(read_in));
	/* All of them sit in the fake's READ, or are about to; this one is answered all the same.
	 */
	ck_assert_int_eq(harness_ask(h, FUSE_GETATTR, 12, &in, sizeof(in)), 0);
	ck_assert_uint_ge(workers(h->front), BLOCKED + 1);
	gate(true);
	for (int i = 0; i < BLOCKED; i++) {
		ck_assert_int_eq(harness_receive(h, &unique), 0);
		ck_assert_uint_eq(h->reply_bytes, 4096);
	}
	/*
	 * What the burst brought goes with it, down to what a busy mount may keep; this ends by
	 * check's time limit if not.
	 */
	while (workers(h->front) > FRONT_WORKERS_IDLE_MAX)
		sched_yield();
	ck_assert_int_eq(harness_ask(h, FUSE_GETATTR, 12, &in, sizeof(in)), 0);
	harness_close(h);
	free(h);
}
END_TEST

START_TEST(the_limit_holds)
{
	enum { LIMIT = 6 };
	struct front_options options = {.workers_max = LIMIT};
	struct harness *h = calloc(1, sizeof(*h));
	struct fuse_read_in read_in = {.size = 100};
	uint64_t unique;

	harness_open(h, &options);
	gate(false);
	harness_serve(h);
	for (int i = 0; i < 3 * LIMIT; i++)
		harness_send(h, FUSE_READ, 16, &read_in, sizeof(read_in));
	while (fake_waiting < LIMIT)
		sched_yield();
	ck_assert_uint_eq(workers(h->front), LIMIT);
	gate(true);
	for (int i = 0; i < 3 * LIMIT; i++)
		ck_assert_int_eq(harness_receive(h, &unique), 0);
	harness_close(h);
	free(h);
}
END_TEST

START_TEST(quiet_mounts_stay_small)
{
	struct front_options options = {0};
	struct harness *h = calloc(1, sizeof(*h));
	struct fuse_getattr_in in = {0};

	harness_open(h, &options);
	harness_serve(h);
	for (int i = 0; i < 2000; i++)
		ck_assert_int_eq(harness_ask(h, FUSE_GETATTR, 12, &in, sizeof(in)), 0);
	/*
	 * One request at a time needs one worker and one that waits. A worker that is kept from
	 * the processor after its answer counts as busy, so a loaded machine may add a few.
	 */
	ck_assert_uint_le(workers(h->front), 4 * FRONT_WORKERS_FIRST);
	harness_close(h);
	free(h);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("front/worker");
	TCase *tests = tcase_create("worker");

	tcase_add_test(tests, blocked_reads_do_not_starve_others);
	tcase_add_test(tests, the_limit_holds);
	tcase_add_test(tests, quiet_mounts_stay_small);
	suite_add_tcase(suite, tests);
	return harness_run(suite);
}
