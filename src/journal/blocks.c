/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The journal's blocks by number: a pool of fixed size and a table over it.
 *
 * There are at most as many as blocks of the log, each of which holds the newest copy of at most
 * one home, and members of the running transaction. So the pool is mapped once, its pages are
 * touched as they are needed, and nothing here can fail when it would be too late to say so.
 *
 * Threads: the journal's mutex.
 */
#include "writer_int.h"

#include <stdlib.h>
#include <sys/mman.h>

enum err blocks_create(struct journal *j)
{
	j->pool_count = (size_t)j->log_blocks + j->members_max;

	void *pool = mmap(NULL, j->pool_count * sizeof(*j->pool), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (pool == MAP_FAILED)
		return ERR_NOMEM;
	j->pool = pool;
	j->table_bits = 6;
	while (j->table_bits < 24 && (size_t)1 << j->table_bits < j->pool_count)
		j->table_bits++;
	journal_lock(&j->lock);
	j->table = calloc((size_t)1 << j->table_bits, sizeof(*j->table));
	enum err e = j->table == NULL ? ERR_NOMEM : OK;
	journal_unlock(&j->lock);
	return e;
}

void blocks_destroy(struct journal *j)
{
	if (j->pool != NULL)
		munmap(j->pool, j->pool_count * sizeof(*j->pool));
	journal_lock(&j->lock);
	free(j->table);
	journal_unlock(&j->lock);
}

/* Fibonacci hashing, as in the cache: neighbours spread. */
static struct journal_block **blocks_bucket(const struct journal *j, fsblk_t nr)
	REQUIRES(journal_token)
{
	return &j->table[(nr * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - j->table_bits)];
}

struct journal_block *blocks_find(const struct journal *j, fsblk_t nr)
{
	struct journal_block *b = *blocks_bucket(j, nr);

	while (b != NULL && b->nr != nr)
		b = b->chain;
	return b;
}

struct journal_block *blocks_add(struct journal *j, fsblk_t nr)
{
	struct journal_block **bucket = blocks_bucket(j, nr), *b = j->pool_free;

	if (b != NULL) {
		j->pool_free = b->chain;
	} else {
		ensure(j->pool_used < j->pool_count);
		b = &j->pool[j->pool_used++];
	}
	*b = (struct journal_block){.nr = nr, .chain = *bucket};
	list_init(&b->join);
	list_init(&b->in_log);
	*bucket = b;
	return b;
}

void blocks_remove(struct journal *j, struct journal_block *b)
{
	struct journal_block **at = blocks_bucket(j, b->nr);

	ensure(b->joined == JOINED_NONE && b->logged == NULL && !b->pending);
	while (*at != b)
		at = &(*at)->chain;
	*at = b->chain;
	b->chain = j->pool_free;
	j->pool_free = b;
}

void blocks_settle(struct journal *j, struct journal_block *b)
{
	if (!b->pending)
		return;
	ensure(b->logged->pending > 0 && j->pending > 0);
	b->pending = false;
	b->logged->pending--;
	j->pending--;
}

/* --- checks ---------------------------------------------------------------------------------- */

void transaction_check(const struct journal *j, const struct journal_transaction *t)
{
	switch (t->state) {
	case TRANSACTION_RUNNING:
	case TRANSACTION_LOCKED:
		ensure(t == j->running && t->pending == 0 && list_empty(&t->logged));
		ensure(t->member_count + t->outstanding <= j->members_max);
		ensure(list_empty(&t->members) == (t->member_count == 0));
		ensure(t->handles > 0 || t->outstanding == 0);
		break;
	case TRANSACTION_LOGGING:
		ensure(t == j->logging && t->handles == 0 && list_empty(&t->members));
		ensure(t->log_blocks > 0 && t->log_blocks <= j->used);
		break;
	case TRANSACTION_COMMITTED:
		ensure(list_empty(&t->members) && list_empty(&t->revokes));
		ensure(t->pending <= j->pending && !list_empty(&t->link));
		break;
	}
}

void journal_check(const struct journal *j)
{
	uint64_t durable = atomic_load_explicit(&j->durable_seq, memory_order_relaxed);

	ensure(j->used <= j->log_blocks && j->in_log <= j->used && j->pending <= j->in_log);
	ensure(j->head >= j->log.first && j->head < j->log.last);
	ensure(j->running->seq == durable + 1 + (j->logging != NULL));
	ensure(list_empty(&j->committed_list) || j->used > 0);
	ensure((j->logging == NULL && list_empty(&j->committed_list)) == (j->used == 0));
	transaction_check(j, j->running);
	if (j->logging != NULL)
		transaction_check(j, j->logging);
}
