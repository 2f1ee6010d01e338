/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * disk: the bytes of an ext2, ext3 or ext4 file system: superblock, group descriptor, inode and
 * extent tree. Names, extended attributes and the hash index stand in disk_dir.h.
 *
 * Source: the kernel's Documentation/filesystems/ext4 (super.rst, group_descr.rst, inodes.rst,
 * ifork.rst). Fields carry the kernel's names so that they can be looked up. Everything is
 * little-endian; nothing here is aligned or trusted.
 */
#ifndef CRYPTFS_EXT4_DISK_H
#define CRYPTFS_EXT4_DISK_H

#include "base.h"

enum {
	EXT4_SUPER_OFFSET_BYTES = 1024,
	EXT4_SUPER_BYTES = 1024,
	EXT4_SUPER_MAGIC = 0xef53,
	EXT4_BLOCK_BITS_MIN = 10,
	EXT4_BLOCK_BITS_MAX = 16,
	EXT4_DESC_BYTES_MIN = 32,
	EXT4_DESC_BYTES_64BIT = 64,
	EXT4_INODE_BYTES_OLD = 128, /* the whole inode of rev 0, and where extra fields start */
	EXT4_FIRST_INUM_OLD = 11,
	EXT4_CHECKSUM_CRC32C = 1, /* the only s_checksum_type */
};

/* Inodes with a fixed number. */
enum {
	EXT4_INUM_BAD_BLOCKS = 1,
	EXT4_INUM_USER_QUOTA = 3,
	EXT4_INUM_GROUP_QUOTA = 4,
	EXT4_INUM_RESIZE = 7,
	EXT4_INUM_JOURNAL = 8,
};

/* s_state */
enum { EXT4_STATE_CLEAN = 1, EXT4_STATE_ERRORS = 2, EXT4_STATE_FAST_COMMIT = 0x20 };
/* s_flags */
enum { EXT4_SUPER_SIGNED_HASH = 1, EXT4_SUPER_UNSIGNED_HASH = 2 };

/* s_feature_compat */
enum {
	EXT4_COMPAT_DIR_PREALLOC = 0x1,
	EXT4_COMPAT_IMAGIC_INODES = 0x2,
	EXT4_COMPAT_HAS_JOURNAL = 0x4,
	EXT4_COMPAT_EXT_ATTR = 0x8,
	EXT4_COMPAT_RESIZE_INODE = 0x10,
	EXT4_COMPAT_DIR_INDEX = 0x20,
	EXT4_COMPAT_LAZY_BG = 0x40,
	EXT4_COMPAT_EXCLUDE_BITMAP = 0x100,
	EXT4_COMPAT_SPARSE_SUPER2 = 0x200,
	EXT4_COMPAT_FAST_COMMIT = 0x400,
	EXT4_COMPAT_STABLE_INODES = 0x800,
	EXT4_COMPAT_ORPHAN_FILE = 0x1000,
};
/* s_feature_incompat */
enum {
	EXT4_INCOMPAT_COMPRESSION = 0x1,
	EXT4_INCOMPAT_FILETYPE = 0x2,
	EXT4_INCOMPAT_RECOVER = 0x4,
	EXT4_INCOMPAT_JOURNAL_DEV = 0x8,
	EXT4_INCOMPAT_META_BG = 0x10,
	EXT4_INCOMPAT_EXTENTS = 0x40,
	EXT4_INCOMPAT_64BIT = 0x80,
	EXT4_INCOMPAT_MMP = 0x100,
	EXT4_INCOMPAT_FLEX_BG = 0x200,
	EXT4_INCOMPAT_EA_INODE = 0x400,
	EXT4_INCOMPAT_DIRDATA = 0x1000,
	EXT4_INCOMPAT_CSUM_SEED = 0x2000,
	EXT4_INCOMPAT_LARGEDIR = 0x4000,
	EXT4_INCOMPAT_INLINE_DATA = 0x8000,
	EXT4_INCOMPAT_ENCRYPT = 0x10000,
	EXT4_INCOMPAT_CASEFOLD = 0x20000,
};
/* s_feature_ro_compat */
enum {
	EXT4_RO_COMPAT_SPARSE_SUPER = 0x1,
	EXT4_RO_COMPAT_LARGE_FILE = 0x2,
	EXT4_RO_COMPAT_BTREE_DIR = 0x4,
	EXT4_RO_COMPAT_HUGE_FILE = 0x8,
	EXT4_RO_COMPAT_GDT_CSUM = 0x10,
	EXT4_RO_COMPAT_DIR_NLINK = 0x20,
	EXT4_RO_COMPAT_EXTRA_ISIZE = 0x40,
	EXT4_RO_COMPAT_HAS_SNAPSHOT = 0x80,
	EXT4_RO_COMPAT_QUOTA = 0x100,
	EXT4_RO_COMPAT_BIGALLOC = 0x200,
	EXT4_RO_COMPAT_METADATA_CSUM = 0x400,
	EXT4_RO_COMPAT_REPLICA = 0x800,
	EXT4_RO_COMPAT_READONLY = 0x1000,
	EXT4_RO_COMPAT_PROJECT = 0x2000,
	EXT4_RO_COMPAT_SHARED_BLOCKS = 0x4000,
	EXT4_RO_COMPAT_VERITY = 0x8000,
	EXT4_RO_COMPAT_ORPHAN_PRESENT = 0x10000,
};

