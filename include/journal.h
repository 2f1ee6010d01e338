/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * journal: jbd2's log: read for replay in memory, replayed for real, and written.
 *
 * Format and rules: the kernel's Documentation/filesystems/ext4/journal.rst, fs/jbd2 and
 * e2fsprogs' recovery (read for facts). The journal gets its blocks as an array of runs at mount
 * and knows no inode. Replay has the three passes SCAN, REVOKE, REPLAY; for a read-only mount the
 * last one builds an overlay (cache.h) in place of writing home.
 *
 * Writing. An operation changes metadata blocks inside a handle, and all handles of some time make
 * one transaction, which becomes durable as a whole or not at all:
 *
 *   running ------> locked ------> logging ------> committed ------> checkpointed
 *      commit_lock     commit_copy    commit_write    checkpoint_run, log_move_tail
 *
 *   running       handles start and stop in it; blocks join it by journal_write()
 *   locked        new handles wait; those that are open end
 *   logging       the members were copied into the log's buffer and the next transaction runs; a
 *                 cached block is from now on the running version, the buffer the committed one.
 *                 Written: copies, flush, commit block, flush
 *   committed     durable: its blocks may go home, its freed blocks may be used again
 *   checkpointed  each block is home or in a newer committed transaction, and flushed; the log's
 *                 tail has passed it and its space is free
 *
 * At any time one transaction runs, at most one is locked or logging, any number is committed.
 * Sequence numbers are 64 bits in memory, from 1 << 32 up; the low half is jbd2's number, so that
 * they never wrap here. `seq` of a handle is its transaction's.
 *
 * Failure: when the log cannot be written, or journal_fail() says so, the journal is failed for
 * good: nothing more is written, everything here gives ERR_ROFS, and whoever waits is told why.
 * The disk keeps the last durable transaction, which the next mount replays.
 *
 * Threads: journal_scan, journal_recover, journal_open and journal_close run in one thread with
 * nobody else about; everything between may be called from any thread. A handle belongs to the
 * thread that started it, which has at most one (ensure). One thread of the journal's own commits
 * and checkpoints.
 */
#ifndef CRYPTFS_JOURNAL_H
#define CRYPTFS_JOURNAL_H

#include "base.h"
#include "cache.h"

struct journal_run {
	uint32_t logical; /* first block of the run within the journal */
	uint32_t count;   /* blocks */
	fsblk_t physical; /* first block in the file system */
};
struct journal_config {
	struct volume *volume; /* borrowed */
	uint32_t block_bytes;
	fsblk_t fs_blocks; /* anything logged beyond is ERR_JOURNAL */
	const struct journal_run
		*runs; /* by rising logical, without holes; borrowed for the call */
	size_t run_count;
};

struct journal_info {
	bool clean;            /* s_start is 0: nothing to replay */
	uint32_t sequence;     /* the first transaction that is not in the log */
	uint32_t transactions; /* replayed */
	uint32_t blocks;       /* of distinct homes in the overlay */
	uint32_t revoked;      /* blocks skipped for a revoke record */
	int checksum_version;  /* 0 none, 1, 2, 3 */
	bool has_64bit, fast_commit;
	uint8_t uuid[16];
	uint32_t error; /* s_errno */
};

/*
 * Reads the journal's superblock, verifies it and, where the log is not empty, replays it into
 * *out (NULL when there is nothing). Writes nothing. ERR_JOURNAL (superblock or a committed
 * block's checksum damaged, a block outside), ERR_JOURNAL_FEATURE (unknown feature, or fast
 * commits that are not clean), ERR_IO.
 */
enum err journal_scan(const struct journal_config *config, struct overlay **out,
	struct journal_info *info) must_check;
/*
 * Replays for real: what is in the log goes home, is flushed, and the log is marked empty, with a
 * sequence number past everything that lies in it, and flushed. A crash within it is repaired by
 * the next. Does nothing to an empty log; *info is as journal_scan's. The caller has nothing
 * cached, and reads anew what it had read. Errors as journal_scan.
 */
enum err journal_recover(const struct journal_config *config, struct journal_info *info) must_check;

/* --- writing -------------------------------------------------------------------------------- */
struct journal;
struct journal_transaction;

