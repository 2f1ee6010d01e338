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
	EXT4_KIND_BLOCK_BITMAP,
	EXT4_KIND_INODE_BITMAP,
};

/*
 * What is needed of a group descriptor; verified by group.c. What changes while writing is changed
 * under the group's lock (alloc_int.h), after the descriptor on disk; it is read without, as a
 * hint, or to know which part of the inode table may be looked at.
 */
struct ext4_group {
	fsblk_t block_bitmap, inode_bitmap, inode_table;
	uint32_t free_blocks;           /* clusters, at the mount */
	_Atomic uint32_t inodes_unused; /* at the table's end: never used, may hold anything */
	_Atomic uint32_t flags;         /* EXT4_BG_* */
	_Atomic uint32_t free_inodes, used_dirs;
};

struct ext4 {
	struct ext4_options options;
	struct cache *cache;
	struct ext4_super super; /* a copy of the disk's, after replay */
	struct ext4_info info;

	uint32_t block_bytes, block_bits;
	uint32_t inode_bytes;
	uint32_t blocks_per_group, clusters_per_group, inodes_per_group;
	uint32_t cluster_blocks, cluster_bits; /* 1 and 0 without bigalloc */
	uint32_t desc_bytes, desc_blocks, inode_table_blocks;
	group_t groups;
	fsblk_t blocks, first_data_block;
	inum_t inodes, first_inum; /* first_inum: the first that is not reserved */
	uint32_t feature_compat, feature_incompat, feature_ro_compat;
	bool csum;          /* metadata_csum */
	uint32_t csum_seed; /* crc32c of the uuid, or s_checksum_seed */
	uint32_t hash_seed[4];
	bool hash_unsigned;
	struct ext4_group *group;            /* [groups], verified at mount */
	uint64_t free_clusters, free_inodes; /* sums over the descriptors */
	uint64_t overhead_blocks;            /* super.c; what statfs leaves out */

	struct journal *journal;  /* NULL: the mount is read-only */
	struct ext4_alloc *alloc; /* alloc.c; NULL: the mount is read-only */
	/* Guards the superblock's block and s_last_orphan in `super`. */
	struct mutex super_lock;
	struct list orphans GUARDED_BY(super_token); /* orphan.c; each with a reference */
	struct mutex xattr_lock; /* reference counts of attribute blocks, and their checksums */

