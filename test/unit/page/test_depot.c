/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of page/depot.c, and of the pools' use of shared lines. The layer's files and the counters
 * are compiled into the suite with CRYPTFS_COUNT_SHARED, and with mmap, calloc and aligned_alloc
 * that fail when told; the archives' copies are not linked.
 */
#undef CRYPTFS_COUNT_SHARED
#define CRYPTFS_COUNT_SHARED 1
#include "rig_run.h"

#include <signal.h>
#include <sys/mman.h>

/* How many calls work before one fails; the default is all. */
static _Atomic unsigned maps_left = ~0u;
static _Atomic unsigned allocations_left = ~0u;

static void *failing_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	return maps_left-- > 0 ? mmap(at, len, prot, flags, fd, offset) : MAP_FAILED;
}

static void *failing_calloc(size_t count, size_t size)
{
	return allocations_left-- > 0 ? calloc(count, size) : NULL;
}

static void *failing_aligned_alloc(size_t align, size_t size)
{
	return allocations_left-- > 0 ? aligned_alloc(align, size) : NULL;
}
#define mmap          failing_mmap
#define calloc        failing_calloc
#define aligned_alloc failing_aligned_alloc
#include "../../../src/base/counter.c"
#include "depot.c"
#include "page.c"
#undef mmap
#undef calloc
#undef aligned_alloc

static const struct pages_config config;

/* Every free run, by its own list, is where the invariants say, and the sum is right. */
static size_t depot_free_pages(struct depot *d)
{
	size_t sum = 0;
	page_lock(&d->lock);
	for (unsigned order = 0; order <= SLAB_ORDER; order++) {
		list_for_each (n, &d->free[order]) {
			struct slab_page *head = list_entry(n, struct slab_page, node);
			unsigned at = (unsigned)(head - head->slab->page);
			ck_assert_uint_eq(head->free_order, order + 1);
			ck_assert_uint_eq(at & ((1u << order) - 1), 0);
			if (order < SLAB_ORDER)
				ck_assert_uint_ne(
					head->slab->page[at ^ 1u << order].free_order, order + 1);
			sum += (size_t)1 << order;
		}
	}
	page_unlock(&d->lock);
	return sum;
}

START_TEST(buddies_split_and_join)
{
	uint64_t random = rig_seed("buddies_split_and_join");
	struct depot d;
	enum { MOST = 300 };
	void *run[MOST];
	unsigned order[MOST], count = 0;
	size_t out = 0;
	depot_init(&d, false);
	for (int i = 0; i < 2000; i++) {
		if (count < MOST && rig_random(&random) % 2 == 0) {
			order[count] = (unsigned)(rig_random(&random) % (PAGE_ORDER_MAX + 1));
			ck_assert_uint_eq(depot_get(&d, order[count], &run[count], 1), 1);
			out += (size_t)1 << order[count++];
		} else if (count > 0) {
			unsigned pick = (unsigned)(rig_random(&random) % count);
			depot_put(&d, order[pick], &run[pick], 1);
			out -= (size_t)1 << order[pick];
			run[pick] = run[--count];
			order[pick] = order[count];
		}
		ck_assert_uint_eq(
			(depot_free_pages(&d) + out) * PAGE_BYTES, atomic_load(&d.slab_bytes));
	}
	while (count-- > 0)
		depot_put(&d, order[count], &run[count], 1);
	depot_trim(&d);
	ck_assert_uint_eq(atomic_load(&d.slab_bytes), 0);
	depot_destroy(&d);
}
END_TEST

START_TEST(a_run_put_twice_aborts)
{
	struct depot d;
	void *run;
	depot_init(&d, false);
	ck_assert_uint_eq(depot_get(&d, 0, &run, 1), 1);
	depot_put(&d, 0, &run, 1);
	depot_put(&d, 0, &run, 1);
}
END_TEST

START_TEST(a_run_of_somebody_else_aborts)
{
	struct depot d;
	void *run = aligned_alloc(PAGE_BYTES, PAGE_BYTES);
	depot_init(&d, false);
	depot_put(&d, 0, &run, 1);
}
END_TEST

START_TEST(slabs_are_kept_out_of_core_dumps)
{
	struct depot d;
	void *run;
	char line[512];
	bool inside = false, undumped = false;
	depot_init(&d, false);
	ck_assert_uint_eq(depot_get(&d, 0, &run, 1), 1);
	FILE *f = fopen("/proc/self/smaps", "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		unsigned long from, to;
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (uintptr_t)run >= from && (uintptr_t)run < to;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			undumped = strstr(line, " dd") != NULL;
	}
	ck_assert_int_eq(fclose(f), 0);
	ck_assert(undumped);
	depot_destroy(&d);
}
END_TEST

