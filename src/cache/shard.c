/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One shard of the cache: its table, its idle list, and every transition of a block's state.
 *
 * Invariants: the table in cache_int.h; count - idle_count blocks are pinned; when nothing is
 * pinned, count is at most the shard's capacity. Pinned blocks may exceed it.
 *
 * Threads: the shard's mutex, held for a few instructions; nothing is read from the device, and
 * no memory is taken or given back, while it is held.
 */
#include "cache_int.h"

#include <stdlib.h>

/* Fibonacci hashing: neighbours land in different shards, so that a directory's or an inode
 * table's blocks do not share a mutex. The shard takes the topmost bits, the bucket the next. */
static uint64_t shard_hash(fsblk_t nr)
{
	return nr * UINT64_C(0x9e3779b97f4a7c15);
}

static struct shard *cache_shard(const struct cache *c, fsblk_t nr)
{
	return &c->shards[c->shard_bits == 0 ? 0 : shard_hash(nr) >> (64 - c->shard_bits)];
}

static size_t shard_bucket(const struct cache *c, fsblk_t nr)
{
	return (size_t)(shard_hash(nr) >> (64 - c->shard_bits - c->table_bits)) &
	       (((size_t)1 << c->table_bits) - 1);
}

/* O(1): the block's, and its shard's, row of the table in cache_int.h holds. */
static void block_check(const struct shard *s, const struct block *b) REQUIRES(shard_token)
{
	bool idle = !list_empty(&b->idle);

	ensure(s->idle_count <= s->count);
	ensure(b->waiters <= b->pins);
	switch (b->state) {
	case BLOCK_EMPTY:
		ensure(!idle && b->pins == 0);
		break;
	case BLOCK_READING:
		ensure(!idle && b->pins == 1 + b->waiters);
		break;
	case BLOCK_CLEAN:
		ensure(idle == (b->pins == 0));
		break;
	case BLOCK_FAILED:
		ensure(!idle && b->error != OK);
		break;
	}
}

/* --- memory ---------------------------------------------------------------------------------- */

static struct block *block_alloc(uint32_t block_bytes)
{
	struct block *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	/* Aligned to its size, so that O_DIRECT needs no copy. */
	b->pub.data = aligned_alloc(block_bytes, block_bytes);
	if (b->pub.data == NULL) {
		free(b);
		return NULL;
	}
	list_init(&b->idle);
	return b;
}

static void block_free(struct block *b)
{
	if (b == NULL)
		return;
	free(b->pub.data);
	free(b);
}

enum err shard_init(struct shard *s, unsigned table_bits)
{
	mutex_init(&s->lock);
	cond_init(&s->read_ended);
	shard_lock(&s->lock);
	list_init(&s->idle);
	s->table = calloc((size_t)1 << table_bits, sizeof(*s->table));
	enum err e = s->table == NULL ? ERR_NOMEM : OK;
	shard_unlock(&s->lock);
	return e;
}

void shard_destroy(struct shard *s)
{
	shard_lock(&s->lock);
	if (s->table != NULL) {
		ensure(s->idle_count == s->count);
		list_for_each_safe (n, &s->idle)
			block_free(list_entry(n, struct block, idle));
	}
	free(s->table);
	shard_unlock(&s->lock);
	cond_destroy(&s->read_ended);
	mutex_destroy(&s->lock);
}

/* --- the table ------------------------------------------------------------------------------- */

static struct block *shard_find(const struct cache *c, const struct shard *s, fsblk_t nr)
	REQUIRES(shard_token)
{
	struct block *b = s->table[shard_bucket(c, nr)];

	while (b != NULL && b->pub.nr != nr)
		b = b->chain;
	return b;
}

static void shard_insert(const struct cache *c, struct shard *s, struct block *b)
	REQUIRES(shard_token)
{
	struct block **bucket = &s->table[shard_bucket(c, b->pub.nr)];

	b->chain = *bucket;
	*bucket = b;
	s->count++;
}

static void shard_remove(const struct cache *c, struct shard *s, struct block *b)
	REQUIRES(shard_token)
{
	struct block **at = &s->table[shard_bucket(c, b->pub.nr)];

	while (*at != b)
		at = &(*at)->chain;
	*at = b->chain;
	b->chain = NULL;
	s->count--;
}

/* The block that was used longest ago leaves the table, EMPTY; NULL when all are pinned. */
static struct block *shard_recycle(const struct cache *c, struct shard *s) REQUIRES(shard_token)
{
	if (list_empty(&s->idle))
		return NULL;