struct journal_open_config {
	struct journal_config log; /* its runs are copied */
	struct cache *cache;       /* borrowed; without an overlay, nothing dirty */
	/*
	 * The kernel's choice of features for the file system, made while the log is empty: 64BIT
	 * where the file system has it; CSUM_V3 with metadata_csum, else what is there is kept;
	 * REVOKE always; ASYNC_COMMIT and FAST_COMMIT never.
	 */
	bool fs_64bit, fs_metadata_csum;
	uint32_t commit_interval_ms; /* 0: 5000 */
	/* More dirty metadata than this is written home early; 0: half of the log. */
	uint64_t dirty_limit_bytes;
};

struct journal_handle { /* on the caller's stack; `credits` and `seq` are for it to read */
	struct journal *journal;
	struct journal_transaction *transaction;
	uint32_t credits; /* blocks it may still add to the transaction */
	uint64_t seq;
};

struct journal_stats {
	uint64_t running_seq, durable_seq;
	uint64_t commits, logged_blocks, revoked_blocks, checkpoints, home_blocks;
	uint64_t flushes;          /* of commits, checkpoints and the superblock */
	uint32_t log_blocks, used; /* of the log; committed and logging transactions */
	uint32_t pending;          /* blocks in the log that are not home */
};

/*
 * The log must be empty (journal_recover first) and at least 1024 blocks long. The caller has made
 * the volume's needs_recovery flag durable before: the first commit marks the log as not empty.
 * ERR_JOURNAL, ERR_JOURNAL_FEATURE (named), ERR_NOMEM, ERR_IO.
 */
enum err journal_open(const struct journal_open_config *config, struct journal **out) must_check;
/*
 * Commits, writes everything home and marks the log empty; no handle may be open. Frees j also
 * when it returns an error, and then no block of the cache is dirty either.
 */
enum err journal_close(struct journal *j) must_check;

uint32_t journal_max_credits(const struct journal *j); /* of one handle */
/*
 * Joins the running transaction with room for `credits` blocks that journal_write() has not seen
 * in it. May wait for a commit or for space in the log; so no page, no cap and no lock of rank
 * extent or above may be held. ERR_ROFS; ERR_NOSPC when credits exceed journal_max_credits().
 */
enum err journal_start(struct journal *j, uint32_t credits, struct journal_handle *h) must_check;
/* More credits in the same transaction, without waiting; false: there is no room. */
bool journal_extend(struct journal_handle *h, uint32_t more);
/*
 * Stops and starts, maybe in another transaction: what was changed so far must be a state that may
 * meet a crash. Waits as journal_start, under the same rules. After an error h is stopped.
 */
enum err journal_restart(struct journal_handle *h, uint32_t credits) must_check;
/*
 * Before the first change under this handle of a block that the caller has pinned, and may put
 * after it. Costs a credit unless the block is in the transaction already, and cancels a revoke
 * of it there. Does not wait. ERR_ROFS; running out of credits is our own bug (ensure).
 */
enum err journal_write(struct journal_handle *h, struct cache_block *b) must_check;
/*
 * Metadata blocks [nr, nr + count) were freed in this handle: they leave the running transaction
 * (giving credits back to the handle), are revoked where the log may hold a copy, and leave the
 * cache, at once or when this transaction is durable. Takes no credits. To use one as metadata
 * again, get it anew from the cache. ERR_ROFS.
 */
enum err journal_forget(struct journal_handle *h, fsblk_t nr, uint32_t count) must_check;
enum err journal_stop(struct journal_handle *h) must_check; /* ERR_ROFS: it will not be durable */

uint64_t journal_running(const struct journal *j); /* the running transaction's number */
uint64_t journal_durable(const struct journal *j); /* the newest durable one's */
/*
 * Returns when everything that handles of transactions up to seq changed is durable. Callers that
 * come together share a commit; where it is durable already, it returns at once, without a flush.
 * No handle may be open in this thread. ERR_ROFS, or the error that the commit failed with.
 */
enum err journal_commit(struct journal *j, uint64_t seq) must_check;
/* Commits, and returns when all up to now is home and flushed; an idle log is marked empty. */
enum err journal_checkpoint(struct journal *j) must_check;

/* The first call counts and is logged, with what was found. */
void journal_fail(struct journal *j, enum err e, const char *why);
bool journal_failed(const struct journal *j);
void journal_stats(struct journal *j, struct journal_stats *out);

#endif
