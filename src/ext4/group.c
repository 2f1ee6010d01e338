/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * group: block groups: where their descriptors lie, and what reading needs of them.
 *
 * Descriptors are read at mount in large requests and verified one by one, as the kernel's
 * ext4_check_descriptors does: the checksum, and that bitmaps and inode table lie inside the file
 * system (without flex_bg: inside the group). After that fs->group is constant on a read-only
 * mount.
 *
 * Source: the kernel's Documentation/filesystems/ext4/group_descr.rst and blockgroup.rst.
 * The bitmaps themselves are not read here.
 */
#include "ext4_int.h"

#include <stdlib.h>

static bool is_power_of(uint64_t n, uint64_t base)
{
	uint64_t power = base;

	while (power < n)
		power *= base;
	return power == n;
}

bool ext4_group_has_super(const struct ext4 *fs, group_t group)
{
	if (group == 0)
		return true;
	if (ext4_has_compat(fs, EXT4_COMPAT_SPARSE_SUPER2))
		return group == le32_get(fs->super.s_backup_bgs[0]) ||
		       group == le32_get(fs->super.s_backup_bgs[1]);
	if (group == 1 || !ext4_has_ro_compat(fs, EXT4_RO_COMPAT_SPARSE_SUPER))
		return true;
	return group % 2 &&
	       (is_power_of(group, 3) || is_power_of(group, 5) || is_power_of(group, 7));
}

fsblk_t ext4_group_first_block(const struct ext4 *fs, group_t group)
{
	return fs->first_data_block + (fsblk_t)group * fs->blocks_per_group;
}

uint32_t ext4_group_blocks(const struct ext4 *fs, group_t group)
{
	return (uint32_t)MIN(fs->blocks - ext4_group_first_block(fs, group), fs->blocks_per_group);
}

uint32_t ext4_group_base_blocks(const struct ext4 *fs, group_t group)
{
	uint32_t per_block = fs->block_bytes / fs->desc_bytes;
	uint32_t has_super = ext4_group_has_super(fs, group), linear = fs->desc_blocks;
	group_t within = group % per_block;

	if (ext4_has_incompat(fs, EXT4_INCOMPAT_META_BG)) {
		linear = le32_get(fs->super.s_first_meta_bg);
		/* A meta group's descriptors stand in its first, second and last group. */
		if (group / per_block >= linear)
			return has_super + (within <= 1 || within == per_block - 1);
	}
	return has_super ? 1 + linear + le16_get(fs->super.s_reserved_gdt_blocks) : 0;
}

/* The home of the nth block of descriptors; with meta_bg it stands in the groups it describes. */
static fsblk_t desc_block(const struct ext4 *fs, uint32_t nth)
{
	uint32_t per_block = fs->block_bytes / fs->desc_bytes;
	uint32_t first_meta = le32_get(fs->super.s_first_meta_bg);
	group_t group = nth * per_block;
	fsblk_t skip;

	if (!ext4_has_incompat(fs, EXT4_INCOMPAT_META_BG) || nth < first_meta)
		return EXT4_SUPER_OFFSET_BYTES / fs->block_bytes + 1 + (fsblk_t)nth;
	skip = ext4_group_has_super(fs, group);
	/* 1 KiB blocks with bigalloc: group 0 starts at block 0, before its superblock. */
	if (fs->block_bytes == EXT4_SUPER_OFFSET_BYTES && nth == 0 && fs->first_data_block == 0)
		skip++;
	return ext4_group_first_block(fs, group) + skip;
}

fsblk_t ext4_group_desc_block(const struct ext4 *fs, group_t group, uint32_t *offset_bytes)
{
	uint32_t per_block = fs->block_bytes / fs->desc_bytes;

	*offset_bytes = group % per_block * fs->desc_bytes;
	return desc_block(fs, group / per_block);
}

/* bits 32 to 47 or 63 of a field, where the descriptor is long enough to have them */
#define DESC_HIGH(fs, field) ((fs)->desc_bytes >= EXT4_DESC_BYTES_64BIT ? (uint64_t)(field) : 0)

static enum err group_decode(struct ext4 *fs, group_t group, const uint8_t *bytes)
{
	const struct ext4_disk_group *d = (const void *)bytes;
	struct ext4_group *g = &fs->group[group];
	fsblk_t first = fs->first_data_block, end = fs->blocks;
	fsblk_t place[3];
	uint32_t span[3] = {1, 1, fs->inode_table_blocks};
	const char *name[3] = {"block bitmap", "inode bitmap", "inode table"};
	uint64_t free_clusters, free_inodes, used_dirs, unused;

