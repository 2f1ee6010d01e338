/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ioq: requests to one device in classes, so that a read never waits behind writes.
 *
 * A read runs in the calling thread (preadv2, no thread hop: a cross-CPU wake-up costs more than a
 * 4 KiB read) and is counted, so that the write classes know when reads are about. A sync write
 * runs in the calling thread too. Flush is dev_flush, never skipped.
 *
 * Threads: any, in parallel. Calls block until the device has answered.
 */
#ifndef CRYPTFS_IOQ_H
#define CRYPTFS_IOQ_H

#include "dev.h"

enum ioq_class { IOQ_READ, IOQ_SYNC_WRITE, IOQ_CLASSES };

enum { IOQ_LATENCY_BUCKETS = 40 }; /* bucket i counts latencies of [2^i, 2^(i+1)) ns */

struct ioq_class_stats {
	uint64_t requests; /* completed */
	uint64_t bytes;
	uint64_t errors;
	uint64_t in_flight;
	uint64_t latency_buckets[IOQ_LATENCY_BUCKETS];
};
struct ioq_stats {
	struct ioq_class_stats class[IOQ_CLASSES];
	uint64_t flushes;
};

struct ioq;

enum err ioq_create(struct dev *d, struct ioq **out) must_check; /* borrows d */
void ioq_destroy(struct ioq *q);                                 /* nothing may be in flight */
struct dev *ioq_dev(struct ioq *q);

enum err ioq_readv(struct ioq *q, const struct iovec *iov, int count, uint64_t offset_bytes)
	must_check;
enum err ioq_writev(struct ioq *q, const struct iovec *iov, int count, uint64_t offset_bytes)
	must_check; /* the sync write class */
enum err ioq_flush(struct ioq *q) must_check;
void ioq_stats(
	const struct ioq *q, struct ioq_stats *out); /* relaxed snapshot, summed over slots */

/* The latency below which `fraction` (0..1) of a class's requests completed, in ns; 0 if none. */
uint64_t ioq_latency_quantile_ns(const struct ioq_class_stats *s, double fraction);

#endif
