/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * inode: the cache of counted inodes.
 *
 * Inodes hash into shards; a shard's mutex guards its chains, its reference counts and its list of
 * inodes without references, which stay in memory (with their cached map) until the shard's share
 * of the bound is reached, oldest out first. An inode is read and verified outside the lock; when
 * two threads read the same one, the second finds the first's and drops its own. Inodes are
 * constant while referenced.
 *
 * A cold walk over a tree reads inodes in about the order of their numbers, so a table block that
 * is not in memory is read together with its neighbours, but not past the part of the table that
 * was ever used.
 *
 * Threads: any; blocks for I/O with no lock held.
 */
#include "ext4_int.h"

#include <stdio.h>
#include <stdlib.h>

enum {
	INODE_SHARDS = 32, /* a power of two */
	INODE_CHAINS = 512,
	INODE_IDLE_MAX = 16384 / INODE_SHARDS, /* without references, a shard */
	INODE_PREFETCH_BYTES = 32 << 10,
};

struct inode_shard {
	struct mutex lock; /* rank shard */
	struct list chain[INODE_CHAINS] GUARDED_BY(shard_token);
	struct list idle GUARDED_BY(shard_token); /* oldest first */
	unsigned idle_count GUARDED_BY(shard_token);
} cacheline_aligned;

struct ext4_inode_cache {
	struct inode_shard shard[INODE_SHARDS];
	/* Which chunk of inode tables was prefetched last for each hash of it; racy hints. */
	_Atomic fsblk_t prefetched[1024];
};

enum err ext4_corrupt(const struct ext4 *fs, inum_t inum, const char *fmt, ...)
{
	char text[256];
	va_list args;

	(void)fs;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return err_set_detail(ERR_CORRUPT, "inode %u: %s; run fsck.cryptfs", inum, text);
}

NO_LOCK_ANALYSIS enum err ext4_inode_cache_create(struct ext4 *fs)
{
	struct ext4_inode_cache *c = NULL;

	if (posix_memalign((void **)&c, 64, sizeof(*c)))
		return ERR_NOMEM;
	memset(c, 0, sizeof(*c));
	for (int i = 0; i < INODE_SHARDS; i++) {
		struct inode_shard *s = &c->shard[i];
		mutex_init(&s->lock);
		list_init(&s->idle);
		for (int j = 0; j < INODE_CHAINS; j++)
			list_init(&s->chain[j]);
	}
	fs->inode_cache = c;
	return OK;
}

static void inode_free(struct ext4_inode *inode)
{
	ext4_readahead_forget(inode);
	ext4_map_forget(inode);
	rwlock_destroy(&inode->lock);
	rwlock_destroy(&inode->map_lock);
	free(inode);
}

NO_LOCK_ANALYSIS void ext4_inode_cache_destroy(struct ext4 *fs)
{
	struct ext4_inode_cache *c = fs->inode_cache;

	if (!c)
		return;
	for (int i = 0; i < INODE_SHARDS; i++) {
		struct inode_shard *s = &c->shard[i];
		list_for_each_safe (n, &s->idle) {
			struct ext4_inode *inode = list_entry(n, struct ext4_inode, lru_link);
			list_remove(&inode->hash_link);
			inode_free(inode);
		}
		for (int j = 0; j < INODE_CHAINS; j++)
			ensure(list_empty(&s->chain[j]));
		mutex_destroy(&s->lock);
	}
	free(c);
	fs->inode_cache = NULL;
}

/* Neighbours share a shard, so that a walk of one directory does not touch all shards. */
static struct inode_shard *inode_shard_of(const struct ext4 *fs, inum_t inum)
{
	return &fs->inode_cache->shard[(inum >> 4) * 0x9e3779b1u >> 27];
}
static_assert(INODE_SHARDS == 1 << (32 - 27), "the shift picks a shard");

static unsigned inode_chain_of(inum_t inum)
{
	return inum * 0x9e3779b1u >> (32 - 9);
}
static_assert(INODE_CHAINS == 1 << 9, "the shift picks a chain");

/* The inode with one more reference, or NULL. */
static struct ext4_inode *inode_find(struct inode_shard *s, inum_t inum) REQUIRES(shard_token);
static struct ext4_inode *inode_find(struct inode_shard *s, inum_t inum)
{
	list_for_each (n, &s->chain[inode_chain_of(inum)]) {
		struct ext4_inode *inode = list_entry(n, struct ext4_inode, hash_link);
		if (inode->inum != inum)
			continue;
		if (inode->refs++ == 0) {
			list_remove(&inode->lru_link);
			s->idle_count--;
		}
		return inode;
	}
	return NULL;
}

/* Reads the table block together with its neighbours when they were not read lately. */
static void inode_prefetch(struct ext4 *fs, group_t group, fsblk_t nr)
{
	const struct ext4_group *g = &fs->group[group];
	uint32_t chunk_blocks = INODE_PREFETCH_BYTES >> fs->block_bits;
	uint32_t used = fs->inodes_per_group - g->inodes_unused;
	fsblk_t first, end;
	_Atomic fsblk_t *slot;

	if (chunk_blocks < 2)
		return;
	first = nr - (nr - g->inode_table) % chunk_blocks;
	end = g->inode_table +
	      ((uint64_t)used * fs->inode_bytes + fs->block_bytes - 1) / fs->block_bytes;
	end = MIN(end, first + chunk_blocks);
	slot = &fs->inode_cache->prefetched[(first / chunk_blocks) %
					    ARRAY_SIZE(fs->inode_cache->prefetched)];
	if (atomic_load_explicit(slot, memory_order_relaxed) == first || nr >= end)
		return;
	atomic_store_explicit(slot, first, memory_order_relaxed);
	cache_prefetch(fs->cache, first, (uint32_t)(end - first));
}

