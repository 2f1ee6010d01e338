/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * base/counter: the two relaxed counters, cap_counter and credit_counter.
 *
 * cap_counter
 *   Invariant: global + all slots = what is out (+ what a running call has in hand).
 *   Below the cap a thread's slot stays within +-(CAP_BATCH - 1). A fold that is admitted finds
 *   global below the cap, in one atomic step, so global stays below cap + largest claim, and
 *   the slots add at most CAP_BATCH - 1 a thread: the stated error.
 *   `full` is set and cleared under the mutex, and a claim is refused only under it and with
 *   `full` set. It is cleared only when an eighth of the cap is free, so after a release that came
 *   after the refusal. A release adds to its slot first and looks at `full` afterwards, a refusal
 *   sets `full` first and sweeps the slots afterwards: one of them sees the other.
 *
 * credit_counter
 *   Invariant: global + all open slots + what claims hold = the total.
 *   A slot is in one of three states, kept in its value:
 *
 *        CLOSED --(own thread, mutex, global >= open_watermark)--> credit >= 0
 *        credit --(own thread wants the global value)--> TAKING --> credit, or CLOSED below the
 *        credit --(drain, under the mutex)--> CLOSED                low watermark
 *
 *   Every slot that is not CLOSED is in the list. Units may be in a thread's hand, on their way
 *   between the global value and a slot, only while that slot is TAKING, or in the hand of a
 *   drain, which holds the mutex. A claim is refused under the mutex, after a drain of the list
 *   that waited for every TAKING to end: slots open only under the mutex, so at that instant all
 *   free units stand in the global value, and the refusal is exact. A TAKING thread never takes
 *   the mutex, so the wait is for a few instructions of a running thread.
 *
 * Every operation on a shared line is marked SHARED_LINE_OP(). Reading `full`, the watermarks and
 * the like is none: that line is written when a counter gets full or has room again, not by
 * claims. What it does not do: wait, or queue who was refused; the caller does.
 */
#include "base.h"

#include <sched.h>
#include <stdlib.h>

#ifdef CRYPTFS_COUNT_SHARED
_Thread_local uint64_t shared_line_ops;
#endif

static enum err slots_alloc(unsigned slots, struct counter_slot **out)
{
	ensure(slots > 0);
	struct counter_slot *slot = aligned_alloc(sizeof(*slot), slots * sizeof(*slot));
	if (slot == NULL)
		return ERR_NOMEM;
	memset(slot, 0, slots * sizeof(*slot));
	*out = slot;
	return OK;
}

static int64_t global_add(_Atomic int64_t *global, int64_t n)
{
	SHARED_LINE_OP();
	return atomic_fetch_add(global, n);
}

static int64_t global_read(_Atomic int64_t *global)
{
	SHARED_LINE_OP();
	return atomic_load(global);
}

static void turn_lock(struct mutex *m) ACQUIRE(counter_token)
{
	SHARED_LINE_OP();
	counter_lock(m);
}

static void turn_unlock(struct mutex *m) RELEASE(counter_token)
{
	SHARED_LINE_OP();
	counter_unlock(m);
}

/* --- cap_counter ----------------------------------------------------------------------------- */

enum err cap_counter_init(struct cap_counter *c, int64_t cap, unsigned slots)
{
	struct counter_slot *slot;
	enum err e = slots_alloc(slots, &slot);
	if (e != OK)
		return e;
	atomic_init(&c->global, 0);
	atomic_init(&c->full, false);
	mutex_init(&c->turn);
	c->cap = cap;
	c->slots = slots;
	c->slot = slot;
	return OK;
}

void cap_counter_destroy(struct cap_counter *c)
{
	mutex_destroy(&c->turn);
	free(c->slot);
	c->slot = NULL;
}

static void cap_counter_fold(struct cap_counter *c, unsigned slot)
{
	int64_t v = atomic_exchange(&c->slot[slot].value, 0);
	if (v != 0)
		(void)global_add(&c->global, v);
}

/* Leaves `full` when an eighth of the cap is free; checked again under the mutex. */
static void cap_counter_reopen(struct cap_counter *c)
{
	turn_lock(&c->turn);
	if (global_read(&c->global) < c->cap - c->cap / 8)
		atomic_store(&c->full, false);
	turn_unlock(&c->turn);
}

