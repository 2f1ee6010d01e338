/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * delete: the end of an inode whose last link is gone and that nobody has open.
 *
 *   its blocks, in bounded transactions -> its attribute block -> its place on the orphan list
 *   and the inode itself, in one transaction
 *
 * A crash between two of them leaves a shorter orphan, which the next mount goes on with. The
 * inode's number may be taken again as soon as the last transaction runs; the inode in memory is
 * out of the cache then.
 *
 * Threads: any; the inode lock is held exclusive over all of it, so that reads and write-back of
 * the file have ended and none begins. What dirty pages it has is not looked at here.
 */
#include "write_int.h"

static enum err delete_attributes(struct ext4_inode *inode)
{
	struct journal_handle h;
	enum err e = journal_start(inode->fs->journal, EXT4_CREDITS_XATTR_RELEASE, &h), stopped;

	if (e)
		return e;
	e = ext4_xattr_release(&h, inode);
	stopped = journal_stop(&h);
	return e ? e : stopped;
}

static enum err delete_number(struct ext4_inode *inode)
{
	struct journal_handle h;
	enum err e, stopped;

	e = journal_start(inode->fs->journal, EXT4_CREDITS_INODE_FREE + EXT4_CREDITS_ORPHAN, &h);
	if (e)
		return e;
	/* In this order: who changes its neighbour on the list must not write to a freed inode. */
	e = ext4_orphan_remove(&h, inode);
	if (!e) {
		e = ext4_inode_free(&h, inode);
		if (e && ext4_orphan_add(&h, inode))
			journal_fail(h.journal, e, "an inode without links is on no list");
	}
	stopped = journal_stop(&h);
	return e ? e : stopped;
}

enum err ext4_inode_delete(struct ext4_inode *inode)
{
	const struct ext4_disk_inode *disk = ext4_inode_disk(inode);
	enum err e = OK;

	ensure(inode->attr.nlink == 0);
	if (ext4_map_exists(inode))
		e = ext4_truncate_blocks(inode, 0);
	if (!e && (le32_get(disk->i_file_acl_lo) || le16_get(disk->i_file_acl_high)))
		e = delete_attributes(inode);
	return e ? e : delete_number(inode);
}

void ext4_evict(struct ext4 *fs, inum_t inum)
{
	struct ext4_inode *inode = fs->journal ? ext4_inode_find(fs, inum) : NULL;
	enum err e = OK;

	if (!inode)
		return;
	inode_lock(&inode->lock);
	if (inode->attr.nlink == 0 && ext4_orphan_is_listed(inode))
		e = ext4_inode_delete(inode);
	inode_unlock(&inode->lock);
	if (e && !journal_failed(fs->journal)) {
		log_warn("inode %u could not be deleted: %s; it is left for the next mount", inum,
			*err_detail() ? err_detail() : err_text(e));
		ext4_orphan_give_up(inode);
	}
	ext4_inode_put(inode);
}
