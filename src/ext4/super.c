/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * super: the superblock: reading it, verifying it, and the geometry that follows from it.
 *
 * Only the primary superblock is used. Where it is damaged the mount fails and names the backup
 * that e2fsck can use, since silently taking a backup would show an old state. All sums of disk
 * values are done in 64 bits on values that were bounded before; the number of groups is bounded
 * by the blocks that their tables need, so that a small hostile volume cannot ask for much memory.
 *
 * Source: the kernel's Documentation/filesystems/ext4/super.rst and its ext4_fill_super checks.
 */
#include "ext4_int.h"

/* Looks for a backup where mke2fs puts the first one; 0: there is none. */
static uint32_t super_find_backup(struct volume *v, uint32_t *block_bytes)
{
	struct ext4_super s;

	for (unsigned bits = EXT4_BLOCK_BITS_MIN; bits <= 12; bits++) {
		uint32_t block = (8u << bits) + (bits == EXT4_BLOCK_BITS_MIN);
		uint64_t offset = (uint64_t)block << bits;

		if (offset + sizeof(s) > volume_size_bytes(v) ||
			volume_read(v, &s, sizeof(s), offset) != OK)
			continue;
		if (le16_get(s.s_magic) == EXT4_SUPER_MAGIC &&
			le32_get(s.s_log_block_size) == bits - EXT4_BLOCK_BITS_MIN) {
			*block_bytes = 1u << bits;
			return block;
		}
	}
	return 0;
}

enum err ext4_super_read(struct volume *v, struct ext4_super *out)
{
	struct ext4_super s;
	uint32_t backup, block_bytes;
	bool sound;
	enum err e;

	if (volume_size_bytes(v) < EXT4_SUPER_OFFSET_BYTES + sizeof(s))
		return ERR_EXT4_NONE;
	e = volume_read(v, &s, sizeof(s), EXT4_SUPER_OFFSET_BYTES);
	if (e)
		return e;
	sound = le16_get(s.s_magic) == EXT4_SUPER_MAGIC;
	if (sound && le32_get(s.s_feature_ro_compat) & EXT4_RO_COMPAT_METADATA_CSUM)
		sound = s.s_checksum_type == EXT4_CHECKSUM_CRC32C &&
			le32_get(s.s_checksum) == ext4_csum_super(&s);
	if (sound) {
		*out = s;
		return OK;
	}
	err_clear_detail();
	backup = super_find_backup(v, &block_bytes);
	err_clear_detail();
	if (backup)
		return err_set_detail(ERR_CORRUPT,
			"the primary superblock is damaged; a backup is at block %u: "
			"run e2fsck -b %u -B %u through fsck.cryptfs",
			backup, backup, block_bytes);
	if (le16_get(s.s_magic) != EXT4_SUPER_MAGIC)
		return ERR_EXT4_NONE;
	return err_set_detail(ERR_CHECKSUM,
		"the superblock's checksum does not match; run e2fsck (-b BLOCK names a backup)");
}

static enum err geometry_error(const char *what)
{
	return err_set_detail(
		ERR_EXT4_GEOMETRY, "the superblock makes no sense (%s); run fsck.cryptfs", what);
}

static enum err super_accept_blocks(
	struct ext4 *fs, const struct ext4_super *s, uint64_t volume_bytes)
{
	uint32_t log_block = le32_get(s->s_log_block_size);
	uint32_t log_cluster = le32_get(s->s_log_cluster_size);
	uint64_t bytes;

	if (log_block > EXT4_BLOCK_BITS_MAX - EXT4_BLOCK_BITS_MIN)
		return err_set_detail(ERR_EXT4_BLOCK_SIZE,
			"a block size of 2^%llu bytes is not supported",
			(unsigned long long)log_block + EXT4_BLOCK_BITS_MIN);
	fs->block_bits = log_block + EXT4_BLOCK_BITS_MIN;
	fs->block_bytes = 1u << fs->block_bits;
	fs->cluster_bits = 0;
	if (ext4_has_ro_compat(fs, EXT4_RO_COMPAT_BIGALLOC)) {
		if (log_cluster < log_block || log_cluster - log_block > 20)
			return geometry_error("cluster size");
		fs->cluster_bits = log_cluster - log_block;
	} else if (log_cluster != log_block) {
		return geometry_error("cluster size");
	}
	fs->cluster_blocks = 1u << fs->cluster_bits;