/* Claims from the global value alone, step by step, so that nobody sees more than is claimed. */
static bool cap_counter_claim_global(struct cap_counter *c, int64_t n, int64_t *before)
{
	int64_t g = global_read(&c->global);
	while (g < c->cap) {
		SHARED_LINE_OP();
		if (atomic_compare_exchange_weak(&c->global, &g, g + n)) {
			*before = g;
			return true;
		}
	}
	return false;
}

static bool cap_counter_claim_full(struct cap_counter *c, int64_t n)
{
	int64_t before;
	if (!cap_counter_claim_global(c, n, &before)) {
		turn_lock(&c->turn);
		if (!atomic_load(&c->full)) {
			atomic_store(&c->full, true);
			for (unsigned i = 0; i < c->slots; i++)
				cap_counter_fold(c, i);
		}
		bool claimed = cap_counter_claim_global(c, n, &before);
		turn_unlock(&c->turn);
		if (!claimed)
			return false;
	}
	if (before + n < c->cap - c->cap / 8 && atomic_load(&c->full))
		cap_counter_reopen(c);
	return true;
}

bool cap_counter_claim(struct cap_counter *c, unsigned slot, int64_t n)
{
	ensure(slot < c->slots && n > 0);
	if (atomic_load(&c->full))
		return cap_counter_claim_full(c, n);
	_Atomic int64_t *own = &c->slot[slot].value;
	if (atomic_load_explicit(own, memory_order_relaxed) + n < CAP_BATCH) {
		(void)atomic_fetch_add(own, n);
		return true;
	}
	/* Folds what was claimed before and this claim in one step, and takes this one back when
	 * it was too much: the way without a look beforehand costs one operation, not two. */
	int64_t v = atomic_exchange(own, 0);
	if (global_add(&c->global, v + n) + v < c->cap)
		return true;
	(void)global_add(&c->global, -n);
	return cap_counter_claim_full(c, n);
}

void cap_counter_add(struct cap_counter *c, unsigned slot, int64_t n)
{
	ensure(slot < c->slots);
	int64_t v = atomic_fetch_add(&c->slot[slot].value, n) + n;
	/* The order matters, see the top: first the slot, then the look. */
	if (v >= CAP_BATCH || v <= -CAP_BATCH || atomic_load(&c->full))
		cap_counter_fold(c, slot);
}

int64_t cap_counter_read(const struct cap_counter *c)
{
	return atomic_load(&c->global);
}

int64_t cap_counter_sum(const struct cap_counter *c)
{
	int64_t sum = atomic_load(&c->global);
	for (unsigned i = 0; i < c->slots; i++)
		sum += atomic_load(&c->slot[i].value);
	return sum;
}

/* --- credit_counter -------------------------------------------------------------------------- */

enum { SLOT_CLOSED = -1, SLOT_TAKING = -2 };

enum err credit_counter_init(struct credit_counter *c, int64_t units, unsigned slots)
{
	struct counter_slot *slot;
	unsigned *list = calloc(slots, sizeof(*list));
	if (list == NULL)
		return ERR_NOMEM;
	enum err e = slots_alloc(slots, &slot);
	if (e != OK) {
		free(list);
		return e;
	}
	for (unsigned i = 0; i < slots; i++)
		atomic_init(&slot[i].value, SLOT_CLOSED);
	atomic_init(&c->global, units);
	mutex_init(&c->turn);
	c->low_watermark = units / 64;
	/* Well above, so that a volume that hovers at the watermark does not open and close. */
	c->open_watermark = MAX(2 * c->low_watermark, c->low_watermark + 8 * CREDIT_BATCH);
	c->slots = slots;
	c->slot = slot;
	turn_lock(&c->turn);
	c->list = list;
	c->listed = 0;
	turn_unlock(&c->turn);
	return OK;
}

void credit_counter_destroy(struct credit_counter *c)
{
	mutex_destroy(&c->turn);
	free(c->slot);
	free(c->list);
	c->slot = NULL;
	c->list = NULL;
}

