/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * inode: the cache of counted inodes.
 *
 * Inodes hash into shards; a shard's mutex guards its chains, its reference counts and its list of
 * inodes without references, which stay in memory (with their cached map) until the shard's share
 * of the bound is reached, oldest out first. An inode is read and verified outside the lock; when
 * two threads read the same one, the second finds the first's and drops its own.
 *
 * Inodes change while they are referenced, and their bytes in the table with them. So what a reader
 * has read may be old when no inode in memory tells it so any more: each chain counts the inodes
 * that left it, and a reader that finds the count changed reads again. An inode's bytes in its
 * table block are copied under its shard's lock, in both directions.
 *
 * A deleted inode leaves its chain at once (ext4_inode_unpublish), so that its number may be used
 * again while somebody still holds a reference to the old one.
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
#include <sys/stat.h>

enum {
	INODE_SHARDS = 32, /* a power of two */
	INODE_CHAINS = 512,
	INODE_IDLE_MAX = 16384 / INODE_SHARDS, /* without references, a shard */
	INODE_PREFETCH_BYTES = 32 << 10,
};

struct inode_shard {
	struct mutex lock; /* rank shard */
	struct list chain[INODE_CHAINS] GUARDED_BY(shard_token);
	uint32_t removals[INODE_CHAINS] GUARDED_BY(shard_token); /* inodes that left the chain */
	struct list idle GUARDED_BY(shard_token);                /* oldest first */
	unsigned idle_count GUARDED_BY(shard_token);
} cacheline_aligned;

struct ext4_inode_cache {
	struct inode_shard shard[INODE_SHARDS];
	/* Which chunk of inode tables was prefetched last for each hash of it; racy hints. */
	_Atomic fsblk_t prefetched[1024];
};

