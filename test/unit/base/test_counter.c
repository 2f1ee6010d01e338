/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of base/counter.c, compiled into the suite with CRYPTFS_COUNT_SHARED, so that operations
 * on shared lines are counted; the archive's copy is not linked.
 */
#undef CRYPTFS_COUNT_SHARED
#define CRYPTFS_COUNT_SHARED 1
#include "rig_run.h"

/* How many allocations of counter.c work before one fails; the default is all. */
static _Atomic unsigned allocations_left = ~0u;

static void *failing_calloc(size_t count, size_t size)
{
	return allocations_left-- > 0 ? calloc(count, size) : NULL;
}

static void *failing_aligned_alloc(size_t align, size_t size)
{
	return allocations_left-- > 0 ? aligned_alloc(align, size) : NULL;
}
#define calloc        failing_calloc
#define aligned_alloc failing_aligned_alloc
#include "counter.c"
#undef calloc
#undef aligned_alloc

/* --- cap_counter ----------------------------------------------------------------------------- */

enum { CAP = 5000, LARGEST = 256 };

struct cap_run {
	struct cap_counter c;
	unsigned threads;
	unsigned slots;
	uint64_t seed;
	_Atomic int64_t out; /* the truth: raised after a claim, lowered before a release */
	_Atomic int64_t most;
	_Atomic uint64_t refused;
};

static void cap_note(struct cap_run *r, int64_t n)
{
	int64_t now = atomic_fetch_add(&r->out, n) + n;
	int64_t most = atomic_load(&r->most);
	while (now > most && !atomic_compare_exchange_weak(&r->most, &most, now))
		;
}

static void cap_claim_until_refused(unsigned index, void *arg)
{
	struct cap_run *r = arg;
	uint64_t random = r->seed + index;
	unsigned refused = 0;
	/* Refused often, since near the cap small claims still fit where large ones do not. */
	while (refused < 50) {
		int64_t n = rig_random(&random) % 8 == 0 ? LARGEST
							 : 1 + (int64_t)(rig_random(&random) % 40);
		if (cap_counter_claim(&r->c, index % r->slots, n))
			cap_note(r, n);
		else
			refused++;
	}
}

static void cap_error_is_as_stated(unsigned threads, unsigned slots)
{
	struct cap_run r = {.threads = threads, .slots = slots};
	r.seed = rig_seed("cap_error_is_as_stated");
	ck_assert_int_eq(cap_counter_init(&r.c, CAP, slots), OK);
	rig_run_threads(threads, cap_claim_until_refused, &r);
	int64_t most = atomic_load(&r.most);
	ck_assert_int_eq(cap_counter_sum(&r.c), most);
	/* Not refused far below the cap, not admitted further above it than the door says. */
	ck_assert_int_ge(most, CAP);
	ck_assert_int_le(most, CAP + (int64_t)(CAP_BATCH - 1 + LARGEST) * threads);
	cap_counter_destroy(&r.c);
}

START_TEST(cap_admits_no_more_than_the_stated_error)
{
	static const unsigned threads[] = {1, 2, 7, 16, 64};
	cap_error_is_as_stated(threads[_i], threads[_i]);
	cap_error_is_as_stated(threads[_i], (threads[_i] + 1) / 2);
}
END_TEST

START_TEST(cap_error_can_reach_a_batch_in_every_slot)
{
	/* The bound is not idle: claims that fit in the slots are admitted unseen. */
	struct cap_counter c;
	ck_assert_int_eq(cap_counter_init(&c, 100, 8), OK);
	for (unsigned slot = 0; slot < 8; slot++) {
		for (int i = 0; i < CAP_BATCH - 1; i++)
			ck_assert(cap_counter_claim(&c, slot, 1));
	}
	ck_assert_int_eq(cap_counter_read(&c), 0);
	ck_assert_int_eq(cap_counter_sum(&c), 8 * (CAP_BATCH - 1));
	cap_counter_destroy(&c);
}
END_TEST

