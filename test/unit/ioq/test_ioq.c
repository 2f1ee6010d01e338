/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of ioq/ioq.c: what is counted, what is in flight, and that errors reach the caller.
 */
#include "ioq.h"

#include "base.h"
#include "scratch.h"

#include <semaphore.h>

START_TEST(test_counts)
{
	struct dev *d;
	struct ioq *q;
	struct ioq_stats s;
	uint8_t a[300] = {7}, b[300] = {0};
	struct iovec out[2] = {{a, 100}, {a + 100, 200}};
	struct iovec in = {b, 300};
	uint64_t sum = 0;

	ck_ok(dev_open_memory(4096, &d));
	ck_ok(ioq_create(d, &q));
	ck_assert_ptr_eq(ioq_dev(q), d);
	ck_ok(ioq_writev(q, out, 2, 512));
	ck_ok(ioq_readv(q, &in, 1, 512));
	ck_ok(ioq_readv(q, &in, 1, 0));
	ck_ok(ioq_readv(q, &in, 1, 512));
	ck_assert_mem_eq(a, b, 300);
	ck_ok(ioq_flush(q));
	ioq_stats(q, &s);
	ck_assert_uint_eq(s.class[IOQ_READ].requests, 3);
	ck_assert_uint_eq(s.class[IOQ_READ].bytes, 900);
	ck_assert_uint_eq(s.class[IOQ_READ].errors, 0);
	ck_assert_uint_eq(s.class[IOQ_READ].in_flight, 0);
	ck_assert_uint_eq(s.class[IOQ_SYNC_WRITE].requests, 1);
	ck_assert_uint_eq(s.class[IOQ_SYNC_WRITE].bytes, 300);
	ck_assert_uint_eq(s.flushes, 1);
	for (int i = 0; i < IOQ_LATENCY_BUCKETS; i++)
		sum += s.class[IOQ_READ].latency_buckets[i];
	ck_assert_uint_eq(sum, 3);
	ioq_destroy(q);
	ioq_destroy(NULL);
	dev_close(d);
}
END_TEST

START_TEST(test_errors)
{
	struct dev *below, *d;
	struct ioq *q;
	struct ioq_stats s;
	uint8_t a[16] = {0};
	struct iovec iov = {a, 16};

	ck_ok(dev_open_memory(4096, &below));
	ck_ok(dev_open_fault(below, &d));
	ck_ok(ioq_create(d, &q));
	dev_fault_arm(d, DEV_FAULT_READ, 2, false, ERR_IO);
	ck_ok(ioq_readv(q, &iov, 1, 0));
	ck_err(ioq_readv(q, &iov, 1, 0), ERR_IO);
	dev_fault_arm(d, DEV_FAULT_WRITE, 1, false, ERR_NOSPC);
	ck_err(ioq_writev(q, &iov, 1, 0), ERR_NOSPC);
	dev_fault_arm(d, DEV_FAULT_FLUSH, 1, true, ERR_IO);
	ck_err(ioq_flush(q), ERR_IO);
	ck_err(ioq_flush(q), ERR_IO);
	ck_err(ioq_readv(q, &iov, 1, 4090), ERR_DEV_BOUNDS);
	ioq_stats(q, &s);
	ck_assert_uint_eq(s.class[IOQ_READ].requests, 3);
	ck_assert_uint_eq(s.class[IOQ_READ].errors, 2);
	ck_assert_uint_eq(s.class[IOQ_READ].bytes, 16);
	ck_assert_uint_eq(s.class[IOQ_SYNC_WRITE].errors, 1);
	ck_assert_uint_eq(s.flushes, 2);
	ck_assert_uint_eq(dev_fault_calls(d, DEV_FAULT_FLUSH), 2);
	ioq_destroy(q);
	dev_close(d);
}
END_TEST

/* A device whose reads wait until they are let go. */
static sem_t gate_entered, gate_go;

static enum err gate_readv(struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	(void)d, (void)iov, (void)count, (void)offset_bytes;
	sem_post(&gate_entered);
	while (sem_wait(&gate_go) != 0)
		;
	return OK;
}

static const struct dev_ops gate_ops = {.readv = gate_readv};

static void *gate_run(void *arg)
{
	uint8_t a[64];
	struct iovec iov = {a, 64};

	return ioq_readv(arg, &iov, 1, 0) == OK ? NULL : arg;
}

START_TEST(test_in_flight)
{
	enum { READERS = 3 };
	struct dev gate = {.ops = &gate_ops, .size_bytes = 4096, .align_bytes = 1};
	struct ioq *q;
	struct ioq_stats s;
	pthread_t threads[READERS];

	ensure(sem_init(&gate_entered, 0, 0) == 0 && sem_init(&gate_go, 0, 0) == 0);
	ck_ok(ioq_create(&gate, &q));
	for (int i = 0; i < READERS; i++)
		ck_ok(thread_start(&threads[i], "reader", gate_run, q));
	for (int i = 0; i < READERS; i++)
		ensure(sem_wait(&gate_entered) == 0);
	ioq_stats(q, &s);
	ck_assert_uint_eq(s.class[IOQ_READ].in_flight, READERS);
	ck_assert_uint_eq(s.class[IOQ_READ].requests, 0);
	for (int i = 0; i < READERS; i++)
		sem_post(&gate_go);
	for (int i = 0; i < READERS; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		ck_assert_ptr_null(failed);
	}
	ioq_stats(q, &s);
	ck_assert_uint_eq(s.class[IOQ_READ].in_flight, 0);
	ck_assert_uint_eq(s.class[IOQ_READ].requests, READERS);
	ck_assert_uint_eq(s.class[IOQ_READ].bytes, READERS * 64);
	ioq_destroy(q);
}
END_TEST

START_TEST(test_quantile)
{
	struct ioq_class_stats s = {.requests = 0};

	ck_assert_uint_eq(ioq_latency_quantile_ns(&s, 0.5), 0);
	s.latency_buckets[10] = 90; /* [1024, 2048) */
	s.latency_buckets[20] = 9;  /* [1 Mi, 2 Mi) */
	s.latency_buckets[39] = 1;
	ck_assert_uint_eq(ioq_latency_quantile_ns(&s, 0.0), 2048);
	ck_assert_uint_eq(ioq_latency_quantile_ns(&s, 0.5), 2048);
	ck_assert_uint_eq(ioq_latency_quantile_ns(&s, 0.9), 2048);
	ck_assert_uint_eq(ioq_latency_quantile_ns(&s, 0.95), 2 << 20);
	ck_assert_uint_eq(ioq_latency_quantile_ns(&s, 0.99), 2 << 20);
	ck_assert_uint_eq(ioq_latency_quantile_ns(&s, 1.0), UINT64_C(2) << 39);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ioq/ioq");
	TCase *t = tcase_create("ioq");

	tcase_add_test(t, test_counts);
	tcase_add_test(t, test_errors);
	tcase_add_test(t, test_in_flight);
	tcase_add_test(t, test_quantile);
	suite_add_tcase(s, t);
	return scratch_main(s);
}
