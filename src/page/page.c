/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * page/page: the pools of the threads, the cap, and what the door promises.
 *
 * A pool belongs to a thread slot and is touched by the thread that has the slot, and nobody else,
 * so it needs no lock; only its count of pages that are out is atomic, for the statistics. Per
 * order it is a stack of runs: the last one put, still in the CPU's cache, is the next one got.
 * An empty stack is filled by half its size from the depot, a full one gives its older half back.
 * Invariant: the sum of all counts is what callers hold. One count may be negative, since a run
 * may be put by another thread than got it.
 * What it does not do: wait at the cap; it says no, and the caller queues.
 */
#include "page_int.h"

#include <stdlib.h>
#include <unistd.h>

/* How many runs of an order a pool keeps: 256 KiB of each, and one run of the largest. */
static const uint8_t stack_size[PAGE_ORDER_MAX + 1] = {64, 32, 16, 8, 4, 2, 2, 1, 1};
enum { STACK_MAX = 64 };

struct stack {
	unsigned count;
	void *run[STACK_MAX];
};

struct pool {
	_Atomic int64_t out_pages; /* got minus put, by this slot's threads */
	struct stack stack[PAGE_ORDER_MAX + 1];
} cacheline_aligned;

struct pages {
	struct cap_counter cap;
	struct depot depot;
	_Atomic int64_t out_pages_poolless; /* what moved while a pool could not be allocated */
	struct pool *_Atomic pool[THREAD_SLOTS];
};

uint64_t pages_default_cap(void)
{
	long count = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
	ensure(bytes > 0);
	uint64_t memory = count > 0 ? (uint64_t)count * (uint64_t)bytes : 0;
	const uint64_t least = UINT64_C(64) << 20;
	if (memory == 0)
		return least;
	return MIN(MAX(memory / 50, least), memory / 2);
}

enum err pages_create(const struct pages_config *config, struct pages **out)
{
	struct pages *p = aligned_alloc(_Alignof(struct pages), sizeof(*p));
	if (p == NULL)
		return ERR_NOMEM;
	uint64_t cap_bytes = config->cap_bytes != 0 ? config->cap_bytes : pages_default_cap();
	int64_t cap_pages = (int64_t)MAX(cap_bytes / PAGE_BYTES, 1);
	enum err e = cap_counter_init(&p->cap, cap_pages, THREAD_SLOTS);
	if (e != OK) {
		free(p);
		return e;
	}
	depot_init(&p->depot, config->lock_memory);
	atomic_init(&p->out_pages_poolless, 0);
	for (unsigned i = 0; i < THREAD_SLOTS; i++)
		atomic_init(&p->pool[i], NULL);
	*out = p;
	return OK;
}

static int64_t pages_out(const struct pages *p)
{
	int64_t out = atomic_load(&p->out_pages_poolless);
	for (unsigned i = 0; i < THREAD_SLOTS; i++) {
		const struct pool *pool = atomic_load(&p->pool[i]);
		if (pool != NULL)
			out += atomic_load(&pool->out_pages);
	}
	return out;
}

void pages_destroy(struct pages *p)
{
	ensure(pages_out(p) == 0);
	for (unsigned i = 0; i < THREAD_SLOTS; i++)
		free(atomic_load(&p->pool[i]));
	depot_destroy(&p->depot);
	cap_counter_destroy(&p->cap);
	free(p);
}

/* The calling thread's pool; NULL when there is no memory for one. */
static struct pool *pool_mine(struct pages *p)
{
	struct pool *_Atomic *mine = &p->pool[thread_slot()];
	struct pool *pool = atomic_load_explicit(mine, memory_order_relaxed);
	if (pool == NULL) {
		pool = aligned_alloc(_Alignof(struct pool), sizeof(*pool));
		if (pool != NULL) {
			memset(pool, 0, sizeof(*pool));
			atomic_store(mine, pool);
		}
	}
	return pool;
}

static void pool_count(struct pool *pool, int64_t pages)
{
	/* Only this thread writes it, so a load and a store are enough. */
	int64_t now = atomic_load_explicit(&pool->out_pages, memory_order_relaxed);
	atomic_store_explicit(&pool->out_pages, now + pages, memory_order_relaxed);
}

void *page_get(struct pages *p, unsigned order)
{
	ensure(order <= PAGE_ORDER_MAX);
	struct pool *pool = pool_mine(p);
	if (pool == NULL) {
		void *run;
		if (depot_get(&p->depot, order, &run, 1) == 0)
			return NULL;
		atomic_fetch_add(&p->out_pages_poolless, 1 << order);
		return run;
	}
	struct stack *s = &pool->stack[order];
	if (s->count == 0) {
		unsigned batch = (stack_size[order] + 1u) / 2;
		s->count = depot_get(&p->depot, order, s->run, batch);
		if (s->count == 0)
			return NULL;
	}
	pool_count(pool, 1 << order);
	return s->run[--s->count];
}

void page_put(struct pages *p, void *run, unsigned order)
{
	ensure(order <= PAGE_ORDER_MAX && run != NULL);
	struct pool *pool = pool_mine(p);
	if (pool == NULL) {
		depot_put(&p->depot, order, &run, 1);
		atomic_fetch_sub(&p->out_pages_poolless, 1 << order);
		return;
	}
	struct stack *s = &pool->stack[order];
	if (s->count == stack_size[order]) {
		unsigned batch = (stack_size[order] + 1u) / 2;
		depot_put(&p->depot, order, s->run, batch);
		s->count -= batch;
		memmove(s->run, s->run + batch, s->count * sizeof(s->run[0]));
	}
	s->run[s->count++] = run;
	pool_count(pool, -(1 << order));
}

unsigned page_order_for(size_t bytes)
{
	ensure(bytes <= PAGE_RUN_BYTES_MAX);
	unsigned order = 0;
	while (((size_t)PAGE_BYTES << order) < bytes)
		order++;
	return order;
}

bool page_claim(struct pages *p, uint32_t pages)
{
	return pages == 0 || cap_counter_claim(&p->cap, thread_slot(), pages);
}

void page_unclaim(struct pages *p, uint32_t pages)
{
	cap_counter_add(&p->cap, thread_slot(), -(int64_t)pages);
}

void pages_trim(struct pages *p)
{
	struct pool *pool = pool_mine(p);
	for (unsigned order = 0; pool != NULL && order <= PAGE_ORDER_MAX; order++) {
		struct stack *s = &pool->stack[order];
		if (s->count > 0)
			depot_put(&p->depot, order, s->run, s->count);
		s->count = 0;
	}
	depot_trim(&p->depot);
}

void pages_stats(const struct pages *p, struct pages_stats *out)
{
	int64_t claimed = cap_counter_read(&p->cap), pages = pages_out(p);
	*out = (struct pages_stats){
		.cap_pages = (uint64_t)p->cap.cap,
		.claimed_pages = (uint64_t)MAX(claimed, 0),
		.slab_bytes = atomic_load(&p->depot.slab_bytes),
		.out_pages = (uint64_t)MAX(pages, 0),
		.locked = atomic_load(&p->depot.all_locked),
	};
}
