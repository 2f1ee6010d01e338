/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Replay for real: every home gets its newest committed copy, then the log is marked empty.
 *
 * The order is what makes a crash within it harmless: the homes are flushed before the superblock
 * says that the log is empty, so that until then the next replay does the same writes again. The
 * sequence number in it is past the transaction that the log's end was cut in, whose blocks still
 * lie there: nothing of ours may ever match them.
 *
 * Memory: one entry for each block of the log, and one buffer; the copies are read one by one and
 * written in runs of adjacent homes.
 *
 * Threads: one, at mount.
 */
#include "journal_int.h"

#include <stdlib.h>

enum { RECOVER_BUFFER_BYTES = 1 << 20 };

/* A home inside the journal would destroy what is still to be replayed. No file system logs one. */
static enum err recover_check_homes(const struct log *log, const struct overlay *overlay)
{
	for (size_t i = 0; i < log->config->run_count; i++) {
		const struct journal_run *run = &log->config->runs[i];
		const struct overlay_entry *e = overlay_find(overlay, run->physical, run->count);

		if (e != NULL)
			return journal_damaged("it logs block %llu, which is its own",
				(unsigned long long)e->block);
	}
	return OK;
}

static enum err recover_write_homes(const struct log *log, const struct overlay *overlay)
{
	const uint32_t block_bytes = log->config->block_bytes;
	struct volume *volume = log->config->volume;
	const struct overlay_entry *entry = overlay_find(overlay, 0, UINT64_MAX);
	uint8_t *buffer = aligned_alloc(PAGE_BYTES, RECOVER_BUFFER_BYTES);
	enum err e = buffer == NULL ? ERR_NOMEM : OK;

	while (e == OK && entry != NULL) {
		fsblk_t first = entry->block;
		size_t bytes = 0;

		do {
			e = overlay_read(entry, volume, block_bytes, buffer + bytes);
			bytes += block_bytes;
			entry = overlay_find(overlay, entry->block + 1, UINT64_MAX);
		} while (e == OK && entry != NULL && bytes < RECOVER_BUFFER_BYTES &&
			 entry->block == first + bytes / block_bytes);
		if (e == OK)
			e = volume_write(volume, buffer, bytes, first * block_bytes);
	}
	free(buffer);
	return e;
}

static enum err recover_mark_empty(struct log *log, uint32_t end)
{
	struct disk_super *super;
	enum err e = super_load(log, &super);

	if (e != OK)
		return e;
	super->s_start = be32_make(0);
	super->s_sequence = be32_make(end + 1);
	e = super_store(log, super);
	if (e == OK)
		e = volume_flush(log->config->volume);
	free(super);
	return e;
}

enum err journal_recover(const struct journal_config *config, struct journal_info *info)
{
	struct log log;
	struct journal_info found = {0};
	struct overlay *overlay = NULL;
	enum err e = log_open(config, &log, &found);

	if (e != OK || found.clean)
		goto out;
	e = journal_plan(&log, &overlay, &found);
	if (e == OK && overlay != NULL)
		e = recover_check_homes(&log, overlay);
	if (e == OK && overlay != NULL)
		e = recover_write_homes(&log, overlay);
	if (e == OK)
		e = volume_flush(config->volume);
	if (e == OK)
		e = recover_mark_empty(&log, found.sequence);
out:
	overlay_destroy(overlay);
	log_close(&log);
	if (e == OK)
		*info = found;
	return e;
}
