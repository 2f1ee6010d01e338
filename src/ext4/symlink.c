/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * symlink: the targets of symbolic links: in i_block, in one block, or as inline data.
 *
 * A target has at least one byte, no NUL, and is shorter than a block and than PATH_MAX.
 *
 * Threads: any; the door takes the inode's lock, shared.
 *
 * Source: Documentation/filesystems/ext4/ifork.rst, inlinedata.rst.
 */
#include "ext4_int.h"

#include <limits.h>
#include <sys/stat.h>

/*
 * Old kernels put short targets into blocks too. What counts is whether the inode has a block
 * besides that of its attributes; with EA inodes the count says nothing, but those are newer.
 */
static bool symlink_is_fast(const struct ext4_inode *inode)
{
	const struct ext4 *fs = inode->fs;
	const struct ext4_disk_inode *disk = ext4_inode_disk(inode);
	bool has_acl_block = le32_get(disk->i_file_acl_lo) || le16_get(disk->i_file_acl_high);
	uint64_t acl_blocks_512 =
		has_acl_block ? (uint64_t)fs->cluster_blocks << (fs->block_bits - 9) : 0;

	if (inode->attr.flags & EXT4_INLINE_DATA_FL || inode->attr.size_bytes >= EXT4_I_BLOCK_BYTES)
		return false;
	return ext4_has_incompat(fs, EXT4_INCOMPAT_EA_INODE) ||
	       inode->attr.blocks_512 <= acl_blocks_512;
}

static enum err symlink_check(const struct ext4_inode *inode, const uint8_t *target, size_t len)
{
	return memchr(target, 0, len)
		       ? ext4_corrupt(inode->fs, inode->inum, "a symlink's target holds a NUL")
		       : OK;
}

static enum err readlink_block(struct ext4_inode *inode, uint8_t *buf, size_t len)
{
	struct cache_block *b;
	enum err e;

	if (len >= inode->fs->block_bytes)
		return ext4_corrupt(inode->fs, inode->inum, "a symlink longer than a block");
	e = ext4_map_block(inode, 0, &b);
	if (e)
		return e;
	memcpy(buf, b->data, len);
	cache_put(inode->fs->cache, b);
	return OK;
}

static enum err readlink_inline(struct ext4_inode *inode, uint8_t *buf, size_t len)
{
	size_t head = MIN(len, (size_t)EXT4_I_BLOCK_BYTES), tail_len = 0;
	const uint8_t *tail = NULL;

	memcpy(buf, ext4_inode_disk(inode)->i_block, head);
	if (len == head)
		return OK;

	enum err e = ext4_inline_tail(inode, &tail, &tail_len);

	if (e == ERR_NODATA || (!e && tail_len < len - head))
		return ext4_corrupt(
			inode->fs, inode->inum, "its inline data is shorter than its size");
	if (!e)
		memcpy(buf + head, tail, len - head);
	return e;
}

static enum err readlink_any(struct ext4_inode *inode, uint8_t *buf, size_t room, size_t *out)
{
	size_t len = (size_t)inode->attr.size_bytes;
	enum err e = OK;

	if (inode->attr.size_bytes == 0 || inode->attr.size_bytes >= PATH_MAX)
		return ext4_corrupt(inode->fs, inode->inum, "a symlink of %llu bytes",
			(unsigned long long)inode->attr.size_bytes);
	if (len > room)
		return ERR_RANGE;
	if (symlink_is_fast(inode))
		memcpy(buf, ext4_inode_disk(inode)->i_block, len);
	else if (inode->attr.flags & EXT4_INLINE_DATA_FL)
		e = readlink_inline(inode, buf, len);
	else
		e = readlink_block(inode, buf, len);
	if (!e)
		e = symlink_check(inode, buf, len);
	if (!e)
		*out = len;
	return e;
}

enum err ext4_readlink(struct ext4_inode *inode, char *buf, size_t room, size_t *len)
{
	enum err e;

	inode_lock_shared(&inode->lock);
	e = S_ISLNK(inode->attr.mode) ? readlink_any(inode, (uint8_t *)buf, room, len) : ERR_INVAL;
	inode_unlock_shared(&inode->lock);
	return e;
}