struct ext4_super {
	le32 s_inodes_count;
	le32 s_blocks_count_lo;
	le32 s_r_blocks_count_lo;
	le32 s_free_blocks_count_lo; /* clusters with bigalloc */
	le32 s_free_inodes_count;
	le32 s_first_data_block;
	le32 s_log_block_size;   /* block size is 1024 << this */
	le32 s_log_cluster_size; /* cluster size is 1024 << this */
	le32 s_blocks_per_group;
	le32 s_clusters_per_group;
	le32 s_inodes_per_group;
	le32 s_mtime;
	le32 s_wtime;
	le16 s_mnt_count;
	le16 s_max_mnt_count;
	le16 s_magic;
	le16 s_state;
	le16 s_errors;
	le16 s_minor_rev_level;
	le32 s_lastcheck;
	le32 s_checkinterval;
	le32 s_creator_os;
	le32 s_rev_level; /* 0: the fields from here to s_feature_ro_compat have old defaults */
	le16 s_def_resuid;
	le16 s_def_resgid;
	le32 s_first_ino;
	le16 s_inode_size;
	le16 s_block_group_nr;
	le32 s_feature_compat;
	le32 s_feature_incompat;
	le32 s_feature_ro_compat;
	uint8_t s_uuid[16];
	char s_volume_name[16];
	char s_last_mounted[64];
	le32 s_algorithm_usage_bitmap;
	uint8_t s_prealloc_blocks;
	uint8_t s_prealloc_dir_blocks;
	le16 s_reserved_gdt_blocks;
	uint8_t s_journal_uuid[16];
	le32 s_journal_inum;
	le32 s_journal_dev;
	le32 s_last_orphan;
	le32 s_hash_seed[4];
	uint8_t s_def_hash_version;
	uint8_t s_jnl_backup_type;
	le16 s_desc_size;
	le32 s_default_mount_opts;
	le32 s_first_meta_bg;
	le32 s_mkfs_time;
	le32 s_jnl_blocks[17];
	le32 s_blocks_count_hi;
	le32 s_r_blocks_count_hi;
	le32 s_free_blocks_count_hi;
	le16 s_min_extra_isize;
	le16 s_want_extra_isize;
	le32 s_flags;
	le16 s_raid_stride;
	le16 s_mmp_update_interval;
	le64 s_mmp_block;
	le32 s_raid_stripe_width;
	uint8_t s_log_groups_per_flex;
	uint8_t s_checksum_type;
	uint8_t s_encryption_level;
	uint8_t s_reserved_pad;
	le64 s_kbytes_written;
	le32 s_snapshot_inum;
	le32 s_snapshot_id;
	le64 s_snapshot_r_blocks_count;
	le32 s_snapshot_list;
	le32 s_error_count;
	le32 s_first_error_time;
	le32 s_first_error_ino;
	le64 s_first_error_block;
	uint8_t s_first_error_func[32];
	le32 s_first_error_line;
	le32 s_last_error_time;
	le32 s_last_error_ino;
	le32 s_last_error_line;
	le64 s_last_error_block;
	uint8_t s_last_error_func[32];
	uint8_t s_mount_opts[64];
	le32 s_usr_quota_inum;
	le32 s_grp_quota_inum;
	le32 s_overhead_clusters;
	le32 s_backup_bgs[2]; /* sparse_super2 */
	uint8_t s_encrypt_algos[4];
	uint8_t s_encrypt_pw_salt[16];
	le32 s_lpf_ino;
	le32 s_prj_quota_inum;
	le32 s_checksum_seed;
	uint8_t s_wtime_hi;
	uint8_t s_mtime_hi;
	uint8_t s_mkfs_time_hi;
	uint8_t s_lastcheck_hi;
	uint8_t s_first_error_time_hi;
	uint8_t s_last_error_time_hi;
	uint8_t s_first_error_errcode;
	uint8_t s_last_error_errcode;
	le16 s_encoding;
	le16 s_encoding_flags;
	le32 s_orphan_file_inum;
	le32 s_reserved[94];
	le32 s_checksum; /* crc32c(~0) of all before */
};
static_assert(sizeof(struct ext4_super) == EXT4_SUPER_BYTES, "superblock");
static_assert(offsetof(struct ext4_super, s_magic) == 0x38, "superblock");
static_assert(offsetof(struct ext4_super, s_feature_compat) == 0x5c, "superblock");
static_assert(offsetof(struct ext4_super, s_journal_uuid) == 0xd0, "superblock");
static_assert(offsetof(struct ext4_super, s_desc_size) == 0xfe, "superblock");
static_assert(offsetof(struct ext4_super, s_blocks_count_hi) == 0x150, "superblock");
static_assert(offsetof(struct ext4_super, s_mmp_block) == 0x168, "superblock");
static_assert(offsetof(struct ext4_super, s_kbytes_written) == 0x178, "superblock");
static_assert(offsetof(struct ext4_super, s_mount_opts) == 0x200, "superblock");
static_assert(offsetof(struct ext4_super, s_overhead_clusters) == 0x248, "superblock");
static_assert(offsetof(struct ext4_super, s_checksum_seed) == 0x270, "superblock");
static_assert(offsetof(struct ext4_super, s_orphan_file_inum) == 0x280, "superblock");
static_assert(offsetof(struct ext4_super, s_checksum) == 0x3fc, "superblock");

