/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ioq: reads and sync writes in the calling thread, counted per class.
 *
 * Each thread slot has statistics of its own, on cache lines of its own, so that a read touches no
 * line that another thread writes. Only the slot's owner writes there; a reader of the statistics
 * sums what it sees, which is exact when nothing is in flight. A request in flight shows as one
 * that has started and not ended, and that is how the write classes learn that reads are about.
 *
 * Threads: any, in parallel; no lock. The table of slots is mapped and not written at creation, so
 * that slots that no thread uses cost no memory.
 */
#include "ioq.h"

#include "base.h"

#include <stdlib.h>
#include <sys/mman.h>

struct ioq_slot_class {
	_Atomic uint64_t started, ended, errors, bytes;
	_Atomic uint64_t latency_buckets[IOQ_LATENCY_BUCKETS];
};

struct ioq_slot {
	struct ioq_slot_class class[IOQ_CLASSES];
	_Atomic uint64_t flushes;
} cacheline_aligned;

struct ioq {
	struct dev *dev;
	struct ioq_slot *slots; /* THREAD_SLOTS */
};

enum { IOQ_SLOTS_BYTES = THREAD_SLOTS * sizeof(struct ioq_slot) };

enum err ioq_create(struct dev *d, struct ioq **out)
{
	struct ioq *q = calloc(1, sizeof(*q));
	void *slots;

	if (!q)
		return ERR_NOMEM;
	slots = mmap(
		NULL, IOQ_SLOTS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (slots == MAP_FAILED) {
		free(q);
		return ERR_NOMEM;
	}
	q->dev = d;
	q->slots = slots;
	*out = q;
	return OK;
}

void ioq_destroy(struct ioq *q)
{
	struct ioq_stats s;

	if (!q)
		return;
	ioq_stats(q, &s);
	for (int i = 0; i < IOQ_CLASSES; i++)
		ensure(s.class[i].in_flight == 0);
	munmap(q->slots, IOQ_SLOTS_BYTES);
	free(q);
}

struct dev *ioq_dev(struct ioq *q)
{
	return q->dev;
}

/*
 * An addition by the only writer: a load and a store, without the price of a locked instruction.
 * The store releases, so that whoever sees a request's end also sees its start.
 */
static void ioq_count(_Atomic uint64_t *counter, uint64_t n)
{
	uint64_t v = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, v + n, memory_order_release);
}

static unsigned ioq_latency_bucket(uint64_t ns)
{
	unsigned log2 = ns == 0 ? 0 : 63 - (unsigned)__builtin_clzll(ns);

	return MIN(log2, (unsigned)IOQ_LATENCY_BUCKETS - 1);
}

static void ioq_ended(
	struct ioq_slot_class *s, const struct iovec *iov, int count, uint64_t start_ns, enum err e)
{
	uint64_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += iov[i].iov_len;
	ioq_count(&s->latency_buckets[ioq_latency_bucket(clock_ns() - start_ns)], 1);
	if (e == OK)
		ioq_count(&s->bytes, bytes);
	else
		ioq_count(&s->errors, 1);
	ioq_count(&s->ended, 1);
}

enum err ioq_readv(struct ioq *q, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	struct ioq_slot_class *s = &q->slots[thread_slot()].class[IOQ_READ];
	const uint64_t start_ns = clock_ns();
	enum err e;

	ioq_count(&s->started, 1);
	e = dev_readv(q->dev, iov, count, offset_bytes);
	ioq_ended(s, iov, count, start_ns, e);
	return e;
}

enum err ioq_writev(struct ioq *q, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	struct ioq_slot_class *s = &q->slots[thread_slot()].class[IOQ_SYNC_WRITE];
	const uint64_t start_ns = clock_ns();
	enum err e;

	ioq_count(&s->started, 1);
	e = dev_writev(q->dev, iov, count, offset_bytes);
	ioq_ended(s, iov, count, start_ns, e);
	return e;
}

enum err ioq_flush(struct ioq *q)
{
	ioq_count(&q->slots[thread_slot()].flushes, 1);
	return dev_flush(q->dev);
}

static uint64_t ioq_get(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_acquire);
}

void ioq_stats(const struct ioq *q, struct ioq_stats *out)
{
	*out = (struct ioq_stats){0};
	for (unsigned i = 0; i < THREAD_SLOTS; i++) {
		out->flushes += ioq_get(&q->slots[i].flushes);
		for (int c = 0; c < IOQ_CLASSES; c++) {
			const struct ioq_slot_class *s = &q->slots[i].class[c];
			struct ioq_class_stats *sum = &out->class[c];
			/* In this order no request is seen as ended before it started. */
			const uint64_t ended = ioq_get(&s->ended);
			const uint64_t started = ioq_get(&s->started);

			sum->requests += ended;
			sum->in_flight += started - ended;
			sum->bytes += ioq_get(&s->bytes);
			sum->errors += ioq_get(&s->errors);
			for (int b = 0; b < IOQ_LATENCY_BUCKETS; b++)
				sum->latency_buckets[b] += ioq_get(&s->latency_buckets[b]);
		}
	}
}

uint64_t ioq_latency_quantile_ns(const struct ioq_class_stats *s, double fraction)
{
	uint64_t total = 0, sum = 0;
	int last = 0;

	for (int b = 0; b < IOQ_LATENCY_BUCKETS; b++)
		total += s->latency_buckets[b];
	if (total == 0)
		return 0;
	for (int b = 0; b < IOQ_LATENCY_BUCKETS; b++) {
		if (s->latency_buckets[b] == 0)
			continue;
		sum += s->latency_buckets[b];
		last = b;
		if ((double)sum >= fraction * (double)total)
			break;
	}
	return UINT64_C(2) << last;
}
