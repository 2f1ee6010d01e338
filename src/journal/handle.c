/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Handles: joining the running transaction, and what blocks do in it.
 *
 * A handle is let in when the transaction stays within its size with all credits that are out, and
 * when the log has room for it whatever happens: its members, and a revoke record for every block
 * that the log holds. So neither journal_write() nor journal_forget() ever waits or runs out of
 * anything, and a commit always fits.
 *
 * Room comes from a commit, when the transaction is full or locked, or from the log's tail. Both
 * need nothing but that open handles end, and these wait for no handle: whoever waits here may
 * hold an inode's lock, which no open handle waits for, but nothing that one may want.
 *
 * Threads: any; the journal's mutex. A block that is in the handle's transaction already is seen
 * without it, since the handle keeps the transaction from ending.
 */
#include "writer_int.h"

enum { FORGET_STEP = 128 }; /* blocks forgotten under one hold of the mutex */

/* A handle that waits for another one of its own thread would wait for ever. */
static _Thread_local unsigned handles_of_thread;

static enum err handle_refuse(void)
{
	return err_set_detail(ERR_ROFS, "the volume has failed and takes no more changes");
}

/* --- start and stop -------------------------------------------------------------------------- */

/* Whether the handle may join now; where not, asks for what it waits for. */
static bool handle_fits(struct journal *j, uint32_t credits) REQUIRES(journal_token)
{
	struct journal_transaction *t = j->running;
	uint32_t members = t->member_count + t->outstanding + credits;

	if (t->state != TRANSACTION_RUNNING)
		return false;
	if (members > j->members_max) {
		j->commit_wanted = MAX(j->commit_wanted, t->seq);
		cond_signal(&j->work);
		return false;
	}
	if (journal_blocks_for(j, members, j->in_log) >= j->log_blocks - j->used) {
		j->space_wanted = true;
		cond_signal(&j->work);
		return false;
	}
	return true;
}

uint32_t journal_max_credits(const struct journal *j)
{
	return j->members_max;
}

enum err journal_start(struct journal *j, uint32_t credits, struct journal_handle *h)
{
	enum err e = OK;

	ensure(handles_of_thread == 0);
#ifdef CRYPTFS_DEBUG_LOCKS
	/* The wait below is of this rank, whatever the mutex's is. */
	static struct mutex rank_probe = {PTHREAD_MUTEX_INITIALIZER};

	handle_lock(&rank_probe);
	handle_unlock(&rank_probe);
#endif
	if (credits > j->members_max)
		return err_set_detail(ERR_NOSPC,
			"an operation needs %u blocks of the journal and may have %u", credits,
			j->members_max);
	journal_lock(&j->lock);
	while (j->error == OK && !handle_fits(j, credits))
		cond_wait(&j->room, &j->lock);
	if (j->error == OK) {
		struct journal_transaction *t = j->running;

		t->handles++;
		t->outstanding += credits;
		transaction_check(j, t);
		*h = (struct journal_handle){
			.journal = j, .transaction = t, .credits = credits, .seq = t->seq};
		handles_of_thread++;
	} else {
		e = handle_refuse();
	}
	journal_unlock(&j->lock);
	return e;
}

bool journal_extend(struct journal_handle *h, uint32_t more)
{
	struct journal *j = h->journal;
	struct journal_transaction *t = h->transaction;

	journal_lock(&j->lock);
	uint32_t members = t->member_count + t->outstanding;
	bool fits = j->error == OK && t->state == TRANSACTION_RUNNING &&
		    more <= j->members_max - members &&
		    journal_blocks_for(j, members + more, j->in_log) < j->log_blocks - j->used;

	if (fits) {
		t->outstanding += more;
		h->credits += more;
	}
	journal_unlock(&j->lock);
	return fits;
}

enum err journal_stop(struct journal_handle *h)
{
	struct journal *j = h->journal;
	struct journal_transaction *t = h->transaction;

	ensure(handles_of_thread == 1);
	handles_of_thread--;
	journal_lock(&j->lock);
	ensure(t == j->running && t->handles > 0 && t->outstanding >= h->credits);
	t->outstanding -= h->credits;
	t->handles--;
	transaction_check(j, t);
	if (t->handles == 0 && t->state == TRANSACTION_LOCKED)
		cond_signal(&j->drained);
	enum err e = j->error == OK ? OK : handle_refuse();
	journal_unlock(&j->lock);
	*h = (struct journal_handle){.journal = j};
	return e;
}

