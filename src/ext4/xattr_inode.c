/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * xattr_inode: values that have an inode of their own (ea_inode).
 *
 * Such an inode is a regular file with EA_INODE_FL, exactly as long as the value. Its access time
 * is the crc32c of the value, and the entry's hash is made of the name and of that. Lustre's older
 * kind has no hashes; there the modification time is the number of the inode that the attribute
 * belongs to, and the generations are equal.
 *
 * Threads: any; takes the value's inode lock, shared, and no other lock of that rank is held. The
 * value may have been replaced since the entry was read: then the hash does not fit.
 *
 * Source: the kernel's fs/ext4/xattr.c, read for the format; Documentation/filesystems/ext4
 * says where the value's inode number stands.
 */
#include "xattr_int.h"

#include <sys/stat.h>

static bool remote_is_lustre(const struct ext4_inode *inode, const struct ext4_inode *value)
{
	return (uint32_t)value->attr.mtime.sec == inode->inum &&
	       value->attr.generation == inode->attr.generation;
}

static enum err remote_check(const struct ext4_inode *inode, const struct xattr_remote *remote,
	const struct ext4_inode *value, const void *buf)
{
	const struct ext4_xattr_entry *entry = (const void *)remote->entry;
	const struct ext4 *fs = inode->fs;
	uint32_t stored = (uint32_t)value->attr.atime.sec;
	le32 word = le32_make(crc32c(fs->csum_seed, buf, remote->size_bytes));

	if (le32_get(entry->e_hash) != stored && remote_is_lustre(inode, value))
		return OK;
	if (le32_get(word) == stored && xattr_hash_valid(entry, (const uint8_t *)&word, 1))
		return OK;
	return err_set_detail(ERR_CHECKSUM,
		"inode %u: the hash of an attribute's value in inode %u does not match; run "
		"fsck.cryptfs",
		inode->inum, value->inum);
}

static enum err remote_read_locked(struct ext4_inode *inode, const struct xattr_remote *remote,
	struct ext4_inode *value, void *buf)
{
	enum err e;

	if (!(value->attr.flags & EXT4_EA_INODE_FL) || !S_ISREG(value->attr.mode))
		return ext4_corrupt(inode->fs, inode->inum,
			"an attribute's value is in inode %u, which is no such inode", value->inum);
	if (value->attr.size_bytes != remote->size_bytes)
		return ext4_corrupt(inode->fs, inode->inum,
			"an attribute's value in inode %u has another size", value->inum);
	e = ext4_inode_read_all(value, buf, remote->size_bytes);
	return e ? e : remote_check(inode, remote, value, buf);
}

enum err xattr_remote_read(struct ext4_inode *inode, const struct xattr_remote *remote, void *buf)
{
	struct ext4_inode *value = NULL;
	enum err e = ext4_inode_get(inode->fs, remote->inum, &value);

	if (e == ERR_STALE)
		return ext4_corrupt(inode->fs, inode->inum,
			"an attribute's value is in inode %u, which is not in use", remote->inum);
	if (e)
		return e;
	inode_lock_shared(&value->lock);
	e = remote_read_locked(inode, remote, value, buf);
	inode_unlock_shared(&value->lock);
	ext4_inode_put(value);
	return e;
}
