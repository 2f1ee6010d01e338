/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * csum: the checksums of superblock, group descriptors, bitmaps, inodes and extent nodes.
 *
 * metadata_csum is crc32c seeded by the file system's uuid (or s_checksum_seed) and by what the
 * block belongs to; uninit_bg is a crc16 of the group descriptors alone. A checksum's own bytes
 * count as zeros, or, in the crc16, are left out. Everything here is a pure function.
 *
 * Source: the kernel's Documentation/filesystems/ext4/checksums.rst. Directory blocks and
 * attribute blocks have theirs where they are read.
 */
#include "ext4_int.h"

uint32_t ext4_csum_super(const struct ext4_super *super)
{
	return crc32c(~0u, super, offsetof(struct ext4_super, s_checksum));
}

/* False: the descriptors have none. */
static bool csum_group(
	const struct ext4 *fs, group_t group, const struct ext4_disk_group *desc, uint16_t *out)
{
	const uint8_t *bytes = (const uint8_t *)desc;
	const size_t at = offsetof(struct ext4_disk_group, bg_checksum), after = at + sizeof(le16);
	const uint8_t zero[sizeof(le16)] = {0};
	le32 number = le32_make(group);

	if (fs->csum) {
		uint32_t crc = crc32c(fs->csum_seed, &number, sizeof(number));
		crc = crc32c(crc, bytes, at);
		crc = crc32c(crc, zero, sizeof(zero));
		if (after < fs->desc_bytes)
			crc = crc32c(crc, bytes + after, fs->desc_bytes - after);
		*out = (uint16_t)crc;
	} else if (ext4_has_ro_compat(fs, EXT4_RO_COMPAT_GDT_CSUM)) {
		uint16_t crc = crc16(0xffff, fs->super.s_uuid, sizeof(fs->super.s_uuid));
		crc = crc16(crc, &number, sizeof(number));
		crc = crc16(crc, bytes, at);
		if (after < fs->desc_bytes)
			crc = crc16(crc, bytes + after, fs->desc_bytes - after);
		*out = crc;
	} else {
		return false;
	}
	return true;
}

bool ext4_csum_group_valid(const struct ext4 *fs, group_t group, const struct ext4_disk_group *desc)
{
	uint16_t want;

	return !csum_group(fs, group, desc, &want) || le16_get(desc->bg_checksum) == want;
}

void ext4_csum_group_set(const struct ext4 *fs, group_t group, struct ext4_disk_group *desc)
{
	uint16_t want;

	if (csum_group(fs, group, desc, &want))
		desc->bg_checksum = le16_make(want);
}

uint32_t ext4_csum_bitmap(const struct ext4 *fs, const uint8_t *bitmap, uint32_t bits)
{
	return crc32c(fs->csum_seed, bitmap, bits / 8);
}

uint32_t ext4_csum_inode_seed(const struct ext4 *fs, inum_t inum, uint32_t generation)
{
	le32 number = le32_make(inum), gen = le32_make(generation);

	return crc32c(crc32c(fs->csum_seed, &number, sizeof(number)), &gen, sizeof(gen));
}

/* *has_hi: the inode has room for the upper half. */
static uint32_t csum_inode(const struct ext4_inode *inode, bool *has_hi)
{
	const struct ext4 *fs = inode->fs;
	const struct ext4_disk_inode *disk = ext4_inode_disk(inode);
	const size_t lo = offsetof(struct ext4_disk_inode, i_checksum_lo);
	const size_t hi = offsetof(struct ext4_disk_inode, i_checksum_hi);
	const size_t hi_end = hi + sizeof(le16);
	const uint8_t zero[sizeof(le16)] = {0};
	uint32_t crc;

	crc = crc32c(inode->csum_seed, inode->raw, lo);
	crc = crc32c(crc, zero, sizeof(zero));
	crc = crc32c(crc, inode->raw + lo + sizeof(zero), EXT4_INODE_BYTES_OLD - lo - sizeof(zero));
	*has_hi = false;
	if (fs->inode_bytes == EXT4_INODE_BYTES_OLD)
		return crc;

	*has_hi = le16_get(disk->i_extra_isize) >= hi_end - EXT4_INODE_BYTES_OLD;
	crc = crc32c(crc, inode->raw + EXT4_INODE_BYTES_OLD, hi - EXT4_INODE_BYTES_OLD);
	crc = crc32c(crc, *has_hi ? zero : inode->raw + hi, sizeof(zero));
	return crc32c(crc, inode->raw + hi_end, fs->inode_bytes - hi_end);
}

bool ext4_csum_inode_valid(const struct ext4_inode *inode)
{
	const struct ext4_disk_inode *disk = ext4_inode_disk(inode);
	uint32_t crc, have = le16_get(disk->i_checksum_lo);
	bool has_hi;

	if (!inode->fs->csum)
		return true;
	crc = csum_inode(inode, &has_hi);
	if (has_hi)
		have |= (uint32_t)le16_get(disk->i_checksum_hi) << 16;
	return (has_hi ? crc : crc & 0xffff) == have;
}

void ext4_csum_inode_set(struct ext4_inode *inode)
{
	struct ext4_disk_inode *disk = (void *)inode->raw;
	uint32_t crc;
	bool has_hi;

	if (!inode->fs->csum)
		return;
	crc = csum_inode(inode, &has_hi);
	disk->i_checksum_lo = le16_make((uint16_t)crc);
	if (has_hi)
		disk->i_checksum_hi = le16_make((uint16_t)(crc >> 16));
}

bool ext4_csum_extent_valid(const struct ext4_inode *inode, const uint8_t *node)
{
	const struct ext4_extent_header *header = (const void *)node;
	size_t at = sizeof(*header) + le16_get(header->eh_max) * sizeof(struct ext4_extent);
	struct ext4_extent_tail tail;

	if (!inode->fs->csum)
		return true;
	if (at + sizeof(tail) > inode->fs->block_bytes)
		return false;
	memcpy(&tail, node + at, sizeof(tail));
	return le32_get(tail.et_checksum) == crc32c(inode->csum_seed, node, at);
}

void ext4_csum_extent_set(const struct ext4_inode *inode, uint8_t *node)
{
	const struct ext4_extent_header *header = (const void *)node;
	size_t at = sizeof(*header) + le16_get(header->eh_max) * sizeof(struct ext4_extent);
	struct ext4_extent_tail tail;

	if (!inode->fs->csum)
		return;
	tail.et_checksum = le32_make(crc32c(inode->csum_seed, node, at));
	memcpy(node + at, &tail, sizeof(tail));
}
