/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reserve: blocks promised before they are taken, and freed blocks on their way back.
 *
 * Free blocks are credit in a relaxed counter (base.h), so that a promise touches no shared line
 * and can never be more than there is. The superblock's reserved blocks are kept beside it: what is
 * released fills them up first, and only a privileged promise that finds the counter short comes
 * out of them.
 *
 * A freed block is credit again when the transaction that freed it is durable: until then a crash
 * could bring the old owner back. Freed runs wait on a list by rising transaction number: a handle
 * adds them before it stops, and a transaction runs only when all handles of the one before have
 * stopped, so appending keeps the order.
 *
 * Exact refusal. Before ERR_NOSPC the freed blocks that are waiting are made durable, once. A
 * refusal is made under settle_lock, under which freed blocks move from the list to the counter,
 * and the counter's own refusal is exact: so at that instant no block is free that is neither
 * promised nor freed by a transaction still running.
 */
#include "alloc_int.h"

#include <stdlib.h>

enum { RESERVE_SLOTS = 64 };

static unsigned reserve_slot(void)
{
	return thread_slot() % RESERVE_SLOTS;
}

NO_LOCK_ANALYSIS enum err alloc_reserve_open(struct ext4 *fs, int64_t free_blocks)
{
	struct ext4_alloc *a = fs->alloc;
	uint64_t kept = le32_get(fs->super.s_r_blocks_count_lo);
	enum err e;

	if (ext4_has_incompat(fs, EXT4_INCOMPAT_64BIT))
		kept |= (uint64_t)le32_get(fs->super.s_r_blocks_count_hi) << 32;
	a->kept_most = (int64_t)MIN(kept, fs->blocks);
	atomic_init(&a->kept, MIN(a->kept_most, free_blocks));
	e = credit_counter_init(&a->credit, free_blocks - a->kept, RESERVE_SLOTS);
	if (e)
		return e;
	mutex_init(&a->settle_lock);
	mutex_init(&a->freed_lock);
	list_init(&a->freed);
	atomic_init(&a->freed_oldest, UINT64_MAX);
	return OK;
}

NO_LOCK_ANALYSIS void alloc_reserve_close(struct ext4 *fs)
{
	struct ext4_alloc *a = fs->alloc;

	list_for_each_safe (n, &a->freed)
		free(list_entry(n, struct alloc_freed, link));
	mutex_destroy(&a->freed_lock);
	mutex_destroy(&a->settle_lock);
	credit_counter_destroy(&a->credit);
}

void alloc_credit_release(struct ext4_alloc *a, uint32_t blocks)
{
	int64_t kept = atomic_load(&a->kept), left = blocks;

	while (left > 0 && kept < a->kept_most) {
		int64_t some = MIN(left, a->kept_most - kept);
		if (atomic_compare_exchange_weak(&a->kept, &kept, kept + some)) {
			left -= some;
			kept += some;
		}
	}
	if (left > 0)
		credit_counter_release(&a->credit, reserve_slot(), left);
}

void alloc_credit_take_back(struct ext4_alloc *a, uint32_t blocks)
{
	int64_t left = blocks;

	/* What is promised stays promised, and whoever takes on it finds nothing. */
	while (left > 0) {
		int64_t some = MIN(left, credit_counter_sum(&a->credit));
		if (some <= 0)
			return;
		if (credit_counter_claim(&a->credit, reserve_slot(), some))
			left -= some;
	}
}

/* --- freed blocks ---------------------------------------------------------------------------- */

/* Makes node's run part of its neighbour's; map_write frees downwards, others upwards. */
static bool freed_merge(struct alloc_freed *last, const struct alloc_freed *node)
{
	if (last->seq != node->seq || last->count > UINT32_MAX - node->count)
		return false;
	if (node->first + node->count == last->first)
		last->first = node->first;
	else if (last->first + last->count != node->first)
		return false;
	last->count += node->count;
	return true;
}

void alloc_freed_add(struct ext4_alloc *a, struct alloc_freed *node)
{
	bool merged = false;

	journal_lock(&a->freed_lock);
	atomic_fetch_add(&a->freed_blocks, node->count);
	if (list_empty(&a->freed)) {
		atomic_store(&a->freed_oldest, node->seq);
	} else {
		struct alloc_freed *last = list_entry(a->freed.prev, struct alloc_freed, link);

		ensure(last->seq <= node->seq);
		merged = freed_merge(last, node);
	}
	if (!merged)
		list_push_back(&a->freed, &node->link);
	journal_unlock(&a->freed_lock);
	if (merged)
		free(node);
}

