/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Checkpoint: committed blocks go home, and the log's tail moves on.
 *
 * Only a block's newest copy counts: one that a newer committed transaction holds goes home with
 * that, and one that the running transaction holds has to wait until it commits, since the cache
 * has the running version. The tail passes a transaction when each of its blocks is home or in a
 * newer durable transaction, in this order:
 *
 *   homes written; flush; superblock with the new tail written; flush; the space is free
 *
 * Without the first flush the log would be gone before the homes are there; without the second a
 * crash could replay from the old tail what newer commits have overwritten.
 *
 * Threads: the journal's own; no I/O under the mutex.
 */
#include "writer_int.h"

#include <stdlib.h>

/* --- home ------------------------------------------------------------------------------------ */

static int home_compare(const void *a, const void *b)
{
	const struct journal_block *x = *(struct journal_block *const *)a;
	const struct journal_block *y = *(struct journal_block *const *)b;

	return (x->nr > y->nr) - (x->nr < y->nr);
}

/* Pending blocks that the running transaction does not hold, of the oldest transactions first. */
static size_t home_collect(struct journal *j) REQUIRES(journal_token)
{
	size_t count = 0;

	list_for_each (at, &j->committed_list) {
		struct journal_transaction *t = list_entry(at, struct journal_transaction, link);

		if (t->pending == 0)
			continue;
		list_for_each (link, &t->logged) {
			struct journal_block *b = list_entry(link, struct journal_block, in_log);

			if (!b->pending || b->joined != JOINED_NONE)
				continue;
			j->batch[count++] = b;
			if (count == HOME_BATCH)
				return count;
		}
	}
	return count;
}

/*
 * Writes part of the batch. The cached blocks stay where they are until they are written, as only
 * this thread makes a dirty block of the log clean or forgotten.
 */
static void home_write_chunk(struct journal *j, size_t first, size_t count) REQUIRES(journal_token)
{
	uint32_t home = 0;

	for (size_t i = 0; i < count; i++) {
		j->batch[first + i]->homing = true;
		j->batch_cached[i] = j->batch[first + i]->block;
	}
	journal_unlock(&j->lock);
	enum err e = cache_write_home(j->cache, j->batch_cached, count, j->batch_done);

	journal_lock(&j->lock);
	for (size_t i = 0; i < count; i++) {
		struct journal_block *b = j->batch[first + i];

		b->homing = false;
		if (!j->batch_done[i])
			continue;
		home++;
		blocks_settle(j, b);
		/* Clean now, unless the running transaction has it since. */
		if (b->joined != JOINED_MEMBER)
			b->block = NULL;
	}
	j->stats.home_blocks += home;
	if (home > 0)
		j->stuck = false;
	if (e != OK)
		journal_fail_locked(j, e, "metadata could not be written home");
}

/* Until all that can go is home, or a commit is due. Returns whether it got to the end. */
static bool home_write(struct journal *j) REQUIRES(journal_token)
{
	size_t count;

	while ((count = home_collect(j)) > 0) {
		uint32_t before = j->pending;

		qsort(j->batch, count, sizeof(struct journal_block *), home_compare);
		for (size_t first = 0; first < count; first += HOME_CHUNK) {
			home_write_chunk(j, first, MIN(count - first, (size_t)HOME_CHUNK));
			if (j->error != OK || commit_is_due(j, clock_ns()))
				return false;
		}
		/* The rest of the batch was pinned anew between being collected and written. */
		if (j->pending == before)
			break;
	}
	return true;
}

/* --- tail ------------------------------------------------------------------------------------ */

static bool transaction_may_go(const struct journal *j, const struct journal_transaction *t)
	REQUIRES(journal_token)
{
	return t->pending == 0 &&
	       t->superseded_by <= atomic_load_explicit(&j->durable_seq, memory_order_relaxed);
}

/* The log holds nothing of this transaction any more. */
static void transaction_retire(struct journal *j, struct journal_transaction *t)
	REQUIRES(journal_token)
{
	list_for_each_safe (link, &t->logged) {
		struct journal_block *b = list_entry(link, struct journal_block, in_log);

		list_remove(&b->in_log);
		b->logged = NULL;
		j->in_log--;
		if (b->joined == JOINED_REVOKED) {
			/* No copy is left that could be replayed. */
			list_remove(&b->join);
			b->joined_to->revoke_count--;
			b->joined = JOINED_NONE;
			b->block = NULL;
			cache_forget(j->cache, b->nr);
		}
		if (b->joined == JOINED_NONE)
			blocks_remove(j, b);
	}
	j->used -= t->log_blocks;
	list_remove(&t->link);
	free(t);
}

static enum err tail_write(struct journal *j, uint32_t start, uint64_t seq)
{
	enum err e = volume_flush(j->config.volume);

	if (e != OK)
		return e;
	j->super->s_start = be32_make(start);
	j->super->s_sequence = be32_make((uint32_t)seq);
	e = super_store(&j->log, j->super);
	if (e == OK)
		e = volume_flush(j->config.volume);
	return e;
}

/* Returns whether the tail moved. */
static bool log_move_tail(struct journal *j) REQUIRES(journal_token)
{
	struct list *first = j->committed_list.next, *keep = first;

	while (keep != &j->committed_list &&
		transaction_may_go(j, list_entry(keep, struct journal_transaction, link)))
		keep = keep->next;
	if (keep == first)
		return false;

	uint32_t start = j->head;
	uint64_t seq = j->running->seq;

	if (keep != &j->committed_list) {
		start = list_entry(keep, struct journal_transaction, link)->log_start;
		seq = list_entry(keep, struct journal_transaction, link)->seq;
	}
	journal_unlock(&j->lock);
	enum err e = tail_write(j, start, seq);

	journal_lock(&j->lock);
	if (e != OK) {
		journal_fail_locked(j, e, "the journal's superblock could not be written");
		return false;
	}
	list_for_each_safe (at, &j->committed_list) {
		if (at == keep)
			break;
		transaction_retire(j, list_entry(at, struct journal_transaction, link));
	}
	j->stats.checkpoints++;
	j->stats.flushes += 2;
	journal_check(j);
	return true;
}

/* The tail came here by log_move_tail, so that all homes are flushed. */
static enum err mark_write(struct journal *j, uint32_t sequence, uint32_t head)
{
	j->super->s_head = be32_make(head);
	j->super->s_start = be32_make(0);
	j->super->s_sequence = be32_make(sequence);

	enum err e = super_store(&j->log, j->super);

	if (e == OK)
		e = volume_flush(j->config.volume);
	return e;
}

void log_mark_empty(struct journal *j)
{
	uint32_t sequence = (uint32_t)j->running->seq, head = j->head;

	ensure(j->used == 0 && j->pending == 0 && j->in_log == 0);
	journal_unlock(&j->lock);
	enum err e = mark_write(j, sequence, head);

	journal_lock(&j->lock);
	if (e != OK) {
		journal_fail_locked(j, e, "the journal's superblock could not be written");
		return;
	}
	j->stats.flushes++;
	j->marked_empty = true;
}

void checkpoint_run(struct journal *j)
{
	j->stuck = true;
	j->space_wanted = false;

	bool complete = home_write(j);

	if (j->error != OK)
		return;
	/* Where a commit is due it goes first, and the rest after it. */
	if (complete) {
		if (log_move_tail(j))
			j->stuck = false;
		j->home_due_ns = clock_ns() + JOURNAL_HOME_RETRY_NS;
	}
	cond_broadcast(&j->room);
}
