/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One shard of the cache: its table, its idle list, and every transition of a block's state.
 *
 * Invariants: the table in cache_int.h; count - idle_count - resting_count blocks are pinned; when
 * nothing is pinned or dirty, count is at most the shard's capacity. Pinned and dirty blocks may
 * exceed it, and beside dirty ones the clean ones keep a quarter.
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

	ensure(s->idle_count <= s->count && s->dirty_count <= s->count - s->idle_count);
	ensure(s->resting_count <= s->dirty_count);
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
	case BLOCK_DIRTY:
	case BLOCK_REDIRTIED:
		ensure(!idle && b->pin_seq > 0 && s->dirty_count > 0);
		break;
	case BLOCK_WRITING:
		ensure(!idle && s->dirty_count > 0);
		break;
	case BLOCK_FAILED:
		ensure(!idle && b->error != OK);
		break;
	case BLOCK_GONE:
		ensure(!idle && b->pins > 0);
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
	cond_init(&s->ended);
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
	cond_destroy(&s->ended);
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

/*
 * Whether `extra` more clean blocks would be too many. Dirty blocks cannot be evicted and take up
 * room that clean ones had, but leave them a quarter, or every look at a clean block would be a
 * read from the device.
 */
static bool shard_is_full(const struct cache *c, const struct shard *s, size_t extra)
	REQUIRES(shard_token)
{
	size_t room = c->shard_capacity - MIN(s->dirty_count, c->shard_capacity);

	return s->count - s->dirty_count + extra > MAX(room, (c->shard_capacity + 3) / 4);
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

static bool block_is_dirty(const struct block *b) REQUIRES(shard_token)
{
	return b->state == BLOCK_DIRTY || b->state == BLOCK_WRITING || b->state == BLOCK_REDIRTIED;
}

static void shard_pin(struct shard *s, struct block *b) REQUIRES(shard_token)
{
	if (b->pins++ > 0)
		return;
	if (block_is_dirty(b)) {
		s->resting_count--;
	} else {
		list_remove(&b->idle);
		s->idle_count--;
	}
}

/* A CLEAN block without pins may be evicted; returns one that must be freed for capacity. */
static struct block *shard_idle(const struct cache *c, struct shard *s, struct block *b)
	REQUIRES(shard_token)
{
	list_push_back(&s->idle, &b->idle);
	s->idle_count++;
	return shard_is_full(c, s, 0) ? shard_recycle(c, s) : NULL;
}

/* --- transitions ----------------------------------------------------------------------------- */

/* Waits until the block, which the caller has pinned, is no longer being read. */
static enum err block_wait(struct shard *s, struct block *b) REQUIRES(shard_token)
{
	b->waiters++;
	while (b->state == BLOCK_READING)
		cond_wait(&s->ended, &s->lock);
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
	if (b == NULL && shard_is_full(c, s, 1))
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
	fresh->pin_seq = 0;
	atomic_store_explicit(&fresh->pub.verified, 0, memory_order_relaxed);
	atomic_store_explicit(&fresh->pub.owner_seq, 0, memory_order_relaxed);
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
		shard_pin(s, b);
		if (b->state == BLOCK_READING) {
			s->misses++;
			e = block_wait(s, b);
		} else {
			s->hits++;
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

struct block *block_get_cached(struct cache *c, fsblk_t nr)
{
	struct shard *s = cache_shard(c, nr);

	shard_lock(&s->lock);
	struct block *b = shard_find(c, s, nr);

	if (b != NULL && b->state == BLOCK_READING)
		b = NULL;
	if (b != NULL) {
		shard_pin(s, b);
		s->hits++;
	}
	shard_unlock(&s->lock);
	return b;
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

/* A read or a write home of the block has ended. */
static void shard_wake(struct shard *s, const struct block *b) REQUIRES(shard_token)
{
	if (b->waiters > 0 || s->forgetters > 0)
		cond_broadcast(&s->ended);
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
	shard_wake(s, b);
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
		if (b->state == BLOCK_FAILED || b->state == BLOCK_GONE) {
			b->state = BLOCK_EMPTY;
			gone = b;
		} else if (b->state == BLOCK_CLEAN) {
			gone = shard_idle(c, s, b);
		} else {
			s->resting_count++;
		}
	}
	if (gone != b)
		block_check(s, b);
	shard_unlock(&s->lock);
	block_free(gone);
}

/* --- transitions of writing ------------------------------------------------------------------ */

void block_wipe(struct cache *c, struct block *b)
{
	struct shard *s = cache_shard(c, b->pub.nr);

	shard_lock(&s->lock);
	if (b->state == BLOCK_CLEAN) {
		memset(b->pub.data, 0, c->block_bytes);
		atomic_store_explicit(&b->pub.verified, 0, memory_order_relaxed);
	}
	shard_unlock(&s->lock);
}

void block_dirty(struct cache *c, struct block *b, uint64_t seq)
{
	struct shard *s = cache_shard(c, b->pub.nr);

	shard_lock(&s->lock);
	ensure(b->pins > 0 && seq >= b->pin_seq &&
		seq > atomic_load_explicit(&c->durable_seq, memory_order_relaxed));
	if (b->state == BLOCK_CLEAN) {
		s->dirty_count++;
		b->state = BLOCK_DIRTY;
	} else if (b->state == BLOCK_WRITING) {
		b->state = BLOCK_REDIRTIED;
	}
	b->pin_seq = seq;
	ensure(b->state == BLOCK_DIRTY || b->state == BLOCK_REDIRTIED);
	block_check(s, b);
	shard_unlock(&s->lock);
}

bool block_capture(struct cache *c, struct block *b, uint8_t *copy)
{
	struct shard *s = cache_shard(c, b->pub.nr);
	uint64_t durable = atomic_load_explicit(&c->durable_seq, memory_order_acquire);

	shard_lock(&s->lock);
	ensure(b->state == BLOCK_DIRTY);
	bool captured = b->pin_seq <= durable;

	if (captured) {
		memcpy(copy, b->pub.data, c->block_bytes);
		b->state = BLOCK_WRITING;
	}
	block_check(s, b);
	shard_unlock(&s->lock);
	return captured;
}

void block_home(struct cache *c, struct block *b, enum err result)
{
	struct shard *s = cache_shard(c, b->pub.nr);
	struct block *gone = NULL;

	shard_lock(&s->lock);
	ensure(b->state == BLOCK_WRITING || b->state == BLOCK_REDIRTIED);
	if (b->state == BLOCK_WRITING && result == OK) {
		b->state = BLOCK_CLEAN;
		s->dirty_count--;
		if (b->pins == 0) {
			s->resting_count--;
			gone = shard_idle(c, s, b);
		}
	} else {
		b->state = BLOCK_DIRTY;
	}
	shard_wake(s, b);
	if (gone != b)
		block_check(s, b);
	shard_unlock(&s->lock);
	block_free(gone);
}

/* Takes a CLEAN or DIRTY block out of the table; the block to free where nobody has it pinned. */
static struct block *shard_forget(const struct cache *c, struct shard *s, struct block *b)
	REQUIRES(shard_token)
{
	bool dirty = block_is_dirty(b);

	shard_remove(c, s, b);
	s->dirty_count -= dirty;
	if (b->pins > 0) {
		b->state = BLOCK_GONE;
		block_check(s, b);
		return NULL;
	}
	if (dirty) {
		s->resting_count--;
	} else {
		list_remove(&b->idle);
		s->idle_count--;
	}
	b->state = BLOCK_EMPTY;
	return b;
}

void block_forget(struct cache *c, fsblk_t nr)
{
	struct shard *s = cache_shard(c, nr);
	struct block *b, *gone = NULL;

	shard_lock(&s->lock);
	for (;;) {
		b = shard_find(c, s, nr);
		if (b == NULL || b->state == BLOCK_CLEAN || b->state == BLOCK_DIRTY)
			break;
		s->forgetters++;
		cond_wait(&s->ended, &s->lock);
		s->forgetters--;
	}
	if (b != NULL)
		gone = shard_forget(c, s, b);
	shard_unlock(&s->lock);
	block_free(gone);
}