	struct ext4_inode_cache *inode_cache;       /* inode.c */
	struct ext4_readahead_pool *readahead_pool; /* readahead.c */
	_Atomic int64_t map_runs;                   /* map.c: cached in all inodes */
	_Atomic bool index_warned;                  /* name.c: a damaged index was logged */
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
	uint64_t map_changes GUARDED_BY(extent_token); /* counts changes of the tree on disk */
	uint32_t csum_seed;                            /* crc32c(fs seed, inum, generation) */
	struct ext4_attr attr;                         /* decoded from raw */
	/*
	 * inode_bytes as on disk, changed only under map_lock exclusive, and zeros up to the size
	 * of struct ext4_disk_inode, so that its fields can be read in a 128-byte inode too.
	 */
	uint8_t *raw;
	/*
	 * Of a regular file: the size that the disk may show, which never passes written data,
	 * while attr.size_bytes is what programs see. map_lock.
	 */
	uint64_t disk_size_bytes;
	uint32_t extra_bytes; /* i_extra_isize, verified; 0 in an inode of 128 bytes */
	_Atomic(struct ext4_readahead *) readahead; /* readahead.c; NULL until a stream is seen */
	_Atomic uint64_t expected_offset;           /* where a sequential reader would go on */
	struct list orphan_link GUARDED_BY(super_token); /* alone: not on the list */
	bool orphan_stuck GUARDED_BY(super_token);       /* its deletion failed and is left */
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

/* --- super.c, feature.c, group.c ---------------------------------------------------------------
 */
/* Reads the primary superblock from the volume, as it stands there (no overlay). */
enum err ext4_super_read(struct volume *v, struct ext4_super *out) must_check;
/* Verifies it and fills the geometry of fs. ERR_CHECKSUM, ERR_EXT4_*, ERR_DEV_SHORT. */
enum err ext4_super_accept(struct ext4 *fs, const struct ext4_super *super, uint64_t volume_bytes)
	must_check;
/* Groups that hold a copy of superblock and descriptors. */
bool ext4_group_has_super(const struct ext4 *fs, group_t group);
fsblk_t ext4_group_first_block(const struct ext4 *fs, group_t group);
uint32_t ext4_group_blocks(const struct ext4 *fs, group_t group); /* the last may be short */
/* Where the group's descriptor lies; *offset_bytes is within that block. */
fsblk_t ext4_group_desc_block(const struct ext4 *fs, group_t group, uint32_t *offset_bytes);
/* Blocks from the group's first on that hold a superblock and descriptors, in use or reserved. */
uint32_t ext4_group_base_blocks(const struct ext4 *fs, group_t group);
/* Fills in what the kernel's statfs calls overhead: blocks that never hold a file's data. */
void ext4_super_count_overhead(struct ext4 *fs, fsblk_t journal_blocks);

/* ERR_EXT4_FEATURE, with the feature's name in the detail, for what cannot be read. */
enum err ext4_feature_check(const struct ext4_super *super) must_check;
/* The names as dumpe2fs prints them; cut at a name's end when there is no room. */
void ext4_feature_names(const struct ext4_super *super, char *buf, size_t room);
/* Adds to info every reason in superblock and volume why writing would be refused. */
void ext4_feature_reasons(const struct ext4 *fs, struct ext4_info *info);
void ext4_reason_add(struct ext4_info *info, const char *fmt, ...) printf_like(2, 3);

enum { EXT4_GROUPS_ALL = UINT32_MAX };
/* Reads and verifies all descriptors, or only the one of `group`, into a new fs->group. */
enum err ext4_groups_load(struct ext4 *fs, group_t group) must_check;

/*
 * --- csum.c -----------------------------------------------------------------------------------
 * _valid: true when the checksum is right or the file system has none. _set: does nothing there.
 */
uint32_t ext4_csum_super(const struct ext4_super *super);
void ext4_csum_group_set(const struct ext4 *fs, group_t group, struct ext4_disk_group *desc);
/* The crc32c of a bitmap's first `bits` bits; descriptors of 32 bytes keep the low half of it. */
uint32_t ext4_csum_bitmap(const struct ext4 *fs, const uint8_t *bitmap, uint32_t bits);
void ext4_csum_inode_set(struct ext4_inode *inode); /* in raw */
bool ext4_csum_group_valid(
	const struct ext4 *fs, group_t group, const struct ext4_disk_group *desc);
uint32_t ext4_csum_inode_seed(const struct ext4 *fs, inum_t inum, uint32_t generation);
bool ext4_csum_inode_valid(const struct ext4_inode *inode);
bool ext4_csum_extent_valid(const struct ext4_inode *inode, const uint8_t *node);
/* In a node that is a block of its own; its eh_max leaves room for the tail. */
void ext4_csum_extent_set(const struct ext4_inode *inode, uint8_t *node);

/* --- inode.c ------------------------------------------------------------------------------------
 */
enum err ext4_inode_cache_create(struct ext4 *fs) must_check;
void ext4_inode_cache_destroy(struct ext4 *fs); /* no references may be left (ensure) */
/* ext4_inode_get without the refusal of reserved numbers: for the journal. */
enum err ext4_inode_get_special(struct ext4 *fs, inum_t inum, struct ext4_inode **out) must_check;
void ext4_inode_ref(struct ext4_inode *inode); /* one more; the caller has one */
/* A new inode in memory, zeroed, with one reference, that no number leads to yet. ERR_NOMEM. */
enum err ext4_inode_create(struct ext4 *fs, struct ext4_inode **out) must_check;
/* From now on its number leads to it; false: to another one already. */
bool ext4_inode_publish(struct ext4_inode *inode) must_check;
/* No longer: it was deleted, or never published, and goes with its last reference. */
void ext4_inode_unpublish(struct ext4_inode *inode);
/* As ext4_inode_get, for an inode of the orphan list, which may have no links. At mount only. */
enum err ext4_inode_get_orphan(struct ext4 *fs, inum_t inum, struct ext4_inode **out) must_check;
/* Where it is in memory: with one more reference; else NULL. */
struct ext4_inode *ext4_inode_find(struct ext4 *fs, inum_t inum);
bool ext4_inode_is_cached(struct ext4 *fs, inum_t inum); /* referenced or idle */
/* Where an inode stands in its table. */
fsblk_t ext4_inode_table_block(const struct ext4 *fs, inum_t inum, uint32_t *offset_bytes);
/*
 * Writes an inode's bytes, or zeros for NULL, in its pinned table block, under the lock that
 * keeps readers of these bytes off. The block is in the caller's handle.
 */
void ext4_inode_table_put(struct ext4 *fs, inum_t inum, struct cache_block *b, const uint8_t *raw);
/* decode.c: raw to attr. ERR_STALE: not in use, or, where it is no orphan, without links. */
enum err ext4_inode_decode(struct ext4_inode *inode, bool orphan) must_check;
/* ERR_CORRUPT with a detail that names the inode: "inode 12: <text>". */
void ext4_format_damage(const struct ext4 *fs, inum_t inum, const char *fmt, ...) printf_like(3, 4);
/* Returns ERR_CORRUPT; a macro for the reason of err_set_detail(). */
#define ext4_corrupt(...) (ext4_format_damage(__VA_ARGS__), err_same(ERR_CORRUPT))

/* --- map.c, extent.c, indirect.c ------------------------------------------------------------- */
/* One past the largest block number that a file can have. */
#define EXT4_LBLK_END UINT32_MAX

/* True when [first, first + count) lies inside the file system's data blocks. */
bool ext4_blocks_valid(const struct ext4 *fs, fsblk_t first, uint64_t count);

/*
 * The run that covers `logical`: mapped, unwritten or a hole, cut to at most `limit` blocks.
 * Extents, indirect blocks; cached per inode. The caller holds the inode lock, shared is enough.
 * Not for inline data. Blocks for I/O when the part of the map is not in memory.
 */
enum err ext4_map(struct ext4_inode *inode, lblk_t logical, uint32_t limit, struct ext4_run *out)
	must_check;
/* Maps one block of a directory (or EA inode, ...) and pins it. A hole is ERR_CORRUPT. */
enum err ext4_map_block(struct ext4_inode *inode, lblk_t logical, struct cache_block **out)
	must_check;
/* True when all inodes together cache more of their maps than they should. */
bool ext4_map_crowded(const struct ext4 *fs);
/* Forgets the cached map; the inode has no references. */
void ext4_map_forget(struct ext4_inode *inode);
/*
 * The map has changed on disk: `run` is what is there now, a hole or blocks. In the critical
 * section of the change, so that nobody sees one without the other.
 */
void ext4_map_changed(struct ext4_inode *inode, struct ext4_run run) REQUIRES(extent_token);

/* Part of the map, as it is read from one leaf: runs by rising logical without gaps. */
struct ext4_runs {
	struct ext4_run *run; /* malloc'ed; owned by the caller */
	size_t count, room;
};
/* Appends, merging with the last run where both continue each other. */
enum err ext4_runs_add(struct ext4_runs *runs, struct ext4_run run) must_check;
/* The leaf that holds `logical`, with the holes in and around it. */
enum err ext4_extent_load(struct ext4_inode *inode, lblk_t logical, struct ext4_runs *out)
	must_check EXCLUDES(extent_token);
enum err ext4_indirect_load(struct ext4_inode *inode, lblk_t logical, struct ext4_runs *out)
	must_check;
/* Checks the tree's root in i_block: ERR_CORRUPT. For the inode's decoder. */
enum err ext4_extent_check_root(const struct ext4_inode *inode) must_check;
/* Blocks that 12 direct and 1 to 3 levels of indirect slots can map. */
uint64_t ext4_indirect_blocks_max(const struct ext4 *fs);

/* --- file.c, readahead.c --------------------------------------------------------------------- */
/*
 * Reads whole blocks of a file into buffers, holes as zeros. The buffers' total is a multiple of
 * the block size. The caller holds the inode lock, shared.
 */
enum err ext4_file_read_blocks(
	struct ext4_inode *inode, lblk_t first, const struct iovec *iov, int iov_count) must_check;
/* The first len bytes of a file through the metadata cache (values of EA inodes). */
enum err ext4_inode_read_all(struct ext4_inode *inode, void *buf, size_t len) must_check;

/* Adds a part that lies in a read-ahead window. */
void ext4_read_hold_window(struct ext4_read *r, void *window, void *bytes, size_t len);

enum err ext4_readahead_start(struct ext4 *fs) must_check;
/* Stops the helpers and drops every window; readers must be gone. */
void ext4_readahead_stop(struct ext4 *fs);
/*
 * Notes a read and, where it continues a stream, has the next window fetched. True: the whole
 * range was in windows and *out holds it. The caller holds the inode lock, shared; may wait for
 * a window that is being fetched.
 */
bool ext4_readahead_take(
	struct ext4_inode *inode, uint64_t offset_bytes, size_t len_bytes, struct ext4_read *out);
void ext4_readahead_release(struct ext4_inode *inode, void *window); /* a part of *out is done */
void ext4_readahead_forget(struct ext4_inode *inode);                /* the inode is going away */

/* --- inline.c, xattr.c ----------------------------------------------------------------------- */
/*
 * The inline data of an inode past i_block: the value of system.data, inside the inode. ERR_NODATA:
 * there is none. The caller holds the inode lock, shared.
 */
enum err ext4_inline_tail(struct ext4_inode *inode, const uint8_t **bytes, size_t *len) must_check;

#endif
