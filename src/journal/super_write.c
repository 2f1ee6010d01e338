/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing the journal's superblock.
 *
 * The whole block is kept and written, since the rest of it is not ours. Everything that changes,
 * its checksum included, lies in the first 512 bytes, the least that a disk writes at once: a
 * power cut leaves the old superblock or the new one.
 *
 * Threads: whoever writes the log, one at a time. Format: disk.h.
 */
#include "journal_int.h"

#include <stdlib.h>

static_assert(offsetof(struct disk_super, s_checksum) + sizeof(be32) <= SECTOR_BYTES,
	"the fields that change share a sector with the checksum");

enum err super_load(struct log *log, struct disk_super **out)
{
	const uint8_t *block;
	enum err e = log_block(log, 0, &block);

	if (e != OK)
		return e;

	void *copy = aligned_alloc(PAGE_BYTES, MAX(log->config->block_bytes, (uint32_t)PAGE_BYTES));

	if (copy == NULL)
		return ERR_NOMEM;
	memcpy(copy, block, log->config->block_bytes);
	*out = copy;
	return OK;
}

enum err super_store(const struct log *log, struct disk_super *super)
{
	super->s_checksum = be32_make(0);
	if (log->checksum_version >= 2)
		super->s_checksum = be32_make(crc32c(UINT32_MAX, super, sizeof(*super)));
	return volume_write(log->config->volume, super, log->config->block_bytes,
		log_physical(log, 0) * log->config->block_bytes);
}
