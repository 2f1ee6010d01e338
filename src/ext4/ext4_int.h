/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the rooms of ext4 share: the mounted file system, an inode in memory, the map, checksums.
 */
#ifndef CRYPTFS_EXT4_INT_H
#define CRYPTFS_EXT4_INT_H

#include "ext4.h"
#include "disk.h"

/* What cache_block.verified says for the blocks that ext4 asks for. */
enum ext4_block_kind {
	EXT4_KIND_NONE,
	EXT4_KIND_EXTENT,   /* extent tree node */
	EXT4_KIND_INDIRECT, /* indirect block */
	EXT4_KIND_DIR_LEAF,
	EXT4_KIND_DIR_INDEX,
	EXT4_KIND_XATTR,
	EXT4_KIND_INODES, /* inode table; verified inode by inode, so never set on the block */
};

struct ext4_group; /* super.c */

struct ext4 {
	struct ext4_options options;
	struct cache *cache;
	struct ext4_super super; /* a copy of the disk's, after replay */
	struct ext4_info info;

	uint32_t block_bytes, block_bits;
	uint32_t inode_bytes;
	uint32_t blocks_per_group, clusters_per_group, inodes_per_group;
	uint32_t cluster_blocks; /* 1 without bigalloc */
	uint32_t desc_bytes;
	group_t groups;
	fsblk_t blocks, first_data_block;
	inum_t inodes;
	uint32_t feature_compat, feature_incompat, feature_ro_compat;
	bool csum;          /* metadata_csum */
	uint32_t csum_seed; /* crc32c of the uuid, or s_checksum_seed */
	uint32_t hash_seed[4];
	bool hash_unsigned;
	struct ext4_group *group; /* [groups], verified at mount */

	struct ext4_inode_cache *inode_cache; /* inode.c */
};

/* A run of the map: [logical, logical + count) lies at physical, or is a hole (physical 0). */
struct ext4_run {
	lblk_t logical;
	uint32_t count;
	fsblk_t physical;
	bool unwritten; /* allocated, reads as zeros */
};

struct ext4_map_cache; /* map.c: the extents of one inode, in memory */

struct ext4_inode {
	struct ext4 *fs;
	inum_t inum;
	struct rwlock lock;     /* rank inode: shared by readers */
	struct rwlock map_lock; /* rank extent: guards map; never held across I/O */
	struct ext4_map_cache *map GUARDED_BY(extent_token);
	uint32_t csum_seed;               /* crc32c(fs seed, inum, generation) */
	struct ext4_attr attr;            /* decoded from raw */
	uint8_t *raw;                     /* inode_bytes, as on disk; constant while referenced */
	struct ext4_readahead *readahead; /* readahead.c; NULL until a stream is seen */
	_Atomic uint64_t expected_offset; /* where a sequential reader would go on */
	/* private to inode.c */
	uint32_t refs;
	struct list hash_link, lru_link;
};

static inline bool ext4_has_compat(const struct ext4 *fs, uint32_t bit)
{
	return fs->feature_compat & bit;
}
static inline bool ext4_has_incompat(const struct ext4 *fs, uint32_t bit)
{
	return fs->feature_incompat & bit;
}
static inline bool ext4_has_ro_compat(const struct ext4 *fs, uint32_t bit)
{
	return fs->feature_ro_compat & bit;
}
static inline const struct ext4_disk_inode *ext4_inode_disk(const struct ext4_inode *inode)
{
	return (const struct ext4_disk_inode *)(const void *)inode->raw;
}

/* True when [first, first + count) lies inside the file system's data blocks. */
bool ext4_blocks_valid(const struct ext4 *fs, fsblk_t first, uint64_t count);

/*
 * The run that covers `logical`: mapped, unwritten or a hole, cut to at most `limit` blocks.
 * Extents, indirect blocks; cached per inode. The caller holds the inode lock, shared is enough.
 * Not for inline data.
 */
enum err ext4_map(struct ext4_inode *inode, lblk_t logical, uint32_t limit, struct ext4_run *out)
	must_check;
/* Maps one block of a directory (or EA inode, ...) and pins it. A hole is ERR_CORRUPT. */
enum err ext4_map_block(struct ext4_inode *inode, lblk_t logical, struct cache_block **out)
	must_check;
void ext4_map_cache_free(struct ext4_map_cache *m);

/* The inline data of an inode (i_block first, then system.data): xattr.c. ERR_NODATA: no second. */
enum err ext4_inline_tail(struct ext4_inode *inode, const uint8_t **bytes, size_t *len) must_check;

/* Reads the whole value of an EA inode (ea_inode feature), verified. */
enum err ext4_inode_read_all(struct ext4_inode *inode, void *buf, size_t len) must_check;

/* ERR_CORRUPT with a detail that names the inode: "inode 12: <text>". */
enum err ext4_corrupt(const struct ext4 *fs, inum_t inum, const char *fmt, ...) printf_like(3, 4);

#endif