/* The thread's slot opens, empty, when the global value is far enough from the end. */
static void credit_counter_open(struct credit_counter *c, unsigned slot)
{
	turn_lock(&c->turn);
	struct counter_slot *own = &c->slot[slot];
	if (global_read(&c->global) >= c->open_watermark) {
		if (!own->listed) {
			own->listed = true;
			c->list[c->listed++] = slot;
		}
		int64_t closed = SLOT_CLOSED;
		(void)atomic_compare_exchange_strong(&own->value, &closed, 0);
	}
	turn_unlock(&c->turn);
}

/* Closes every open slot; its credit goes to the global value. */
static void credit_counter_drain(struct credit_counter *c) REQUIRES(counter_token)
{
	for (; c->listed > 0; c->listed--) {
		struct counter_slot *s = &c->slot[c->list[c->listed - 1]];
		s->listed = false;
		int64_t v = atomic_load(&s->value);
		do {
			while (v == SLOT_TAKING) {
				(void)sched_yield();
				v = atomic_load(&s->value);
			}
		} while (v != SLOT_CLOSED &&
			 !atomic_compare_exchange_weak(&s->value, &v, SLOT_CLOSED));
		if (v > 0)
			(void)global_add(&c->global, v);
	}
}

/* Never takes more than it keeps. *left is what the claim, or the failure, found. */
static bool credit_counter_claim_global(struct credit_counter *c, int64_t n, int64_t *left)
{
	int64_t g = global_read(&c->global);
	while (g >= n) {
		SHARED_LINE_OP();
		if (atomic_compare_exchange_weak(&c->global, &g, g - n)) {
			*left = g - n;
			return true;
		}
	}
	return false;
}

static bool credit_counter_claim_single(struct credit_counter *c, unsigned slot, int64_t n)
{
	int64_t left;
	if (credit_counter_claim_global(c, n, &left)) {
		if (left >= c->open_watermark && atomic_load(&c->slot[slot].value) == SLOT_CLOSED)
			credit_counter_open(c, slot);
		return true;
	}
	turn_lock(&c->turn);
	credit_counter_drain(c);
	bool claimed = credit_counter_claim_global(c, n, &left);
	turn_unlock(&c->turn);
	return claimed;
}

bool credit_counter_claim(struct credit_counter *c, unsigned slot, int64_t n)
{
	ensure(slot < c->slots && n > 0);
	_Atomic int64_t *own = &c->slot[slot].value;
	int64_t v = atomic_load(own);
	while (v >= 0) {
		if (v >= n) {
			if (atomic_compare_exchange_weak(own, &v, v - n))
				return true;
			continue;
		}
		if (!atomic_compare_exchange_weak(own, &v, SLOT_TAKING))
			continue;
		/* v is now in hand. Take without a look beforehand: one operation, not two. */
		int64_t take = n - v + CREDIT_BATCH;
		if (global_add(&c->global, -take) - take >= c->low_watermark) {
			atomic_store(own, CREDIT_BATCH);
			return true;
		}
		(void)global_add(&c->global, take + v);
		atomic_store(own, SLOT_CLOSED);
		break;
	}
	return credit_counter_claim_single(c, slot, n);
}

void credit_counter_release(struct credit_counter *c, unsigned slot, int64_t n)
{
	ensure(slot < c->slots && n > 0);
	_Atomic int64_t *own = &c->slot[slot].value;
	int64_t v = atomic_load(own);
	while (v >= 0) {
		if (v + n <= 2 * CREDIT_BATCH) {
			if (atomic_compare_exchange_weak(own, &v, v + n))
				return;
			continue;
		}
		if (!atomic_compare_exchange_weak(own, &v, SLOT_TAKING))
			continue;
		int64_t surplus = v + n - CREDIT_BATCH;
		if (global_add(&c->global, surplus) + surplus >= c->low_watermark) {
			atomic_store(own, CREDIT_BATCH);
		} else {
			(void)global_add(&c->global, CREDIT_BATCH);
			atomic_store(own, SLOT_CLOSED);
		}
		return;
	}
	int64_t left = global_add(&c->global, n) + n;
	if (left >= c->open_watermark && v == SLOT_CLOSED)
		credit_counter_open(c, slot);
}

int64_t credit_counter_sum(const struct credit_counter *c)
{
	int64_t sum = atomic_load(&c->global);
	for (unsigned i = 0; i < c->slots; i++) {
		int64_t v = atomic_load(&c->slot[i].value);
		sum += v > 0 ? v : 0;
	}
	return sum;
}