static void cap_claim_and_release(unsigned index, void *arg)
{
	struct cap_run *r = arg;
	uint64_t random = r->seed + index;
	int64_t mine = 0;
	for (int i = 0; i < 20000; i++) {
		int64_t n = 1 + (int64_t)(rig_random(&random) % 20);
		if (mine > 300 || (mine > n && rig_random(&random) % 2 == 0)) {
			cap_note(r, -n);
			cap_counter_add(&r->c, index % r->slots, -n);
			mine -= n;
		} else if (cap_counter_claim(&r->c, index % r->slots, n)) {
			cap_note(r, n);
			mine += n;
		} else {
			atomic_fetch_add(&r->refused, 1);
		}
	}
	cap_note(r, -mine);
	if (mine > 0)
		cap_counter_add(&r->c, index % r->slots, -mine);
}

START_TEST(cap_keeps_its_sum_through_full_and_back)
{
	struct cap_run r = {.threads = 16, .slots = 11};
	r.seed = rig_seed("cap_keeps_its_sum_through_full_and_back");
	ck_assert_int_eq(cap_counter_init(&r.c, 800, r.slots), OK);
	rig_run_threads(r.threads, cap_claim_and_release, &r);
	ck_assert_int_eq(cap_counter_sum(&r.c), 0);
	ck_assert(atomic_load(&r.most) <= 800 + (CAP_BATCH - 1 + 20) * (int64_t)r.threads);
	cap_counter_destroy(&r.c);
}
END_TEST

START_TEST(what_others_released_is_seen_by_who_was_refused)
{
	/* Each slot releases less than a batch: with nothing but folds this stays unseen. */
	enum { SLOTS = 64, EACH = 4 };
	struct cap_counter c;
	ck_assert_int_eq(cap_counter_init(&c, SLOTS * EACH, SLOTS), OK);
	while (cap_counter_claim(&c, 0, EACH))
		;
	ck_assert(!cap_counter_claim(&c, 1, 1));
	int64_t out = cap_counter_sum(&c);
	for (unsigned slot = 0; out > 0; slot++, out -= EACH)
		cap_counter_add(&c, slot % SLOTS, -EACH);
	ck_assert_int_eq(cap_counter_sum(&c), 0);
	ck_assert(cap_counter_claim(&c, 1, SLOTS * EACH));
	cap_counter_destroy(&c);
}
END_TEST

START_TEST(what_others_released_before_is_seen_at_the_cap)
{
	enum { SLOTS = 64, EACH = 4 };
	struct cap_counter c;
	ck_assert_int_eq(cap_counter_init(&c, SLOTS * EACH, SLOTS), OK);
	ck_assert(cap_counter_claim(&c, 0, SLOTS * EACH));
	for (unsigned slot = 1; slot < SLOTS; slot++)
		cap_counter_add(&c, slot, -EACH);
	ck_assert_int_eq(cap_counter_read(&c), SLOTS * EACH);
	ck_assert(cap_counter_claim(&c, 0, CAP_BATCH));
	ck_assert_int_eq(cap_counter_sum(&c), EACH + CAP_BATCH);
	cap_counter_destroy(&c);
}
END_TEST

START_TEST(full_goes_when_an_eighth_is_free)
{
	struct cap_counter c;
	ck_assert_int_eq(cap_counter_init(&c, 800, 4), OK);
	while (cap_counter_claim(&c, 0, 50))
		;
	ck_assert(atomic_load(&c.full));
	int64_t out = cap_counter_sum(&c);
	cap_counter_add(&c, 1, 700 - out);
	ck_assert(cap_counter_claim(&c, 2, 1));
	ck_assert(atomic_load(&c.full));
	cap_counter_add(&c, 1, -100);
	ck_assert(cap_counter_claim(&c, 2, 1));
	ck_assert(!atomic_load(&c.full));
	cap_counter_destroy(&c);
}
END_TEST

/* --- credit_counter -------------------------------------------------------------------------- */

struct credit_run {
	struct credit_counter c;
	int64_t units;
	unsigned slots;
	uint64_t seed;
	_Atomic int64_t held;
	_Atomic int64_t most;
};

static void credit_take_all(unsigned index, void *arg)
{
	struct credit_run *r = arg;
	int64_t mine = 0;
	while (credit_counter_claim(&r->c, index % r->slots, 1))
		mine++;
	atomic_fetch_add(&r->held, mine);
}

