/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The journal's private structures: the log as the superblock describes it, and what the scan
 * finds in it.
 *
 * Threads: one, at mount. All of this is gone when journal_scan returns.
 */
#ifndef CRYPTFS_JOURNAL_INT_H
#define CRYPTFS_JOURNAL_INT_H

#include "disk.h"
#include "journal.h"

/* Damage, with what it is and what to do about it, for the one line that the user sees. */
#define journal_damaged(fmt, ...)                                                                 \
	err_set_detail(ERR_JOURNAL,                                                               \
		"the journal is damaged (" fmt "); run fsck.cryptfs, or mount with -o ro,noload", \
		__VA_ARGS__)

/*
 * Transactions lie in [first, last) and wrap from last to first. Blocks from last to the end
 * belong to fast commits.
 */
struct log {
	const struct journal_config *config;
	uint32_t first, last; /* verified: 1 <= first < last <= blocks */
	uint32_t blocks;      /* of the journal as its superblock gives it, all inside the runs */
	uint32_t start;       /* where the oldest transaction starts; 0: the log is empty */
	uint32_t sequence;    /* its number */
	int checksum_version; /* 0 none, 1, 2, 3 */
	bool has_64bit, async_commit, fast_commit;
	uint32_t tag_bytes;     /* without a UUID */
	uint32_t usable_bytes;  /* of a descriptor or revoke block, without the tail */
	uint32_t checksum_seed; /* versions 2 and 3 */

	uint8_t *window; /* blocks [window_first, window_first + window_count), read ahead */
	uint32_t window_first, window_count, window_room;
};

/* One logged block of a committed transaction. */
struct logged {
	fsblk_t home;
	uint32_t position; /* in the journal */
	uint32_t sequence;
	uint32_t checksum; /* as the tag gives it */
	bool escaped;
};
struct revoke_block {
	uint32_t position;
	uint32_t sequence;
};
struct scan {
	struct logged *logged; /* in the order of the log; at most one for each block of the log */
	size_t logged_count, logged_room;
	struct revoke_block *revokes;
	size_t revoke_count, revoke_room;
	uint32_t transactions;
	uint32_t end; /* the first transaction that is not there */
};

/* a >= b for transaction numbers, which wrap at 32 bits. */
static inline bool sequence_reached(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) >= 0;
}

/* --- super.c --------------------------------------------------------------------------------- */
/* Verifies runs and superblock; log_close also after an error. */
enum err log_open(const struct journal_config *config, struct log *log, struct journal_info *info)
	must_check;
void log_close(struct log *log);
/* A block of the journal, valid until the next call. ERR_IO and the volume's other errors. */
enum err log_block(struct log *log, uint32_t position, const uint8_t **out) must_check;
/* Where a block of the journal lies in the file system; position is inside the runs (ensure). */
fsblk_t log_physical(const struct log *log, uint32_t position);

/* --- super_write.c --------------------------------------------------------------------------- */
/*
 * The block with the journal's superblock, as it lies on the disk, for changing; free() it. Read
 * through log_block.
 */
enum err super_load(struct log *log, struct disk_super **out) must_check;
/* Gives it its checksum and writes its block. Does not flush. */
enum err super_store(const struct log *log, struct disk_super *super) must_check;

/* --- scan.c ---------------------------------------------------------------------------------- */
/* Finds the committed transactions; scan_free also after an error. ERR_JOURNAL, ERR_IO. */
enum err scan_log(struct log *log, struct scan *out) must_check;
void scan_free(struct scan *scan);

/* --- replay.c -------------------------------------------------------------------------------- */
/* From what the scan found to the overlay; *out is NULL when nothing is left. */
enum err replay_build(struct log *log, const struct scan *scan, struct overlay **out,
	struct journal_info *info) must_check;

/* --- journal.c ------------------------------------------------------------------------------- */
/* All three passes over an open log that is not empty; *out is NULL when nothing is left. */
enum err journal_plan(struct log *log, struct overlay **out, struct journal_info *info) must_check;

#endif
