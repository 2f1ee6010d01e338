/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The journal's thread: what it does next; and the doors of those who wait for it.
 *
 * In this order: commit what is due; write home and move the tail where somebody waits for that,
 * where the log is half full, where too much is dirty, or where a block has waited for long; else
 * sleep. When someone waits for space and nothing more can go home, because the running
 * transaction holds it, that is committed, since its copies release the older ones.
 *
 * Threads: one runs journal_main; the doors may be called by any other.
 */
#include "writer_int.h"

enum work { WORK_COMMIT, WORK_CHECKPOINT, WORK_CHECKPOINT_DONE, WORK_WAIT, WORK_STOP };

bool commit_is_due(const struct journal *j, uint64_t now_ns)
{
	const struct journal_transaction *t = j->running;

	if (transaction_is_empty(t))
		return j->commit_wanted >= t->seq && t->handles > 0;
	return j->commit_wanted >= t->seq || now_ns - t->started_ns >= j->interval_ns;
}

static const struct journal_transaction *thread_oldest(const struct journal *j)
	REQUIRES(journal_token)
{
	if (list_empty(&j->committed_list))
		return NULL;
	return list_entry(j->committed_list.next, struct journal_transaction, link);
}

/* When the oldest committed transaction goes home without anybody asking. */
static uint64_t thread_home_due(const struct journal *j, const struct journal_transaction *oldest)
	REQUIRES(journal_token)
{
	if (j->used > j->log_blocks / 2 || j->pending > j->dirty_max)
		return j->home_due_ns;
	return MAX(oldest->committed_ns + JOURNAL_HOME_AGE_NS, j->home_due_ns);
}

/* For WORK_WAIT, *until_ns says how long. */
static enum work thread_next(const struct journal *j, uint64_t *until_ns) REQUIRES(journal_token)
{
	const struct journal_transaction *oldest = thread_oldest(j);
	uint64_t now_ns = clock_ns();

	if (commit_is_due(j, now_ns))
		return WORK_COMMIT;
	if (oldest != NULL && (j->space_wanted || j->checkpoint_wanted >= oldest->seq)) {
		/* Only the running transaction can hold what does not go home. */
		return j->stuck && !transaction_is_empty(j->running) ? WORK_COMMIT
								     : WORK_CHECKPOINT;
	}
	if (j->checkpoint_wanted > j->checkpoint_done)
		return WORK_CHECKPOINT_DONE;
	if (oldest != NULL && thread_home_due(j, oldest) <= now_ns)
		return WORK_CHECKPOINT;
	if (j->stopping)
		return WORK_STOP;
	*until_ns = UINT64_MAX;
	if (!transaction_is_empty(j->running))
		*until_ns = j->running->started_ns + j->interval_ns;
	if (oldest != NULL)
		*until_ns = MIN(*until_ns, thread_home_due(j, oldest));
	return WORK_WAIT;
}

static void thread_checkpoint_done(struct journal *j) REQUIRES(journal_token)
{
	if (j->used == 0 && transaction_is_empty(j->running) && !j->marked_empty)
		log_mark_empty(j);
	j->checkpoint_done = j->checkpoint_wanted;
	cond_broadcast(&j->committed);
}

static void thread_wait(struct journal *j, uint64_t until_ns) REQUIRES(journal_token)
{
	if (until_ns == UINT64_MAX)
		cond_wait(&j->work, &j->lock);
	else
		(void)cond_wait_until(&j->work, &j->lock, until_ns);
}

void *journal_main(void *arg)
{
	struct journal *j = arg;
	uint64_t until_ns = 0;
	enum work work = WORK_WAIT;

	journal_lock(&j->lock);
	while (j->error == OK && work != WORK_STOP) {
		work = thread_next(j, &until_ns);
		if (work == WORK_COMMIT)
			commit_run(j);
		else if (work == WORK_CHECKPOINT)
			checkpoint_run(j);
		else if (work == WORK_CHECKPOINT_DONE)
			thread_checkpoint_done(j);
		else if (work == WORK_WAIT)
			thread_wait(j, until_ns);
	}
	journal_unlock(&j->lock);
	return NULL;
}

