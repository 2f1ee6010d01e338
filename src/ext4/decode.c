/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * decode: an inode's bytes to its attributes, verified.
 *
 * Checked here, so that nobody checks it again: the checksum, the type, the length of the extra
 * fields, flags against features, that the size can be mapped, and the root of an extent tree.
 * What a directory, a symlink or an attribute holds is verified by who reads it.
 *
 * Source: the kernel's Documentation/filesystems/ext4/inodes.rst and ext4_iget's checks.
 */
#include "ext4_int.h"

#include <sys/stat.h>

static bool extra_has(const struct ext4_inode *inode, size_t end)
{
	return inode->extra_bytes >= end - EXT4_INODE_BYTES_OLD;
}
#define EXTRA_HAS(inode, field)                                    \
	extra_has(inode, offsetof(struct ext4_disk_inode, field) + \
				 sizeof(((struct ext4_disk_inode *)0)->field))

/* Seconds are signed 32 bits, to which two bits of epoch are added; 30 bits of nanoseconds. */
static struct ext4_time decode_time(le32 seconds, bool has_extra, le32 extra)
{
	struct ext4_time t = {.sec = (int32_t)le32_get(seconds)};

	if (has_extra) {
		t.sec += (int64_t)(le32_get(extra) & 3) << 32;
		t.nsec = MIN(le32_get(extra) >> 2, 999999999u);
	}
	return t;
}

static void decode_times(struct ext4_inode *inode)
{
	const struct ext4_disk_inode *d = ext4_inode_disk(inode);
	struct ext4_attr *a = &inode->attr;

	a->atime = decode_time(d->i_atime, EXTRA_HAS(inode, i_atime_extra), d->i_atime_extra);
	a->mtime = decode_time(d->i_mtime, EXTRA_HAS(inode, i_mtime_extra), d->i_mtime_extra);
	a->ctime = decode_time(d->i_ctime, EXTRA_HAS(inode, i_ctime_extra), d->i_ctime_extra);
	if (EXTRA_HAS(inode, i_crtime))
		a->crtime = decode_time(
			d->i_crtime, EXTRA_HAS(inode, i_crtime_extra), d->i_crtime_extra);
}

/* The old form has 8 bits each in the first slot, the new one 12 and 20 in the second. */
static void decode_rdev(struct ext4_inode *inode)
{
	const struct ext4_disk_inode *d = ext4_inode_disk(inode);
	le32 slot[2];
	uint32_t v;

	memcpy(slot, d->i_block, sizeof(slot));
	v = le32_get(slot[0]);
	if (v) {
		inode->attr.rdev_major = v >> 8 & 0xff;
		inode->attr.rdev_minor = v & 0xff;
	} else {
		v = le32_get(slot[1]);
		inode->attr.rdev_major = (v & 0xfff00) >> 8;
		inode->attr.rdev_minor = (v & 0xff) | (v >> 12 & 0xfff00);
	}
}

static uint64_t decode_blocks_512(const struct ext4_inode *inode)
{
	const struct ext4 *fs = inode->fs;
	const struct ext4_disk_inode *d = ext4_inode_disk(inode);
	uint64_t blocks = le32_get(d->i_blocks_lo);

	if (!ext4_has_ro_compat(fs, EXT4_RO_COMPAT_HUGE_FILE))
		return blocks;
	blocks |= (uint64_t)le16_get(d->i_blocks_high) << 32;
	if (le32_get(d->i_flags) & EXT4_HUGE_FILE_FL)
		blocks <<= fs->block_bits - 9;
	return blocks;
}

static enum err decode_extra(struct ext4_inode *inode)
{
	const struct ext4_disk_inode *d = ext4_inode_disk(inode);
	uint32_t extra;

	inode->extra_bytes = 0;
	if (inode->fs->inode_bytes == EXT4_INODE_BYTES_OLD)
		return OK;
	extra = le16_get(d->i_extra_isize);
	if (extra > inode->fs->inode_bytes - EXT4_INODE_BYTES_OLD || extra % 4)
		return ext4_corrupt(
			inode->fs, inode->inum, "its extra size is %u", (unsigned)extra);
	inode->extra_bytes = extra;
	return OK;
}

static enum err decode_check_flags(const struct ext4_inode *inode)
{
	const struct ext4 *fs = inode->fs;
	uint32_t flags = inode->attr.flags;

