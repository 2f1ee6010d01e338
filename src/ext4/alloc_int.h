/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the allocator share: bits, groups in memory, the disk's side of a group, what
 * was freed and is not durable.
 *
 *   reserve.c      clusters promised; freed blocks on their way back
 *   alloc.c        open, close, take, give back; goals
 *   bitmap.c       bits and runs of bits; loading and verifying a group
 *   system.c       which blocks are the file system's own
 *   group_write.c  a group's bitmaps and descriptor under a handle; commit and free
 *   inode_group.c  which group a new inode goes to
 *   inode_alloc.c  inodes taken and given back
 *   itable.c       zeroing of inode tables in the background
 *
 * Where a block is counted, at any time in exactly one place:
 *
 *            reserve            take            commit (disk's bit set)
 *   credit ----------> promise ------> taken ------------------------> in use
 *     ^                   |              |                                |
 *     |     unreserve     |    untake    |          free (disk's bit clear)
 *     +-------------------+--------------+                                v
 *     +------------------------------------------------------------- freed(seq)
 *                     settle, when the transaction seq is durable
 *
 * The memory view of a group has a bit set for taken, in use and freed; `available` counts its
 * clear bits. So credit + promises = sum of available, and a promise can always be taken.
 *
 * Locks: a group's lock (rank group) for its bits and counts, one group at a time; no I/O under
 * it. alloc (one a file system) is held over a whole settle, so that a refusal knows that nothing
 * is in a settling thread's hands. freed_lock guards the list alone.
 */
#ifndef CRYPTFS_EXT4_ALLOC_INT_H
#define CRYPTFS_EXT4_ALLOC_INT_H

#include "write_int.h"

struct alloc_group {
	struct mutex lock; /* rank group */
	uint8_t *used GUARDED_BY(
		group_token); /* memory view, in the disk's form; NULL: not loaded */
	bool corrupt GUARDED_BY(group_token); /* it could not be loaded and is left alone */
	bool inodes_verified GUARDED_BY(group_token);
};

/* Changed under the group's lock, read by anyone. */
struct alloc_hint {
	_Atomic uint32_t available; /* clear bits; before it is loaded, the descriptor's count */
	_Atomic uint32_t longest;   /* no run of them is longer */
};

/* Blocks [first, first + count) of the file system's own structures. */
struct alloc_run {
	fsblk_t first;
	uint64_t count;
};

struct ext4_alloc {
	struct credit_counter credit; /* free blocks that nobody was promised, `kept` left out */
	/*
	 * Reserved blocks that are free: up to kept_most, what is released goes here first, and
	 * only privileged promises come out of it, under settle_lock.
	 */
	_Atomic int64_t kept;
	int64_t kept_most;

	struct alloc_group *group; /* [groups] */
	struct alloc_hint *hint;   /* [groups]; apart, since many are scanned */
	struct alloc_run *system;  /* by rising first, apart from each other; constant */
	size_t system_count;

	struct mutex settle_lock; /* rank alloc */
	struct mutex freed_lock;  /* rank journal; nothing of the journal is called under it */
	struct list freed GUARDED_BY(journal_token); /* struct alloc_freed, by rising seq */
	_Atomic uint64_t freed_oldest;               /* seq of the first; UINT64_MAX: none */
	_Atomic int64_t freed_blocks;

	_Atomic uint64_t inodes_free, dirs; /* sums over the groups */
	_Atomic uint32_t spread;            /* where the next directory at the top starts looking */
	uint32_t generation;                /* random; of inodes that were never used */
	/* itable.c, by one thread: all before it is done. */
	group_t zero_group;
	uint32_t zero_block;
};

/* --- bitmap.c: bits as they stand on disk, in buffers of a whole block ------------------------ */
/* The first bit from `from` on that is `value`, or end. */
uint32_t bitmap_next(const uint8_t *bytes, uint32_t from, uint32_t end, bool value);
/* One past the last bit before `before` that is `value`, or 0. */
uint32_t bitmap_previous_end(const uint8_t *bytes, uint32_t before, bool value);
void bitmap_fill(uint8_t *bytes, uint32_t first, uint32_t count, bool value);
bool bitmap_is(const uint8_t *bytes, uint32_t first, uint32_t count, bool value); /* all of them */
uint32_t bitmap_count_clear(const uint8_t *bytes, uint32_t bits);
/*
 * The first run of `want` clear bits from `from` on, then from the start; else the longest. The
 * count is at most `want`, 0 when there is none. *complete: no run is longer than the answer.
 */
struct bitmap_run {
	uint32_t first, count;
};
struct bitmap_run bitmap_find(
	const uint8_t *bytes, uint32_t from, uint32_t end, uint32_t want, bool *complete);

/*
 * Loads the group's memory view if it is not; the first failure is logged, and the group is left
 * alone from then on (its credit is taken back as far as there is any). Reads; no lock is held.
 */
enum err alloc_group_load(struct ext4 *fs, group_t group) must_check;
/* Bitmap of a group that was never initialised: its own structures and what lies past its end. */
void alloc_group_init_bitmap(const struct ext4 *fs, group_t group, uint8_t *bytes);

/* --- system.c -------------------------------------------------------------------------------- */
enum err alloc_system_build(struct ext4 *fs) must_check; /* fs->alloc's; reads the journal's map */
bool alloc_system_overlaps(const struct ext4 *fs, fsblk_t first, uint64_t count);
/* Sets the bits of those that lie in the group. */
void alloc_system_mark(const struct ext4 *fs, group_t group, uint8_t *bytes);

/* --- group_write.c: the disk's side of a group ----------------------------------------------- */
/* Pinned; what is not asked for stays NULL. */
struct group_blocks {
	struct cache_block *desc_block, *block_bitmap, *inode_bitmap;
	struct ext4_disk_group *desc; /* in desc_block */
};
enum { GROUP_BLOCK_BITMAP = 1, GROUP_INODE_BITMAP = 2 };
/*
 * Reads them; a bitmap that was never initialised is not read. The caller has a handle open, so
 * that what another one makes of such a bitmap meanwhile cannot be written home and forgotten.
 */
enum err group_blocks_get(struct ext4 *fs, group_t group, unsigned which, struct group_blocks *out)
	must_check;
void group_blocks_put(struct ext4 *fs, struct group_blocks *b);
/* Verifies what was not verified yet. Before looking into them. ERR_CHECKSUM, ERR_CORRUPT. */
enum err group_blocks_verify(struct ext4 *fs, group_t group, const struct group_blocks *b)
	must_check REQUIRES(group_token);
/* Joins the handle's transaction, and initialises bitmaps that were not. After verifying. */
enum err group_blocks_join(struct journal_handle *h, struct ext4 *fs, group_t group,
	const struct group_blocks *b) must_check REQUIRES(group_token);
/* After the change: checksums of the bitmaps and of the descriptor. */
void group_blocks_seal(struct ext4 *fs, group_t group, const struct group_blocks *b)
	REQUIRES(group_token);

/* Fields of a descriptor whose upper half may not be there. */
uint32_t group_desc_free_blocks(const struct ext4 *fs, const struct ext4_disk_group *d);
uint32_t group_desc_free_inodes(const struct ext4 *fs, const struct ext4_disk_group *d);
void group_desc_set_free_inodes(const struct ext4 *fs, struct ext4_disk_group *d, uint32_t n);
void group_desc_set_used_dirs(const struct ext4 *fs, struct ext4_disk_group *d, uint32_t n);
void group_desc_set_unused(const struct ext4 *fs, struct ext4_disk_group *d, uint32_t n);
/* True when the bitmap's checksum is as the descriptor says, or there is none. */
bool group_desc_bitmap_valid(
	const struct ext4 *fs, const struct ext4_disk_group *d, bool inodes, const uint8_t *bytes);
bool group_has_flags(const struct ext4 *fs); /* descriptors have checksums, and so flags */

/* --- reserve.c ------------------------------------------------------------------------------- */
struct alloc_freed {
	struct list link;
	uint64_t seq;
	fsblk_t first;
	uint32_t count;
};
enum err alloc_reserve_open(struct ext4 *fs, int64_t free_blocks) must_check;
void alloc_reserve_close(struct ext4 *fs);
void alloc_credit_release(struct ext4_alloc *a, uint32_t blocks);
void alloc_credit_take_back(struct ext4_alloc *a, uint32_t blocks); /* as far as there is any */
/* Puts a run that h has freed on the list; `node` is the caller's and goes with it. */
void alloc_freed_add(struct ext4_alloc *a, struct alloc_freed *node);

/* --- alloc.c --------------------------------------------------------------------------------- */
/* Bits of one group's memory view become clear: what was taken, or freed for good. */
void alloc_group_release(struct ext4 *fs, fsblk_t first, uint32_t count);
static inline group_t alloc_group_of(const struct ext4 *fs, fsblk_t nr)
{
	return (group_t)((nr - fs->first_data_block) / fs->blocks_per_group);
}

/* --- inode_group.c --------------------------------------------------------------------------- */
/* The group to try first, then the next, until all were tried (NO_GROUP). */
enum { NO_GROUP = UINT32_MAX };
struct inode_group_search {
	group_t first, tried;
};
void inode_group_start(struct ext4_inode *parent, uint32_t mode, struct inode_group_search *out);
group_t inode_group_next(struct ext4 *fs, struct inode_group_search *search);
/* Groups that stand together: 1 without flex_bg. */
uint32_t inode_group_flex(const struct ext4 *fs);

#endif