void ext4_format_damage(const struct ext4 *fs, inum_t inum, const char *fmt, ...)
{
	char text[256];
	va_list args;

	(void)fs;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	err_format_detail("inode %u: %s; run fsck.cryptfs", inum, text);
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
	uint32_t used = fs->inodes_per_group - atomic_load(&g->inodes_unused);
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

fsblk_t ext4_inode_table_block(const struct ext4 *fs, inum_t inum, uint32_t *offset_bytes)
{
	const struct ext4_group *g = &fs->group[(inum - 1) / fs->inodes_per_group];
	uint64_t offset = (uint64_t)((inum - 1) % fs->inodes_per_group) * fs->inode_bytes;

	*offset_bytes = (uint32_t)(offset & (fs->block_bytes - 1));
	return g->inode_table + (offset >> fs->block_bits);
}

void ext4_inode_table_put(struct ext4 *fs, inum_t inum, struct cache_block *b, const uint8_t *raw)
{
	struct inode_shard *s = inode_shard_of(fs, inum);
	uint32_t offset;

	ensure(ext4_inode_table_block(fs, inum, &offset) == b->nr);
	shard_lock(&s->lock);
	if (raw)
		memcpy(b->data + offset, raw, fs->inode_bytes);
	else
		memset(b->data + offset, 0, fs->inode_bytes);
	shard_unlock(&s->lock);
}

/*
 * A part of the table that was never used may hold what was on the disk before. With metadata_csum
 * it cannot pass for an inode; without, it must not be looked at. A writer may be about to zero it.
 */
static bool inode_may_read(const struct ext4 *fs, inum_t inum)
{
	const struct ext4_group *g = &fs->group[(inum - 1) / fs->inodes_per_group];
	uint32_t index = (inum - 1) % fs->inodes_per_group;

	return (fs->csum && !fs->alloc) ||
	       index < fs->inodes_per_group - atomic_load(&g->inodes_unused);
}

/* Copies the inode's bytes out of the inode table. */
static enum err inode_read_raw(struct ext4 *fs, inum_t inum, uint8_t *raw)
{
	struct inode_shard *s = inode_shard_of(fs, inum);
	struct cache_block *b;
	uint32_t offset;
	fsblk_t nr = ext4_inode_table_block(fs, inum, &offset);
	bool may_read;
	enum err e;

	if (!inode_may_read(fs, inum))
		return ERR_STALE;
	inode_prefetch(fs, (inum - 1) / fs->inodes_per_group, nr);
	e = cache_get(fs->cache, nr, &b);
	if (e)
		return e;
	shard_lock(&s->lock);
	may_read = inode_may_read(fs, inum);
	if (may_read)
		memcpy(raw, b->data + offset, fs->inode_bytes);
	shard_unlock(&s->lock);
	cache_put(fs->cache, b);
	return may_read ? OK : ERR_STALE;
}

NO_LOCK_ANALYSIS enum err ext4_inode_create(struct ext4 *fs, struct ext4_inode **out)
{
	size_t raw_bytes = MAX(fs->inode_bytes, sizeof(struct ext4_disk_inode));
	struct ext4_inode *inode = calloc(1, sizeof(*inode) + raw_bytes);

	if (!inode)
		return ERR_NOMEM;
	inode->fs = fs;
	inode->raw = (uint8_t *)(inode + 1);
	inode->refs = 1;
	rwlock_init(&inode->lock);
	rwlock_init(&inode->map_lock);
	list_init(&inode->hash_link);
	list_init(&inode->lru_link);
	list_init(&inode->orphan_link);
	*out = inode;
	return OK;
}

static enum err inode_load(struct ext4 *fs, inum_t inum, bool orphan, struct ext4_inode **out)
{
	struct ext4_inode *inode;
	enum err e = ext4_inode_create(fs, &inode);

	if (e)
		return e;
	inode->inum = inum;
	e = inode_read_raw(fs, inum, inode->raw);
	if (!e)
		e = ext4_inode_decode(inode, orphan);
	if (e) {
		inode_free(inode);
		return e;
	}
	*out = inode;
	return OK;
}

enum err ext4_inode_get_special(struct ext4 *fs, inum_t inum, struct ext4_inode **out)
{
	unsigned chain = inode_chain_of(inum);

	if (inum == 0 || inum > fs->inodes)
		return ERR_STALE;
	for (;;) {
		struct inode_shard *s = inode_shard_of(fs, inum);
		struct ext4_inode *inode, *loaded = NULL;
		uint32_t removals;
		bool current;
		enum err e = OK;

		shard_lock(&s->lock);
		inode = inode_find(s, inum);
		removals = s->removals[chain];
		shard_unlock(&s->lock);
		if (!inode) {
			e = inode_load(fs, inum, false, &loaded);
			shard_lock(&s->lock);
			inode = inode_find(s, inum);
			current = removals == s->removals[chain];
			if (!e && !inode && current) {
				list_push_front(&s->chain[chain], &loaded->hash_link);
				inode = loaded;
				loaded = NULL;
			}
			shard_unlock(&s->lock);
			if (e && !inode && current)
				return e;
			if (e)
				err_clear_detail();
			if (loaded)
				inode_free(loaded);
		}
		if (inode) {
			*out = inode;
			return OK;
		}
	}
}

enum err ext4_inode_get(struct ext4 *fs, inum_t inum, struct ext4_inode **out)
{
	if (inum && inum < fs->first_inum && inum != EXT4_ROOT_INUM)
		return ext4_corrupt(fs, inum, "reserved, but asked for by a name");
	return ext4_inode_get_special(fs, inum, out);
}

enum err ext4_inode_get_orphan(struct ext4 *fs, inum_t inum, struct ext4_inode **out)
{
	struct ext4_inode *inode;
	enum err e = ext4_inode_get(fs, inum, out);

	if (e != ERR_STALE)
		return e;
	e = inode_load(fs, inum, true, &inode);
	if (e)
		return e;
	/* Nobody else is about, and it was not in memory just now. */
	ensure(ext4_inode_publish(inode));
	*out = inode;
	return OK;
}

struct ext4_inode *ext4_inode_find(struct ext4 *fs, inum_t inum)
{
	struct inode_shard *s = inode_shard_of(fs, inum);
	struct ext4_inode *inode;

	shard_lock(&s->lock);
	inode = inode_find(s, inum);
	shard_unlock(&s->lock);
	return inode;
}

void ext4_inode_ref(struct ext4_inode *inode)
{
	struct inode_shard *s = inode_shard_of(inode->fs, inode->inum);

	shard_lock(&s->lock);
	ensure(inode->refs > 0);
	inode->refs++;
	shard_unlock(&s->lock);
}

bool ext4_inode_publish(struct ext4_inode *inode)
{
	struct inode_shard *s = inode_shard_of(inode->fs, inode->inum);
	struct list *chain = &s->chain[inode_chain_of(inode->inum)];
	bool free_number = true;

	shard_lock(&s->lock);
	list_for_each (n, chain)
		if (list_entry(n, struct ext4_inode, hash_link)->inum == inode->inum)
			free_number = false;
	if (free_number)
		list_push_front(chain, &inode->hash_link);
	shard_unlock(&s->lock);
	return free_number;
}

static void inode_leave(struct inode_shard *s, struct ext4_inode *inode) REQUIRES(shard_token);
static void inode_leave(struct inode_shard *s, struct ext4_inode *inode)
{
	list_remove(&inode->hash_link);
	s->removals[inode_chain_of(inode->inum)]++;
}

void ext4_inode_unpublish(struct ext4_inode *inode)
{
	struct inode_shard *s = inode_shard_of(inode->fs, inode->inum);

	shard_lock(&s->lock);
	ensure(inode->refs > 0);
	if (!list_empty(&inode->hash_link))
		inode_leave(s, inode);
	shard_unlock(&s->lock);
}

bool ext4_inode_is_cached(struct ext4 *fs, inum_t inum)
{
	struct inode_shard *s = inode_shard_of(fs, inum);
	bool found = false;

	shard_lock(&s->lock);
	list_for_each (n, &s->chain[inode_chain_of(inum)])
		found |= list_entry(n, struct ext4_inode, hash_link)->inum == inum;
	shard_unlock(&s->lock);
	return found;
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
		if (list_empty(&inode->hash_link)) {
			victim = inode;
		} else {
			list_push_back(&s->idle, &inode->lru_link);
			s->idle_count++;
		}
		if (!victim && (s->idle_count > INODE_IDLE_MAX || ext4_map_crowded(inode->fs))) {
			victim = list_entry(s->idle.next, struct ext4_inode, lru_link);
			list_remove(&victim->lru_link);
			inode_leave(s, victim);
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
	/* Write-back changes blocks_512 under this one. */
	extent_lock_shared(&inode->map_lock);
	*out = inode->attr;
	extent_unlock_shared(&inode->map_lock);
	inode_unlock_shared(&inode->lock);
	/* As the kernel shows it: a file without blocks that has data would count as a hole. */
	if (S_ISREG(out->mode) && out->flags & EXT4_INLINE_DATA_FL)
		out->blocks_512 +=
			out->size_bytes / SECTOR_BYTES + (out->size_bytes % SECTOR_BYTES != 0);
	return OK;
}