/* bg_flags */
enum {
	EXT4_BG_INODE_UNINIT = 1, /* no inode in use; the table may hold anything */
	EXT4_BG_BLOCK_UNINIT = 2,
	EXT4_BG_INODE_ZEROED = 4,
};

/* The first 32 bytes stand alone where s_desc_size says so. */
struct ext4_disk_group {
	le32 bg_block_bitmap_lo;
	le32 bg_inode_bitmap_lo;
	le32 bg_inode_table_lo;
	le16 bg_free_blocks_count_lo;
	le16 bg_free_inodes_count_lo;
	le16 bg_used_dirs_count_lo;
	le16 bg_flags;
	le32 bg_exclude_bitmap_lo;
	le16 bg_block_bitmap_csum_lo;
	le16 bg_inode_bitmap_csum_lo;
	le16 bg_itable_unused_lo;
	le16 bg_checksum;
	le32 bg_block_bitmap_hi;
	le32 bg_inode_bitmap_hi;
	le32 bg_inode_table_hi;
	le16 bg_free_blocks_count_hi;
	le16 bg_free_inodes_count_hi;
	le16 bg_used_dirs_count_hi;
	le16 bg_itable_unused_hi;
	le32 bg_exclude_bitmap_hi;
	le16 bg_block_bitmap_csum_hi;
	le16 bg_inode_bitmap_csum_hi;
	le32 bg_reserved;
};
static_assert(sizeof(struct ext4_disk_group) == EXT4_DESC_BYTES_64BIT, "group descriptor");
static_assert(offsetof(struct ext4_disk_group, bg_checksum) == 0x1e, "group descriptor");
static_assert(offsetof(struct ext4_disk_group, bg_block_bitmap_hi) == 0x20, "group descriptor");
static_assert(offsetof(struct ext4_disk_group, bg_itable_unused_hi) == 0x32, "group descriptor");

