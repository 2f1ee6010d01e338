/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * xattr_block: attribute blocks, which several inodes may share, given back.
 *
 * h_refcount says how many inodes refer to a block. It changes under xattr_lock, together with the
 * checksum that covers it; what the attributes say does not change while a block is shared.
 *
 * Source: the kernel's Documentation/filesystems/ext4/attributes.rst.
 */
#include "write_int.h"
#include "xattr_int.h"

static struct ext4_xattr_header *block_header(struct cache_block *b)
{
	return (void *)b->data;
}

/* One user less; the last one frees it, under the lock, so that nobody can join meanwhile. */
static enum err block_drop(struct journal_handle *h, struct ext4 *fs, struct cache_block *b)
	REQUIRES(xattr_token);
static enum err block_drop(struct journal_handle *h, struct ext4 *fs, struct cache_block *b)
{
	uint32_t users = le32_get(block_header(b)->h_refcount);
	enum err e;

	if (users <= 1)
		return ext4_alloc_free(h, fs, b->nr, 1, true);
	e = journal_write(h, b);
	if (e)
		return e;
	block_header(b)->h_refcount = le32_make(users - 1);
	xattr_block_seal(fs, b);
	return OK;
}

/* The inode without its block; it is logged. */
static enum err inode_forget_block(struct journal_handle *h, struct ext4_inode *inode)
{
	struct ext4_disk_inode *d = (void *)inode->raw;
	uint32_t sectors = inode->fs->block_bytes / SECTOR_BYTES;
	enum err e;

	extent_lock(&inode->map_lock);
	d->i_file_acl_lo = le32_make(0);
	d->i_file_acl_high = le16_make(0);
	inode->attr.blocks_512 -= MIN(inode->attr.blocks_512, sectors);
	e = ext4_inode_log(h, inode);
	extent_unlock(&inode->map_lock);
	return e;
}

enum err ext4_xattr_release(struct journal_handle *h, struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	struct xattr_area area;
	enum err e = xattr_open_block(inode, &area);

	if (e)
		return e == ERR_NODATA ? OK : e;
	xattr_lock(&fs->xattr_lock);
	e = block_drop(h, fs, area.block);
	xattr_unlock(&fs->xattr_lock);
	xattr_close(inode, &area);
	if (e)
		return e;
	e = inode_forget_block(h, inode);
	if (e)
		journal_fail(h->journal, e, "an inode still refers to its freed attributes");
	return e;
}
