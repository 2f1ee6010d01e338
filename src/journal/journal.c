/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The reading door: from the journal's runs to an overlay, in three passes.
 *
 * Writes nothing; the log's blocks stay where they are and the overlay points at them. A journal
 * with fast commits is taken only when there are none to replay.
 *
 * Threads: one, at mount.
 */
#include "journal_int.h"

/*
 * Fast commits since the last full commit start in the first block of their area with a head that
 * names the transaction they belong to, which is the first that is not in the log; a full commit
 * starts the area anew. Linux has left the first block of the area unused, so that both places are
 * looked at. What such a commit holds would have to be replayed inode by inode, by code that knows
 * ext4's structures and writes them; the area is refused as soon as there is a head.
 */
static enum err journal_refuse_fast_commits(struct log *log, uint32_t sequence)
{
	struct disk_fast_commit_head head;
	const uint8_t *block;

	for (uint32_t position = log->last; position < log->last + 2; position++) {
		if (position >= log->blocks)
			break;

		enum err e = log_block(log, position, &block);

		if (e != OK)
			return e;
		memcpy(&head, block, sizeof(head));
		if (le16_get(head.fc_tag) == FAST_COMMIT_TAG_HEAD &&
			le32_get(head.fc_tid) == sequence)
			return err_set_detail(ERR_JOURNAL_FEATURE,
				"the journal holds fast commits, which are not supported; run "
				"fsck.cryptfs, or mount with -o ro,noload");
	}
	return OK;
}

enum err journal_plan(struct log *log, struct overlay **out, struct journal_info *info)
{
	struct scan scan = {0};
	enum err e = scan_log(log, &scan);

	if (e != OK)
		goto out;
	info->transactions = scan.transactions;
	info->sequence = scan.end;
	if (log->fast_commit)
		e = journal_refuse_fast_commits(log, scan.end);
	if (e == OK)
		e = replay_build(log, &scan, out, info);
out:
	scan_free(&scan);
	return e;
}

enum err journal_scan(
	const struct journal_config *config, struct overlay **out, struct journal_info *info)
{
	struct log log;
	struct journal_info found = {0};
	struct overlay *overlay = NULL;
	enum err e = log_open(config, &log, &found);

	if (e == OK && !found.clean)
		e = journal_plan(&log, &overlay, &found);
	log_close(&log);
	if (e == OK) {
		*out = overlay;
		*info = found;
	}
	return e;
}
