/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of page/page.c through the door: runs are aligned, never shared, and all come back.
 */
#include "page.h"
#include "rig_run.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static struct pages *pages_of(uint64_t cap_bytes)
{
	struct pages *p;
	const struct pages_config config = {.cap_bytes = cap_bytes};
	ck_assert_int_eq(pages_create(&config, &p), OK);
	return p;
}

static struct pages_stats stats_of(const struct pages *p)
{
	struct pages_stats s;
	pages_stats(p, &s);
	return s;
}

/* Marks every page of a run with its address and its owner's number. */
static void run_mark(void *run, unsigned order, uint64_t owner)
{
	for (size_t i = 0; i < (size_t)1 << order; i++) {
		uint64_t *at = (uint64_t *)run + i * (PAGE_BYTES / sizeof(uint64_t));
		at[0] = (uintptr_t)at;
		at[PAGE_BYTES / sizeof(uint64_t) - 1] = owner;
	}
}

static bool run_has_mark(const void *run, unsigned order, uint64_t owner)
{
	for (size_t i = 0; i < (size_t)1 << order; i++) {
		const uint64_t *at = (const uint64_t *)run + i * (PAGE_BYTES / sizeof(uint64_t));
		if (at[0] != (uintptr_t)at || at[PAGE_BYTES / sizeof(uint64_t) - 1] != owner)
			return false;
	}
	return true;
}

START_TEST(every_order_is_aligned_and_writable)
{
	struct pages *p = pages_of(0);
	void *run[PAGE_ORDER_MAX + 1][5];
	for (unsigned order = 0; order <= PAGE_ORDER_MAX; order++) {
		for (unsigned i = 0; i < 5; i++) {
			run[order][i] = page_get(p, order);
			ck_assert_ptr_nonnull(run[order][i]);
			ck_assert_uint_eq((uintptr_t)run[order][i] % PAGE_BYTES, 0);
			memset(run[order][i], (int)i, (size_t)PAGE_BYTES << order);
			run_mark(run[order][i], order, order * 5 + i);
		}
	}
	ck_assert_uint_eq(stats_of(p).out_pages, 5 * 511);
	for (unsigned order = 0; order <= PAGE_ORDER_MAX; order++) {
		for (unsigned i = 0; i < 5; i++) {
			ck_assert(run_has_mark(run[order][i], order, order * 5 + i));
			page_put(p, run[order][i], order);
		}
	}
	ck_assert_uint_eq(stats_of(p).out_pages, 0);
	pages_destroy(p);
}
END_TEST

START_TEST(order_for_bytes)
{
	ck_assert_uint_eq(page_order_for(0), 0);
	ck_assert_uint_eq(page_order_for(1), 0);
	ck_assert_uint_eq(page_order_for(4096), 0);
	ck_assert_uint_eq(page_order_for(4097), 1);
	ck_assert_uint_eq(page_order_for(8192), 1);
	ck_assert_uint_eq(page_order_for((1 << 20) - 1), 8);
	ck_assert_uint_eq(page_order_for(1 << 20), 8);
}
END_TEST

START_TEST(the_last_run_put_is_the_next_one_got)
{
	struct pages *p = pages_of(0);
	for (unsigned order = 0; order <= PAGE_ORDER_MAX; order++) {
		void *run = page_get(p, order);
		ck_assert_ptr_nonnull(run);
		page_put(p, run, order);
		void *again = page_get(p, order);
		ck_assert_ptr_eq(again, run);
		page_put(p, again, order);
	}
	pages_destroy(p);
}
END_TEST

START_TEST(memory_of_one_order_serves_another)
{
	/* Fill 32 MiB with single pages, put them all, and ask for 1 MiB runs, and so on. */
	enum { TOTAL_PAGES = 8192 };
	struct pages *p = pages_of(0);
	static void *run[TOTAL_PAGES];
	uint64_t slab_bytes = 0;
	static const unsigned orders[] = {0, 8, 3, 6, 1, 8, 0};
	for (unsigned o = 0; o < ARRAY_SIZE(orders); o++) {
		unsigned order = orders[o], count = TOTAL_PAGES >> order;
		for (unsigned i = 0; i < count; i++) {
			run[i] = page_get(p, order);
			ck_assert_ptr_nonnull(run[i]);
		}
		/* The few runs that the pool keeps of each order may each spoil a larger run;
		 * memory that did not join again would double the slabs at the first change. */
		if (slab_bytes == 0)
			slab_bytes = stats_of(p).slab_bytes;
		ck_assert_uint_le(stats_of(p).slab_bytes, slab_bytes + slab_bytes / 2);
		for (unsigned i = 0; i < count; i++)
			page_put(p, run[(i * 7 + 3) % count], order);
	}
	pages_destroy(p);
}
END_TEST

enum { EXCHANGE = 256 };

