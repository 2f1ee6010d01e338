/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * REVOKE and REPLAY: from what the committed transactions logged and revoked to an overlay.
 *
 * A logged block is skipped when a revoke record for its home has the same or a later transaction
 * number (compared modulo 2^32). Of the others each must match its checksum, also one that a newer
 * copy replaces, as in the kernel; the newest is the home's entry. Only revoke records for homes
 * that were logged are kept, so that memory is bounded by the log's blocks, whatever the records
 * say.
 *
 * Threads: one, at mount. Format: disk.h.
 */
#include "journal_int.h"

#include <stdlib.h>

/* A home block with its newest copy and its newest revoke record. */
struct home {
	fsblk_t block;
	size_t newest; /* index into the scan's logged blocks */
	uint32_t revoke_sequence;
	bool revoked; /* there is a record; what it covers depends on the sequence */
};
struct homes {
	struct home *home; /* by rising, distinct block */
	size_t count;
};

static int home_compare(const void *a, const void *b)
{
	const struct home *x = a, *y = b;

	if (x->block != y->block)
		return x->block > y->block ? 1 : -1;
	return (x->newest > y->newest) - (x->newest < y->newest);
}

static enum err homes_collect(const struct scan *scan, struct homes *out)
{
	struct home *home = calloc(scan->logged_count, sizeof(*home));
	size_t kept = 0;

	if (home == NULL)
		return ERR_NOMEM;
	for (size_t i = 0; i < scan->logged_count; i++)
		home[i] = (struct home){.block = scan->logged[i].home, .newest = i};
	qsort(home, scan->logged_count, sizeof(*home), home_compare);
	for (size_t i = 0; i < scan->logged_count; i++) {
		if (kept > 0 && home[kept - 1].block == home[i].block)
			kept--;
		home[kept++] = home[i];
	}
	*out = (struct homes){home, kept};
	return OK;
}

static struct home *homes_find(const struct homes *homes, fsblk_t block)
{
	size_t low = 0, high = homes->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (homes->home[middle].block < block)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == homes->count || homes->home[low].block != block)
		return NULL;
	return &homes->home[low];
}

/* --- REVOKE ---------------------------------------------------------------------------------- */

static void replay_revoke_record(const struct homes *homes, fsblk_t block, uint32_t sequence)
{
	struct home *home = homes_find(homes, block);

	if (home == NULL || (home->revoked && sequence_reached(home->revoke_sequence, sequence)))
		return;
	home->revoked = true;
	home->revoke_sequence = sequence;
}

static enum err replay_revoke_block(
	struct log *log, const struct revoke_block *revoke, const struct homes *homes)
{
	struct disk_revoke header;
	const uint8_t *block;
	uint32_t record_bytes = log->has_64bit ? sizeof(be64) : sizeof(be32);
	enum err e = log_block(log, revoke->position, &block);

	if (e != OK)
		return e;
	memcpy(&header, block, sizeof(header));

	uint32_t used = be32_get(header.r_count);

	if (used > log->usable_bytes)
		return journal_damaged(
			"a revoke block of transaction %u claims %u bytes", revoke->sequence, used);
	for (uint32_t at = sizeof(header); at + record_bytes <= used; at += record_bytes) {
		be64 wide;
		be32 narrow;

		if (log->has_64bit) {
			memcpy(&wide, block + at, sizeof(wide));
			replay_revoke_record(homes, be64_get(wide), revoke->sequence);
		} else {
			memcpy(&narrow, block + at, sizeof(narrow));
			replay_revoke_record(homes, be32_get(narrow), revoke->sequence);
		}
	}
	return OK;
}

/* --- REPLAY ---------------------------------------------------------------------------------- */

static enum err replay_verify_copy(struct log *log, const struct logged *copy)
{
	be32 sequence = be32_make(copy->sequence);
	const uint8_t *data;

	if (copy->home >= log->config->fs_blocks)
		return journal_damaged("transaction %u logs block %llu, past the end of the file "
				       "system",
			copy->sequence, (unsigned long long)copy->home);
	if (log->checksum_version < 2)
		return OK;

	enum err e = log_block(log, copy->position, &data);

	if (e != OK)
		return e;

	uint32_t crc = crc32c(log->checksum_seed, &sequence, sizeof(sequence));

	crc = crc32c(crc, data, log->config->block_bytes);
	if (log->checksum_version == 2)
		crc &= UINT16_MAX;
	if (crc != copy->checksum)
		return journal_damaged(
			"the checksum of block %llu in transaction %u does not match",
			(unsigned long long)copy->home, copy->sequence);
	return OK;
}

static enum err replay_copies(struct log *log, const struct scan *scan, const struct homes *homes,
	struct overlay_entry *entries, struct journal_info *info)
{
	for (size_t i = 0; i < scan->logged_count; i++) {
		const struct logged *copy = &scan->logged[i];
		const struct home *home = homes_find(homes, copy->home);

		ensure(home != NULL);
		if (home->revoked && sequence_reached(home->revoke_sequence, copy->sequence)) {
			info->revoked++;
			continue;
		}

		enum err e = replay_verify_copy(log, copy);

		if (e != OK)
			return e;
		if (home->newest == i)
			entries[info->blocks++] = (struct overlay_entry){.block = copy->home,
				.log = log_physical(log, copy->position),
				.escaped = copy->escaped};
	}
	return OK;
}

enum err replay_build(
	struct log *log, const struct scan *scan, struct overlay **out, struct journal_info *info)
{
	struct homes homes = {0};
	struct overlay_entry *entries = NULL;
	struct overlay *overlay = NULL;
	enum err e = OK;

	if (scan->logged_count == 0)
		goto out;
	e = homes_collect(scan, &homes);
	if (e != OK)
		goto out;
	for (size_t i = 0; i < scan->revoke_count; i++) {
		e = replay_revoke_block(log, &scan->revokes[i], &homes);
		if (e != OK)
			goto out;
	}
	entries = calloc(homes.count, sizeof(*entries));
	if (entries == NULL) {
		e = ERR_NOMEM;
		goto out;
	}
	e = replay_copies(log, scan, &homes, entries, info);
	if (e == OK && info->blocks > 0)
		e = overlay_create(entries, info->blocks, &overlay);
out:
	free(entries);
	free(homes.home);
	if (e == OK)
		*out = overlay;
	return e;
}
