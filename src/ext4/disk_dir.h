/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * disk_dir: the bytes of directories (entries, hash index, checksum tails), of extended attributes
 * and of access control lists.
 *
 * Source: the kernel's Documentation/filesystems/ext4 (directory.rst, attributes.rst,
 * checksums.rst) and fs/ext4/acl.h for the lists. Fields carry the kernel's names. Everything is
 * little-endian; nothing here is aligned or trusted.
 */
#ifndef CRYPTFS_EXT4_DISK_DIR_H
#define CRYPTFS_EXT4_DISK_DIR_H

#include "base.h"

/* --- directories ----------------------------------------------------------------------------- */

/*
 * One entry; the next one starts rec_len bytes on, and the last one ends with the block. inode 0:
 * unused. Without the filetype feature the type byte is the upper half of a 16-bit name length
 * that never needs it.
 */
struct ext4_disk_dirent {
	le32 inode;
	le16 rec_len; /* in 64 KiB blocks bits 16 and 17 stand in bits 0 and 1 */
	uint8_t name_len;
	uint8_t file_type;
	char name[];
};
static_assert(sizeof(struct ext4_disk_dirent) == 8, "directory entry");

enum {
	EXT4_DIRENT_BYTES_MIN = 12, /* a name of one byte, rounded up */
	EXT4_DIR_TAIL_TYPE = 0xde,
};

/* file_type; the values are indices of a table in dir.c. */
enum { EXT4_FT_DIR = 2, EXT4_FT_SYMLINK = 7 };

/* With metadata_csum the last entry of a block of names, unused to whoever does not know it. */
struct ext4_dir_tail {
	le32 det_reserved_zero1;
	le16 det_rec_len; /* 12 */
	uint8_t det_reserved_zero2;
	uint8_t det_reserved_ft; /* EXT4_DIR_TAIL_TYPE */
	le32 det_checksum;
};
static_assert(sizeof(struct ext4_dir_tail) == 12, "directory tail");

/* The hash index: a root in the directory's block 0, behind "." and "..", whose rec_len covers it.
 */
struct ext4_dx_root_info {
	le32 reserved_zero;
	uint8_t hash_version;    /* EXT4_HASH_LEGACY to EXT4_HASH_TEA, never the unsigned ones */
	uint8_t info_length;     /* 8 */
	uint8_t indirect_levels; /* index nodes between the root and a leaf */
	uint8_t unused_flags;
};
static_assert(sizeof(struct ext4_dx_root_info) == 8, "index root");
enum {
	EXT4_DX_ROOT_INFO_OFFSET = 24,   /* behind "." and "..", 12 bytes each */
	EXT4_DX_NODE_ENTRIES_OFFSET = 8, /* behind an unused entry that covers the block */
};

struct ext4_dx_entry {
	le32 hash;  /* the smallest in the block; bit 0: the block before may end with the same */
	le32 block; /* 28 bits: a block of the directory */
};
static_assert(sizeof(struct ext4_dx_entry) == 8, "index entry");
enum { EXT4_DX_BLOCK_MASK = 0x0fffffff };

/* Lies in the first entry's hash, which is implied by the entry above. */
struct ext4_dx_countlimit {
	le16 limit; /* entries that fit */
	le16 count; /* in use, this one with them */
};
static_assert(sizeof(struct ext4_dx_countlimit) == 4, "index count and limit");

/* With metadata_csum behind limit entries. */
struct ext4_dx_tail {
	le32 dt_reserved;
	le32 dt_checksum;
};
static_assert(sizeof(struct ext4_dx_tail) == 8, "index tail");

enum ext4_hash_version {
	EXT4_HASH_LEGACY,
	EXT4_HASH_HALF_MD4,
	EXT4_HASH_TEA,
	EXT4_HASH_LEGACY_UNSIGNED,
	EXT4_HASH_HALF_MD4_UNSIGNED,
	EXT4_HASH_TEA_UNSIGNED,
	EXT4_HASH_COUNT,
	EXT4_HASH_TO_UNSIGNED = EXT4_HASH_LEGACY_UNSIGNED - EXT4_HASH_LEGACY,
};

/* --- extended attributes --------------------------------------------------------------------- */
enum {
	EXT4_XATTR_MAGIC = (int)0xea020000,
	EXT4_XATTR_VALUE_BYTES_MAX = 1 << 24,
	EXT4_XATTR_NAME_BYTES_MAX = 255,
	EXT4_XATTR_ROUND = 4, /* entries and values start at multiples of it */
};

/* e_name_index: which prefix was cut off the name. */
enum {
	EXT4_XATTR_INDEX_USER = 1,
	EXT4_XATTR_INDEX_ACL_ACCESS = 2,
	EXT4_XATTR_INDEX_ACL_DEFAULT = 3,
	EXT4_XATTR_INDEX_TRUSTED = 4,
	EXT4_XATTR_INDEX_SECURITY = 6,
	EXT4_XATTR_INDEX_SYSTEM = 7, /* system.data: inline data, shown to nobody */
	EXT4_XATTR_INDEX_HURD = 10,
};

/* Between the inode's extra fields and the first entry; value offsets count from there. */
struct ext4_xattr_ibody_header {
	le32 h_magic;
};
/* At the start of an attribute block; value offsets count from the block's start. */
struct ext4_xattr_header {
	le32 h_magic;
	le32 h_refcount;
	le32 h_blocks; /* 1 */
	le32 h_hash;
	le32 h_checksum;
	le32 h_reserved[3];
};
struct ext4_xattr_entry {
	uint8_t e_name_len;
	uint8_t e_name_index;
	le16 e_value_offs;
	le32 e_value_inum; /* of an EA inode; 0: the value is here */
	le32 e_value_size;
	le32 e_hash; /* of name and value; 0 in most inodes */
	char e_name[];
};
static_assert(sizeof(struct ext4_xattr_ibody_header) == 4, "attributes in an inode");
static_assert(sizeof(struct ext4_xattr_header) == 32, "attribute block");
static_assert(sizeof(struct ext4_xattr_entry) == 16, "attribute");

/* --- access control lists -------------------------------------------------------------------- */
enum { EXT4_ACL_VERSION = 1 };

struct ext4_acl_header {
	le32 a_version;
};
/* The id is left out unless the tag is a named user or group. */
struct ext4_acl_entry {
	le16 e_tag;
	le16 e_perm;
	le32 e_id;
};
enum { EXT4_ACL_ENTRY_BYTES_SHORT = 4 };
static_assert(sizeof(struct ext4_acl_header) == 4, "ACL");
static_assert(sizeof(struct ext4_acl_entry) == 8, "ACL entry");

#endif