struct exchange {
	struct pages *pages;
	uint64_t seed;
	unsigned rounds;
	/* A run that waits for whoever swaps it out next: its order in the low 12 bits. */
	_Atomic uintptr_t slot[EXCHANGE];
	_Atomic uint64_t bad;
};

static void exchange_put(struct exchange *x, uintptr_t packed)
{
	if (packed == 0)
		return;
	unsigned order = (unsigned)(packed & 0xfff);
	void *run = (void *)(packed - order);
	if (!run_has_mark(run, order, packed))
		atomic_fetch_add(&x->bad, 1);
	page_put(x->pages, run, order);
}

static void exchange_thread(unsigned index, void *arg)
{
	struct exchange *x = arg;
	uint64_t random = x->seed + index;
	for (unsigned i = 0; i < x->rounds; i++) {
		uint64_t r = rig_random(&random);
		/* Small orders mostly, as in life. */
		unsigned order = r % 4 == 0 ? (unsigned)(r >> 8) % (PAGE_ORDER_MAX + 1)
					    : (unsigned)(r >> 8) % 2;
		void *run = page_get(x->pages, order);
		if (run == NULL) {
			atomic_fetch_add(&x->bad, 1);
			continue;
		}
		uintptr_t packed = (uintptr_t)run | order;
		run_mark(run, order, packed);
		exchange_put(x, atomic_exchange(&x->slot[(r >> 20) % EXCHANGE], packed));
		if (r >> 32 & 1)
			exchange_put(x, atomic_exchange(&x->slot[(r >> 40) % EXCHANGE], 0));
		if (i % 512 == 0 && index % 4 == 0)
			pages_trim(x->pages);
	}
}

START_TEST(threads_get_in_one_and_put_in_another)
{
	struct exchange x = {.pages = pages_of(0), .rounds = 3000};
	x.seed = rig_seed("threads_get_in_one_and_put_in_another");
	rig_run_threads(16, exchange_thread, &x);
	for (unsigned i = 0; i < EXCHANGE; i++)
		exchange_put(&x, atomic_load(&x.slot[i]));
	ck_assert_uint_eq(atomic_load(&x.bad), 0);
	ck_assert_uint_eq(stats_of(x.pages).out_pages, 0);
	pages_destroy(x.pages);
}
END_TEST

START_TEST(trim_gives_all_back_and_life_goes_on)
{
	struct pages *p = pages_of(0);
	void *run[600], *kept = page_get(p, 2);
	ck_assert_ptr_nonnull(kept);
	run_mark(kept, 2, 9);
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < ARRAY_SIZE(run); i++) {
			run[i] = page_get(p, i % 3);
			ck_assert_ptr_nonnull(run[i]);
			run_mark(run[i], i % 3, i);
		}
		for (unsigned i = 0; i < ARRAY_SIZE(run); i++) {
			ck_assert(run_has_mark(run[i], i % 3, i));
			page_put(p, run[i], i % 3);
		}
		pages_trim(p);
		/* One run is out, so one slab stays, and what is out keeps its contents. */
		ck_assert_uint_eq(stats_of(p).slab_bytes, PAGE_SLAB_BYTES);
		ck_assert(run_has_mark(kept, 2, 9));
	}
	page_put(p, kept, 2);
	pages_trim(p);
	ck_assert_uint_eq(stats_of(p).slab_bytes, 0);
	pages_destroy(p);
}
END_TEST

/* Resident pages of this process. */
static long resident_pages(void)
{
	long all, resident;
	FILE *f = fopen("/proc/self/statm", "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%ld %ld", &all, &resident), 2);
	ck_assert_int_eq(fclose(f), 0);
	return resident;
}

START_TEST(trim_gives_back_the_rest_of_a_slab)
{
	/* _i: locked memory, which needs another way. */
	struct pages *p;
	const struct pages_config config = {.lock_memory = _i == 1};
	ck_assert_int_eq(pages_create(&config, &p), OK);
	/* One page out in each of several slabs, everything else touched and put back. */
	enum { SLABS = 8, RUNS = SLABS * PAGE_SLAB_BYTES / PAGE_BYTES };
	static void *run[RUNS];
	for (unsigned i = 0; i < RUNS; i++) {
		run[i] = page_get(p, 0);
		ck_assert_ptr_nonnull(run[i]);
		memset(run[i], 1, PAGE_BYTES);
	}
	if (_i == 1 && !stats_of(p).locked)
		printf("SKIP: trim of locked memory: RLIMIT_MEMLOCK is too low here\n");
	for (unsigned i = 0; i < RUNS; i++) {
		if (i % 512 != 5)
			page_put(p, run[i], 0);
	}
	long before = resident_pages();
	pages_trim(p);
	long after = resident_pages();
	/* Far more than half goes; other memory of the process may move a little. */
	ck_assert_int_lt(after, before - RUNS / 2);
	ck_assert_uint_ge(stats_of(p).slab_bytes, (uint64_t)SLABS * PAGE_SLAB_BYTES);
	for (unsigned i = 5; i < RUNS; i += 512) {
		ck_assert_int_eq(*(char *)run[i], 1);
		page_put(p, run[i], 0);
	}
	pages_destroy(p);
}
END_TEST