	fs->blocks = le32_get(s->s_blocks_count_lo);
	if (ext4_has_incompat(fs, EXT4_INCOMPAT_64BIT))
		fs->blocks |= (fsblk_t)le32_get(s->s_blocks_count_hi) << 32;
	fs->first_data_block = le32_get(s->s_first_data_block);
	/* Block 0 belongs to the boot sector where a block has no room for it and the superblock.
	 */
	if (fs->first_data_block > 1 || (fs->first_data_block && log_block) ||
		(!fs->first_data_block && !log_block && !fs->cluster_bits))
		return geometry_error("first data block");
	if (fs->blocks <= fs->first_data_block + 1)
		return geometry_error("block count");
	if (__builtin_mul_overflow(fs->blocks, fs->block_bytes, &bytes))
		return geometry_error("block count");
	if (bytes > volume_bytes)
		return err_set_detail(ERR_DEV_SHORT,
			"the file system has %llu bytes but the volume only %llu",
			(unsigned long long)bytes, (unsigned long long)volume_bytes);
	return OK;
}

static enum err super_accept_inodes(struct ext4 *fs, const struct ext4_super *s)
{
	bool old = le32_get(s->s_rev_level) == 0;

	fs->inode_bytes = old ? EXT4_INODE_BYTES_OLD : le16_get(s->s_inode_size);
	fs->first_inum = old ? EXT4_FIRST_INUM_OLD : le32_get(s->s_first_ino);
	fs->inodes = le32_get(s->s_inodes_count);
	fs->inodes_per_group = le32_get(s->s_inodes_per_group);
	if (fs->inode_bytes < EXT4_INODE_BYTES_OLD || fs->inode_bytes > fs->block_bytes ||
		(fs->inode_bytes & (fs->inode_bytes - 1)))
		return geometry_error("inode size");
	if (fs->first_inum < EXT4_FIRST_INUM_OLD || fs->first_inum > fs->inodes)
		return geometry_error("first inode");
	if (fs->inodes_per_group < fs->block_bytes / fs->inode_bytes ||
		fs->inodes_per_group > 8 * fs->block_bytes)
		return geometry_error("inodes per group");
	fs->inode_table_blocks = (uint32_t)(((uint64_t)fs->inodes_per_group * fs->inode_bytes +
						    fs->block_bytes - 1) /
					    fs->block_bytes);
	return OK;
}

static enum err super_accept_groups(struct ext4 *fs, const struct ext4_super *s)
{
	uint64_t groups, need;

	fs->blocks_per_group = le32_get(s->s_blocks_per_group);
	fs->clusters_per_group = fs->blocks_per_group;
	if (fs->cluster_bits)
		fs->clusters_per_group = le32_get(s->s_clusters_per_group);
	if (fs->clusters_per_group < 8 || fs->clusters_per_group > 8 * fs->block_bytes ||
		(uint64_t)fs->clusters_per_group << fs->cluster_bits != fs->blocks_per_group)
		return geometry_error("blocks per group");

	fs->desc_bytes = EXT4_DESC_BYTES_MIN;
	if (ext4_has_incompat(fs, EXT4_INCOMPAT_64BIT))
		fs->desc_bytes = le16_get(s->s_desc_size);
	if (fs->desc_bytes & (fs->desc_bytes - 1) || fs->desc_bytes > 1024 ||
		fs->desc_bytes < (ext4_has_incompat(fs, EXT4_INCOMPAT_64BIT)
						 ? (unsigned)EXT4_DESC_BYTES_64BIT
						 : (unsigned)EXT4_DESC_BYTES_MIN))
		return geometry_error("descriptor size");

