/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * jbd2's structures on disk. Everything is big-endian.
 *
 * Source: the kernel's Documentation/filesystems/ext4/journal.rst, checked against include/linux/
 * jbd2.h and e2fsprogs' lib/ext2fs/kernel-jbd.h for offsets; the head of a fast commit block is
 * from fs/ext4/fast_commit.h (little-endian, as all of ext4's own structures).
 */
#ifndef CRYPTFS_JOURNAL_DISK_H
#define CRYPTFS_JOURNAL_DISK_H

#include "base.h"

enum {
	JBD2_MAGIC = (int)0xc03b3998,

	/* block types */
	JBD2_DESCRIPTOR = 1,
	JBD2_COMMIT = 2,
	JBD2_SUPERBLOCK_V1 = 3,
	JBD2_SUPERBLOCK_V2 = 4,
	JBD2_REVOKE = 5,

	/* features */
	JBD2_COMPAT_CHECKSUM = 0x1,
	JBD2_INCOMPAT_REVOKE = 0x1,
	JBD2_INCOMPAT_64BIT = 0x2,
	JBD2_INCOMPAT_ASYNC_COMMIT = 0x4,
	JBD2_INCOMPAT_CSUM_V2 = 0x8,
	JBD2_INCOMPAT_CSUM_V3 = 0x10,
	JBD2_INCOMPAT_FAST_COMMIT = 0x20,
	JBD2_INCOMPAT_KNOWN = 0x3f,

	/* a tag's flags */
	JBD2_TAG_ESCAPE = 0x1,
	JBD2_TAG_SAME_UUID = 0x2,
	JBD2_TAG_LAST = 0x8,

	/* h_chksum_type, s_checksum_type */
	JBD2_CHKSUM_CRC32 = 1,
	JBD2_CHKSUM_CRC32C = 4,

	JBD2_FAST_COMMIT_BLOCKS_DEFAULT = 256,
	JBD2_UUID_BYTES = 16,

	FAST_COMMIT_TAG_HEAD = 0x9,
};

struct disk_header {
	be32 h_magic;
	be32 h_blocktype;
	be32 h_sequence;
};
static_assert(sizeof(struct disk_header) == 12, "header");

struct disk_super {
	struct disk_header s_header;
	be32 s_blocksize;
	be32 s_maxlen;
	be32 s_first;
	be32 s_sequence; /* of the first transaction in the log */
	be32 s_start;    /* where it starts; 0: the log is empty */
	be32 s_errno;
	/* From here on in version 2 only. */
	be32 s_feature_compat;
	be32 s_feature_incompat;
	be32 s_feature_ro_compat;
	uint8_t s_uuid[JBD2_UUID_BYTES];
	be32 s_nr_users;
	be32 s_dynsuper;
	be32 s_max_transaction;
	be32 s_max_trans_data;
	uint8_t s_checksum_type;
	uint8_t s_padding2[3];
	be32 s_num_fc_blks;
	be32 s_head;
	be32 s_padding[40];
	be32 s_checksum;
	uint8_t s_users[16 * 48];
};
static_assert(sizeof(struct disk_super) == 1024, "superblock");
static_assert(offsetof(struct disk_super, s_feature_compat) == 0x24, "superblock");
static_assert(offsetof(struct disk_super, s_uuid) == 0x30, "superblock");
static_assert(offsetof(struct disk_super, s_checksum_type) == 0x50, "superblock");
static_assert(offsetof(struct disk_super, s_num_fc_blks) == 0x54, "superblock");
static_assert(offsetof(struct disk_super, s_checksum) == 0xfc, "superblock");

/* A descriptor block is a header and tags. Without CSUM_V3 a tag is 8 bytes, 12 with 64BIT, and
 * two more with CSUM_V2, whatever these are for. A UUID follows a tag without SAME_UUID. */
struct disk_tag {
	be32 t_blocknr;
	be16 t_checksum; /* CSUM_V2: the low half */
	be16 t_flags;
	be32 t_blocknr_high; /* 64BIT */
};
static_assert(sizeof(struct disk_tag) == 12, "tag");

struct disk_tag3 {
	be32 t_blocknr;
	be32 t_flags;
	be32 t_blocknr_high;
	be32 t_checksum;
};
static_assert(sizeof(struct disk_tag3) == 16, "tag of checksum version 3");

/* The last bytes of descriptor and revoke blocks with CSUM_V2 or CSUM_V3. */
struct disk_tail {
	be32 t_checksum;
};
static_assert(sizeof(struct disk_tail) == 4, "tail");

struct disk_revoke {
	struct disk_header r_header;
	be32 r_count; /* bytes in use, this header included; then be32, or be64 with 64BIT */
};
static_assert(sizeof(struct disk_revoke) == 16, "revoke block");

struct disk_commit {
	struct disk_header h_header;
	uint8_t h_chksum_type;
	uint8_t h_chksum_size;
	uint8_t h_padding[2];
	be32 h_chksum[8];
	be64 h_commit_sec;
	be32 h_commit_nsec;
};
static_assert(sizeof(struct disk_commit) == 60, "commit block");
static_assert(offsetof(struct disk_commit, h_commit_sec) == 48, "commit block");

/* How the first block of the fast commit area starts. */
struct disk_fast_commit_head {
	le16 fc_tag;
	le16 fc_len;
	le32 fc_features;
	le32 fc_tid;
};
static_assert(sizeof(struct disk_fast_commit_head) == 12, "fast commit head");

#endif
