/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the rooms that change the file system share: blocks and inodes taken and given back, the
 * map's changes, an inode's way to its table, orphans.
 *
 * The order of a change: reserve clusters (waits) → inode locks by rising number → journal_start
 * (waits) → map_lock exclusive → group → journal → shard. Between handle start and stop nothing
 * waits for pages, the cap, data I/O or another handle; metadata that is not cached may be read.
 *
 * Who changes attr.mode, uid, gid, nlink, times or flags holds the inode lock exclusive. raw,
 * attr.blocks_512, disk_size_bytes and the map are changed under map_lock exclusive, with the
 * inode lock held at least shared. attr.size_bytes of a regular file is changed under the inode
 * lock exclusive or, by a write that appends, under the dirty lock.
 *
 * Data comes before the map (the design's decision 8): take blocks in memory, write the data, and
 * when that I/O has ended join a transaction that sets the bits on disk, inserts the run and moves
 * disk_size_bytes. So a crash shows no stale data and leaves nothing to undo.
 */
#ifndef CRYPTFS_EXT4_WRITE_INT_H
#define CRYPTFS_EXT4_WRITE_INT_H

#include "ext4_int.h"
#include "journal.h"

/* --- reserve.c: clusters promised before they are taken (the design's §5) -------------------- */
/*
 * Promises `clusters` to the caller; `privileged` may use the reserved blocks. ERR_NOSPC is exact:
 * before it is returned, what transactions have freed is made durable once. Deleted inodes that
 * still have their blocks are not known here: who keeps them finishes them and asks again. Waits;
 * no lock is held and no handle is open. ERR_ROFS from a failed journal.
 */
enum err ext4_reserve(struct ext4 *fs, uint32_t clusters, bool privileged) must_check;
void ext4_unreserve(struct ext4 *fs, uint32_t clusters);

/* --- alloc.c: blocks ------------------------------------------------------------------------- */
/*
 * A loaded group has two bitmaps: the disk's, in the cache and under the journal, and the one that
 * allocation sees, which also has what is taken but not yet on disk and what was freed by a
 * transaction that is not durable. Both are guarded by the group's lock.
 */
struct ext4_take {
	fsblk_t first;
	uint32_t count;
};
/*
 * Counters, groups' locks, the map of the file system's own blocks; reads no bitmap. The journal is
 * open and fs->group loaded; nobody else is about.
 */
enum err ext4_alloc_open(struct ext4 *fs) must_check;
/*
 * Nothing is taken, everything freed is durable. Leaves in fs->free_clusters and fs->free_inodes
 * what the superblock of a clean volume should say.
 */
void ext4_alloc_close(struct ext4 *fs);
/* Free now, reserved blocks and freed ones that are not durable included; for statfs. */
void ext4_alloc_counts(const struct ext4 *fs, uint64_t *blocks, uint64_t *inodes);
/*
 * Takes up to `want` contiguous blocks near goal in memory, out of the caller's reservation, which
 * it uses up by out->count. At least one when the reservation was good (ERR_CORRUPT otherwise, with
 * the groups' counters at odds with their bitmaps). Reads bitmaps; holds no lock across that.
 */
enum err ext4_alloc_take(struct ext4 *fs, fsblk_t goal, uint32_t want, struct ext4_take *out)
	must_check;
/* Gives back what was taken and not committed, and the reservation with it, for others to use. */
void ext4_alloc_untake(struct ext4 *fs, const struct ext4_take *take);
/* The take is on disk with this handle: bitmap, descriptor, checksums. Credits: 2 a group. */
enum err ext4_alloc_commit(struct journal_handle *h, struct ext4 *fs, const struct ext4_take *take)
	must_check;
/*
 * Frees blocks that are in use on disk; allocatable again when the handle's transaction is
 * durable. Metadata is forgotten in the journal. Credits: 2 a group touched. ERR_CORRUPT when one
 * was free already or belongs to the file system's own structures.
 */
enum err ext4_alloc_free(struct journal_handle *h, struct ext4 *fs, fsblk_t first, uint32_t count,
	bool metadata) must_check;
/*
 * Where data of this inode at `logical` should go: after the extent before it, or in its group.
 * The inode lock is held at least shared and map_lock is not; may read the map.
 */
fsblk_t ext4_alloc_goal(struct ext4_inode *inode, lblk_t logical);
/* Makes what durable transactions have freed allocatable. Called by take and reserve themselves. */
void ext4_alloc_settle(struct ext4 *fs);

/* --- itable.c -------------------------------------------------------------------------------- */
/*
 * Zeroes a piece of an inode table that mke2fs left as it was, in a handle of its own, and marks
 * the group when its table is done. *more: call again. One thread at a time; idle time is best.
 */
enum err ext4_itable_zero_step(struct ext4 *fs, bool *more) must_check;

/* --- inode_alloc.c, inode_write.c ------------------------------------------------------------ */
enum { EXT4_CREDITS_INODE_ALLOC = 4, EXT4_CREDITS_INODE_FREE = 4, EXT4_CREDITS_INODE = 1 };
/*
 * Takes an inode number for a new file in `parent` (directories spread, files go near it) and
 * gives the inode in memory, referenced, locked exclusive (as a second lock: the caller drops it
 * with inode_unlock_second), attr filled from the arguments, an empty extent root for what may have
 * blocks, and all else empty; nlink 0 until the caller sets it and calls ext4_inode_log. The parent
 * is locked exclusive, no map_lock is held. A short symlink takes EXT4_EXTENTS_FL away again.
 * ERR_NOSPC.
 */
struct ext4_new_inode {
	uint32_t mode, uid, gid;
	uint32_t rdev_major, rdev_minor;
};
enum err ext4_inode_alloc(struct journal_handle *h, struct ext4_inode *parent,
	const struct ext4_new_inode *want, struct ext4_inode **out) must_check;
/*
 * The inode, without blocks, attribute block and links, becomes free, off the orphan list; its
 * number may be used again at once, so the caller does nothing more with it but put its reference.
 * It is locked exclusive and its map_lock is not held.
 */
enum err ext4_inode_free(struct journal_handle *h, struct ext4_inode *inode) must_check;
/* attr and disk_size_bytes into raw, raw into its table block with its checksum. */
enum err ext4_inode_log(struct journal_handle *h, struct ext4_inode *inode)
	must_check REQUIRES(extent_token);
struct ext4_time ext4_now(const struct ext4 *fs);

/* --- map_write.c: extents -------------------------------------------------------------------- */
/* Credits that one insert or convert may need at most, and blocks of the tree it may allocate. */
uint32_t ext4_map_credits(const struct ext4_inode *inode);
uint32_t ext4_map_blocks_max(const struct ext4_inode *inode);
/* `run` was a hole and its blocks are committed in this handle; logs the inode. */
enum err ext4_map_insert(struct journal_handle *h, struct ext4_inode *inode,
	const struct ext4_run *run) must_check REQUIRES(extent_token);
/* Unwritten blocks in [first, first + count) become written (or the other way round). */
enum err ext4_map_convert(struct journal_handle *h, struct ext4_inode *inode, lblk_t first,
	uint32_t count, bool unwritten) must_check REQUIRES(extent_token);
/*
 * Unmaps and frees from the end of [first, end) downwards, as much as the handle's credits allow;
 * *end_left is where it came to (first: all is done). The caller restarts the handle and goes on.
 */
enum err ext4_map_remove(struct journal_handle *h, struct ext4_inode *inode, lblk_t first,
	uint64_t end, uint64_t *end_left) must_check REQUIRES(extent_token);

/* --- orphan.c -------------------------------------------------------------------------------- */
enum { EXT4_CREDITS_ORPHAN = 3 };
/* On the disk's list, so that a crash finishes the deletion or the truncate. Idempotent. */
enum err ext4_orphan_add(struct journal_handle *h, struct ext4_inode *inode) must_check;
enum err ext4_orphan_remove(struct journal_handle *h, struct ext4_inode *inode) must_check;
enum err ext4_orphan_recover(struct ext4 *fs) must_check; /* at mount, after the replay */

/* --- truncate.c ------------------------------------------------------------------------------ */
/* Frees everything at and after `first` in as many transactions as it takes; inode lock exclusive.
 */
enum err ext4_truncate_blocks(struct ext4_inode *inode, lblk_t first) must_check;

#endif
