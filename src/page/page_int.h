/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Private to page/: the depot under the per-thread pools.
 *
 * The depot owns all memory. It maps 2 MiB slabs and gives runs out of them by the buddy method,
 * so that what was freed in small runs comes together again into large ones, up to whole slabs
 * that can be unmapped. Its bookkeeping lies outside the slabs: a 1 MiB run needs half of one.
 */
#ifndef CRYPTFS_PAGE_INT_H
#define CRYPTFS_PAGE_INT_H

#include "page.h"

enum {
	SLAB_PAGES = PAGE_SLAB_BYTES / PAGE_BYTES,
	SLAB_ORDER = 9, /* a whole slab */
	HASH_BUCKETS = 256,
};
static_assert(PAGE_BYTES << SLAB_ORDER == PAGE_SLAB_BYTES, "a slab is one run of its order");

/* One page of a slab; what it says holds for the run that starts there. */
struct slab_page {
	struct list node; /* in depot.free[free_order - 1], while free */
	struct slab *slab;
	uint8_t free_order; /* order + 1 of the free run starting here; 0: none does */
};

struct slab {
	uint8_t *base; /* aligned to PAGE_SLAB_BYTES */
	struct slab *hash_next;
	bool locked; /* mlock2 has worked */
	struct slab_page page[SLAB_PAGES];
};

struct depot {
	struct mutex lock;
	struct list free[SLAB_ORDER + 1] GUARDED_BY(page_token);
	struct slab *hash[HASH_BUCKETS] GUARDED_BY(page_token);
	bool lock_memory;
	_Atomic bool all_locked;
	_Atomic uint64_t slab_bytes;
};

void depot_init(struct depot *d, bool lock_memory);
void depot_destroy(struct depot *d); /* unmaps everything, whoever holds it */

/* Up to `want` runs; how many came. 0 only when the host has no memory left. May call mmap. */
unsigned depot_get(struct depot *d, unsigned order, void **runs, unsigned want);
void depot_put(struct depot *d, unsigned order, void **runs, unsigned count);
void depot_trim(struct depot *d);

#endif
