/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ext4: the file system inside the volume: ext2, ext3 and ext4 as the kernel and e2fsprogs define
 * them (Documentation/filesystems/ext4, read for the format).
 *
 * Objects: one struct ext4 a mount; a struct ext4_inode is a counted reference to an inode in the
 * inode cache. Names are bytes, any but '/' and NUL, with their length.
 *
 * Threads: everything may be called from any thread, in parallel. Operations block for device I/O
 * and take the inode's lock (rank inode) shared; callers hold no lock of that rank or below.
 *
 * Disk content is verified before it is used: ERR_CORRUPT and ERR_CHECKSUM, with a detail, can
 * come from every call that reads.
 */
#ifndef CRYPTFS_EXT4_H
#define CRYPTFS_EXT4_H

#include "base.h"
#include "cache.h"
#include "page.h"

struct ext4;
struct ext4_inode;

enum { EXT4_ROOT_INUM = 2, EXT4_NAME_BYTES_MAX = 255 };

/* --- mount ----------------------------------------------------------------------------------- */
struct ext4_options {
	struct volume *volume; /* borrowed */
	struct pages *pages;   /* borrowed */
	bool noload;           /* do not look at the journal */
	uint64_t cache_bytes;  /* metadata cache; 0: a default */
};

enum { EXT4_REASONS_MAX = 16 };
struct ext4_info {
	char label[17];
	char uuid[37];
	char features[768]; /* names, separated by blanks, as dumpe2fs names them */
	uint32_t block_bytes;
	uint32_t inode_bytes;
	fsblk_t blocks;
	uint64_t inodes;
	bool must_be_readonly; /* a reason stands below */
	size_t reason_count;   /* why, one plain line each */
	char reasons[EXT4_REASONS_MAX][96];
	bool needs_recovery; /* the superblock says so */
	uint32_t replayed_transactions, replayed_blocks;
	bool clean; /* s_state */
};

/*
 * Reads and verifies the superblock and the group descriptors, decides by the feature policy,
 * replays the journal in memory. Errors: ERR_EXT4_NONE, ERR_EXT4_FEATURE (detail names it),
 * ERR_EXT4_GEOMETRY, ERR_EXT4_BLOCK_SIZE, ERR_JOURNAL*, ERR_DEV_SHORT, ERR_IO.
 */
enum err ext4_mount(const struct ext4_options *options, struct ext4 **out) must_check;
void ext4_unmount(struct ext4 *fs); /* NULL is fine; every reference must be back (ensure) */
void ext4_info(const struct ext4 *fs, struct ext4_info *out);
struct cache *ext4_cache(struct ext4 *fs); /* for its statistics */

struct ext4_statfs {
	uint32_t block_bytes;
	uint64_t blocks, free_blocks,
		available_blocks; /* overhead left out, as the kernel's bsddf */
	uint64_t inodes, free_inodes;
	uint64_t fsid;
};
enum err ext4_statfs(struct ext4 *fs, struct ext4_statfs *out) must_check;

/* --- inodes ---------------------------------------------------------------------------------- */
struct ext4_time {
	int64_t sec;
	uint32_t nsec;
};
struct ext4_attr {
	inum_t inum;
	uint32_t mode; /* with the type bits */
	uint32_t uid, gid;
	uint32_t nlink;
	uint64_t size_bytes;
	uint64_t blocks_512;
	uint32_t rdev_major, rdev_minor;
	uint32_t flags; /* EXT4_*_FL as lsattr shows them */
	uint32_t generation;
	uint32_t project;
	struct ext4_time atime, mtime, ctime, crtime;
};

/* ERR_STALE for a number that is not in use or out of range. */
enum err ext4_inode_get(struct ext4 *fs, inum_t inum, struct ext4_inode **out) must_check;
void ext4_inode_put(struct ext4_inode *inode); /* NULL is fine */
enum err ext4_getattr(struct ext4_inode *inode, struct ext4_attr *out) must_check;
/*
 * Nobody has the inode open and no lookup of it is left: where its last link is gone, it is deleted
 * with all that it holds. The caller holds no reference. May take many transactions. A failure is
 * logged, and the next mount finishes what was begun.
 */
void ext4_evict(struct ext4 *fs, inum_t inum);

/* --- names ----------------------------------------------------------------------------------- */
/* ERR_NOENT, ERR_NOTDIR, ERR_NAMETOOLONG. "." and ".." are found as they stand on disk. */
enum err ext4_lookup(struct ext4_inode *dir, const char *name, size_t len, inum_t *out) must_check;

struct ext4_dirent {
	const char *name; /* not NUL-terminated; valid during the call */
	size_t len;
	inum_t inum;
	uint8_t type;    /* DT_*; DT_UNKNOWN where the disk does not say */
	uint64_t cookie; /* passing it to ext4_readdir continues after this entry; never 0 */
};
/* Returns false when it has no room: the entry counts as not taken. */
typedef bool ext4_readdir_fn(void *context, const struct ext4_dirent *entry);
/*
 * From the start (cookie 0) or after an entry; ends at the end of the directory or when emit
 * returns false. "." and ".." come first. In an indexed directory the order is by hash, so that
 * entries that stay are seen exactly once while others come and go. No lock is held in emit but
 * the directory's, shared.
 */
enum err ext4_readdir(struct ext4_inode *dir, uint64_t cookie, ext4_readdir_fn *emit, void *context)
	must_check;
/* The target, without a NUL, into buf of room bytes; *len is its length. ERR_INVAL: no symlink. */
enum err ext4_readlink(struct ext4_inode *inode, char *buf, size_t room, size_t *len) must_check;

/* --- data ------------------------------------------------------------------------------------ */
enum { EXT4_READ_PARTS = 16, EXT4_READ_BYTES_MAX = 1 << 20 };
/*
 * Bytes of a file, in place: parts point into page runs, a read-ahead window or zeros. They stay
 * valid until ext4_read_done(), which must be called once after every successful ext4_read().
 */
struct ext4_read {
	struct iovec part[EXT4_READ_PARTS];
	int parts;
	size_t bytes;                /* in all parts; less than asked only at the end of the file */
	void *hold[EXT4_READ_PARTS]; /* private to ext4 */
	uint8_t hold_order[EXT4_READ_PARTS];
	struct ext4_inode *inode;
};
/* len is at most EXT4_READ_BYTES_MAX. ERR_ISDIR, ERR_INVAL (not a regular file), ERR_NOMEM. */
enum err ext4_read(struct ext4_inode *inode, uint64_t offset_bytes, size_t len_bytes,
	struct ext4_read *out) must_check;
void ext4_read_done(struct ext4_read *r);

/* lseek's SEEK_DATA and SEEK_HOLE. ERR_NXIO past the end or with no data after. */
enum err ext4_seek(struct ext4_inode *inode, uint64_t offset_bytes, int whence, uint64_t *out)
	must_check;

/* --- extended attributes --------------------------------------------------------------------- */
/*
 * Full names ("user.x", "trusted.x", "security.x", "system.posix_acl_access"). ACLs are given in
 * the kernel's xattr form, not the disk's. With room 0 only *len is set. ERR_NODATA, ERR_RANGE,
 * ERR_OPNOTSUPP for a prefix that ext4 does not know.
 */
enum err ext4_xattr_get(
	struct ext4_inode *inode, const char *name, void *buf, size_t room, size_t *len) must_check;
/* NUL-terminated names one after another. trusted.* only with `trusted`. */
enum err ext4_xattr_list(
	struct ext4_inode *inode, bool trusted, char *buf, size_t room, size_t *len) must_check;

#endif
