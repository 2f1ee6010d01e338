/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * orphan_recover: what a crash left on the orphan list is finished: an inode without links is
 * deleted, any other is cut to its size, with the rest of its last block zeroed.
 *
 * The whole list is read and checked first, so that one that makes no sense changes nothing: each
 * number is of an inode that is in use, none comes twice, and so the walk ends. Then it is worked
 * off from its head. An inode that resists (its map is damaged, or of a kind that is only read)
 * is logged and stays listed, on disk too; the others go on.
 *
 * Source: the kernel's Documentation/filesystems/ext4 (super.rst, inodes.rst) and its orphan.c,
 * read for the rules.
 * Threads: at mount and unmount, with nobody else about.
 */
#include "alloc_int.h"

#include <stdlib.h>

static enum err recover_damage(inum_t inum, const char *what)
{
	return err_set_detail(ERR_CORRUPT,
		"the list of orphans leads to inode %u, %s; run fsck.cryptfs", inum, what);
}

/* --- reading the list ------------------------------------------------------------------------ */

static enum err bitmap_says(struct ext4 *fs, inum_t inum, bool *in_use)
{
	group_t group = (inum - 1) / fs->inodes_per_group;
	uint32_t index = (inum - 1) % fs->inodes_per_group;
	struct mutex *lock = &fs->alloc->group[group].lock;
	struct group_blocks b = {0};
	enum err e;

	if (atomic_load(&fs->group[group].flags) & EXT4_BG_INODE_UNINIT) {
		*in_use = false;
		return OK;
	}
	e = group_blocks_get(fs, group, GROUP_INODE_BITMAP, &b);
	if (e)
		return e;
	group_lock(lock);
	e = group_blocks_verify(fs, group, &b);
	if (!e)
		*in_use = bitmap_is(b.inode_bitmap->data, index, 1, true);
	group_unlock(lock);
	group_blocks_put(fs, &b);
	return e;
}

/* Lists one inode; *next is the one after it. */
static enum err recover_list_one(struct ext4 *fs, inum_t inum, inum_t *next)
{
	struct ext4_inode *inode;
	bool in_use = false;
	enum err e;

	if (inum < fs->first_inum || inum > fs->inodes)
		return recover_damage(inum, "which does not exist");
	e = bitmap_says(fs, inum, &in_use);
	if (e)
		return e;
	if (!in_use)
		return recover_damage(inum, "which is free");
	e = ext4_inode_get_orphan(fs, inum, &inode);
	if (e)
		return e == ERR_STALE ? recover_damage(inum, "which is empty") : e;
	if (!ext4_orphan_append(inode))
		e = recover_damage(inum, "which it has led to before");
	*next = le32_get(ext4_inode_disk(inode)->i_dtime);
	ext4_inode_put(inode);
	return e;
}

/* Inside a handle, which changes nothing: bitmaps are looked at under one (alloc_int.h). */
static enum err recover_read_list(struct ext4 *fs)
{
	struct journal_handle h;
	inum_t inum = le32_get(fs->super.s_last_orphan);
	enum err e = journal_start(fs->journal, 1, &h), stopped;

	if (e)
		return e;
	while (inum && !e)
		e = recover_list_one(fs, inum, &inum);
	stopped = journal_stop(&h);
	return e ? e : stopped;
}

/* --- finishing ------------------------------------------------------------------------------- */

/* The bytes of the last block that lie behind the size, where that block is there. */
static enum err recover_zero_tail(struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	uint64_t size = inode->attr.size_bytes;
	size_t used = (size_t)(size & (fs->block_bytes - 1));
	struct iovec iov = {.iov_len = fs->block_bytes};
	struct ext4_run run;
	enum err e;

	if (used == 0)
		return OK;
	e = ext4_map(inode, (lblk_t)(size >> fs->block_bits), 1, &run);
	if (e || run.physical == 0 || run.unwritten)
		return e;
	iov.iov_base = aligned_alloc(fs->block_bytes, fs->block_bytes);
	if (!iov.iov_base)
		return ERR_NOMEM;
	e = cache_read_past(fs->cache, run.physical, 1, &iov, 1);
	if (!e) {
		memset((uint8_t *)iov.iov_base + used, 0, fs->block_bytes - used);
		e = cache_write_past(fs->cache, run.physical, 1, &iov, 1);
	}
	free(iov.iov_base);
	return e;
}

/* Cuts an inode that has links to its size, and takes it off the list. */
static enum err recover_truncate(struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	uint64_t blocks = (inode->attr.size_bytes + fs->block_bytes - 1) >> fs->block_bits;
	struct journal_handle h;
	enum err e = OK, stopped;

	if (ext4_map_exists(inode)) {
		e = recover_zero_tail(inode);
		if (!e && blocks < EXT4_LBLK_END)
			e = ext4_truncate_blocks(inode, (lblk_t)blocks);
	}
	if (!e)
		e = journal_start(fs->journal, EXT4_CREDITS_ORPHAN, &h);
	if (e)
		return e;
	e = ext4_orphan_remove(&h, inode);
	stopped = journal_stop(&h);
	return e ? e : stopped;
}

/* Works the list off. An inode that resists is left; only a failed journal ends it. */
static enum err orphans_work_off(struct ext4 *fs)
{
	struct ext4_inode *inode;

	while ((inode = ext4_orphan_next(fs))) {
		inum_t inum = inode->inum;
		bool failed;
		enum err e;

		err_clear_detail();
		inode_lock(&inode->lock);
		e = inode->attr.nlink ? recover_truncate(inode) : ext4_inode_delete(inode);
		inode_unlock(&inode->lock);
		failed = e && journal_failed(fs->journal);
		if (e && !failed) {
			log_warn("inode %u could not be %s: %s; run fsck.cryptfs", inum,
				inode->attr.nlink ? "truncated" : "deleted",
				*err_detail() ? err_detail() : err_text(e));
			ext4_orphan_give_up(inode);
		}
		ext4_inode_put(inode);
		if (failed)
			return e;
	}
	return OK;
}

enum err ext4_orphan_recover(struct ext4 *fs)
{
	enum err e = recover_read_list(fs);

	return e ? e : orphans_work_off(fs);
}

enum err ext4_orphan_finish(struct ext4 *fs)
{
	return orphans_work_off(fs);
}