enum err journal_restart(struct journal_handle *h, uint32_t credits)
{
	struct journal *j = h->journal;
	enum err e = journal_stop(h);

	return e == OK ? journal_start(j, credits, h) : e;
}

/* --- blocks ---------------------------------------------------------------------------------- */

/* The transaction ceases to be empty: from now on its time runs. */
static void transaction_touch(struct journal *j, struct journal_transaction *t)
	REQUIRES(journal_token)
{
	if (!transaction_is_empty(t))
		return;
	t->started_ns = clock_ns();
	cond_signal(&j->work);
}

static void block_join(struct journal_handle *h, struct journal_block *b,
	struct cache_block *cached) REQUIRES(journal_token)
{
	struct journal *j = h->journal;
	struct journal_transaction *t = h->transaction;

	transaction_touch(j, t);
	if (b->joined == JOINED_REVOKED) {
		/* Without a record of this transaction or a later one the new copy is replayed. */
		list_remove(&b->join);
		if (b->joined_to == t)
			t->revoke_count--;
	}
	ensure(h->credits > 0);
	h->credits--;
	t->outstanding--;
	t->member_count++;
	b->joined = JOINED_MEMBER;
	b->joined_to = t;
	list_push_back(&t->members, &b->join);
	/* A dirty block stays where it is, so there cannot be another in the cache. */
	ensure(b->block == NULL || b->block == cached || b->homing);
	b->block = cached;
	cache_pin(j->cache, cached, t->seq);
	atomic_store_explicit(&cached->owner_seq, t->seq, memory_order_release);
	transaction_check(j, t);
}

enum err journal_write(struct journal_handle *h, struct cache_block *cached)
{
	struct journal *j = h->journal;
	enum err e = OK;

	if (atomic_load_explicit(&j->failed, memory_order_relaxed))
		return handle_refuse();
	/* Acquired, so that what this caller changes comes after the pin of whoever joined it. */
	if (atomic_load_explicit(&cached->owner_seq, memory_order_acquire) == h->seq)
		return OK;
	journal_lock(&j->lock);
	struct journal_block *b = blocks_find(j, cached->nr);

	if (j->error != OK) {
		e = handle_refuse();
	} else if (b == NULL || b->joined != JOINED_MEMBER) {
		if (b == NULL)
			b = blocks_add(j, cached->nr);
		block_join(h, b, cached);
	} else {
		ensure(b->joined_to == h->transaction && b->block == cached);
	}
	journal_unlock(&j->lock);
	return e;
}

/* Returns whether the cache may forget the block now. */
static bool block_forget_in(struct journal_handle *h, fsblk_t nr) REQUIRES(journal_token)
{
	struct journal *j = h->journal;
	struct journal_transaction *t = h->transaction;
	struct journal_block *b = blocks_find(j, nr);

	if (b == NULL)
		return true;
	if (b->joined == JOINED_REVOKED)
		return false;
	if (b->joined == JOINED_MEMBER) {
		list_remove(&b->join);
		b->joined = JOINED_NONE;
		t->member_count--;
		t->outstanding++;
		h->credits++;
		atomic_store_explicit(&b->block->owner_seq, 0, memory_order_relaxed);
	}
	/* No copy anywhere: what the transaction did to it never happened. */
	if (b->logged == NULL) {
		b->block = NULL;
		blocks_remove(j, b);
		return true;
	}
	transaction_touch(j, t);
	b->joined = JOINED_REVOKED;
	b->joined_to = t;
	list_push_back(&t->revokes, &b->join);
	t->revoke_count++;
	return false;
}

enum err journal_forget(struct journal_handle *h, fsblk_t nr, uint32_t count)
{
	struct journal *j = h->journal;
	bool now[FORGET_STEP];

	while (count > 0) {
		uint32_t step = MIN(count, (uint32_t)FORGET_STEP);

		journal_lock(&j->lock);
		bool failed = j->error != OK;

		for (uint32_t i = 0; i < step && !failed; i++)
			now[i] = block_forget_in(h, nr + i);
		transaction_check(j, h->transaction);
		journal_unlock(&j->lock);
		if (failed)
			return handle_refuse();
		for (uint32_t i = 0; i < step; i++)
			if (now[i])
				cache_forget(j->cache, nr + i);
		nr += step;
		count -= step;
	}
	return OK;
}
