/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Makes small journals in memory, block by block, in every checksum version, so that a suite can
 * damage exactly one thing. Its checksums are written down from the format's description a second
 * time; that they are the kernel's and e2fsprogs' is shown in test_journal.c on logs of theirs.
 */
#ifndef CRYPTFS_TEST_LOG_MAKER_H
#define CRYPTFS_TEST_LOG_MAKER_H

#include "journal_int.h"
#include "memory_volume.h"

#include <check.h>
#include <stdlib.h>

enum { MAKER_BLOCK = 1024, MAKER_FS_BLOCKS = 1024, MAKER_BLOCKS = 96, MAKER_FIRST = 1 };

struct maker {
	struct memory_volume m;
	struct journal_run runs[3];
	struct journal_config config;
	int version; /* of the checksums */
	uint32_t incompat, compat;
	uint32_t last;             /* where the log wraps */
	uint32_t position;         /* of the next block */
	uint32_t sequence;         /* of the transaction at hand */
	uint32_t crc;              /* version 1 */
	uint8_t *descriptor, *tag; /* the tag to come */
	uint8_t *tag_flags;        /* the low byte of the latest tag's flags */
	uint32_t descriptor_at, data_at, revoke_at, commit_at; /* positions of the latest */
	uint8_t uuid[JBD2_UUID_BYTES];
};

static inline uint8_t *maker_block(struct maker *k, uint32_t position)
{
	for (size_t i = 0; i < k->config.run_count; i++)
		if (position - k->runs[i].logical < k->runs[i].count)
			return k->m.bytes +
			       (k->runs[i].physical + position - k->runs[i].logical) * MAKER_BLOCK;
	ck_abort_msg("no such position: %u", position);
}

static inline struct disk_super *maker_super(struct maker *k)
{
	return (void *)maker_block(k, 0);
}

static inline uint32_t maker_seed(const struct maker *k)
{
	return crc32c(UINT32_MAX, k->uuid, sizeof(k->uuid));
}

/* After any change of the superblock. */
static inline void maker_seal_super(struct maker *k)
{
	struct disk_super *s = maker_super(k);

	s->s_checksum = be32_make(0);
	if (k->version >= 2)
		s->s_checksum = be32_make(crc32c(UINT32_MAX, s, sizeof(*s)));
}

static inline void maker_start(
	struct maker *k, int version, uint32_t incompat, uint32_t start, uint32_t sequence)
{
	struct disk_super *s;

	memset(k, 0, sizeof(*k));
	ck_assert_int_eq(memory_volume_open(MAKER_FS_BLOCKS * MAKER_BLOCK, &k->m), OK);
	memset(k->m.bytes, 0x5a, k->m.size_bytes);
	k->runs[0] = (struct journal_run){0, 10, 100};
	k->runs[1] = (struct journal_run){10, 30, 300};
	k->runs[2] = (struct journal_run){40, MAKER_BLOCKS - 40, 200};
	k->config = (struct journal_config){.volume = k->m.volume,
		.block_bytes = MAKER_BLOCK,
		.fs_blocks = MAKER_FS_BLOCKS,
		.runs = k->runs,
		.run_count = 3};
	k->version = version;
	k->incompat = incompat | JBD2_INCOMPAT_REVOKE |
		      (version == 2          ? JBD2_INCOMPAT_CSUM_V2
			      : version == 3 ? JBD2_INCOMPAT_CSUM_V3
					     : 0);
	k->compat = version == 1 ? JBD2_COMPAT_CHECKSUM : 0;
	k->last = MAKER_BLOCKS;
	k->position = start;
	k->sequence = sequence;
	k->crc = UINT32_MAX;
	memset(k->uuid, 0x77, sizeof(k->uuid));
	s = maker_super(k);
	memset(s, 0, sizeof(*s));
	s->s_header.h_magic = be32_make((uint32_t)JBD2_MAGIC);
	s->s_header.h_blocktype = be32_make(JBD2_SUPERBLOCK_V2);
	s->s_blocksize = be32_make(MAKER_BLOCK);
	s->s_maxlen = be32_make(MAKER_BLOCKS);
	s->s_first = be32_make(MAKER_FIRST);
	s->s_start = be32_make(start);
	s->s_sequence = be32_make(sequence);
	s->s_feature_compat = be32_make(k->compat);
	s->s_feature_incompat = be32_make(k->incompat);
	s->s_checksum_type = version >= 2 ? JBD2_CHKSUM_CRC32C : 0;
	memcpy(s->s_uuid, k->uuid, sizeof(k->uuid));
	maker_seal_super(k);
}