START_TEST(no_memory_gives_null_and_then_life_goes_on)
{
	struct pages *p;
	/* Which map fails: the first of a slab, or the second that aligns it. */
	for (unsigned after = 0; after < 3; after++) {
		void *run[2000];
		unsigned count = 0;
		ck_assert_int_eq(pages_create(&config, &p), OK);
		maps_left = after;
		while (count < ARRAY_SIZE(run) && (run[count] = page_get(p, 0)) != NULL)
			count++;
		ck_assert_uint_lt(count, ARRAY_SIZE(run));
		maps_left = ~0u;
		void *more = page_get(p, 0);
		ck_assert_ptr_nonnull(more);
		page_put(p, more, 0);
		while (count-- > 0)
			page_put(p, run[count], 0);
		pages_destroy(p);
	}
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	/* The pages themselves, the cap's slots, the pool, the slab; one of them fails, once.
	 * Without a pool the depot serves; without a slab there is no run. */
	enum { ALLOCATIONS = 4 };
	for (unsigned after = 0; after <= ALLOCATIONS; after++) {
		struct pages *p = NULL;
		allocations_left = after;
		enum err e = pages_create(&config, &p);
		ck_assert_int_eq(e, after < 2 ? ERR_NOMEM : OK);
		if (e != OK) {
			ck_assert_ptr_null(p);
			continue;
		}
		void *run = page_get(p, 3);
		allocations_left = ~0u;
		ck_assert((run != NULL) == (after != 3));
		struct pages_stats s;
		pages_stats(p, &s);
		ck_assert_uint_eq(s.out_pages, run != NULL ? 8 : 0);
		if (run != NULL)
			page_put(p, run, 3);
		run = page_get(p, 3);
		ck_assert_ptr_nonnull(run);
		page_put(p, run, 3);
		pages_destroy(p);
	}
}
END_TEST

START_TEST(a_missing_pool_is_served_by_the_depot)
{
	struct pages *p;
	struct pages_stats s;
	ck_assert_int_eq(pages_create(&config, &p), OK);
	/* Stock the depot, so that the run itself needs no allocation. */
	void *run = page_get(p, 0);
	ck_assert_ptr_nonnull(run);
	page_put(p, run, 0);
	free(atomic_exchange(&p->pool[thread_slot()], NULL));
	allocations_left = 0;
	run = page_get(p, 0);
	ck_assert_ptr_nonnull(run);
	pages_stats(p, &s);
	ck_assert_uint_eq(s.out_pages, 1);
	allocations_left = 0;
	page_put(p, run, 0);
	pages_stats(p, &s);
	ck_assert_uint_eq(s.out_pages, 0);
	allocations_left = ~0u;
	pages_destroy(p);
}
END_TEST

static _Atomic uint64_t fast_path_ops;

static void work_in_own_pool(unsigned index, void *arg)
{
	struct pages *p = arg;
	void *run[8];
	(void)index;
	for (int warm = 0; warm < 2; warm++) {
		uint64_t before = shared_line_ops;
		for (int i = 0; i < (warm ? 10000 : 1); i++) {
			for (unsigned n = 0; n < 8; n++)
				run[n] = page_get(p, n % 2);
			for (unsigned n = 0; n < 8; n++)
				page_put(p, run[n], n % 2);
		}
		if (warm)
			atomic_fetch_add(&fast_path_ops, shared_line_ops - before);
	}
}

static void only_get(unsigned index, void *arg)
{
	struct pages *p = arg;
	void *run[4096];
	(void)index;
	uint64_t before = shared_line_ops;
	for (unsigned i = 0; i < ARRAY_SIZE(run); i++) {
		run[i] = page_get(p, 0);
		ck_assert_ptr_nonnull(run[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(run); i++)
		page_put(p, run[i], 0);
	atomic_fetch_add(&fast_path_ops, shared_line_ops - before);
}

START_TEST(pools_touch_no_shared_line)
{
	for (unsigned threads = 1; threads <= 64; threads *= 4) {
		struct pages *p;
		ck_assert_int_eq(pages_create(&config, &p), OK);
		atomic_store(&fast_path_ops, 0);
		rig_run_threads(threads, work_in_own_pool, p);
		ck_assert_uint_eq(atomic_load(&fast_path_ops), 0);
		/* Through the depot: a lock and an unlock for a batch of 32. A few more for slabs.
		 */
		rig_run_threads(threads, only_get, p);
		ck_assert_uint_le(atomic_load(&fast_path_ops), threads * (2 * 2 * 4096 / 32 + 64));
		pages_destroy(p);
	}
}
END_TEST

static void claim_pages(unsigned index, void *arg)
{
	struct pages *p = arg;
	(void)index;
	uint64_t before = shared_line_ops;
	for (int i = 0; i < 8192; i++)
		ck_assert(page_claim(p, 1));
	for (int i = 0; i < 8192; i++)
		page_unclaim(p, 1);
	atomic_fetch_add(&fast_path_ops, shared_line_ops - before);
}

START_TEST(claims_touch_a_shared_line_once_in_32)
{
	const struct pages_config large = {.cap_bytes = UINT64_C(1) << 40};
	for (unsigned threads = 1; threads <= 64; threads *= 4) {
		struct pages *p;
		ck_assert_int_eq(pages_create(&large, &p), OK);
		atomic_store(&fast_path_ops, 0);
		rig_run_threads(threads, claim_pages, p);
		ck_assert_uint_le(atomic_load(&fast_path_ops), threads * 2 * 8192 / 32);
		ck_assert_uint_gt(atomic_load(&fast_path_ops), 0);
		pages_destroy(p);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("page/depot");
	TCase *tc = rig_case(s, "depot");
	tcase_add_test(tc, buddies_split_and_join);
	tcase_add_test_raise_signal(tc, a_run_put_twice_aborts, SIGABRT);
	tcase_add_test_raise_signal(tc, a_run_of_somebody_else_aborts, SIGABRT);
	tcase_add_test(tc, slabs_are_kept_out_of_core_dumps);
	TCase *faults = rig_case(s, "faults");
	tcase_add_test(faults, no_memory_gives_null_and_then_life_goes_on);
	tcase_add_test(faults, every_allocation_may_fail);
	tcase_add_test(faults, a_missing_pool_is_served_by_the_depot);
	TCase *proof = rig_case(s, "proof");
	tcase_add_test(proof, pools_touch_no_shared_line);
	tcase_add_test(proof, claims_touch_a_shared_line_once_in_32);
	return rig_run_suite(s);
}
