/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * page/depot: slabs of 2 MiB and the buddy allocator that gives runs out of them.
 *
 * Invariants: a free run of order k starts at a page whose number in the slab is a multiple of
 * 2^k; two free runs that are buddies (their numbers differ in bit k only) do not exist, they have
 * been joined; a slab that is free as a whole is one run of SLAB_ORDER. A run that is out has no
 * mark, so a put of something that is not out (twice, or not ours) meets an ensure().
 * Threads: one mutex, held for list work only; mmap, mlock2, madvise and munmap are called
 * without it, on memory that nobody else can reach at that time.
 * Source of the method: Knuth, The Art of Computer Programming 1, section 2.5.
 * What it does not do: give memory back by itself; depot_trim() is told to.
 */
#include "page_int.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* Linux 5.18 */
#endif

void depot_init(struct depot *d, bool lock_memory)
{
	mutex_init(&d->lock);
	page_lock(&d->lock);
	for (unsigned i = 0; i <= SLAB_ORDER; i++)
		list_init(&d->free[i]);
	memset(d->hash, 0, sizeof(d->hash));
	page_unlock(&d->lock);
	d->lock_memory = lock_memory;
	atomic_init(&d->all_locked, lock_memory);
	atomic_init(&d->slab_bytes, 0);
}

static void depot_lock(struct depot *d) ACQUIRE(page_token)
{
	SHARED_LINE_OP();
	page_lock(&d->lock);
}

static void depot_unlock(struct depot *d) RELEASE(page_token)
{
	SHARED_LINE_OP();
	page_unlock(&d->lock);
}

/* --- slabs ----------------------------------------------------------------------------------- */

static unsigned slab_bucket(const void *base)
{
	return (unsigned)((uintptr_t)base / PAGE_SLAB_BYTES % HASH_BUCKETS);
}

static struct slab *slab_of(struct depot *d, const void *run) REQUIRES(page_token)
{
	uintptr_t base = (uintptr_t)run - (uintptr_t)run % PAGE_SLAB_BYTES;
	struct slab *s = d->hash[slab_bucket(run)];
	while (s != NULL && (uintptr_t)s->base != base)
		s = s->hash_next;
	ensure(s != NULL); /* not from this depot */
	return s;
}