static inline void maker_stop(struct maker *k)
{
	memory_volume_close(&k->m);
}

static inline uint32_t maker_next(struct maker *k)
{
	uint32_t at = k->position++;

	if (k->position == k->last)
		k->position = MAKER_FIRST;
	return at;
}

static inline uint8_t *maker_header(struct maker *k, uint32_t at, uint32_t type)
{
	struct disk_header *h = (void *)maker_block(k, at);

	memset(h, 0, MAKER_BLOCK);
	h->h_magic = be32_make((uint32_t)JBD2_MAGIC);
	h->h_blocktype = be32_make(type);
	h->h_sequence = be32_make(k->sequence);
	return (uint8_t *)h;
}

/* Versions 2 and 3: the tail of a descriptor or revoke block, over what it says now. */
static inline void maker_seal_tail(struct maker *k, uint32_t at)
{
	uint8_t *block = maker_block(k, at);
	be32 sum = be32_make(0);

	if (k->version < 2)
		return;
	memcpy(block + MAKER_BLOCK - 4, &sum, 4);
	sum = be32_make(crc32c(maker_seed(k), block, MAKER_BLOCK));
	memcpy(block + MAKER_BLOCK - 4, &sum, 4);
}

static inline void maker_begin(struct maker *k)
{
	k->descriptor_at = maker_next(k);
	k->descriptor = maker_header(k, k->descriptor_at, JBD2_DESCRIPTOR);
	k->tag = k->descriptor + sizeof(struct disk_header);
}

static inline void maker_fill(uint8_t *block, uint64_t token)
{
	for (size_t i = 0; i < MAKER_BLOCK / 8; i++) {
		uint64_t word = token * UINT64_C(0x9e3779b97f4a7c15) + i;

		memcpy(block + i * 8, &word, 8);
	}
}

static inline uint32_t maker_data_sum(struct maker *k, const uint8_t *data)
{
	be32 sequence = be32_make(k->sequence);

	return crc32c(crc32c(maker_seed(k), &sequence, 4), data, MAKER_BLOCK);
}

/* One more logged block, whose content is made from the token; with `escape` it starts with the
 * magic, which is zeroed in the log. */
static inline void maker_log(struct maker *k, fsblk_t home, uint64_t token, bool escape)
{
	bool first = k->tag == k->descriptor + sizeof(struct disk_header);
	uint32_t flags = (first ? 0 : JBD2_TAG_SAME_UUID) | (escape ? JBD2_TAG_ESCAPE : 0);
	bool wide = k->incompat & JBD2_INCOMPAT_64BIT;
	be32 low = be32_make((uint32_t)home), high = be32_make((uint32_t)(home >> 32));
	uint8_t *data;

	k->tag_flags = k->tag + 7; /* in every version */
	k->data_at = maker_next(k);
	data = maker_block(k, k->data_at);
	maker_fill(data, token);
	if (escape)
		memset(data, 0, 4);
	if (k->version == 3) {
		struct disk_tag3 tag = {.t_blocknr = low,
			.t_flags = be32_make(flags),
			.t_blocknr_high = high,
			.t_checksum = be32_make(maker_data_sum(k, data))};

		memcpy(k->tag, &tag, sizeof(tag));
		k->tag += 16;
	} else {
		be16 sum = be16_make(k->version == 2 ? (uint16_t)maker_data_sum(k, data) : 0);
		be16 flags16 = be16_make((uint16_t)flags);

		memcpy(k->tag, &low, 4);
		memcpy(k->tag + 4, &sum, 2);
		memcpy(k->tag + 6, &flags16, 2);
		if (wide)
			memcpy(k->tag + 8, &high, 4);
		k->tag += 8 + (wide ? 4 : 0) + (k->version == 2 ? 2 : 0);
	}
	if (first) {
		memcpy(k->tag, k->uuid, sizeof(k->uuid));
		k->tag += sizeof(k->uuid);
	}
}

