/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * inode_write: an inode's attributes to its bytes, and its bytes to their place in the table.
 *
 * The counterpart of decode.c. What other rooms keep in the raw bytes stays as it is: the map in
 * i_block, i_file_acl, i_dtime (the orphan list), attributes behind the extra fields.
 *
 * Times: 32 bits of seconds, signed, and where the inode has extra fields two bits of epoch and
 * 30 of nanoseconds, so 1901 to 2446; what lies outside is stored as the nearest that can be.
 *
 * Source: the kernel's Documentation/filesystems/ext4/inodes.rst.
 * Threads: map_lock exclusive guards raw. The table block is usually cached; where it is not, it
 * is read with map_lock held, which only delays readers of this inode.
 */
#include "write_int.h"

#include <sys/stat.h>
#include <time.h>

static bool extra_has(const struct ext4_inode *inode, size_t end)
{
	return inode->extra_bytes >= end - EXT4_INODE_BYTES_OLD;
}
#define EXTRA_HAS(inode, field)                                    \
	extra_has(inode, offsetof(struct ext4_disk_inode, field) + \
				 sizeof(((struct ext4_disk_inode *)0)->field))

struct ext4_time ext4_now(const struct ext4 *fs)
{
	struct timespec now;

	ensure(clock_gettime(CLOCK_REALTIME, &now) == 0);
	/* As on disk, so that a time does not change when the inode is read again. */
	return (struct ext4_time){.sec = now.tv_sec,
		.nsec = fs->inode_bytes > EXT4_INODE_BYTES_OLD ? (uint32_t)now.tv_nsec : 0};
}

static void encode_time(struct ext4_time t, bool has_extra, le32 *seconds, le32 *extra)
{
	int64_t most = has_extra ? INT32_MAX + (3ll << 32) : INT32_MAX;
	int64_t sec = MIN(MAX(t.sec, INT32_MIN), most);

	*seconds = le32_make((uint32_t)sec);
	if (has_extra)
		*extra = le32_make((uint32_t)((sec - (int32_t)sec) >> 32 & 3) | t.nsec << 2);
}

static void encode_times(struct ext4_inode *inode, struct ext4_disk_inode *d)
{
	const struct ext4_attr *a = &inode->attr;

	encode_time(a->atime, EXTRA_HAS(inode, i_atime_extra), &d->i_atime, &d->i_atime_extra);
	encode_time(a->mtime, EXTRA_HAS(inode, i_mtime_extra), &d->i_mtime, &d->i_mtime_extra);
	encode_time(a->ctime, EXTRA_HAS(inode, i_ctime_extra), &d->i_ctime, &d->i_ctime_extra);
	if (EXTRA_HAS(inode, i_crtime))
		encode_time(a->crtime, EXTRA_HAS(inode, i_crtime_extra), &d->i_crtime,
			&d->i_crtime_extra);
}

/*
 * 32 bits of sectors, with huge_file 48 bits, then 48 bits of blocks, as the flag on disk says.
 * attr.flags is left alone: write-back, which changes the count, may not.
 */
static enum err encode_blocks(struct ext4_inode *inode, struct ext4_disk_inode *d)
{
	const struct ext4 *fs = inode->fs;
	uint64_t n = inode->attr.blocks_512;
	bool huge = n >> 48 != 0;

	if (n > UINT32_MAX && !ext4_has_ro_compat(fs, EXT4_RO_COMPAT_HUGE_FILE))
		return err_set_detail(ERR_FBIG,
			"inode %u: too many blocks without the feature huge_file", inode->inum);
	if (huge)
		n >>= fs->block_bits - 9;
	d->i_flags = le32_make((inode->attr.flags & ~(uint32_t)EXT4_HUGE_FILE_FL) |
			       (huge ? EXT4_HUGE_FILE_FL : 0));
	d->i_blocks_lo = le32_make((uint32_t)n);
	d->i_blocks_high = le16_make((uint16_t)(n >> 32));
	return OK;
}

static enum err encode_size(struct ext4_inode *inode, struct ext4_disk_inode *d)
{
	const struct ext4 *fs = inode->fs;
	bool regular = S_ISREG(inode->attr.mode);
	uint64_t size = regular ? inode->disk_size_bytes : inode->attr.size_bytes;

	if (size > INT32_MAX && !ext4_has_ro_compat(fs, EXT4_RO_COMPAT_LARGE_FILE))
		return err_set_detail(ERR_FBIG,
			"inode %u: larger than 2 GiB without the feature large_file", inode->inum);
	d->i_size_lo = le32_make((uint32_t)size);
	if (regular || ext4_has_incompat(fs, EXT4_INCOMPAT_LARGEDIR))
		d->i_size_high = le32_make((uint32_t)(size >> 32));
	return OK;
}

static enum err inode_encode(struct ext4_inode *inode)
{
	struct ext4_disk_inode *d = (void *)inode->raw;
	struct ext4_attr *a = &inode->attr;
	enum err e = encode_size(inode, d);

	if (!e)
		e = encode_blocks(inode, d);
	if (e)
		return e;
	ensure(a->mode <= UINT16_MAX && a->nlink <= UINT16_MAX && a->inum == inode->inum);
	d->i_mode = le16_make((uint16_t)a->mode);
	d->i_links_count = le16_make((uint16_t)a->nlink);
	d->i_uid_lo = le16_make((uint16_t)a->uid);
	d->i_uid_high = le16_make((uint16_t)(a->uid >> 16));
	d->i_gid_lo = le16_make((uint16_t)a->gid);
	d->i_gid_high = le16_make((uint16_t)(a->gid >> 16));
	d->i_generation = le32_make(a->generation);
	if (inode->fs->inode_bytes > EXT4_INODE_BYTES_OLD)
		d->i_extra_isize = le16_make((uint16_t)inode->extra_bytes);
	if (ext4_has_ro_compat(inode->fs, EXT4_RO_COMPAT_PROJECT) && EXTRA_HAS(inode, i_projid))
		d->i_projid = le32_make(a->project);
	encode_times(inode, d);
	ext4_csum_inode_set(inode);
	return OK;
}

enum err ext4_inode_log(struct journal_handle *h, struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	struct cache_block *b;
	uint32_t offset;
	enum err e = inode_encode(inode);

	if (e)
		return e;
	e = cache_get(fs->cache, ext4_inode_table_block(fs, inode->inum, &offset), &b);
	if (e)
		return e;
	e = journal_write(h, b);
	if (!e)
		ext4_inode_table_put(fs, inode->inum, b, inode->raw);
	cache_put(fs->cache, b);
	return e;
}
