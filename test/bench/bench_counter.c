/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bench_counter: the relaxed counters beside what they replace, as ratios.
 *
 * The peers are what the kernel did: an exact-sum counter as ext4's free-cluster check and
 * dm-crypt's page cap had it (cheap per-slot counts, folded by batch, but below a watermark that
 * grows with the slots every claim sums all slots under a lock), and one plain atomic. All three
 * count their operations on shared lines the same way. Slots stand for the CPUs of a machine;
 * threads are as many as this machine can run, so the numbers show the cost of the method, not
 * the contention of a large machine. Ends in less than a minute.
 */
#undef CRYPTFS_COUNT_SHARED
#define CRYPTFS_COUNT_SHARED 1
#include "../../src/base/counter.c"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
	CASE_MS = 120,
	BURST = 64,            /* claims before as many releases */
	SMALL_UNITS = 1 << 16, /* a 256 MiB volume of 4 KiB clusters */
	SMALL_FREE = 400,
	THREADS_MOST = 64,
};

/* --- the exact-sum counter ------------------------------------------------------------------- */

struct exact_counter {
	_Atomic int64_t global cacheline_aligned;
	struct mutex lock;
	int64_t batch cacheline_aligned; /* as the kernel: 32, or twice the CPUs */
	int64_t watermark;
	unsigned slots;
	struct counter_slot *slot;
};

static enum err exact_init(struct exact_counter *c, int64_t units, unsigned slots)
{
	enum err e = slots_alloc(slots, &c->slot);
	if (e != OK)
		return e;
	mutex_init(&c->lock);
	atomic_init(&c->global, units);
	c->slots = slots;
	c->batch = MAX(32, 2 * (int64_t)slots);
	c->watermark = 4 * c->batch * slots;
	return OK;
}

static void exact_add(struct exact_counter *c, unsigned slot, int64_t n)
{
	int64_t v = atomic_fetch_add(&c->slot[slot].value, n) + n;
	if (v >= c->batch || v <= -c->batch) {
		turn_lock(&c->lock);
		(void)global_add(&c->global, atomic_exchange(&c->slot[slot].value, 0));
		turn_unlock(&c->lock);
	}
}

static bool exact_claim(struct exact_counter *c, unsigned slot, int64_t n)
{
	int64_t left = global_read(&c->global);
	if (left - n < c->watermark) {
		turn_lock(&c->lock);
		left = global_read(&c->global);
		for (unsigned i = 0; i < c->slots; i++) {
			SHARED_LINE_OP();
			left += atomic_load(&c->slot[i].value);
		}
		turn_unlock(&c->lock);
	}
	if (left < n)
		return false;
	exact_add(c, slot, -n);
	return true;
}

static bool plain_claim(_Atomic int64_t *c, int64_t n)
{
	int64_t left = global_read(c);
	while (left >= n) {
		SHARED_LINE_OP();
		if (atomic_compare_exchange_weak(c, &left, left - n))
			return true;
	}
	return false;
}

/* --- the contestants behind one face --------------------------------------------------------- */

enum kind { CREDIT, CAP, EXACT, PLAIN };

struct contest {
	enum kind kind;
	unsigned threads;
	struct credit_counter credit;
	struct cap_counter cap;
	struct exact_counter exact;
	_Atomic int64_t plain cacheline_aligned;
	/* Results. */
	_Atomic uint64_t claims cacheline_aligned;
	_Atomic uint64_t shared_ops;
	_Atomic uint64_t busy_ns;
	_Atomic bool stop;
};

static bool contest_claim(struct contest *c, unsigned slot)
{
	switch (c->kind) {
	case CREDIT:
		return credit_counter_claim(&c->credit, slot, 1);
	case CAP:
		return cap_counter_claim(&c->cap, slot, 1);
	case EXACT:
		return exact_claim(&c->exact, slot, 1);
	case PLAIN:
		return plain_claim(&c->plain, 1);
	}
	return false;
}

static void contest_release(struct contest *c, unsigned slot)
{
	switch (c->kind) {
	case CREDIT:
		credit_counter_release(&c->credit, slot, 1);
		break;
	case CAP:
		cap_counter_add(&c->cap, slot, -1);
		break;
	case EXACT:
		exact_add(&c->exact, slot, 1);
		break;
	case PLAIN:
		(void)global_add(&c->plain, 1);
		break;
	}
}

struct worker {
	pthread_t thread;
	struct contest *contest;
	unsigned slot;
	unsigned burst;
};

static uint64_t thread_cpu_ns(void)
{
	struct timespec t;
	ensure(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	struct contest *c = w->contest;
	uint64_t claims = 0, ops = shared_line_ops, start = thread_cpu_ns();
	while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
		unsigned got = 0;
		while (got < w->burst && contest_claim(c, w->slot))
			got++;
		claims += got;
		while (got-- > 0)
			contest_release(c, w->slot);
	}
	atomic_fetch_add(&c->busy_ns, thread_cpu_ns() - start);
	atomic_fetch_add(&c->shared_ops, shared_line_ops - ops);
	atomic_fetch_add(&c->claims, claims);
	return NULL;
}

