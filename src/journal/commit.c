/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Commit: from the running transaction to one that is durable.
 *
 *   commit_lock     no handle starts, the open ones end
 *   commit_copy     members and revoke records into the buffer; the next transaction runs
 *   commit_write    the log's superblock where it said that the log is empty; copies; flush;
 *                   commit block; flush
 *   commit_publish  freed blocks leave the cache, then the transaction counts as durable
 *
 * The first flush also covers what others wrote before they joined: file data whose mapping this
 * transaction holds. The commit block follows it and not before, because whoever replays a
 * transaction with a commit block and damaged copies refuses the volume.
 *
 * Failed: the journal is failed and the rest is left undone.
 *
 * Threads: the journal's own. Copying is under the mutex (handles would wait anyway), I/O is not.
 */
#include "writer_int.h"

#include <stdlib.h>
#include <sys/mman.h>

struct journal_transaction *transaction_create(uint64_t seq)
{
	struct journal_transaction *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return NULL;
	t->seq = seq;
	t->state = TRANSACTION_RUNNING;
	list_init(&t->link);
	list_init(&t->members);
	list_init(&t->revokes);
	list_init(&t->logged);
	return t;
}

/* Returns whether there is something to commit; otherwise it runs on. */
static bool commit_lock(struct journal *j) REQUIRES(journal_token)
{
	struct journal_transaction *t = j->running;

	t->state = TRANSACTION_LOCKED;
	while (t->handles > 0)
		cond_wait(&j->drained, &j->lock);
	journal_check(j);
	if (j->error != OK)
		return false;
	if (!transaction_is_empty(t))
		return true;
	t->state = TRANSACTION_RUNNING;
	j->commit_wanted = MIN(j->commit_wanted, t->seq - 1);
	cond_broadcast(&j->room);
	cond_broadcast(&j->committed);
	return false;
}

/* --- copy ------------------------------------------------------------------------------------ */

/* The block's newest copy is this transaction's. */
static void commit_take_block(struct journal *j, struct journal_transaction *t,
	struct journal_block *b) REQUIRES(journal_token)
{
	if (b->logged != NULL) {
		if (b->pending)
			b->logged->superseded_by = t->seq;
		blocks_settle(j, b);
		list_remove(&b->in_log);
	} else {
		j->in_log++;
	}
	list_remove(&b->join);
	b->joined = JOINED_NONE;
	b->logged = t;
	b->pending = true;
	list_push_back(&t->logged, &b->in_log);
	t->pending++;
	j->pending++;
}

static void commit_copy(struct journal *j, struct journal_transaction *next, struct commit *c)
	REQUIRES(journal_token)
{
	struct journal_transaction *t = j->running;
	uint32_t block_bytes = j->config.block_bytes, n = 0;

	*c = (struct commit){
		.seq = t->seq,
		.start = j->head,
		.members = t->member_count,
		.revoke_blocks = journal_ceil(t->revoke_count, j->revokes_per_block),
		.blocks = journal_blocks_for(j, t->member_count, t->revoke_count),
	};
	ensure(c->blocks <= j->log_blocks - j->used);
	list_for_each (link, &t->revokes)
		encode_revoke(j, c, n++, list_entry(link, struct journal_block, join)->nr);
	ensure(n == t->revoke_count);
	n = 0;
	list_for_each_safe (link, &t->members) {
		struct journal_block *b = list_entry(link, struct journal_block, join);

		j->homes[n] = b->nr;
		memcpy(j->buffer + (size_t)encode_copy_at(j, c, n++) * block_bytes, b->block->data,
			block_bytes);
		commit_take_block(j, t, b);
	}
	ensure(n == t->member_count);
	t->state = TRANSACTION_LOGGING;
	t->log_start = c->start;
	t->log_blocks = c->blocks;
	t->member_count = 0;
	j->head = j->log.first + (j->head - j->log.first + c->blocks) % j->log_blocks;
	j->used += c->blocks;
	j->logging = t;
	j->running = next;
	atomic_store_explicit(&j->running_seq, next->seq, memory_order_release);
	j->stuck = false;
	journal_check(j);
	cond_broadcast(&j->room);
}

/* --- write ----------------------------------------------------------------------------------- */

/* Writes `count` blocks of the buffer, split where the log wraps or its runs end. */
static enum err log_write(struct journal *j, uint32_t position, const uint8_t *from, uint32_t count)
{
	const uint32_t block_bytes = j->config.block_bytes;
	enum err e = OK;