START_TEST(a_refused_memory_lock_is_no_error)
{
	struct pages *p;
	const struct pages_config config = {.lock_memory = true};
	const struct rlimit none = {0, 0};
	uid_t user = geteuid();
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &none), 0);
	if (user == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	ck_assert_int_eq(pages_create(&config, &p), OK);
	void *run = page_get(p, 8);
	ck_assert_ptr_nonnull(run);
	ck_assert(!stats_of(p).locked);
	page_put(p, run, 8);
	pages_trim(p);
	ck_assert_uint_eq(stats_of(p).slab_bytes, 0);
	pages_destroy(p);
	ck_assert_int_eq(seteuid(user), 0);
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
}
END_TEST

START_TEST(a_run_that_is_out_at_the_end_aborts)
{
	struct pages *p = pages_of(0);
	ck_assert_ptr_nonnull(page_get(p, 0));
	pages_destroy(p);
}
END_TEST

/* --- the cap --------------------------------------------------------------------------------- */

START_TEST(default_cap_is_two_percent_of_memory)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t cap = pages_default_cap();
	ck_assert_uint_le(cap, memory / 2);
	if (memory >= UINT64_C(3200) << 20)
		ck_assert_uint_eq(cap, memory / 50);
	else if (memory >= UINT64_C(128) << 20)
		ck_assert_uint_eq(cap, UINT64_C(64) << 20);
	struct pages *p = pages_of(0);
	ck_assert_uint_eq(stats_of(p).cap_pages, cap / PAGE_BYTES);
	pages_destroy(p);
	p = pages_of(1 << 20);
	ck_assert_uint_eq(stats_of(p).cap_pages, 256);
	pages_destroy(p);
}
END_TEST

enum { CAP_PAGES = 4096, CLAIM_MOST = 256 };

struct cap_run {
	struct pages *pages;
	uint64_t seed;
	_Atomic int64_t out;
};

static void claim_until_refused(unsigned index, void *arg)
{
	struct cap_run *r = arg;
	uint64_t random = r->seed + index;
	for (unsigned refused = 0; refused < 20;) {
		uint32_t n = 1 + (uint32_t)(rig_random(&random) % CLAIM_MOST);
		if (page_claim(r->pages, n))
			atomic_fetch_add(&r->out, n);
		else
			refused++;
	}
}

START_TEST(cap_error_is_as_stated)
{
	static const unsigned threads[] = {1, 4, 32};
	struct cap_run r = {.pages = pages_of((uint64_t)CAP_PAGES * PAGE_BYTES)};
	r.seed = rig_seed("cap_error_is_as_stated");
	rig_run_threads(threads[_i], claim_until_refused, &r);
	int64_t out = atomic_load(&r.out);
	ck_assert_int_ge(out, CAP_PAGES);
	ck_assert_int_le(out, CAP_PAGES + (int64_t)(CAP_BATCH - 1 + CLAIM_MOST) * threads[_i]);
	ck_assert(!page_claim(r.pages, 1));
	ck_assert(page_claim(r.pages, 0));
	page_unclaim(r.pages, (uint32_t)out);
	ck_assert_uint_eq(stats_of(r.pages).claimed_pages, 0);
	ck_assert(page_claim(r.pages, CAP_PAGES));
	page_unclaim(r.pages, CAP_PAGES);
	pages_destroy(r.pages);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("page/page");
	TCase *tc = rig_case(s, "runs");
	tcase_add_test(tc, every_order_is_aligned_and_writable);
	tcase_add_test(tc, order_for_bytes);
	tcase_add_test(tc, the_last_run_put_is_the_next_one_got);
	tcase_add_test(tc, memory_of_one_order_serves_another);
	tcase_add_test(tc, threads_get_in_one_and_put_in_another);
	tcase_add_test(tc, trim_gives_all_back_and_life_goes_on);
	tcase_add_loop_test(tc, trim_gives_back_the_rest_of_a_slab, 0, 2);
	tcase_add_test(tc, a_refused_memory_lock_is_no_error);
	tcase_add_test_raise_signal(tc, a_run_that_is_out_at_the_end_aborts, SIGABRT);
	TCase *cap = rig_case(s, "cap");
	tcase_add_test(cap, default_cap_is_two_percent_of_memory);
	tcase_add_loop_test(cap, cap_error_is_as_stated, 0, 3);
	return rig_run_suite(s);
}