START_TEST(credit_gives_out_every_unit_and_not_one_more)
{
	static const unsigned threads[] = {1, 2, 5, 16, 64};
	static const int64_t units[] = {0, 1, 31, 640, 5000, 100000};
	for (unsigned u = 0; u < ARRAY_SIZE(units); u++) {
		struct credit_run r = {.units = units[u], .slots = 1 + threads[_i] / 2};
		ck_assert_int_eq(credit_counter_init(&r.c, r.units, r.slots), OK);
		rig_run_threads(threads[_i], credit_take_all, &r);
		ck_assert_int_eq(atomic_load(&r.held), r.units);
		ck_assert_int_eq(credit_counter_sum(&r.c), 0);
		credit_counter_destroy(&r.c);
	}
}
END_TEST

static void credit_note(struct credit_run *r, int64_t n)
{
	int64_t now = atomic_fetch_add(&r->held, n) + n;
	int64_t most = atomic_load(&r->most);
	while (now > most && !atomic_compare_exchange_weak(&r->most, &most, now))
		;
}

static void credit_churn(unsigned index, void *arg)
{
	struct credit_run *r = arg;
	uint64_t random = r->seed + index;
	int64_t mine = 0;
	for (int i = 0; i < 20000; i++) {
		int64_t n = 1 + (int64_t)(rig_random(&random) % 50);
		/* Long waves up and down, so that slots open, close and drain again and again. */
		bool down = (i / 500 + (int)index / 8) % 2 == 1;
		if (down && mine >= n) {
			credit_note(r, -n);
			credit_counter_release(&r->c, index % r->slots, n);
			mine -= n;
		} else if (!down && credit_counter_claim(&r->c, index % r->slots, n)) {
			credit_note(r, n);
			mine += n;
		}
	}
	/* Noted first, as above: once released, another thread may hold it and note that. */
	credit_note(r, -mine);
	if (mine > 0)
		credit_counter_release(&r->c, index % r->slots, mine);
}

START_TEST(credit_is_never_overcommitted)
{
	static const int64_t units[] = {700, 20000, 200000};
	struct credit_run r = {.units = units[_i], .slots = 9};
	r.seed = rig_seed("credit_is_never_overcommitted");
	ck_assert_int_eq(credit_counter_init(&r.c, r.units, r.slots), OK);
	rig_run_threads(16, credit_churn, &r);
	ck_assert(atomic_load(&r.most) <= r.units);
	ck_assert_int_eq(credit_counter_sum(&r.c), r.units);
	credit_counter_destroy(&r.c);
}
END_TEST

/*
 * Exact refusals while others work: as many units as threads, and a thread holds one at most. So
 * whoever claims finds one free, whatever is on its way between slots and the global value, and
 * no claim may be refused.
 */
static void credit_never_refused(unsigned index, void *arg)
{
	struct credit_run *r = arg;
	for (int i = 0; i < 5000; i++) {
		if (!credit_counter_claim(&r->c, index % r->slots, 1)) {
			atomic_fetch_add(&r->held, 1);
			return;
		}
		credit_counter_release(&r->c, index % r->slots, 1);
	}
}

START_TEST(credit_is_never_refused_while_a_unit_is_free)
{
	/* Threads, and the marks: slots open, batches are taken (or found to be too large and
	 * taken back) and drained, all around the point where the counter is empty. */
	static const unsigned threads[] = {12, CREDIT_BATCH + 8};
	static const int64_t open_watermark[] = {2, CREDIT_BATCH + 2};
	struct credit_run r = {.slots = threads[_i]};
	ck_assert_int_eq(credit_counter_init(&r.c, threads[_i], r.slots), OK);
	r.c.low_watermark = 0;
	r.c.open_watermark = open_watermark[_i];
	rig_run_threads(threads[_i], credit_never_refused, &r);
	ck_assert_int_eq(atomic_load(&r.held), 0);
	ck_assert_int_eq(credit_counter_sum(&r.c), threads[_i]);
	credit_counter_destroy(&r.c);
}
END_TEST

static void credit_claim_one(unsigned index, void *arg)
{
	struct credit_run *r = arg;
	if (index == 0) {
		atomic_store(&r->held, credit_counter_claim(&r->c, 1, 1) ? 1 : 0);
		return;
	}
	/* The thread of slot 0 sleeps with its batch in hand, then puts it down. */
	const struct timespec pause = {.tv_nsec = 50000000};
	(void)nanosleep(&pause, NULL);
	atomic_store(&r->c.slot[0].value, 1);
}

