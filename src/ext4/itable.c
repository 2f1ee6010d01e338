/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * itable: zeroing, in the background, of inode tables that mke2fs left as they were.
 *
 * A group without ITABLE_ZEROED may hold anything behind the part of its table that was ever used.
 * A step zeroes a piece of that, past the cache, and the step that reaches the table's end marks
 * the group. So that later the whole table may be believed.
 *
 * New inodes come into use meanwhile. The piece is chosen under the group's lock with a handle
 * open, and written before that handle stops: a block behind the mark at that time can come into
 * use only in this transaction, which goes home only after it is durable, hence after the zeros.
 * That is the one place where a handle waits for a write, of at most ZERO_BYTES. The block that
 * the mark stands in is zeroed behind the mark through the journal. The commit that makes the flag
 * durable flushes the zeros first.
 *
 * Threads: one at a time (its position is not guarded); others may allocate in parallel.
 * Source: the kernel's ext4 lazy initialisation, read for the rules.
 */
#include "alloc_int.h"

enum { ZERO_BYTES = 128 << 10, CREDITS_MARK = 2 };

/* Zeroes what is behind the mark in the block that the mark stands in, and marks the group. */
static enum err itable_mark(struct journal_handle *h, struct ext4 *fs, group_t group,
	const struct group_blocks *b, struct cache_block *table) REQUIRES(group_token);
static enum err itable_mark(struct journal_handle *h, struct ext4 *fs, group_t group,
	const struct group_blocks *b, struct cache_block *table)
{
	struct ext4_group *g = &fs->group[group];
	uint32_t per_block = fs->block_bytes / fs->inode_bytes;
	uint32_t used = fs->inodes_per_group - atomic_load(&g->inodes_unused);
	enum err e = group_blocks_verify(fs, group, b);

	if (!e)
		e = group_blocks_join(h, fs, group, b);
	if (!e && table)
		e = journal_write(h, table);
	if (e)
		return e;
	for (; table && used % per_block && used < fs->inodes_per_group; used++)
		ext4_inode_table_put(fs, group * fs->inodes_per_group + used + 1, table, NULL);
	b->desc->bg_flags = le16_make(le16_get(b->desc->bg_flags) | EXT4_BG_INODE_ZEROED);
	atomic_fetch_or(&g->flags, EXT4_BG_INODE_ZEROED);
	group_blocks_seal(fs, group, b);
	return OK;
}

/* The block that the mark stands in, when inodes before and behind it share one. */
static enum err itable_mark_block(
	struct ext4 *fs, group_t group, uint32_t used, struct cache_block **out)
{
	uint32_t per_block = fs->block_bytes / fs->inode_bytes;

	*out = NULL;
	if (used % per_block == 0)
		return OK;
	return cache_get(fs->cache, fs->group[group].inode_table + used / per_block, out);
}

static enum err itable_finish(struct journal_handle *h, struct ext4 *fs, group_t group)
{
	const struct ext4_group *g = &fs->group[group];
	struct cache_block *table = NULL;
	struct group_blocks b;
	bool again = true;
	enum err e = group_blocks_get(fs, group, 0, &b);

	if (e)
		return e;
	while (again && !e) {
		uint32_t unused = atomic_load(&g->inodes_unused);

		e = itable_mark_block(fs, group, fs->inodes_per_group - unused, &table);
		if (e)
			break;
		group_lock(&fs->alloc->group[group].lock);
		again = unused != atomic_load(&g->inodes_unused);
		if (!again)
			e = itable_mark(h, fs, group, &b, table);
		group_unlock(&fs->alloc->group[group].lock);
		cache_put(fs->cache, table);
	}
	group_blocks_put(fs, &b);
	return e;
}

/* One piece of the group's table, or, where nothing is left to zero, its mark. */
static enum err itable_step(struct journal_handle *h, struct ext4 *fs, void *zeros)
{
	struct ext4_alloc *a = fs->alloc;
	group_t group = a->zero_group;
	const struct ext4_group *g = &fs->group[group];
	uint32_t per_block = fs->block_bytes / fs->inode_bytes, used, first, count;
	struct iovec iov = {.iov_base = zeros};
	enum err e;

	group_lock(&a->group[group].lock);
	used = fs->inodes_per_group - atomic_load(&g->inodes_unused);
	group_unlock(&a->group[group].lock);
	first = MAX(a->zero_block, (used + per_block - 1) / per_block);
	if (first >= fs->inode_table_blocks) {
		e = itable_finish(h, fs, group);
		if (e)
			return e;
		a->zero_group++;
		a->zero_block = 0;
		return OK;
	}
	count = MIN(fs->inode_table_blocks - first, ZERO_BYTES / fs->block_bytes);
	iov.iov_len = (size_t)count * fs->block_bytes;
	e = cache_write_past(fs->cache, g->inode_table + first, count, &iov, 1);
	if (!e)
		a->zero_block = first + count;
	return e;
}

enum err ext4_itable_zero_step(struct ext4 *fs, bool *more)
{
	struct ext4_alloc *a = fs->alloc;
	unsigned order = page_order_for(ZERO_BYTES);
	struct journal_handle h;
	void *zeros;
	enum err e, stop;

	while (a->zero_group < fs->groups &&
		(!group_has_flags(fs) ||
			atomic_load(&fs->group[a->zero_group].flags) & EXT4_BG_INODE_ZEROED))
		a->zero_group++;
	*more = a->zero_group < fs->groups;
	if (!*more)
		return OK;
	zeros = page_get(fs->options.pages, order);
	if (!zeros)
		return ERR_NOMEM;
	memset(zeros, 0, ZERO_BYTES);
	e = journal_start(fs->journal, CREDITS_MARK, &h);
	if (!e) {
		e = itable_step(&h, fs, zeros);
		stop = journal_stop(&h);
		e = e ? e : stop;
	}
	page_put(fs->options.pages, zeros, order);
	return e;
}
