/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A transaction's blocks as bytes: revoke blocks, descriptors with their tags, escaped copies, the
 * commit block.
 *
 * In the buffer and in the log:
 *
 *   revoke ... | descriptor copy ... | descriptor copy ... | commit
 *
 * Every descriptor but the last has all the tags that fit, so that where a copy lies follows from
 * its number. A copy that starts with jbd2's magic has these four bytes zeroed and its tag says so.
 * Checksums are over what lies in the log. The place of the commit block is written as zeros with
 * the rest, so that the commit block proper, whose fields are in its first 60 bytes, changes one
 * sector only and is there or not.
 *
 * Threads: the journal's own; pure but for the clock. Format: disk.h.
 */
#include "writer_int.h"

#include <time.h>

static uint8_t *encode_at(struct journal *j, uint32_t at)
{
	ensure(at < j->buffer_blocks);
	return j->buffer + (size_t)at * j->config.block_bytes;
}

static uint32_t encode_descriptor_at(const struct journal *j, const struct commit *c, uint32_t n)
{
	return c->revoke_blocks + n * (j->tags_per_block + 1);
}

uint32_t encode_copy_at(const struct journal *j, const struct commit *c, uint32_t member)
{
	return encode_descriptor_at(j, c, member / j->tags_per_block) + 1 +
	       member % j->tags_per_block;
}

uint8_t *encode_block(struct journal *j, const struct commit *c, uint32_t at, uint32_t type)
{
	struct disk_header header = {
		.h_magic = be32_make((uint32_t)JBD2_MAGIC),
		.h_blocktype = be32_make(type),
		.h_sequence = be32_make((uint32_t)c->seq),
	};
	uint8_t *block = encode_at(j, at);

	memset(block, 0, j->config.block_bytes);
	memcpy(block, &header, sizeof(header));
	return block;
}

/* Versions 2 and 3: the checksum of a descriptor or revoke block, over itself with a zeroed tail.
 */
static void encode_tail(const struct journal *j, uint8_t *block)
{
	struct disk_tail tail;

	if (j->log.checksum_version < 2)
		return;
	tail.t_checksum = be32_make(crc32c(j->log.checksum_seed, block, j->config.block_bytes));
	memcpy(block + j->log.usable_bytes, &tail, sizeof(tail));
}

/* --- revoke ---------------------------------------------------------------------------------- */

void encode_revoke(struct journal *j, const struct commit *c, uint32_t n, fsblk_t nr)
{
	uint32_t record_bytes = j->log.has_64bit ? sizeof(be64) : sizeof(be32);
	uint32_t at = n / j->revokes_per_block, record = n % j->revokes_per_block;
	uint32_t used = (uint32_t)sizeof(struct disk_revoke) + record * record_bytes;
	uint8_t *block = record == 0 ? encode_block(j, c, at, JBD2_REVOKE) : encode_at(j, at);
	be32 count = be32_make(used + record_bytes);
	be64 wide = be64_make(nr);

	memcpy(block + used, wide.b + sizeof(wide) - record_bytes, record_bytes);
	memcpy(block + offsetof(struct disk_revoke, r_count), &count, sizeof(count));
}

/* --- descriptors ----------------------------------------------------------------------------- */

static uint32_t encode_checksum_copy(
	const struct journal *j, const struct commit *c, const void *copy)
{
	be32 sequence = be32_make((uint32_t)c->seq);
	uint32_t crc = crc32c(j->log.checksum_seed, &sequence, sizeof(sequence));

	return crc32c(crc, copy, j->config.block_bytes);
}