	if (flags & EXT4_INLINE_DATA_FL && !ext4_has_incompat(fs, EXT4_INCOMPAT_INLINE_DATA))
		return ext4_corrupt(fs, inode->inum, "inline data without the feature");
	if (flags & EXT4_INLINE_DATA_FL && flags & EXT4_EXTENTS_FL)
		return ext4_corrupt(fs, inode->inum, "both extents and inline data");
	if (flags & EXT4_ENCRYPT_FL)
		return ext4_corrupt(fs, inode->inum, "encrypted without the feature");
	if (flags & EXT4_CASEFOLD_FL)
		return ext4_corrupt(fs, inode->inum, "casefolded without the feature");
	return OK;
}

/* A map is in i_block for what has blocks: files, directories, and symlinks that do not fit. */
static enum err decode_check_map(const struct ext4_inode *inode)
{
	const struct ext4 *fs = inode->fs;
	const struct ext4_attr *a = &inode->attr;
	uint64_t most = (uint64_t)EXT4_LBLK_END << fs->block_bits;

	if (!S_ISREG(a->mode) && !S_ISDIR(a->mode) && !S_ISLNK(a->mode))
		return OK;
	if (S_ISLNK(a->mode) && a->size_bytes < EXT4_I_BLOCK_BYTES)
		return OK;
	if (a->flags & EXT4_INLINE_DATA_FL) {
		/* i_block and an attribute in the inode, or at most in one block of attributes. */
		if (a->size_bytes > EXT4_I_BLOCK_BYTES + (uint64_t)fs->block_bytes)
			return ext4_corrupt(fs, inode->inum, "too large for inline data");
		return OK;
	}
	if (a->flags & EXT4_EXTENTS_FL) {
		enum err e = ext4_extent_check_root(inode);
		if (e)
			return e;
	} else {
		most = MIN(most, ext4_indirect_blocks_max(fs) << fs->block_bits);
	}
	if (a->size_bytes > most)
		return ext4_corrupt(fs, inode->inum, "its size is %llu bytes",
			(unsigned long long)a->size_bytes);
	return OK;
}

enum err ext4_inode_decode(struct ext4_inode *inode, bool orphan)
{
	const struct ext4 *fs = inode->fs;
	const struct ext4_disk_inode *d = ext4_inode_disk(inode);
	struct ext4_attr *a = &inode->attr;
	enum err e;

	*a = (struct ext4_attr){.inum = inode->inum};
	a->mode = le16_get(d->i_mode);
	a->nlink = le16_get(d->i_links_count);
	if (!a->mode && !a->nlink)
		return ERR_STALE;
	a->generation = le32_get(d->i_generation);
	inode->csum_seed = ext4_csum_inode_seed(fs, inode->inum, a->generation);
	if (!ext4_csum_inode_valid(inode))
		return err_set_detail(ERR_CHECKSUM,
			"inode %u: the checksum does not match; run fsck.cryptfs", inode->inum);
	if (!a->nlink && !orphan)
		return ERR_STALE;
	if (!S_ISREG(a->mode) && !S_ISDIR(a->mode) && !S_ISLNK(a->mode) && !S_ISCHR(a->mode) &&
		!S_ISBLK(a->mode) && !S_ISFIFO(a->mode) && !S_ISSOCK(a->mode))
		return ext4_corrupt(fs, inode->inum, "its mode is 0%o", a->mode);
	e = decode_extra(inode);
	if (e)
		return e;

	a->uid = le16_get(d->i_uid_lo) | (uint32_t)le16_get(d->i_uid_high) << 16;
	a->gid = le16_get(d->i_gid_lo) | (uint32_t)le16_get(d->i_gid_high) << 16;
	a->flags = le32_get(d->i_flags);
	a->size_bytes = le32_get(d->i_size_lo);
	/* The upper half belongs to directories only where they may be large. */
	if (S_ISREG(a->mode) || ext4_has_incompat(fs, EXT4_INCOMPAT_LARGEDIR))
		a->size_bytes |= (uint64_t)le32_get(d->i_size_high) << 32;
	inode->disk_size_bytes = a->size_bytes;
	a->blocks_512 = decode_blocks_512(inode);
	if (S_ISCHR(a->mode) || S_ISBLK(a->mode))
		decode_rdev(inode);
	if (ext4_has_ro_compat(fs, EXT4_RO_COMPAT_PROJECT) && EXTRA_HAS(inode, i_projid))
		a->project = le32_get(d->i_projid);
	decode_times(inode);
	e = decode_check_flags(inode);
	return e ? e : decode_check_map(inode);
}
