/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * csum: the checksums of superblock, group descriptors, inodes and extent nodes.
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

bool ext4_csum_group_valid(const struct ext4 *fs, group_t group, const struct ext4_disk_group *desc)
{
	const uint8_t *bytes = (const uint8_t *)desc;
	const size_t at = offsetof(struct ext4_disk_group, bg_checksum), after = at + sizeof(le16);
	const uint8_t zero[sizeof(le16)] = {0};
	le32 number = le32_make(group);
	uint16_t want;

	if (fs->csum) {
		uint32_t crc = crc32c(fs->csum_seed, &number, sizeof(number));
		crc = crc32c(crc, bytes, at);
		crc = crc32c(crc, zero, sizeof(zero));
		if (after < fs->desc_bytes)
			crc = crc32c(crc, bytes + after, fs->desc_bytes - after);
		want = (uint16_t)crc;
	} else if (ext4_has_ro_compat(fs, EXT4_RO_COMPAT_GDT_CSUM)) {
		want = crc16(0xffff, fs->super.s_uuid, sizeof(fs->super.s_uuid));
		want = crc16(want, &number, sizeof(number));
		want = crc16(want, bytes, at);
		if (after < fs->desc_bytes)
			want = crc16(want, bytes + after, fs->desc_bytes - after);
	} else {
		return true;
	}
	return le16_get(desc->bg_checksum) == want;
}

uint32_t ext4_csum_inode_seed(const struct ext4 *fs, inum_t inum, uint32_t generation)
{
	le32 number = le32_make(inum), gen = le32_make(generation);

	return crc32c(crc32c(fs->csum_seed, &number, sizeof(number)), &gen, sizeof(gen));
}

bool ext4_csum_inode_valid(const struct ext4_inode *inode)
{
	const struct ext4 *fs = inode->fs;
	const struct ext4_disk_inode *disk = ext4_inode_disk(inode);
	const size_t lo = offsetof(struct ext4_disk_inode, i_checksum_lo);
	const size_t hi = offsetof(struct ext4_disk_inode, i_checksum_hi);
	const size_t hi_end = hi + sizeof(le16);
	const uint8_t zero[sizeof(le16)] = {0};
	uint32_t crc, have = le16_get(disk->i_checksum_lo);
	bool has_hi;

	if (!fs->csum)
		return true;
	crc = crc32c(inode->csum_seed, inode->raw, lo);
	crc = crc32c(crc, zero, sizeof(zero));
	crc = crc32c(crc, inode->raw + lo + sizeof(zero), EXT4_INODE_BYTES_OLD - lo - sizeof(zero));
	if (fs->inode_bytes == EXT4_INODE_BYTES_OLD)
		return (crc & 0xffff) == have;

	has_hi = le16_get(disk->i_extra_isize) >= hi_end - EXT4_INODE_BYTES_OLD;
	crc = crc32c(crc, inode->raw + EXT4_INODE_BYTES_OLD, hi - EXT4_INODE_BYTES_OLD);
	if (has_hi) {
		crc = crc32c(crc, zero, sizeof(zero));
		have |= (uint32_t)le16_get(disk->i_checksum_hi) << 16;
	} else {
		crc = crc32c(crc, inode->raw + hi, sizeof(zero));
	}
	crc = crc32c(crc, inode->raw + hi_end, fs->inode_bytes - hi_end);
	return (has_hi ? crc : crc & 0xffff) == have;
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