/* i_flags, as lsattr shows them */
enum {
	EXT4_SECRM_FL = 0x1,
	EXT4_UNRM_FL = 0x2,
	EXT4_COMPR_FL = 0x4,
	EXT4_SYNC_FL = 0x8,
	EXT4_IMMUTABLE_FL = 0x10,
	EXT4_APPEND_FL = 0x20,
	EXT4_NODUMP_FL = 0x40,
	EXT4_NOATIME_FL = 0x80,
	EXT4_ENCRYPT_FL = 0x800,
	EXT4_INDEX_FL = 0x1000,
	EXT4_JOURNAL_DATA_FL = 0x4000,
	EXT4_NOTAIL_FL = 0x8000,
	EXT4_DIRSYNC_FL = 0x10000,
	EXT4_TOPDIR_FL = 0x20000,
	EXT4_HUGE_FILE_FL = 0x40000, /* i_blocks counts file system blocks */
	EXT4_EXTENTS_FL = 0x80000,
	EXT4_VERITY_FL = 0x100000,
	EXT4_EA_INODE_FL = 0x200000,
	EXT4_DAX_FL = 0x2000000,
	EXT4_INLINE_DATA_FL = 0x10000000,
	EXT4_PROJINHERIT_FL = 0x20000000,
	EXT4_CASEFOLD_FL = 0x40000000,
};

enum {
	EXT4_BLOCK_SLOTS = 15, /* i_block as an indirect map: 12 direct, then 1, 2 and 3 levels */
	EXT4_DIRECT_SLOTS = 12,
	EXT4_I_BLOCK_BYTES = 60,
};

struct ext4_disk_inode {
	le16 i_mode;
	le16 i_uid_lo;
	le32 i_size_lo;
	le32 i_atime;
	le32 i_ctime; /* of an EA inode: high half of its reference count */
	le32 i_mtime;
	le32 i_dtime; /* deleted; or the next inode of the orphan list */
	le16 i_gid_lo;
	le16 i_links_count;
	le32 i_blocks_lo;
	le32 i_flags;
	le32 i_version_lo;
	uint8_t i_block[EXT4_I_BLOCK_BYTES]; /* extents, indirect map, symlink, inline data, rdev */
	le32 i_generation;
	le32 i_file_acl_lo;
	le32 i_size_high;
	le32 i_obso_faddr;
	le16 i_blocks_high;
	le16 i_file_acl_high;
	le16 i_uid_high;
	le16 i_gid_high;
	le16 i_checksum_lo;
	le16 i_reserved;
	/* From here on only in inodes of more than 128 bytes, and as far as i_extra_isize says. */
	le16 i_extra_isize; /* bytes of fields behind the first 128 */
	le16 i_checksum_hi;
	le32 i_ctime_extra; /* two bits of epoch, 30 of nanoseconds */
	le32 i_mtime_extra;
	le32 i_atime_extra;
	le32 i_crtime;
	le32 i_crtime_extra;
	le32 i_version_hi;
	le32 i_projid;
};
static_assert(sizeof(struct ext4_disk_inode) == 160, "inode");
static_assert(offsetof(struct ext4_disk_inode, i_block) == 0x28, "inode");
static_assert(offsetof(struct ext4_disk_inode, i_file_acl_lo) == 0x68, "inode");
static_assert(offsetof(struct ext4_disk_inode, i_checksum_lo) == 0x7c, "inode");
static_assert(offsetof(struct ext4_disk_inode, i_extra_isize) == 0x80, "inode");
static_assert(offsetof(struct ext4_disk_inode, i_projid) == 0x9c, "inode");

enum {
	EXT4_EXTENT_MAGIC = 0xf30a,
	EXT4_EXTENT_DEPTH_MAX = 5,
	EXT4_EXTENT_INIT_MAX = 32768, /* a longer ee_len is an unwritten extent of ee_len - this */
};

struct ext4_extent_header {
	le16 eh_magic;
	le16 eh_entries;
	le16 eh_max;
	le16 eh_depth;
	le32 eh_generation;
};
struct ext4_extent_index {
	le32 ei_block;
	le32 ei_leaf_lo;
	le16 ei_leaf_hi;
	le16 ei_unused;
};
struct ext4_extent {
	le32 ee_block;
	le16 ee_len;
	le16 ee_start_hi;
	le32 ee_start_lo;
};
/* Behind eh_max entries of a node that is a block of its own, with metadata_csum. */
struct ext4_extent_tail {
	le32 et_checksum;
};
static_assert(sizeof(struct ext4_extent_header) == 12, "extent header");
static_assert(sizeof(struct ext4_extent_index) == 12, "extent index");
static_assert(sizeof(struct ext4_extent) == 12, "extent");
static_assert(sizeof(struct ext4_extent_tail) == 4, "extent tail");

#endif