/* Copies the inode's bytes out of the inode table. */
static enum err inode_read_raw(struct ext4 *fs, inum_t inum, uint8_t *raw)
{
	group_t group = (inum - 1) / fs->inodes_per_group;
	uint32_t index = (inum - 1) % fs->inodes_per_group;
	const struct ext4_group *g = &fs->group[group];
	uint64_t offset = (uint64_t)index * fs->inode_bytes;
	struct cache_block *b;
	fsblk_t nr;
	enum err e;

	/*
	 * A part of the table that was never used may hold what was on the disk before. With
	 * metadata_csum it cannot pass for an inode; without, it must not be looked at.
	 */
	if (!fs->csum && (g->flags & EXT4_BG_INODE_UNINIT ||
				 index >= fs->inodes_per_group - g->inodes_unused))
		return ERR_STALE;
	nr = g->inode_table + (offset >> fs->block_bits);
	inode_prefetch(fs, group, nr);
	e = cache_get(fs->cache, nr, &b);
	if (e)
		return e;
	memcpy(raw, b->data + (offset & (fs->block_bytes - 1)), fs->inode_bytes);
	cache_put(fs->cache, b);
	return OK;
}

static enum err inode_load(struct ext4 *fs, inum_t inum, struct ext4_inode **out)
{
	size_t raw_bytes = MAX(fs->inode_bytes, sizeof(struct ext4_disk_inode));
	struct ext4_inode *inode = calloc(1, sizeof(*inode) + raw_bytes);
	enum err e;

	if (!inode)
		return ERR_NOMEM;
	inode->fs = fs;
	inode->inum = inum;
	inode->raw = (uint8_t *)(inode + 1);
	inode->refs = 1;
	rwlock_init(&inode->lock);
	rwlock_init(&inode->map_lock);
	list_init(&inode->hash_link);
	list_init(&inode->lru_link);
	e = inode_read_raw(fs, inum, inode->raw);
	if (!e)
		e = ext4_inode_decode(inode);
	if (e) {
		inode_free(inode);
		return e;
	}
	*out = inode;
	return OK;
}

enum err ext4_inode_get_special(struct ext4 *fs, inum_t inum, struct ext4_inode **out)
{
	struct inode_shard *s;
	struct ext4_inode *inode, *loaded = NULL;
	enum err e;

	if (inum == 0 || inum > fs->inodes)
		return ERR_STALE;
	s = inode_shard_of(fs, inum);
	shard_lock(&s->lock);
	inode = inode_find(s, inum);
	shard_unlock(&s->lock);
	if (inode) {
		*out = inode;
		return OK;
	}
	e = inode_load(fs, inum, &loaded);
	if (e)
		return e;
	shard_lock(&s->lock);
	inode = inode_find(s, inum);
	if (!inode)
		list_push_front(&s->chain[inode_chain_of(inum)], &loaded->hash_link);
	shard_unlock(&s->lock);
	if (inode)
		inode_free(loaded);
	*out = inode ? inode : loaded;
	return OK;
}

enum err ext4_inode_get(struct ext4 *fs, inum_t inum, struct ext4_inode **out)
{
	if (inum && inum < fs->first_inum && inum != EXT4_ROOT_INUM)
		return ext4_corrupt(fs, inum, "reserved, but asked for by a name");
	return ext4_inode_get_special(fs, inum, out);
}

void ext4_inode_ref(struct ext4_inode *inode)
{
	struct inode_shard *s = inode_shard_of(inode->fs, inode->inum);

	shard_lock(&s->lock);
	ensure(inode->refs > 0);
	inode->refs++;
	shard_unlock(&s->lock);
}

void ext4_inode_put(struct ext4_inode *inode)
{
	struct ext4_inode *victim = NULL;
	struct inode_shard *s;

	if (!inode)
		return;
	s = inode_shard_of(inode->fs, inode->inum);
	shard_lock(&s->lock);
	ensure(inode->refs > 0);
	if (--inode->refs == 0) {
		list_push_back(&s->idle, &inode->lru_link);
		if (++s->idle_count > INODE_IDLE_MAX || ext4_map_crowded(inode->fs)) {
			victim = list_entry(s->idle.next, struct ext4_inode, lru_link);
			list_remove(&victim->lru_link);
			list_remove(&victim->hash_link);
			s->idle_count--;
		}
	}
	shard_unlock(&s->lock);
	if (victim)
		inode_free(victim);
}

enum err ext4_getattr(struct ext4_inode *inode, struct ext4_attr *out)
{
	inode_lock_shared(&inode->lock);
	*out = inode->attr;
	inode_unlock_shared(&inode->lock);
	return OK;
}
