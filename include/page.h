/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * page: memory for file data, from per-thread pools under a relaxed global cap.
 *
 * A run is 2^order contiguous pages of 4 KiB, order 0 (4 KiB) to PAGE_ORDER_MAX (1 MiB), page
 * aligned, so that O_DIRECT takes it. Runs are carved from 2 MiB mmap slabs (MADV_DONTDUMP). Each
 * thread slot has a pool of free runs; a thread frees into its own pool, whoever took the run, and
 * surplus moves in batches to a shared depot. The fast path of get and put takes no lock and
 * touches no shared cache line.
 *
 * The cap is apart from the memory: page_claim() asks whether that many dirty pages may be added
 * (cap_counter in base.h, with its stated error). What the cap does not count (read buffers,
 * read-ahead, bounce pages) has bounds of its own where it is used.
 *
 * Threads: everything may be called from any thread; the caller's pool is found by thread_slot().
 * Nothing here blocks, except for the depot's short mutex and mmap in the slow path.
 */
#ifndef CRYPTFS_PAGE_H
#define CRYPTFS_PAGE_H

#include "base.h"

enum {
	PAGE_ORDER_MAX = 8, /* 1 MiB */
	PAGE_RUN_BYTES_MAX = PAGE_BYTES << PAGE_ORDER_MAX,
	PAGE_SLAB_BYTES = 2 << 20,
};

struct pages; /* one per mount */

struct pages_config {
	uint64_t cap_bytes; /* 0: pages_default_cap() */
	bool lock_memory; /* mlock2(MLOCK_ONFAULT) the slabs; a failure is recorded, not an error */
};

struct pages_stats {
	uint64_t cap_pages;     /* the cap */
	uint64_t claimed_pages; /* relaxed: the counter's global value */
	uint64_t slab_bytes;    /* mapped in all */
	uint64_t out_pages;     /* in runs that callers hold; exact when quiet */
	bool locked;            /* every slab was locked */
};

/* 2 % of the machine's memory, at least 64 MiB, at most half of the memory. */
uint64_t pages_default_cap(void);
enum err pages_create(const struct pages_config *config, struct pages **out) must_check;
void pages_destroy(struct pages *p); /* every run must be back (ensure) */

/* NULL when the host has no memory left; contents are undefined. The caller owns the run. */
void *page_get(struct pages *p, unsigned order) must_check;
void page_put(struct pages *p, void *run, unsigned order); /* same order as it was taken with */
unsigned page_order_for(size_t bytes); /* smallest order holding bytes, <= max */

/* false: at the cap, nothing claimed. */
bool page_claim(struct pages *p, uint32_t pages) must_check;
void page_unclaim(struct pages *p, uint32_t pages);

/* Gives free memory in the depot and the caller's pool back to the system; contents are gone. */
void pages_trim(struct pages *p);
void pages_stats(const struct pages *p, struct pages_stats *out);

#endif