/* CPU time per claim and its release; *ops is shared operations per claim and release. */
static double contest_run(struct contest *c, unsigned threads, unsigned slots, double *ops)
{
	struct worker w[THREADS_MOST];
	for (unsigned i = 0; i < threads; i++) {
		w[i] = (struct worker){
			.contest = c, .slot = i * (slots / threads) % slots, .burst = BURST};
		ensure(thread_start(&w[i].thread, "bench", worker_run, &w[i]) == OK);
	}
	const struct timespec pause = {.tv_nsec = CASE_MS * 1000000L};
	(void)nanosleep(&pause, NULL);
	atomic_store(&c->stop, true);
	for (unsigned i = 0; i < threads; i++)
		ensure(pthread_join(w[i].thread, NULL) == 0);
	double claims = (double)MAX(atomic_load(&c->claims), 1);
	*ops = (double)atomic_load(&c->shared_ops) / claims;
	return (double)atomic_load(&c->busy_ns) / claims;
}

/* --- a volume: free clusters ----------------------------------------------------------------- */

/* Every slot has been in use, then all but `left` units go away. */
static double volume_run(enum kind kind, unsigned slots, int64_t left, double *ops)
{
	struct contest c = {.kind = kind};
	unsigned threads = (unsigned)MIN(MAX(sysconf(_SC_NPROCESSORS_ONLN), 1), 8);
	int64_t units = SMALL_UNITS + (int64_t)slots * 2 * CREDIT_BATCH;
	atomic_init(&c.plain, left);
	ensure(credit_counter_init(&c.credit, units, slots) == OK);
	ensure(exact_init(&c.exact, units, slots) == OK);
	for (unsigned slot = 0; slot < slots; slot++) {
		ensure(credit_counter_claim(&c.credit, slot, 1));
		ensure(credit_counter_claim(&c.credit, slot, 1));
		ensure(exact_claim(&c.exact, slot, 2));
	}
	ensure(credit_counter_claim(&c.credit, 0, units - 2 * slots - left));
	ensure(exact_claim(&c.exact, 0, units - 2 * slots - left));
	double ns = contest_run(&c, threads, slots, ops);
	credit_counter_destroy(&c.credit);
	mutex_destroy(&c.exact.lock);
	free(c.exact.slot);
	return ns;
}

static void volume_table(const char *title, int64_t left)
{
	printf("\n%s: %ld units free; CPU ns for a claim and its release\n"
	       "%8s %12s %12s %12s %18s %18s\n",
		title, (long)left, "slots", "credit", "exact sum", "plain", "exact sum/credit",
		"credit/plain");
	for (unsigned slots = 1; slots <= 4096; slots *= 4) {
		double ops;
		double credit = volume_run(CREDIT, slots, left, &ops);
		double exact = volume_run(EXACT, slots, left, &ops);
		double plain = volume_run(PLAIN, slots, left, &ops);
		printf("%8u %12.1f %12.1f %12.1f %17.2fx %17.2fx\n", slots, credit, exact, plain,
			exact / credit, credit / plain);
	}
}

/* --- the page cap ---------------------------------------------------------------------------- */

enum { CAP_SLOTS = 64, CAP_PAGES = 16384 };

static double cap_run(enum kind kind, unsigned threads, double *ops)
{
	struct contest c = {.kind = kind};
	atomic_init(&c.plain, CAP_PAGES);
	ensure(cap_counter_init(&c.cap, CAP_PAGES, CAP_SLOTS) == OK);
	ensure(exact_init(&c.exact, CAP_PAGES, CAP_SLOTS) == OK);
	double ns = contest_run(&c, threads, CAP_SLOTS, ops);
	cap_counter_destroy(&c.cap);
	mutex_destroy(&c.exact.lock);
	free(c.exact.slot);
	return ns;
}

static void cap_table(void)
{
	printf("\nThe page cap (%d pages, %d slots), bursts of %d: shared operations and CPU ns "
	       "for a "
	       "claim and its release\n"
	       "%8s %10s %10s %10s %10s %10s %10s %16s %12s\n",
		CAP_PAGES, CAP_SLOTS, BURST, "threads", "cap ops", "exact ops", "plain ops",
		"cap ns", "exact ns", "plain ns", "exact/cap ops", "exact/cap ns");
	for (unsigned threads = 1; threads <= THREADS_MOST; threads *= 2) {
		double ops[3], ns[3];
		ns[0] = cap_run(CAP, threads, &ops[0]);
		ns[1] = cap_run(EXACT, threads, &ops[1]);
		ns[2] = cap_run(PLAIN, threads, &ops[2]);
		printf("%8u %10.4f %10.4f %10.4f %10.1f %10.1f %10.1f %15.1fx %11.2fx\n", threads,
			ops[0], ops[1], ops[2], ns[0], ns[1], ns[2], ops[1] / ops[0],
			ns[1] / ns[0]);
	}
}

int main(void)
{
	volume_table("A small volume, nearly full", SMALL_FREE);
	volume_table("The same with room", SMALL_UNITS / 2);
	cap_table();
	return 0;
}