static void *slab_mmap(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

/* Address space that is aligned to its size. */
static uint8_t *slab_map(void)
{
	/* The kernel mostly puts a mapping right below the last, so after one that is aligned
	 * the next is too, and costs no more than one call. */
	uint8_t *p = slab_mmap(PAGE_SLAB_BYTES);
	if (p == NULL || (uintptr_t)p % PAGE_SLAB_BYTES == 0)
		return p;
	ensure(munmap(p, PAGE_SLAB_BYTES) == 0);
	p = slab_mmap(2 * PAGE_SLAB_BYTES);
	if (p == NULL)
		return NULL;
	size_t head = PAGE_SLAB_BYTES - (uintptr_t)p % PAGE_SLAB_BYTES;
	ensure(munmap(p, head) == 0);
	p += head;
	if (head < PAGE_SLAB_BYTES)
		ensure(munmap(p + PAGE_SLAB_BYTES, PAGE_SLAB_BYTES - head) == 0);
	return p;
}

static struct slab *slab_create(struct depot *d)
{
	struct slab *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->base = slab_map();
	if (s->base == NULL) {
		free(s);
		return NULL;
	}
	/* File contents stay out of core dumps. A kernel that cannot do it has no dumps either. */
	(void)madvise(s->base, PAGE_SLAB_BYTES, MADV_DONTDUMP);
	if (d->lock_memory) {
		s->locked = mlock2(s->base, PAGE_SLAB_BYTES, MLOCK_ONFAULT) == 0;
		if (!s->locked)
			atomic_store(&d->all_locked, false);
	}
	atomic_fetch_add(&d->slab_bytes, PAGE_SLAB_BYTES);
	return s;
}

static void slab_destroy(struct depot *d, struct slab *s)
{
	ensure(munmap(s->base, PAGE_SLAB_BYTES) == 0);
	atomic_fetch_sub(&d->slab_bytes, PAGE_SLAB_BYTES);
	free(s);
}

void depot_destroy(struct depot *d)
{
	depot_lock(d);
	for (unsigned i = 0; i < HASH_BUCKETS; i++) {
		while (d->hash[i] != NULL) {
			struct slab *s = d->hash[i];
			d->hash[i] = s->hash_next;
			slab_destroy(d, s);
		}
	}
	depot_unlock(d);
	mutex_destroy(&d->lock);
}

/* --- the buddy method ------------------------------------------------------------------------ */

static void run_mark_free(struct depot *d, struct slab *s, unsigned at, unsigned order)
	REQUIRES(page_token)
{
	s->page[at].free_order = (uint8_t)(order + 1);
	list_push_front(&d->free[order], &s->page[at].node);
}

static void run_mark_used(struct slab *s, unsigned at) REQUIRES(page_token)
{
	s->page[at].free_order = 0;
	list_remove(&s->page[at].node);
}

/* A run of at least `order` is taken and its upper halves go back until it fits. */
static void *run_take(struct depot *d, unsigned order) REQUIRES(page_token)
{
	unsigned have = order;
	while (have <= SLAB_ORDER && list_empty(&d->free[have]))
		have++;
	if (have > SLAB_ORDER)
		return NULL;
	struct slab_page *head = list_entry(d->free[have].next, struct slab_page, node);
	struct slab *s = head->slab;
	unsigned at = (unsigned)(head - s->page);
	run_mark_used(s, at);
	while (have > order) {
		have--;
		run_mark_free(d, s, at + (1u << have), have);
	}
	return s->base + (size_t)at * PAGE_BYTES;
}

static void run_give(struct depot *d, void *run, unsigned order) REQUIRES(page_token)
{
	struct slab *s = slab_of(d, run);
	size_t offset_bytes = (size_t)((uint8_t *)run - s->base);
	ensure(offset_bytes % ((size_t)PAGE_BYTES << order) == 0);
	unsigned at = (unsigned)(offset_bytes / PAGE_BYTES);
	ensure(s->page[at].free_order == 0);
	for (; order < SLAB_ORDER; order++) {
		unsigned buddy = at ^ 1u << order;
		if (s->page[buddy].free_order != order + 1)
			break;
		run_mark_used(s, buddy);
		at &= ~(1u << order);
	}
	run_mark_free(d, s, at, order);
}

static unsigned depot_get_free(struct depot *d, unsigned order, void **runs, unsigned want)
	REQUIRES(page_token)
{
	unsigned got = 0;
	while (got < want && (runs[got] = run_take(d, order)) != NULL)
		got++;
	return got;
}

unsigned depot_get(struct depot *d, unsigned order, void **runs, unsigned want)
{
	depot_lock(d);
	unsigned got = depot_get_free(d, order, runs, want);
	depot_unlock(d);
	if (got > 0)
		return got;
	struct slab *s = slab_create(d);
	depot_lock(d);
	if (s != NULL) {
		for (unsigned i = 0; i < SLAB_PAGES; i++)
			s->page[i].slab = s;
		s->hash_next = d->hash[slab_bucket(s->base)];
		d->hash[slab_bucket(s->base)] = s;
		run_mark_free(d, s, 0, SLAB_ORDER);
	}
	/* Without a new slab too: somebody may have put something back meanwhile. */
	got = depot_get_free(d, order, runs, want);
	depot_unlock(d);
	return got;
}

void depot_put(struct depot *d, unsigned order, void **runs, unsigned count)
{
	depot_lock(d);
	for (unsigned i = 0; i < count; i++)
		run_give(d, runs[i], order);
	depot_unlock(d);
}

/* --- giving memory back ---------------------------------------------------------------------- */

static void slab_unhash(struct depot *d, struct slab *s) REQUIRES(page_token)
{
	struct slab **at = &d->hash[slab_bucket(s->base)];
	while (*at != s)
		at = &(*at)->hash_next;
	*at = s->hash_next;
}

static void run_release_memory(const struct slab *s, void *run, size_t bytes)
{
	if (!s->locked) {
		(void)madvise(run, bytes, MADV_DONTNEED);
		return;
	}
	if (madvise(run, bytes, MADV_DONTNEED_LOCKED) == 0)
		return;
	/* Before Linux 5.18 locked memory must be unlocked to be given back. */
	if (munlock(run, bytes) == 0) {
		(void)madvise(run, bytes, MADV_DONTNEED);
		(void)mlock2(run, bytes, MLOCK_ONFAULT);
	}
}

/* Moves every free run of this order to a list of the caller's, as if it had been given out. */
static void depot_trim_collect(struct depot *d, unsigned order, struct list *out)
{
	list_init(out);
	depot_lock(d);
	while (!list_empty(&d->free[order])) {
		struct slab_page *head = list_entry(d->free[order].next, struct slab_page, node);
		struct slab *s = head->slab;
		run_mark_used(s, (unsigned)(head - s->page));
		if (order == SLAB_ORDER)
			slab_unhash(d, s);
		list_push_back(out, &head->node);
	}
	depot_unlock(d);
}

void depot_trim(struct depot *d)
{
	struct list runs;
	size_t system_page = (size_t)sysconf(_SC_PAGESIZE);
	/* From the small ones up, so that what joins on its return is seen as a larger run and
	 * a slab that has become free is unmapped. */
	for (unsigned order = 0; order < SLAB_ORDER; order++) {
		size_t bytes = (size_t)PAGE_BYTES << order;
		if (bytes < system_page)
			continue;
		depot_trim_collect(d, order, &runs);
		while (!list_empty(&runs)) {
			struct slab_page *head = list_entry(runs.next, struct slab_page, node);
			const struct slab *s = head->slab;
			void *run = s->base + (size_t)(head - s->page) * PAGE_BYTES;
			list_remove(&head->node);
			run_release_memory(s, run, bytes);
			depot_put(d, order, &run, 1);
		}
	}
	depot_trim_collect(d, SLAB_ORDER, &runs);
	while (!list_empty(&runs)) {
		struct slab_page *head = list_entry(runs.next, struct slab_page, node);
		list_remove(&head->node);
		slab_destroy(d, head->slab);
	}
}
