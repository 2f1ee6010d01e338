/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * inline: directories that live inside their inode (inline_data).
 *
 *     i_block     [ parent's inode number | chain of entries, 56 bytes ]
 *     system.data [ chain of entries ]                (where the first does not hold all)
 *
 * There are no entries "." and "..". Each chain ends with its part. The data's second part, for
 * files and symlinks as well, is found by xattr.c.
 *
 * Threads: any; the inode's lock is held, shared is enough.
 *
 * Source: Documentation/filesystems/ext4/inlinedata.rst.
 */
#include "dir_int.h"

enum err ext4_inline_dir(struct ext4_inode *dir, struct ext4_inline_dir *out)
{
	const struct ext4_disk_inode *disk = ext4_inode_disk(dir);
	struct ext4_inline_dir in = {0};
	le32 parent;
	enum err e;

	memcpy(&parent, disk->i_block, sizeof(parent));
	in.parent = le32_get(parent);
	if (in.parent == 0 || in.parent > dir->fs->inodes)
		return ext4_corrupt(
			dir->fs, dir->inum, "its parent's inode number is %u", in.parent);
	in.chunk[0] = (struct ext4_dir_chunk){
		disk->i_block + sizeof(parent), EXT4_I_BLOCK_BYTES - sizeof(parent)};
	e = ext4_inline_tail(dir, &in.chunk[1].bytes, &in.chunk[1].len);
	if (e && e != ERR_NODATA)
		return e;
	for (unsigned i = 0; i < EXT4_INLINE_CHUNKS; i++) {
		e = ext4_dir_check_chunk(dir, in.chunk[i], i);
		if (e)
			return e;
	}
	*out = in;
	return OK;
}
