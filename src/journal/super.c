/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The journal's superblock, and its blocks by their position in the journal.
 *
 * Everything that later code takes from the superblock or the runs is verified here. A journal
 * with checksum versions 2 or 3 has a superblock checksum (crc32c over 1024 bytes with the field
 * zeroed); the three versions exclude each other. Format: disk.h.
 *
 * Does not read an external journal's list of users: such a journal is refused before.
 */
#include "journal_int.h"

#include <stdlib.h>

enum { LOG_WINDOW_BYTES = 128 << 10 };

/* --- blocks ---------------------------------------------------------------------------------- */

/* The run that holds the position. */
static const struct journal_run *log_run(const struct log *log, uint32_t position)
{
	const struct journal_run *runs = log->config->runs;
	size_t low = 0, high = log->config->run_count - 1;

	while (low < high) {
		size_t middle = high - (high - low) / 2;

		if (runs[middle].logical <= position)
			low = middle;
		else
			high = middle - 1;
	}
	ensure(position - runs[low].logical < runs[low].count);
	return &runs[low];
}

fsblk_t log_physical(const struct log *log, uint32_t position)
{
	const struct journal_run *run = log_run(log, position);

	return run->physical + (position - run->logical);
}

enum err log_block(struct log *log, uint32_t position, const uint8_t **out)
{
	uint32_t block_bytes = log->config->block_bytes;

	if (position - log->window_first >= log->window_count) {
		const struct journal_run *run = log_run(log, position);
		uint32_t ahead = run->count - (position - run->logical);

		ahead = MIN(ahead, log->window_room);
		log->window_count = 0;
		enum err e = volume_read(log->config->volume, log->window,
			(size_t)ahead * block_bytes, log_physical(log, position) * block_bytes);
		if (e != OK)
			return e;
		log->window_first = position;
		log->window_count = ahead;
	}
	*out = log->window + (size_t)(position - log->window_first) * block_bytes;
	return OK;
}

/* The runs come from the journal inode's map, which the disk decides. */
static enum err log_verify_runs(const struct journal_config *config, uint32_t *blocks)
{
	uint32_t next = 0;
	uint64_t bytes;

	if (config->run_count == 0)
		return journal_damaged("it has no blocks%s", "");
	if (__builtin_mul_overflow(config->fs_blocks, config->block_bytes, &bytes))
		return journal_damaged("the file system claims %llu blocks",
			(unsigned long long)config->fs_blocks);
	for (size_t i = 0; i < config->run_count; i++) {
		const struct journal_run *run = &config->runs[i];

		if (run->logical != next || run->count == 0 ||
			__builtin_add_overflow(next, run->count, &next))
			return journal_damaged("its map has a hole before block %u", run->logical);
		if (run->physical >= config->fs_blocks ||
			run->count > config->fs_blocks - run->physical)
			return journal_damaged(
				"its block %u lies past the end of the file system", run->logical);
	}
	*blocks = next;
	return OK;
}

/* --- the superblock -------------------------------------------------------------------------- */

static enum err super_verify_features(const struct disk_super *super, struct log *log)
{
	uint32_t compat = be32_get(super->s_feature_compat);
	uint32_t incompat = be32_get(super->s_feature_incompat);
	uint32_t ro_compat = be32_get(super->s_feature_ro_compat);
	int versions = 0;

	if ((incompat & ~(uint32_t)JBD2_INCOMPAT_KNOWN) != 0 || ro_compat != 0)
		return err_set_detail(ERR_JOURNAL_FEATURE,
			"the journal uses features that are not supported (incompatible 0x%x, "
			"read-only compatible 0x%x); run fsck.cryptfs, or mount with -o ro,noload",
			incompat & ~(uint32_t)JBD2_INCOMPAT_KNOWN, ro_compat);
	if (compat & JBD2_COMPAT_CHECKSUM) {
		log->checksum_version = 1;
		versions++;
	}
	if (incompat & JBD2_INCOMPAT_CSUM_V2) {
		log->checksum_version = 2;
		versions++;
	}
	if (incompat & JBD2_INCOMPAT_CSUM_V3) {
		log->checksum_version = 3;
		versions++;
	}
	if (versions > 1)
		return journal_damaged(
			"its superblock names %d checksum versions at once", versions);
	log->has_64bit = incompat & JBD2_INCOMPAT_64BIT;
	log->async_commit = incompat & JBD2_INCOMPAT_ASYNC_COMMIT;
	log->fast_commit = incompat & JBD2_INCOMPAT_FAST_COMMIT;
	return OK;
}

static enum err super_verify_checksum(const struct disk_super *super, struct log *log)
{
	struct disk_super copy = *super;