	struct block *b = list_entry(s->idle.next, struct block, idle);

	list_remove(&b->idle);
	s->idle_count--;
	shard_remove(c, s, b);
	b->state = BLOCK_EMPTY;
	s->evictions++;
	block_check(s, b);
	return b;
}

/* --- transitions ----------------------------------------------------------------------------- */

/* Waits until the block, which the caller has pinned, is no longer being read. */
static enum err block_wait(struct shard *s, struct block *b) REQUIRES(shard_token)
{
	b->waiters++;
	while (b->state == BLOCK_READING)
		cond_wait(&s->read_ended, &s->lock);
	b->waiters--;
	return b->error;
}

/*
 * The block in the table, or a new one claimed for reading; *spare is memory that the caller frees
 * when it has dropped the lock, which is dropped and taken again here when memory is needed.
 */
static enum err shard_find_or_claim(struct cache *c, struct shard *s, fsblk_t nr,
	struct block **found, struct block **claimed, struct block **spare) REQUIRES(shard_token)
{
	struct block *b = shard_find(c, s, nr);
	struct block *fresh = NULL;

	*found = *claimed = *spare = NULL;
	if (b == NULL && s->count >= c->shard_capacity)
		fresh = shard_recycle(c, s);
	if (b == NULL && fresh == NULL) {
		shard_unlock(&s->lock);
		fresh = block_alloc(c->block_bytes);
		shard_lock(&s->lock);
		if (fresh == NULL)
			return ERR_NOMEM;
		b = shard_find(c, s, nr); /* another thread may have come first */
	}
	if (b != NULL) {
		*found = b;
		*spare = fresh;
		return OK;
	}
	fresh->pub.nr = nr;
	atomic_store_explicit(&fresh->pub.verified, 0, memory_order_relaxed);
	fresh->state = BLOCK_READING;
	fresh->error = OK;
	fresh->pins = 1;
	shard_insert(c, s, fresh);
	s->misses++;
	block_check(s, fresh);
	*claimed = fresh;
	return OK;
}

enum err block_get(struct cache *c, fsblk_t nr, struct block **out, bool *must_read)
{
	struct shard *s = cache_shard(c, nr);
	struct block *b, *claimed, *spare;

	shard_lock(&s->lock);
	enum err e = shard_find_or_claim(c, s, nr, &b, &claimed, &spare);

	if (b != NULL) {
		if (b->pins++ == 0) {
			list_remove(&b->idle);
			s->idle_count--;
		}
		if (b->state == BLOCK_CLEAN) {
			s->hits++;
		} else {
			s->misses++;
			e = block_wait(s, b);
		}
	}
	shard_unlock(&s->lock);
	block_free(spare);
	if (e != OK && b != NULL)
		block_leave(c, b);
	if (e != OK)
		return e;
	*out = claimed != NULL ? claimed : b;
	*must_read = claimed != NULL;
	return OK;
}

enum err block_claim(struct cache *c, fsblk_t nr, struct block **out)
{
	struct shard *s = cache_shard(c, nr);
	struct block *b, *claimed, *spare;

	shard_lock(&s->lock);
	enum err e = shard_find_or_claim(c, s, nr, &b, &claimed, &spare);

	shard_unlock(&s->lock);
	block_free(spare);
	if (e == OK)
		*out = claimed;
	return e;
}

void block_complete(struct cache *c, struct block *b, enum err result)
{
	struct shard *s = cache_shard(c, b->pub.nr);

	shard_lock(&s->lock);
	block_check(s, b);
	b->error = result;
	b->state = result == OK ? BLOCK_CLEAN : BLOCK_FAILED;
	if (result != OK)
		shard_remove(c, s, b);
	if (b->waiters > 0)
		cond_broadcast(&s->read_ended);
	block_check(s, b);
	shard_unlock(&s->lock);
}

void block_leave(struct cache *c, struct block *b)
{
	struct shard *s = cache_shard(c, b->pub.nr);
	struct block *gone = NULL;

	shard_lock(&s->lock);
	ensure(b->pins > 0 && b->state != BLOCK_READING);
	if (--b->pins == 0) {
		if (b->state == BLOCK_FAILED) {
			b->state = BLOCK_EMPTY;
			gone = b;
		} else {
			list_push_back(&s->idle, &b->idle);
			s->idle_count++;
			if (s->count > c->shard_capacity)
				gone = shard_recycle(c, s);
		}
	}
	if (gone != b)
		block_check(s, b);
	shard_unlock(&s->lock);
	block_free(gone);
}
