/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SCAN: walks the log from its oldest transaction, verifies descriptor, revoke and commit blocks,
 * and lists what the committed transactions logged and revoked.
 *
 * What ends the log, and what is damage (rules of the kernel's fs/jbd2/recovery.c, 6.x):
 *
 *  - A block without the magic, with another transaction's number or of an unknown type is the end
 *    of the log: the transaction there was never committed.
 *  - A descriptor or revoke block whose checksum does not match may be stale, left from an earlier
 *    use of the log. The commit block that follows decides: its time is before the last one's, so
 *    it is stale and the log ended before; otherwise it is damage. No commit block: the end.
 *  - A commit block whose checksum does not match is judged by time in the same way. With
 *    ASYNC_COMMIT its blocks may not have reached the disk, so the log ends before it, unless a
 *    later commit block shows that it had been complete once: then it is damage.
 *  - A commit block that is whole in its first 60 bytes and torn behind them, where nothing is
 *    stored, is good (Linux 6.10 and later).
 *
 * Invariants: every block of the log is walked over at most once, so that no chain of descriptors
 * can go round for ever; logged and revokes hold at most one entry for each block of the log.
 *
 * Does not read data blocks, except for checksum version 1, which is over all of a transaction.
 */
#include "journal_int.h"

#include <stdlib.h>

/*
 *           a checksum of a descriptor or         a commit block: its
 *           revoke block does not match           checksum does not match,
 *   GOOD ------------------------------> DOUBT    ASYNC_COMMIT
 *     |                                    |      GOOD ----------------> CUT
 *     | end of log                         | end of log, or               |
 *     v                                    v stale commit                 v end of log
 *    (end)                               (end)                          (end)
 *
 * A commit block that is not stale, met in DOUBT or CUT, is damage.
 */
enum scan_trust { SCAN_GOOD, SCAN_DOUBT, SCAN_CUT };

struct walk {
	struct log *log;
	struct scan *found;
	uint8_t *block;    /* the descriptor, revoke or commit block at hand */
	uint32_t position; /* of the next block */
	uint32_t left;     /* blocks of the log not walked over yet */
	uint32_t sequence; /* of the transaction at hand */
	enum scan_trust trust;
	uint64_t last_commit_sec;
	uint32_t crc; /* version 1: over the transaction so far */
	size_t committed_logged, committed_revokes;
	bool ended;
};

void scan_free(struct scan *scan)
{
	free(scan->logged);
	free(scan->revokes);
	*scan = (struct scan){0};
}

/* Room for one more entry of a growing array. */
static enum err scan_grow(void **array, size_t count, size_t *room, size_t entry_bytes)
{
	if (count < *room)
		return OK;

	size_t wanted = *room == 0 ? 256 : *room * 2;
	void *grown = realloc(*array, wanted * entry_bytes);

	if (grown == NULL)
		return ERR_NOMEM;
	*array = grown;
	*room = wanted;
	return OK;
}

/* Walks over one block; its position is in *at. */
static enum err walk_step(struct walk *w, uint32_t *at)
{
	if (w->left == 0)
		return journal_damaged("transaction %u runs round the log", w->sequence);
	w->left--;
	*at = w->position++;
	if (w->position == w->log->last)
		w->position = w->log->first;
	return OK;
}

/* Versions 2 and 3: the checksum of a descriptor or revoke block is in its tail. */
static bool walk_tail_matches(const struct walk *w)
{
	struct disk_tail tail, zero = {be32_make(0)};
	uint32_t at = w->log->usable_bytes;

	if (w->log->checksum_version < 2)
		return true;
	memcpy(&tail, w->block + at, sizeof(tail));

	uint32_t crc = crc32c(w->log->checksum_seed, w->block, at);

	return crc32c(crc, &zero, sizeof(zero)) == be32_get(tail.t_checksum);
}

/* --- descriptor ------------------------------------------------------------------------------ */

static void walk_read_tag(
	const struct log *log, const uint8_t *at, struct logged *out, uint32_t *flags)
{
	if (log->checksum_version == 3) {
		struct disk_tag3 tag;

		memcpy(&tag, at, sizeof(tag));
		out->home = be32_get(tag.t_blocknr);
		if (log->has_64bit)
			out->home |= (uint64_t)be32_get(tag.t_blocknr_high) << 32;
		out->checksum = be32_get(tag.t_checksum);
		*flags = be32_get(tag.t_flags);
	} else {
		struct disk_tag tag = {.t_blocknr_high = be32_make(0)};

		memcpy(&tag, at, MIN((size_t)log->tag_bytes, sizeof(tag)));
		out->home = be32_get(tag.t_blocknr);
		if (log->has_64bit)
			out->home |= (uint64_t)be32_get(tag.t_blocknr_high) << 32;
		out->checksum = be16_get(tag.t_checksum);
		*flags = be16_get(tag.t_flags);
	}
	out->escaped = *flags & JBD2_TAG_ESCAPE;
}

/* The logged copy belongs to the tag; version 1 sums it up. */
static enum err walk_logged(struct walk *w, struct logged *entry)
{
	enum err e = walk_step(w, &entry->position);
	const uint8_t *data;

	if (e != OK || w->trust != SCAN_GOOD)
		return e;
	if (w->log->checksum_version == 1) {
		e = log_block(w->log, entry->position, &data);
		if (e != OK)
			return e;
		w->crc = crc32_be(w->crc, data, w->log->config->block_bytes);
	}

	struct scan *found = w->found;
	void *array = found->logged;

	e = scan_grow(&array, found->logged_count, &found->logged_room, sizeof(*found->logged));
	found->logged = array;
	if (e == OK)
		found->logged[found->logged_count++] = *entry;
	return e;
}

static enum err walk_descriptor(struct walk *w)
{
	const struct log *log = w->log;
	uint32_t at = sizeof(struct disk_header);
	uint32_t flags = 0;

	if (w->trust == SCAN_GOOD && !walk_tail_matches(w))
		w->trust = SCAN_DOUBT;
	if (log->checksum_version == 1)
		w->crc = crc32_be(w->crc, w->block, log->config->block_bytes);
	while ((flags & JBD2_TAG_LAST) == 0 && at + log->tag_bytes <= log->usable_bytes) {
		struct logged entry = {.sequence = w->sequence};

		walk_read_tag(log, w->block + at, &entry, &flags);
		at += log->tag_bytes;
		if ((flags & JBD2_TAG_SAME_UUID) == 0)
			at += JBD2_UUID_BYTES;

		enum err e = walk_logged(w, &entry);

		if (e != OK)
			return e;
	}
	return OK;
}

/* --- revoke ---------------------------------------------------------------------------------- */

static enum err walk_revoke(struct walk *w, uint32_t position)
{
	struct scan *found = w->found;
	void *array = found->revokes;

	if (w->trust == SCAN_GOOD && !walk_tail_matches(w))
		w->trust = SCAN_DOUBT;
	if (w->trust != SCAN_GOOD)
		return OK;

	enum err e = scan_grow(
		&array, found->revoke_count, &found->revoke_room, sizeof(*found->revokes));

	found->revokes = array;
	if (e == OK)
		found->revokes[found->revoke_count++] =
			(struct revoke_block){.position = position, .sequence = w->sequence};
	return e;
}

/* --- commit ---------------------------------------------------------------------------------- */

static bool walk_commit_matches_v1(const struct walk *w, const struct disk_commit *commit)
{
	uint32_t sum = be32_get(commit->h_chksum[0]);

	/* The feature may be on while a transaction of before carries no checksum. */
	if (commit->h_chksum_type == 0 && commit->h_chksum_size == 0 && sum == 0)
		return true;
	return commit->h_chksum_type == JBD2_CHKSUM_CRC32 &&
	       commit->h_chksum_size == sizeof(be32) && sum == w->crc;
}

static bool walk_commit_matches(struct walk *w, const struct disk_commit *commit)
{
	const struct log *log = w->log;
	uint32_t block_bytes = log->config->block_bytes;
	uint32_t sum = be32_get(commit->h_chksum[0]);
	struct disk_commit header = *commit;

	if (log->checksum_version == 0)
		return true;
	if (log->checksum_version == 1)
		return walk_commit_matches_v1(w, commit);
	header.h_chksum[0] = be32_make(0);
	memcpy(w->block, &header, sizeof(header));
	if (crc32c(log->checksum_seed, w->block, block_bytes) == sum)
		return true;
	memset(w->block + sizeof(header), 0, block_bytes - sizeof(header));
	return crc32c(log->checksum_seed, w->block, block_bytes) == sum;
}

static enum err walk_commit(struct walk *w)
{
	struct disk_commit commit;

	memcpy(&commit, w->block, sizeof(commit));

	uint64_t commit_sec = be64_get(commit.h_commit_sec);
	bool stale = commit_sec < w->last_commit_sec;

	if (w->trust == SCAN_GOOD && walk_commit_matches(w, &commit)) {
		w->committed_logged = w->found->logged_count;
		w->committed_revokes = w->found->revoke_count;
		w->last_commit_sec = commit_sec;
		w->crc = UINT32_MAX;
		w->found->transactions++;
		w->sequence++;
		w->found->end = w->sequence;
		return OK;
	}
	if (stale) {
		w->ended = true;
		return OK;
	}
	if (w->trust == SCAN_GOOD && w->log->async_commit) {
		w->trust = SCAN_CUT;
		w->sequence++;
		return OK;
	}
	return journal_damaged("a checksum of transaction %u does not match", w->found->end);
}

/* --- the walk -------------------------------------------------------------------------------- */

static enum err walk_block(struct walk *w)
{
	struct disk_header header;
	const uint8_t *block;
	uint32_t position = 0;
	enum err e = walk_step(w, &position);

	if (e == OK)
		e = log_block(w->log, position, &block);
	if (e != OK)
		return e;
	/* Data blocks are read through the same window, so the block at hand is a copy. */
	memcpy(w->block, block, w->log->config->block_bytes);
	memcpy(&header, w->block, sizeof(header));
	if (be32_get(header.h_magic) != (uint32_t)JBD2_MAGIC ||
		be32_get(header.h_sequence) != w->sequence) {
		w->ended = true;
		return OK;
	}
	switch (be32_get(header.h_blocktype)) {
	case JBD2_DESCRIPTOR:
		return walk_descriptor(w);
	case JBD2_REVOKE:
		return walk_revoke(w, position);
	case JBD2_COMMIT:
		return walk_commit(w);
	default:
		w->ended = true;
		return OK;
	}
}

enum err scan_log(struct log *log, struct scan *out)
{
	struct walk w = {
		.log = log,
		.found = out,
		.position = log->start,
		.left = log->last - log->first,
		.sequence = log->sequence,
		.trust = SCAN_GOOD,
		.crc = UINT32_MAX,
	};
	enum err e = OK;

	*out = (struct scan){.end = log->sequence};
	w.block = malloc(log->config->block_bytes);
	if (w.block == NULL)
		return ERR_NOMEM;
	while (e == OK && !w.ended && w.left > 0)
		e = walk_block(&w);
	/* What was logged behind the last commit block was never committed. */
	out->logged_count = w.committed_logged;
	out->revoke_count = w.committed_revokes;
	free(w.block);
	return e;
}
