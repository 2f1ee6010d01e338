/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * journal: jbd2's log, read for replay in memory.
 *
 * Format and rules: the kernel's Documentation/filesystems/ext4/journal.rst, fs/jbd2 and
 * e2fsprogs' recovery (read for facts). The journal gets its blocks as an array of runs at mount
 * and knows no inode. Replay has the three passes SCAN, REVOKE, REPLAY; for a read-only mount the
 * last one builds an overlay (cache.h) in place of writing home.
 *
 * Threads: journal_scan runs once, at mount, in the calling thread; it blocks for device I/O.
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

#endif