START_TEST(credit_in_another_threads_hand_is_waited_for)
{
	struct credit_run r = {.slots = 2};
	ck_assert_int_eq(credit_counter_init(&r.c, 100000, r.slots), OK);
	ck_assert(credit_counter_claim(&r.c, 0, 1));
	ck_assert_int_eq(atomic_load(&r.c.slot[0].value), 0);
	/* As if slot 0's thread had just taken the last unit as its batch. */
	atomic_store(&r.c.slot[0].value, SLOT_TAKING);
	atomic_store(&r.c.global, 0);
	rig_run_threads(2, credit_claim_one, &r);
	ck_assert_int_eq(atomic_load(&r.held), 1);
	ck_assert_int_eq(credit_counter_sum(&r.c), 0);
	credit_counter_destroy(&r.c);
}
END_TEST

START_TEST(credit_in_an_idle_slot_is_found_by_another)
{
	struct credit_counter c;
	ck_assert_int_eq(credit_counter_init(&c, 10000, 4), OK);
	ck_assert(credit_counter_claim(&c, 0, 1));
	ck_assert(credit_counter_claim(&c, 0, 1));
	ck_assert_int_eq(atomic_load(&c.slot[0].value), CREDIT_BATCH);
	ck_assert(!credit_counter_claim(&c, 1, 9999));
	ck_assert(credit_counter_claim(&c, 1, 9998));
	ck_assert(!credit_counter_claim(&c, 2, 1));
	ck_assert(!credit_counter_claim(&c, 0, 1));
	credit_counter_release(&c, 3, 1);
	ck_assert(credit_counter_claim(&c, 0, 1));
	credit_counter_destroy(&c);
}
END_TEST

/* Shared operations of a refused claim, or of a claim and a release near the end. */
static uint64_t credit_cost_when_low(unsigned slots)
{
	struct credit_counter c;
	ck_assert_int_eq(credit_counter_init(&c, 100000, slots), OK);
	/* Every slot opens and holds credit; then the rest goes away. */
	for (unsigned slot = 0; slot < slots; slot++) {
		ck_assert(credit_counter_claim(&c, slot, 1));
		(void)credit_counter_claim(&c, slot, 1);
	}
	while (credit_counter_claim(&c, 0, 1))
		;
	uint64_t before = shared_line_ops;
	for (unsigned i = 0; i < 1000; i++) {
		ck_assert(!credit_counter_claim(&c, i % slots, 1));
		credit_counter_release(&c, i % slots, 1);
		ck_assert(credit_counter_claim(&c, (i + 1) % slots, 1));
	}
	uint64_t cost = shared_line_ops - before;
	credit_counter_destroy(&c);
	return cost;
}

START_TEST(credit_drains_once_whatever_the_number_of_slots)
{
	uint64_t one = credit_cost_when_low(1);
	ck_assert_uint_eq(credit_cost_when_low(64), one);
	ck_assert_uint_eq(credit_cost_when_low(2048), one);
	/* A refusal is a lock, a look before and one after; a claim is a look and a step. */
	ck_assert_uint_le(one, 1000 * (4 + 1 + 2));
}
END_TEST

/* --- the proof: one shared operation for 32 -----------------------------------------------------
 */

enum { PROOF_CLAIMS = 100000 };

struct proof {
	struct cap_counter cap;
	struct credit_counter credit;
	unsigned pattern;
	_Atomic uint64_t units;
	_Atomic uint64_t ops;
};

