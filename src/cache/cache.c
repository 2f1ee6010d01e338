/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cache's door: blocks by number, pinned while they are in use.
 *
 * A hit takes one shard's mutex once and no memory. A miss is read by the thread that found it
 * missing; the others that want the same block wait for that read. A failed read is not kept: all
 * who waited get its error, and the next cache_get reads again.
 *
 * Does not verify content, and holds no file data. Writing is write.c.
 */
#include "cache_int.h"

#include <stdlib.h>

enum {
	SHARD_BITS_MAX = 6,
	SHARD_BLOCKS_MIN = 16, /* a smaller shard would evict what its neighbours had room for */
};

static unsigned cache_bits_for(size_t n)
{
	unsigned bits = 0;

	while (((size_t)1 << bits) < n)
		bits++;
	return bits;
}

enum err cache_create(const struct cache_config *config, struct cache **out)
{
	uint64_t bytes;
	enum err e = ERR_NOMEM;
	size_t made = 0;

	ensure(config->block_bytes >= SECTOR_BYTES &&
		(config->block_bytes & (config->block_bytes - 1)) == 0);
	if (__builtin_mul_overflow(config->blocks, config->block_bytes, &bytes))
		return err_set_detail(ERR_CORRUPT,
			"the file system claims %llu blocks of %u bytes, which no device has",
			(unsigned long long)config->blocks, config->block_bytes);

	struct cache *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return ERR_NOMEM;
	size_t capacity = MAX((size_t)(config->capacity_bytes / config->block_bytes), (size_t)1);

	c->volume = config->volume;
	c->block_bytes = config->block_bytes;
	c->blocks = config->blocks;
	while (c->shard_bits < SHARD_BITS_MAX &&
		capacity >> (c->shard_bits + 1) >= SHARD_BLOCKS_MIN)
		c->shard_bits++;
	c->shard_capacity = capacity >> c->shard_bits;
	c->table_bits = cache_bits_for(c->shard_capacity);
	if (c->table_bits == 0)
		c->table_bits = 1; /* shard_bucket shifts by less than 64 */
	c->shards = aligned_alloc(_Alignof(struct shard), sizeof(*c->shards) << c->shard_bits);
	if (c->shards == NULL)
		goto out;
	memset(c->shards, 0, sizeof(*c->shards) << c->shard_bits);
	while (made < (size_t)1 << c->shard_bits) {
		e = shard_init(&c->shards[made++], c->table_bits);
		if (e != OK)
			goto out;
	}
	c->overlay = config->overlay;
	*out = c;
	return OK;
out:
	while (made > 0)
		shard_destroy(&c->shards[--made]);
	free(c->shards);
	free(c);
	return e;
}

void cache_destroy(struct cache *c)
{
	if (c == NULL)
		return;
	for (size_t i = 0; i < (size_t)1 << c->shard_bits; i++)
		shard_destroy(&c->shards[i]);
	free(c->shards);
	overlay_destroy(c->overlay);
	free(c->home_bounce);
	free(c);
}

uint32_t cache_block_bytes(const struct cache *c)
{
	return c->block_bytes;
}

enum err cache_fill(struct cache *c, struct block *b)
{
	const struct overlay_entry *entry = NULL;

	if (c->overlay != NULL)
		entry = overlay_find(c->overlay, b->pub.nr, 1);
	if (entry != NULL)
		return overlay_read(entry, c->volume, c->block_bytes, b->pub.data);
	return volume_read(c->volume, b->pub.data, c->block_bytes, b->pub.nr * c->block_bytes);
}

static enum err cache_check_bounds(const struct cache *c, fsblk_t nr)
{
	if (nr < c->blocks)
		return OK;
	return err_set_detail(ERR_CORRUPT,
		"the file system is damaged: block %llu lies past its end; run fsck.cryptfs",
		(unsigned long long)nr);
}

enum err cache_get(struct cache *c, fsblk_t nr, struct cache_block **out)
{
	struct block *b;
	bool must_read;
	enum err e = cache_check_bounds(c, nr);

	if (e != OK)
		return e;
	e = block_get(c, nr, &b, &must_read);

	if (e == OK && must_read) {
		e = cache_fill(c, b);
		block_complete(c, b, e);
		if (e != OK)
			block_leave(c, b);
	}
	if (e == OK)
		*out = &b->pub;
	return e;
}

bool cache_get_cached(struct cache *c, fsblk_t nr, struct cache_block **out)
{
	struct block *b = nr < c->blocks ? block_get_cached(c, nr) : NULL;

	if (b == NULL)
		return false;
	*out = &b->pub;
	return true;
}

enum err cache_get_new(struct cache *c, fsblk_t nr, struct cache_block **out)
{
	struct block *b;
	bool must_read;
	enum err e = cache_check_bounds(c, nr);

	if (e != OK)
		return e;
	/* A read that somebody else began, and that failed, does not concern who needs none. */
	do {
		e = block_get(c, nr, &b, &must_read);
	} while (e != OK && e != ERR_NOMEM);
	if (e != OK)
		return e;
	if (must_read) {
		memset(b->pub.data, 0, c->block_bytes);
		block_complete(c, b, OK);
	} else {
		block_wipe(c, b);
	}
	err_clear_detail();
	*out = &b->pub;
	return OK;
}

void cache_put(struct cache *c, struct cache_block *b)
{
	if (b != NULL)
		block_leave(c, container_of(b, struct block, pub));
}

void cache_stats(const struct cache *c, struct cache_stats *out)
{
	struct cache_stats sum = {0};

	for (size_t i = 0; i < (size_t)1 << c->shard_bits; i++) {
		struct shard *s = &c->shards[i];

		shard_lock(&s->lock);
		sum.hits += s->hits;
		sum.misses += s->misses;
		sum.evictions += s->evictions;
		sum.resident_bytes += (uint64_t)s->count * c->block_bytes;
		sum.pinned_blocks += s->count - s->idle_count - s->resting_count;
		sum.dirty_blocks += s->dirty_count;
		shard_unlock(&s->lock);
	}
	*out = sum;
}