	if (log->checksum_version < 2)
		return OK;
	if (super->s_checksum_type != JBD2_CHKSUM_CRC32C)
		return journal_damaged(
			"its superblock names checksum type %u", super->s_checksum_type);
	copy.s_checksum = be32_make(0);
	if (crc32c(UINT32_MAX, &copy, sizeof(copy)) != be32_get(super->s_checksum))
		return journal_damaged("the checksum of its superblock does not match%s", "");
	log->checksum_seed = crc32c(UINT32_MAX, super->s_uuid, sizeof(super->s_uuid));
	return OK;
}

static enum err super_verify_geometry(
	const struct disk_super *super, struct log *log, uint32_t blocks)
{
	uint32_t length = be32_get(super->s_maxlen);
	uint32_t fast_blocks = 0;

	if (be32_get(super->s_blocksize) != log->config->block_bytes)
		return journal_damaged("its block size is %u and the file system's is %u",
			be32_get(super->s_blocksize), log->config->block_bytes);
	if (length > blocks)
		return journal_damaged(
			"its superblock claims %u blocks and there are %u", length, blocks);
	if (log->fast_commit) {
		fast_blocks = be32_get(super->s_num_fc_blks);
		if (fast_blocks == 0)
			fast_blocks = JBD2_FAST_COMMIT_BLOCKS_DEFAULT;
		if (fast_blocks >= length)
			return journal_damaged(
				"%u of its %u blocks are for fast commits", fast_blocks, length);
	}
	log->first = be32_get(super->s_first);
	log->last = length - fast_blocks;
	log->blocks = length;
	log->start = be32_get(super->s_start);
	log->sequence = be32_get(super->s_sequence);
	if (log->first == 0 || log->first >= log->last)
		return journal_damaged("its log is from block %u to %u", log->first, log->last);
	if (log->start != 0 && (log->start < log->first || log->start >= log->last))
		return journal_damaged("its log starts at block %u, outside %u to %u", log->start,
			log->first, log->last);
	return OK;
}

static void super_tag_size(struct log *log)
{
	uint32_t bytes = sizeof(struct disk_tag) - sizeof(be32);

	if (log->checksum_version == 3)
		bytes = sizeof(struct disk_tag3);
	else if (log->has_64bit)
		bytes = sizeof(struct disk_tag);
	if (log->checksum_version == 2)
		bytes += sizeof(be16);
	log->tag_bytes = bytes;
	log->usable_bytes = log->config->block_bytes;
	if (log->checksum_version >= 2)
		log->usable_bytes -= (uint32_t)sizeof(struct disk_tail);
}

static enum err super_read(struct log *log, uint32_t blocks, struct journal_info *info)
{
	const uint8_t *block;
	struct disk_super super;
	enum err e = log_block(log, 0, &block);

	if (e != OK)
		return e;
	memcpy(&super, block, sizeof(super));

	uint32_t magic = be32_get(super.s_header.h_magic);
	uint32_t type = be32_get(super.s_header.h_blocktype);

	if (magic != (uint32_t)JBD2_MAGIC ||
		(type != JBD2_SUPERBLOCK_V1 && type != JBD2_SUPERBLOCK_V2))
		return journal_damaged("no superblock: magic 0x%x, type %u", magic, type);
	/* Version 1 ends before the feature words; what follows is not zeroed everywhere. */
	if (type == JBD2_SUPERBLOCK_V1)
		memset((uint8_t *)&super + offsetof(struct disk_super, s_feature_compat), 0,
			sizeof(super) - offsetof(struct disk_super, s_feature_compat));
	e = super_verify_features(&super, log);
	if (e == OK)
		e = super_verify_checksum(&super, log);
	if (e == OK)
		e = super_verify_geometry(&super, log, blocks);
	if (e != OK)
		return e;
	super_tag_size(log);
	info->clean = log->start == 0;
	info->sequence = log->sequence;
	info->checksum_version = log->checksum_version;
	info->has_64bit = log->has_64bit;
	info->fast_commit = log->fast_commit;
	info->error = be32_get(super.s_errno);
	memcpy(info->uuid, super.s_uuid, sizeof(info->uuid));
	return OK;
}

enum err log_open(const struct journal_config *config, struct log *log, struct journal_info *info)
{
	uint32_t blocks = 0;

	*log = (struct log){.config = config};
	ensure(config->block_bytes >= sizeof(struct disk_super) &&
		(config->block_bytes & (config->block_bytes - 1)) == 0);

	enum err e = log_verify_runs(config, &blocks);

	if (e != OK)
		return e;
	log->window_room = MAX(LOG_WINDOW_BYTES / config->block_bytes, 1U);
	log->window = aligned_alloc(PAGE_BYTES, (size_t)log->window_room * config->block_bytes);
	if (log->window == NULL)
		return ERR_NOMEM;
	return super_read(log, blocks, info);
}

void log_close(struct log *log)
{
	free(log->window);
	log->window = NULL;
}