/* The oldest run when its transaction is durable, off the list; or NULL. */
static struct alloc_freed *freed_pop(struct ext4_alloc *a, uint64_t durable)
{
	struct alloc_freed *node = NULL;

	journal_lock(&a->freed_lock);
	if (!list_empty(&a->freed)) {
		node = list_entry(a->freed.next, struct alloc_freed, link);
		if (node->seq > durable) {
			node = NULL;
		} else {
			list_remove(&node->link);
			atomic_store(&a->freed_oldest,
				list_empty(&a->freed)
					? UINT64_MAX
					: list_entry(a->freed.next, struct alloc_freed, link)->seq);
		}
	}
	journal_unlock(&a->freed_lock);
	return node;
}

static void settle(struct ext4 *fs) REQUIRES(alloc_token);
static void settle(struct ext4 *fs)
{
	struct ext4_alloc *a = fs->alloc;
	uint64_t durable = journal_durable(fs->journal);
	struct alloc_freed *node;

	while ((node = freed_pop(a, durable)) != NULL) {
		alloc_group_release(fs, node->first, node->count);
		alloc_credit_release(a, node->count);
		atomic_fetch_sub(&a->freed_blocks, node->count);
		free(node);
	}
}

void ext4_alloc_settle(struct ext4 *fs)
{
	struct ext4_alloc *a = fs->alloc;

	if (atomic_load(&a->freed_oldest) > journal_durable(fs->journal))
		return;
	/* Somebody who is at it already does this work too. */
	if (!alloc_trylock(&a->settle_lock))
		return;
	settle(fs);
	alloc_unlock(&a->settle_lock);
}

/* --- promises -------------------------------------------------------------------------------- */

/* Credit left in the counter belongs to the kept blocks while they are not full. */
static void reserve_refill_kept(struct ext4_alloc *a) REQUIRES(alloc_token);
static void reserve_refill_kept(struct ext4_alloc *a)
{
	int64_t some = MIN(credit_counter_sum(&a->credit), a->kept_most - atomic_load(&a->kept));

	if (some > 0 && credit_counter_claim(&a->credit, reserve_slot(), some))
		alloc_credit_release(a, (uint32_t)some);
}

static bool reserve_claim(struct ext4_alloc *a, int64_t blocks, bool privileged)
	REQUIRES(alloc_token);
static bool reserve_claim(struct ext4_alloc *a, int64_t blocks, bool privileged)
{
	int64_t some;

	if (credit_counter_claim(&a->credit, reserve_slot(), blocks))
		return true;
	if (!privileged)
		return false;
	/* Others only add to the kept blocks while we hold the lock. */
	some = MIN(blocks, atomic_load(&a->kept));
	if (some < blocks && !credit_counter_claim(&a->credit, reserve_slot(), blocks - some))
		return false;
	atomic_fetch_sub(&a->kept, some);
	reserve_refill_kept(a);
	return true;
}

enum err ext4_reserve(struct ext4 *fs, uint32_t clusters, bool privileged)
{
	struct ext4_alloc *a = fs->alloc;
	bool claimed, waiting;
	enum err e;

	if (clusters == 0 || credit_counter_claim(&a->credit, reserve_slot(), clusters))
		return OK;
	for (int round = 0;; round++) {
		uint64_t newest = 0;

		alloc_lock(&a->settle_lock);
		settle(fs);
		claimed = reserve_claim(a, clusters, privileged);
		journal_lock(&a->freed_lock);
		waiting = !list_empty(&a->freed);
		if (waiting)
			newest = list_entry(a->freed.prev, struct alloc_freed, link)->seq;
		journal_unlock(&a->freed_lock);
		alloc_unlock(&a->settle_lock);
		if (claimed)
			return OK;
		if (round > 0 || !waiting)
			return ERR_NOSPC;
		e = journal_commit(fs->journal, newest);
		if (e)
			return e;
	}
}

void ext4_unreserve(struct ext4 *fs, uint32_t clusters)
{
	if (clusters > 0)
		alloc_credit_release(fs->alloc, clusters);
}