static inline void maker_end(struct maker *k)
{
	*k->tag_flags |= JBD2_TAG_LAST;
	maker_seal_tail(k, k->descriptor_at);
	if (k->version != 1)
		return;
	/* Version 1 sums the descriptor first and then its blocks. */
	k->crc = crc32_be(k->crc, k->descriptor, MAKER_BLOCK);
	for (uint32_t at = k->descriptor_at; at != k->data_at;) {
		at = at + 1 == k->last ? MAKER_FIRST : at + 1;
		k->crc = crc32_be(k->crc, maker_block(k, at), MAKER_BLOCK);
	}
}

static inline void maker_revoke(struct maker *k, const fsblk_t *blocks, uint32_t count)
{
	uint32_t each = k->incompat & JBD2_INCOMPAT_64BIT ? 8 : 4;
	uint8_t *block;

	k->revoke_at = maker_next(k);
	block = maker_header(k, k->revoke_at, JBD2_REVOKE);
	((struct disk_revoke *)(void *)block)->r_count = be32_make(16 + count * each);
	for (uint32_t i = 0; i < count; i++) {
		be64 number = be64_make(blocks[i]);

		memcpy(block + 16 + i * each, number.b + 8 - each, each);
	}
	maker_seal_tail(k, k->revoke_at);
}

static inline void maker_seal_commit(struct maker *k, uint32_t at)
{
	struct disk_commit *c = (void *)maker_block(k, at);

	memset(c->h_chksum, 0, sizeof(c->h_chksum));
	if (k->version == 1) {
		c->h_chksum_type = JBD2_CHKSUM_CRC32;
		c->h_chksum_size = 4;
		c->h_chksum[0] = be32_make(k->crc);
	} else if (k->version >= 2) {
		c->h_chksum[0] = be32_make(crc32c(maker_seed(k), c, MAKER_BLOCK));
	}
}

static inline void maker_commit(struct maker *k, uint64_t seconds)
{
	k->commit_at = maker_next(k);
	((struct disk_commit *)(void *)maker_header(k, k->commit_at, JBD2_COMMIT))->h_commit_sec =
		be64_make(seconds);
	maker_seal_commit(k, k->commit_at);
	k->sequence++;
	k->crc = UINT32_MAX;
}

/* A whole transaction with one block. */
static inline void maker_transaction(struct maker *k, fsblk_t home, uint64_t token, uint64_t sec)
{
	maker_begin(k);
	maker_log(k, home, token, false);
	maker_end(k);
	maker_commit(k, sec);
}

static inline enum err maker_scan(struct maker *k, struct overlay **out, struct journal_info *info)
{
	*out = NULL;
	err_clear_detail();
	return journal_scan(&k->config, out, info);
}

/* token 0: the home has no copy. */
static inline void maker_expect(
	struct maker *k, const struct overlay *o, fsblk_t home, uint64_t token, bool escaped)
{
	const struct overlay_entry *e = o == NULL ? NULL : overlay_find(o, home, 1);
	static const uint8_t magic[4] = {0xc0, 0x3b, 0x39, 0x98};
	uint8_t want[MAKER_BLOCK], got[MAKER_BLOCK];

	if (token == 0) {
		ck_assert_ptr_null(e);
		return;
	}
	ck_assert_msg(e != NULL, "block %llu is not in the overlay", (unsigned long long)home);
	maker_fill(want, token);
	if (escaped)
		memcpy(want, magic, 4);
	ck_assert_int_eq(overlay_read(e, k->m.volume, MAKER_BLOCK, got), OK);
	ck_assert_mem_eq(got, want, MAKER_BLOCK);
}

/* Scans, compares result and number of transactions, and throws the overlay away. */
static inline void maker_expect_scan(struct maker *k, enum err want, uint32_t transactions)
{
	struct journal_info info;
	struct overlay *o;
	enum err e = maker_scan(k, &o, &info);

	ck_assert_msg(e == want, "%s instead of %s: %s", err_name(e), err_name(want), err_detail());
	if (e == OK)
		ck_assert_uint_eq(info.transactions, transactions);
	else
		ck_assert_ptr_null(o);
	overlay_destroy(o);
}

static inline int maker_run(Suite *s)
{
	SRunner *sr = srunner_create(s);

	srunner_run_all(sr, CK_ENV);
	int failed = srunner_ntests_failed(sr);

	srunner_free(sr);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