	/* All fields past the first 32 bytes are only touched through DESC_HIGH. */
	if (!ext4_csum_group_valid(fs, group, d))
		return err_set_detail(ERR_CHECKSUM,
			"group %u: the descriptor's checksum does not match; run fsck.cryptfs",
			group);
	place[0] = le32_get(d->bg_block_bitmap_lo) | DESC_HIGH(fs, le32_get(d->bg_block_bitmap_hi))
							     << 32;
	place[1] = le32_get(d->bg_inode_bitmap_lo) | DESC_HIGH(fs, le32_get(d->bg_inode_bitmap_hi))
							     << 32;
	place[2] = le32_get(d->bg_inode_table_lo) | DESC_HIGH(fs, le32_get(d->bg_inode_table_hi))
							    << 32;
	if (!ext4_has_incompat(fs, EXT4_INCOMPAT_FLEX_BG)) {
		first = ext4_group_first_block(fs, group);
		end = MIN(first + fs->blocks_per_group, fs->blocks);
	}
	for (int i = 0; i < 3; i++)
		if (place[i] < first || place[i] >= end || span[i] > end - place[i])
			return err_set_detail(ERR_CORRUPT,
				"group %u: the %s at block %llu is outside; run fsck.cryptfs",
				group, name[i], (unsigned long long)place[i]);

	free_clusters = le16_get(d->bg_free_blocks_count_lo) |
			DESC_HIGH(fs, le16_get(d->bg_free_blocks_count_hi)) << 16;
	free_inodes = le16_get(d->bg_free_inodes_count_lo) |
		      DESC_HIGH(fs, le16_get(d->bg_free_inodes_count_hi)) << 16;
	used_dirs = le16_get(d->bg_used_dirs_count_lo) |
		    DESC_HIGH(fs, le16_get(d->bg_used_dirs_count_hi)) << 16;
	g->block_bitmap = place[0];
	g->inode_bitmap = place[1];
	g->inode_table = place[2];
	/* Without checksums the two fields below are not kept and may hold anything. */
	if (fs->csum || ext4_has_ro_compat(fs, EXT4_RO_COMPAT_GDT_CSUM)) {
		unused = le16_get(d->bg_itable_unused_lo) |
			 DESC_HIGH(fs, le16_get(d->bg_itable_unused_hi)) << 16;
		g->flags = le16_get(d->bg_flags);
		g->inodes_unused = g->flags & EXT4_BG_INODE_UNINIT
					   ? fs->inodes_per_group
					   : (uint32_t)MIN(unused, fs->inodes_per_group);
	}
	g->free_blocks = (uint32_t)MIN(free_clusters, fs->clusters_per_group);
	g->free_inodes = (uint32_t)MIN(free_inodes, fs->inodes_per_group);
	g->used_dirs = (uint32_t)MIN(used_dirs, fs->inodes_per_group);
	fs->free_clusters += g->free_blocks;
	fs->free_inodes += g->free_inodes;
	return OK;
}

/* Reads desc blocks [nth, nth + count), which are neighbours on disk, and decodes the groups. */
static enum err groups_read(
	struct ext4 *fs, uint32_t nth, uint32_t count, group_t only, uint8_t *buf)
{
	uint32_t per_block = fs->block_bytes / fs->desc_bytes;
	struct iovec iov = {.iov_base = buf, .iov_len = (size_t)count * fs->block_bytes};
	fsblk_t home = desc_block(fs, nth);
	uint64_t first = (uint64_t)nth * per_block;
	uint64_t end = MIN(first + (uint64_t)count * per_block, fs->groups);
	enum err e;

	if (!ext4_blocks_valid(fs, home, count))
		return err_set_detail(ERR_EXT4_GEOMETRY,
			"the group descriptors do not fit into the file system; run fsck.cryptfs");
	e = cache_read_past(fs->cache, home, count, &iov, 1);
	if (e)
		return e;
	for (uint64_t g = first; g < end; g++) {
		if (only != EXT4_GROUPS_ALL && g != only)
			continue;
		e = group_decode(fs, (group_t)g, buf + (g - first) * fs->desc_bytes);
		if (e)
			return e;
	}
	return OK;
}

enum err ext4_groups_load(struct ext4 *fs, group_t group)
{
	uint32_t per_block = fs->block_bytes / fs->desc_bytes;
	uint32_t nth = 0, end = fs->desc_blocks, count;
	uint8_t *buf = page_get(fs->options.pages, PAGE_ORDER_MAX);
	enum err e = OK;

	free(fs->group);
	fs->group = calloc(fs->groups, sizeof(*fs->group));
	fs->free_clusters = 0;
	fs->free_inodes = 0;
	if (!fs->group || !buf) {
		e = ERR_NOMEM;
		goto out;
	}
	if (group != EXT4_GROUPS_ALL) {
		nth = group / per_block;
		end = nth + 1;
	}
	for (; nth < end; nth += count) {
		uint32_t most = MIN(end - nth, PAGE_RUN_BYTES_MAX / fs->block_bytes);
		count = 1;
		while (count < most && desc_block(fs, nth + count) == desc_block(fs, nth) + count)
			count++;
		e = groups_read(fs, nth, count, group, buf);
		if (e)
			goto out;
	}
out:
	if (buf)
		page_put(fs->options.pages, buf, PAGE_ORDER_MAX);
	return e;
}