/* --- failure --------------------------------------------------------------------------------- */

void journal_fail_locked(struct journal *j, enum err e, const char *why)
{
	if (j->error != OK)
		return;
	j->error = e;
	atomic_store_explicit(&j->failed, true, memory_order_release);
	log_error("%s (%s); the volume is read-only from now on and keeps what was synced before",
		why, err_detail()[0] != '\0' ? err_detail() : err_text(e));
	cond_broadcast(&j->work);
	cond_broadcast(&j->room);
	cond_broadcast(&j->committed);
}

void journal_fail(struct journal *j, enum err e, const char *why)
{
	ensure(e != OK);
	journal_lock(&j->lock);
	journal_fail_locked(j, e, why);
	journal_unlock(&j->lock);
}

bool journal_failed(const struct journal *j)
{
	return atomic_load_explicit(&j->failed, memory_order_acquire);
}

static enum err thread_refuse(void)
{
	return err_set_detail(ERR_ROFS, "the volume has failed and takes no more changes");
}

/* --- waiting --------------------------------------------------------------------------------- */

uint64_t journal_running(const struct journal *j)
{
	return atomic_load_explicit(&j->running_seq, memory_order_acquire);
}

uint64_t journal_durable(const struct journal *j)
{
	return atomic_load_explicit(&j->durable_seq, memory_order_acquire);
}

/* All that was changed up to this transaction is durable. An empty one has nothing to say. */
static bool commit_is_done(const struct journal *j, uint64_t seq) REQUIRES(journal_token)
{
	uint64_t durable = atomic_load_explicit(&j->durable_seq, memory_order_relaxed);

	if (durable + 1 == j->running->seq && transaction_is_empty(j->running))
		durable++;
	return durable >= seq;
}

enum err journal_commit(struct journal *j, uint64_t seq)
{
	enum err e = OK;

	if (journal_failed(j))
		return thread_refuse();
	if (journal_durable(j) >= seq)
		return OK;
	journal_lock(&j->lock);
	seq = MIN(seq, j->running->seq);
	while (j->error == OK && !commit_is_done(j, seq)) {
		if (j->commit_wanted < seq) {
			j->commit_wanted = seq;
			cond_signal(&j->work);
		}
		cond_wait(&j->committed, &j->lock);
	}
	if (j->error != OK)
		e = err_set_detail(j->error, "the journal could not be written");
	journal_unlock(&j->lock);
	return e;
}

enum err journal_checkpoint(struct journal *j)
{
	uint64_t seq = journal_running(j);
	enum err e = journal_commit(j, seq);

	if (e != OK)
		return e;
	journal_lock(&j->lock);
	/* Where it was empty there may be no such transaction yet; those before it are enough. */
	seq = MIN(seq, j->running->seq - 1);
	j->checkpoint_done = MIN(j->checkpoint_done, seq - 1);
	j->checkpoint_wanted = MAX(j->checkpoint_wanted, seq);
	cond_signal(&j->work);
	while (j->error == OK && j->checkpoint_done < seq)
		cond_wait(&j->committed, &j->lock);
	if (j->error != OK)
		e = err_set_detail(j->error, "metadata could not be written home");
	journal_unlock(&j->lock);
	return e;
}

void journal_stats(struct journal *j, struct journal_stats *out)
{
	journal_lock(&j->lock);
	*out = j->stats;
	out->running_seq = j->running->seq;
	out->durable_seq = atomic_load_explicit(&j->durable_seq, memory_order_relaxed);
	out->log_blocks = j->log_blocks;
	out->used = j->used;
	out->pending = j->pending;
	journal_unlock(&j->lock);
}
