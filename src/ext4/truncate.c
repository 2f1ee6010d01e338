/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * truncate: a file's blocks freed, in as many transactions as it takes.
 *
 * Each transaction leaves a sound file, shorter than before, so that a crash between two of them
 * costs nothing but the rest of the work: the orphan list, on which the caller has put the inode,
 * says that there is a rest.
 *
 * Threads: the caller holds the inode lock exclusive, which waits for the runs in flight; map_lock
 * is held for one transaction at a time. Does not zero the tail of the last block that stays, and
 * changes no size.
 */
#include "write_int.h"

/*
 * A handle's credits: enough to free some fifty groups' blocks, or a few leaves of single blocks,
 * and no more than a small part of what a small log takes.
 */
enum { REMOVE_CREDITS = 128, REMOVE_SHARE = 8 };

static enum err remove_span(struct ext4_inode *inode, struct ext4_span *span, uint32_t *reserved)
{
	struct journal *journal = inode->fs->journal;
	uint32_t credits = MIN(journal_max_credits(journal) / REMOVE_SHARE, REMOVE_CREDITS);
	struct journal_handle h;
	enum err e, stopped;

	credits = MAX(credits, ext4_map_credits(inode));
	e = journal_start(journal, credits, &h);
	if (e)
		return e;
	for (;;) {
		extent_lock(&inode->map_lock);
		e = ext4_map_remove(&h, inode, span, reserved);
		extent_unlock(&inode->map_lock);
		if (e || span->end <= span->first)
			break;
		e = journal_restart(&h, credits);
		if (e)
			return e;
	}
	stopped = journal_stop(&h);
	return e ? e : stopped;
}

enum err ext4_punch_blocks(struct ext4_inode *inode, struct ext4_span span, uint32_t *reserved)
{
	return remove_span(inode, &span, reserved);
}

enum err ext4_truncate_blocks(struct ext4_inode *inode, lblk_t first)
{
	struct ext4_span span = {.first = first, .end = EXT4_LBLK_END};

	return remove_span(inode, &span, NULL);
}