	while (e == OK && count > 0) {
		fsblk_t physical = log_physical(&j->log, position);
		uint32_t step = MIN(count, (uint32_t)MAX(LOG_WRITE_BYTES / block_bytes, 1U));

		step = MIN(step, j->log.last - position);
		for (uint32_t n = 1; n < step; n++)
			if (log_physical(&j->log, position + n) != physical + n)
				step = n;
		e = volume_write(
			j->config.volume, from, (size_t)step * block_bytes, physical * block_bytes);
		from += (size_t)step * block_bytes;
		count -= step;
		position += step;
		if (position == j->log.last)
			position = j->log.first;
	}
	return e;
}

/* What must be on the disk before the first commit block of a log that was empty. */
static enum err commit_write_super(struct journal *j, const struct commit *c)
{
	if (!j->marked_empty)
		return OK;
	j->super->s_start = be32_make(c->start);
	j->super->s_sequence = be32_make((uint32_t)c->seq);

	enum err e = super_store(&j->log, j->super);

	if (e == OK)
		j->marked_empty = false;
	return e;
}

static enum err commit_write(struct journal *j, const struct commit *c)
{
	const size_t last = (size_t)(c->blocks - 1) * j->config.block_bytes;
	uint32_t commit_at =
		j->log.first + (c->start - j->log.first + c->blocks - 1) % j->log_blocks;

	encode_log(j, c);
	enum err e = commit_write_super(j, c);

	if (e == OK)
		e = log_write(j, c->start, j->buffer, c->blocks);
	if (e == OK)
		e = volume_flush(j->config.volume);
	if (e != OK || atomic_load_explicit(&j->failed, memory_order_relaxed))
		return e;
	encode_commit_block(j, c);
	e = log_write(j, commit_at, j->buffer + last, 1);
	if (e == OK)
		e = volume_flush(j->config.volume);
	return e;
}

/* Gives back what a large commit left in memory. */
static void commit_trim_buffer(const struct journal *j, const struct commit *c)
{
	size_t used = (size_t)c->blocks * j->config.block_bytes;
	size_t pages = (used + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;

	/* A refusal costs memory only. */
	if (pages > BUFFER_KEPT_BYTES)
		(void)madvise(
			j->buffer + BUFFER_KEPT_BYTES, pages - BUFFER_KEPT_BYTES, MADV_DONTNEED);
}

/* --- publish --------------------------------------------------------------------------------- */

/*
 * The freed blocks may be used again as soon as the transaction counts as durable, so nothing of
 * them may be cached by then. None is on its way home: this thread does that too.
 */
static void commit_forget(struct journal *j, struct journal_transaction *t) REQUIRES(journal_token)
{
	list_for_each_safe (link, &t->revokes) {
		struct journal_block *b = list_entry(link, struct journal_block, join);

		list_remove(&b->join);
		b->joined = JOINED_NONE;
		b->block = NULL;
		blocks_settle(j, b);
		cache_forget(j->cache, b->nr);
	}
	j->stats.revoked_blocks += t->revoke_count;
	t->revoke_count = 0;
}

static void commit_publish(struct journal *j, const struct commit *c) REQUIRES(journal_token)
{
	struct journal_transaction *t = j->logging;

	commit_forget(j, t);
	t->state = TRANSACTION_COMMITTED;
	t->committed_ns = clock_ns();
	list_push_back(&j->committed_list, &t->link);
	j->logging = NULL;
	cache_set_durable(j->cache, t->seq);
	atomic_store_explicit(&j->durable_seq, t->seq, memory_order_release);
	j->stats.commits++;
	j->stats.logged_blocks += c->members;
	j->stats.flushes += 2;
	journal_check(j);
	cond_broadcast(&j->committed);
}

void commit_run(struct journal *j)
{
	struct journal_transaction *next = transaction_create(j->running->seq + 1);
	struct commit c;

	if (next == NULL) {
		journal_fail_locked(j, ERR_NOMEM, "a transaction could not be opened");
		return;
	}
	if (!commit_lock(j)) {
		free(next);
		return;
	}
	commit_copy(j, next, &c);
	journal_unlock(&j->lock);
	enum err e = commit_write(j, &c);

	commit_trim_buffer(j, &c);
	journal_lock(&j->lock);
	if (e != OK)
		journal_fail_locked(j, e, "the journal could not be written");
	if (j->error == OK)
		commit_publish(j, &c);
}