/* The tag of a copy, which is escaped here; returns its bytes, a UUID that follows included. */
static uint32_t encode_tag(struct journal *j, const struct commit *c, uint32_t member, uint8_t *at)
{
	static const uint8_t magic[4] = {0xc0, 0x3b, 0x39, 0x98};
	bool first = member % j->tags_per_block == 0;
	bool last = member % j->tags_per_block == j->tags_per_block - 1 || member == c->members - 1;
	uint32_t flags = (first ? 0 : JBD2_TAG_SAME_UUID) | (last ? JBD2_TAG_LAST : 0);
	uint8_t *copy = encode_at(j, encode_copy_at(j, c, member));
	be32 high = be32_make(j->log.has_64bit ? (uint32_t)(j->homes[member] >> 32) : 0);
	be32 low = be32_make((uint32_t)j->homes[member]);

	if (memcmp(copy, magic, sizeof(magic)) == 0) {
		memset(copy, 0, sizeof(magic));
		flags |= JBD2_TAG_ESCAPE;
	}
	if (j->log.checksum_version == 3) {
		struct disk_tag3 tag = {.t_blocknr = low,
			.t_flags = be32_make(flags),
			.t_blocknr_high = high,
			.t_checksum = be32_make(encode_checksum_copy(j, c, copy))};

		memcpy(at, &tag, sizeof(tag));
	} else {
		struct disk_tag tag = {.t_blocknr = low,
			.t_checksum = be16_make(j->log.checksum_version == 2
							? (uint16_t)encode_checksum_copy(j, c, copy)
							: 0),
			.t_flags = be16_make((uint16_t)flags),
			.t_blocknr_high = high};

		/* Version 2 leaves two more bytes than it has use for; they stay zero. */
		memcpy(at, &tag, MIN((size_t)j->log.tag_bytes, sizeof(tag)));
	}
	if (!first)
		return j->log.tag_bytes;
	memcpy(at + j->log.tag_bytes, j->super->s_uuid, JBD2_UUID_BYTES);
	return j->log.tag_bytes + JBD2_UUID_BYTES;
}

void encode_log(struct journal *j, const struct commit *c)
{
	uint8_t *descriptor = NULL;
	uint32_t used = 0;

	for (uint32_t n = 0; n < c->revoke_blocks; n++)
		encode_tail(j, encode_at(j, n));
	for (uint32_t member = 0; member < c->members; member++) {
		if (member % j->tags_per_block == 0) {
			uint32_t n = member / j->tags_per_block;

			descriptor =
				encode_block(j, c, encode_descriptor_at(j, c, n), JBD2_DESCRIPTOR);
			used = sizeof(struct disk_header);
		}
		used += encode_tag(j, c, member, descriptor + used);
		ensure(used <= j->log.usable_bytes);
		if (member % j->tags_per_block == j->tags_per_block - 1 || member == c->members - 1)
			encode_tail(j, descriptor);
	}
	memset(encode_at(j, c->blocks - 1), 0, j->config.block_bytes);
}

/* --- commit ---------------------------------------------------------------------------------- */

/* Version 1: descriptors and copies in the order of the log, without revoke blocks. */
static uint32_t encode_checksum_v1(struct journal *j, const struct commit *c)
{
	uint32_t crc = UINT32_MAX;

	for (uint32_t at = c->revoke_blocks; at < c->blocks - 1; at++)
		crc = crc32_be(crc, encode_at(j, at), j->config.block_bytes);
	return crc;
}

void encode_commit_block(struct journal *j, const struct commit *c)
{
	uint8_t *block = encode_block(j, c, c->blocks - 1, JBD2_COMMIT);
	struct disk_commit commit;
	struct timespec now;

	/* Readers tell stale commit blocks from damaged ones by a time that never decreases. */
	ensure(clock_gettime(CLOCK_REALTIME, &now) == 0);
	uint64_t sec = now.tv_sec > 0 ? (uint64_t)now.tv_sec : 0;

	j->commit_sec = MAX(j->commit_sec, sec);
	memcpy(&commit, block, sizeof(commit));
	commit.h_commit_sec = be64_make(j->commit_sec);
	commit.h_commit_nsec = be32_make(j->commit_sec == sec ? (uint32_t)now.tv_nsec : 0);
	if (j->log.checksum_version == 1) {
		commit.h_chksum_type = JBD2_CHKSUM_CRC32;
		commit.h_chksum_size = sizeof(be32);
		commit.h_chksum[0] = be32_make(encode_checksum_v1(j, c));
	}
	memcpy(block, &commit, sizeof(commit));
	if (j->log.checksum_version < 2)
		return;
	commit.h_chksum[0] = be32_make(crc32c(j->log.checksum_seed, block, j->config.block_bytes));
	memcpy(block, &commit, sizeof(commit));
}