/* Claims or releases `n` and says how many units moved. */
static uint64_t proof_step(struct proof *p, unsigned index, uint64_t step)
{
	switch (p->pattern) {
	case 0: /* pages, claimed only */
		ck_assert(cap_counter_claim(&p->cap, index, 1));
		return 1;
	case 1: /* pages in claims of 1 to 16, given back by the same thread */
		if (step % 2 == 0)
			ck_assert(cap_counter_claim(&p->cap, index, 1 + (int64_t)(step / 2 % 16)));
		else
			cap_counter_add(&p->cap, index, -1 - (int64_t)(step / 2 % 16));
		return 1 + step / 2 % 16;
	case 2: /* pages that another thread claimed, given back only */
		cap_counter_add(&p->cap, index, -1);
		return 1;
	case 3: /* reservations, claimed only */
		ck_assert(credit_counter_claim(&p->credit, index, 1));
		return 1;
	case 4: /* reservations of 1 to 16, then released */
		if (step % 2 == 0)
			ck_assert(credit_counter_claim(
				&p->credit, index, 1 + (int64_t)(step / 2 % 16)));
		else
			credit_counter_release(&p->credit, index, 1 + (int64_t)(step / 2 % 16));
		return 1 + step / 2 % 16;
	default: /* reservations of another thread, released only */
		credit_counter_release(&p->credit, index, 1);
		return 1;
	}
}
enum { PROOF_PATTERNS = 6 };

static void proof_thread(unsigned index, void *arg)
{
	struct proof *p = arg;
	uint64_t units = 0, before = shared_line_ops;
	for (uint64_t step = 0; step < PROOF_CLAIMS / 10; step++)
		units += proof_step(p, index, step);
	atomic_fetch_add(&p->ops, shared_line_ops - before);
	atomic_fetch_add(&p->units, units);
}

START_TEST(one_shared_operation_for_32_claims)
{
	for (unsigned threads = 1; threads <= 64; threads *= 2) {
		struct proof p = {.pattern = (unsigned)_i};
		ck_assert_int_eq(cap_counter_init(&p.cap, INT64_C(1) << 40, threads), OK);
		ck_assert_int_eq(credit_counter_init(&p.credit, INT64_C(1) << 40, threads), OK);
		rig_run_threads(threads, proof_thread, &p);
		printf("pattern %d, %2u threads: %6.1f units a shared operation\n", _i, threads,
			(double)p.units / (double)(p.ops > 0 ? p.ops : 1));
		ck_assert_uint_le(p.ops * 32, p.units);
		/* The count is alive: what only goes one way must come to the global value. */
		if (_i != 1 && _i != 4)
			ck_assert_uint_gt(p.ops, 0);
		cap_counter_destroy(&p.cap);
		credit_counter_destroy(&p.credit);
	}
}
END_TEST

START_TEST(no_memory_is_an_error)
{
	struct cap_counter cap;
	struct credit_counter credit;
	allocations_left = 0;
	ck_assert_int_eq(cap_counter_init(&cap, 1, 4), ERR_NOMEM);
	allocations_left = 0;
	ck_assert_int_eq(credit_counter_init(&credit, 1, 4), ERR_NOMEM);
	allocations_left = 1;
	ck_assert_int_eq(credit_counter_init(&credit, 1, 4), ERR_NOMEM);
	allocations_left = 2;
	ck_assert_int_eq(credit_counter_init(&credit, 1, 4), OK);
	credit_counter_destroy(&credit);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base/counter");
	TCase *cap = rig_case(s, "cap");
	tcase_add_loop_test(cap, cap_admits_no_more_than_the_stated_error, 0, 5);
	tcase_add_test(cap, cap_error_can_reach_a_batch_in_every_slot);
	tcase_add_test(cap, cap_keeps_its_sum_through_full_and_back);
	tcase_add_test(cap, what_others_released_is_seen_by_who_was_refused);
	tcase_add_test(cap, what_others_released_before_is_seen_at_the_cap);
	tcase_add_test(cap, full_goes_when_an_eighth_is_free);
	TCase *credit = rig_case(s, "credit");
	tcase_add_loop_test(credit, credit_gives_out_every_unit_and_not_one_more, 0, 5);
	tcase_add_loop_test(credit, credit_is_never_overcommitted, 0, 3);
	tcase_add_loop_test(credit, credit_is_never_refused_while_a_unit_is_free, 0, 2);
	tcase_add_test(credit, credit_in_another_threads_hand_is_waited_for);
	tcase_add_test(credit, credit_in_an_idle_slot_is_found_by_another);
	tcase_add_test(credit, credit_drains_once_whatever_the_number_of_slots);
	TCase *proof = rig_case(s, "proof");
	tcase_add_loop_test(proof, one_shared_operation_for_32_claims, 0, PROOF_PATTERNS);
	tcase_add_test(proof, no_memory_is_an_error);
	return rig_run_suite(s);
}
