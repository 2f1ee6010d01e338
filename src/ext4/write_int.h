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

/* --- map_write.c, map_remove.c: extents -------------------------------------------------------
 * For inodes with an extent tree; ERR_OPNOTSUPP for the block map of ext2. A handle needs
 * ext4_map_credits() for each call here, and a reservation ext4_map_blocks_max() blocks beside the
 * data's: the tree's new blocks come out of *reserved, which the caller gives back when it is done.
 * So there is no ERR_NOSPC inside a handle. Both are counted before the handle starts; ERR_BUSY,
 * with nothing changed: the tree has become two levels deeper since, so stop, and count again.
 * After any other error nothing has changed either, or the journal is failed.
 *
 * Nodes are read under map_lock where they are not in the cache. Callers have looked the place up
 * with ext4_map() before, which brings them in without the lock.
 */
uint32_t ext4_map_credits(struct ext4_inode *inode) EXCLUDES(extent_token);
uint32_t ext4_map_blocks_max(struct ext4_inode *inode) EXCLUDES(extent_token);
enum { EXT4_MAP_INSERT_MAX = 32768 }; /* blocks of one insert */
/*
 * `run` was a hole, its blocks are committed in this handle and are counted here in
 * attr.blocks_512; logs the inode. ERR_CORRUPT: the tree on disk has something there.
 */
enum err ext4_map_insert(struct journal_handle *h, struct ext4_inode *inode,
	const struct ext4_run *run, uint32_t *reserved) must_check REQUIRES(extent_token);
/*
 * The mapped blocks [want->logical, + count) become unwritten or written, as want->unwritten says.
 * One call does at least the part that lies in the first extent, and as much of the rest as needs
 * nothing more from the handle: *done blocks. The caller goes on behind them, in a handle that has
 * the credits again. ERR_CORRUPT: there is a hole. Logs the inode.
 */
enum err ext4_map_convert(struct journal_handle *h, struct ext4_inode *inode,
	const struct ext4_run *want, uint32_t *reserved, uint32_t *done)
	must_check REQUIRES(extent_token);
struct ext4_span {
	uint64_t first, end; /* logical blocks [first, end) */
};
/*
 * Unmaps and frees from the end of the span downwards, as much as the handle's credits allow, and
 * moves span->end to where it came to; done when it is span->first. The caller restarts the handle
 * and goes on. Logs the inode. Where mapped blocks lie behind the span, an extent may have to be
 * split and *reserved is needed; otherwise `reserved` may be NULL.
 */
enum err ext4_map_remove(struct journal_handle *h, struct ext4_inode *inode, struct ext4_span *span,
	uint32_t *reserved) must_check REQUIRES(extent_token);
/* Whether i_block is the root of a map, and not a short symlink, a device or inline data. */
bool ext4_map_exists(const struct ext4_inode *inode);

/* --- orphan.c -------------------------------------------------------------------------------- */
enum { EXT4_CREDITS_ORPHAN = 3 };
/* On the disk's list, so that a crash finishes the deletion or the truncate. Idempotent. */
enum err ext4_orphan_add(struct journal_handle *h, struct ext4_inode *inode) must_check;
enum err ext4_orphan_remove(struct journal_handle *h, struct ext4_inode *inode) must_check;
void ext4_orphan_open(struct ext4 *fs);
void ext4_orphan_close(struct ext4 *fs); /* whatever is listed stays so on disk */
bool ext4_orphan_is_listed(struct ext4_inode *inode);
/* For orphan_recover.c: */
bool ext4_orphan_append(struct ext4_inode *inode) must_check; /* false: it is listed already */
struct ext4_inode *ext4_orphan_next(struct ext4 *fs); /* with a reference; NULL: all are done */
void ext4_orphan_give_up(struct ext4_inode *inode);   /* not by ext4_orphan_next() again */

/* --- orphan_recover.c ------------------------------------------------------------------------ */
/*
 * Finishes what the list on disk says was begun: at mount, after the replay, with the journal and
 * the allocator open and nobody else about. ERR_CORRUPT: the list makes no sense, and nothing was
 * changed. What cannot be finished is logged and stays listed.
 */
enum err ext4_orphan_recover(struct ext4 *fs) must_check;
/* Deletes what has no links, at unmount: nobody can have it open any more. */
enum err ext4_orphan_finish(struct ext4 *fs) must_check;

/* --- delete.c -------------------------------------------------------------------------------- */
/*
 * Deletes an inode without links that is on the orphan list, in as many transactions as it takes;
 * the caller holds the inode lock exclusive and a reference. After an error it is still listed.
 */
enum err ext4_inode_delete(struct ext4_inode *inode) must_check;

/* --- xattr_block.c --------------------------------------------------------------------------- */
enum { EXT4_CREDITS_XATTR_RELEASE = 2 + EXT4_CREDITS_INODE };
/*
 * The inode no longer refers to its attribute block, which is freed with its last user; the inode
 * is logged. The caller holds the inode lock exclusive. ERR_CORRUPT, ERR_CHECKSUM: nothing changed.
 */
enum err ext4_xattr_release(struct journal_handle *h, struct ext4_inode *inode) must_check;

/* --- truncate.c ------------------------------------------------------------------------------ */
/*
 * Frees everything at and after `first` in as many transactions as it takes. The caller holds the
 * inode lock exclusive, has no handle open, and has put the inode on the orphan list where a part
 * of this must not be left undone.
 */
enum err ext4_truncate_blocks(struct ext4_inode *inode, lblk_t first) must_check;
/* The same for a span in the middle, with *reserved as for ext4_map_remove(). */
enum err ext4_punch_blocks(struct ext4_inode *inode, struct ext4_span span, uint32_t *reserved)
	must_check;

#endif