	groups = (fs->blocks - fs->first_data_block + fs->blocks_per_group - 1) /
		 fs->blocks_per_group;
	if (groups * fs->inodes_per_group != fs->inodes || groups >= UINT32_MAX)
		return geometry_error("inode count");
	need = groups * (fs->inode_table_blocks + 2ull);
	if (need >= fs->blocks)
		return geometry_error("more inodes than there is room for");
	fs->groups = (group_t)groups;
	fs->desc_blocks =
		(uint32_t)((groups * fs->desc_bytes + fs->block_bytes - 1) / fs->block_bytes);
	if (ext4_has_incompat(fs, EXT4_INCOMPAT_META_BG) &&
		le32_get(s->s_first_meta_bg) > fs->desc_blocks)
		return geometry_error("first meta block group");
	return OK;
}

static enum err super_accept_checksums(struct ext4 *fs, const struct ext4_super *s)
{
	uint32_t flags = le32_get(s->s_flags);

	fs->csum = ext4_has_ro_compat(fs, EXT4_RO_COMPAT_METADATA_CSUM);
	if (fs->csum && (s->s_checksum_type != EXT4_CHECKSUM_CRC32C ||
				le32_get(s->s_checksum) != ext4_csum_super(s)))
		return err_set_detail(
			ERR_CHECKSUM, "the superblock's checksum does not match; run fsck.cryptfs");
	fs->csum_seed = ext4_has_incompat(fs, EXT4_INCOMPAT_CSUM_SEED)
				? le32_get(s->s_checksum_seed)
				: crc32c(~0u, s->s_uuid, sizeof(s->s_uuid));
	for (int i = 0; i < 4; i++)
		fs->hash_seed[i] = le32_get(s->s_hash_seed[i]);
	/* With neither flag the kernel takes its own char, which is signed on x86. */
	fs->hash_unsigned = flags & EXT4_SUPER_UNSIGNED_HASH;
	return OK;
}

enum err ext4_super_accept(struct ext4 *fs, const struct ext4_super *super, uint64_t volume_bytes)
{
	enum err e;

	if (le16_get(super->s_magic) != EXT4_SUPER_MAGIC)
		return ERR_EXT4_NONE;
	e = ext4_feature_check(super);
	if (e)
		return e;
	fs->super = *super;
	fs->feature_compat = le32_get(super->s_feature_compat);
	fs->feature_incompat = le32_get(super->s_feature_incompat);
	fs->feature_ro_compat = le32_get(super->s_feature_ro_compat);
	e = super_accept_checksums(fs, super);
	if (!e)
		e = super_accept_blocks(fs, super, volume_bytes);
	if (!e)
		e = super_accept_inodes(fs, super);
	if (!e)
		e = super_accept_groups(fs, super);
	return e;
}

bool ext4_blocks_valid(const struct ext4 *fs, fsblk_t first, uint64_t count)
{
	return first >= fs->first_data_block && first > 0 && first < fs->blocks &&
	       count <= fs->blocks - first;
}

/*
 * mke2fs writes the sum down since 1.42; for older file systems it is counted as the kernel does.
 * With bigalloc, metadata that shares a cluster is counted in blocks here, a little less.
 */
void ext4_super_count_overhead(struct ext4 *fs, fsblk_t journal_blocks)
{
	uint64_t clusters = le32_get(fs->super.s_overhead_clusters), blocks, supers = 0;
	uint32_t per_block = fs->block_bytes / fs->desc_bytes;
	bool meta = ext4_has_incompat(fs, EXT4_INCOMPAT_META_BG);
	uint64_t linear = fs->desc_blocks, metas = 0;

	if (clusters) {
		fs->overhead_blocks = MIN(clusters << fs->cluster_bits, fs->blocks);
		return;
	}
	for (group_t g = 0; g < fs->groups; g++)
		supers += ext4_group_has_super(fs, g);
	if (meta) {
		linear = le32_get(fs->super.s_first_meta_bg);
		/* A meta group's block of descriptors stands in its first, second and last group.
		 */
		for (uint64_t m = linear; m < fs->desc_blocks; m++) {
			uint64_t rest = fs->groups - m * per_block;
			metas += MIN(rest, 2u) + (per_block > 2 && rest >= per_block);
		}
	}
	blocks = fs->first_data_block + metas +
		 supers * (1 + linear + le16_get(fs->super.s_reserved_gdt_blocks)) +
		 (uint64_t)fs->groups * (fs->inode_table_blocks + 2ull) + journal_blocks;
	fs->overhead_blocks = MIN(blocks, fs->blocks);
}
