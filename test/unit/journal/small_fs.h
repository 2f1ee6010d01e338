/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A small file system of 1 KiB blocks in memory with a journal in three runs, a cache and the
 * writer, over a device that calls back before each write and flush: so that a suite can do
 * something, or look, at exactly that moment.
 */
#ifndef CRYPTFS_TEST_SMALL_FS_H
#define CRYPTFS_TEST_SMALL_FS_H

#include "memory_volume.h"
#include "rig_run.h"
#include "writer_int.h"

enum { SMALL_BLOCK = 1024, SMALL_BLOCKS = 8192, SMALL_LOG = 1100, SMALL_FREE = 2000 };

struct small;
struct hook_dev {
	struct dev dev;
	struct dev *below;
	struct small *owner;
	void (*before_write)(struct small *s, uint64_t offset_bytes, uint64_t len_bytes);
	void (*before_flush)(struct small *s);
	void (*after_flush)(struct small *s);
};

struct small {
	struct hook_dev hook;
	struct memory_volume m;
	struct journal_run runs[3];
	struct journal_open_config config;
	struct cache *cache;
	struct journal *journal;
	unsigned turn; /* for the hooks */
};

/* --- the device ------------------------------------------------------------------------------ */

static inline struct hook_dev *hook_of(struct dev *d)
{
	return container_of(d, struct hook_dev, dev);
}
static inline enum err hook_readv(struct dev *d, const struct iovec *iov, int count, uint64_t at)
{
	return dev_readv(hook_of(d)->below, iov, count, at);
}
static inline enum err hook_writev(struct dev *d, const struct iovec *iov, int count, uint64_t at)
{
	struct hook_dev *h = hook_of(d);
	uint64_t len = 0;

	for (int i = 0; i < count; i++)
		len += iov[i].iov_len;
	if (h->before_write != NULL)
		h->before_write(h->owner, at, len);
	return dev_writev(h->below, iov, count, at);
}
static inline enum err hook_flush(struct dev *d)
{
	struct hook_dev *h = hook_of(d);

	if (h->before_flush != NULL)
		h->before_flush(h->owner);
	enum err e = dev_flush(h->below);

	if (h->after_flush != NULL)
		h->after_flush(h->owner);
	return e;
}
static inline void hook_close(struct dev *d)
{
	dev_close(hook_of(d)->below);
}
static const struct dev_ops hook_ops = {
	.readv = hook_readv, .writev = hook_writev, .flush = hook_flush, .close = hook_close};

/* --- set up ---------------------------------------------------------------------------------- */

static inline uint8_t *small_home(struct small *s, fsblk_t nr)
{
	return s->m.bytes + nr * SMALL_BLOCK;
}
static inline struct disk_super *small_super(struct small *s)
{
	return (void *)small_home(s, s->runs[0].physical);
}
static inline void small_seal(struct small *s)
{
	struct disk_super *super = small_super(s);
	uint32_t checked = JBD2_INCOMPAT_CSUM_V2 | JBD2_INCOMPAT_CSUM_V3;

	super->s_checksum = be32_make(0);
	if (be32_get(super->s_feature_incompat) & checked)
		super->s_checksum = be32_make(crc32c(UINT32_MAX, super, sizeof(*super)));
}

static inline void small_fill(uint8_t *data, uint64_t value)
{
	for (size_t at = 0; at < SMALL_BLOCK; at += 8) {
		uint64_t word = (value + 1) * UINT64_C(0x9e3779b97f4a7c15) + at;

		memcpy(data + at, &word, 8);
	}
}
static inline bool small_holds(const uint8_t *data, uint64_t value)
{
	uint8_t want[SMALL_BLOCK];

	small_fill(want, value);
	return memcmp(data, want, SMALL_BLOCK) == 0;
}

/* An empty journal of number 10, checksum version 3, 64-bit; every home has its number's content.
 */
static inline void small_make(struct small *s)
{
	struct disk_super *super;

	memset(s, 0, sizeof(*s));
	ck_assert_int_eq(dev_open_memory(SMALL_BLOCKS * SMALL_BLOCK, &s->hook.below), OK);
	s->hook.dev = *s->hook.below;
	s->hook.dev.ops = &hook_ops;
	s->hook.owner = s;
	ck_assert_int_eq(
		memory_volume_open_over(&s->hook.dev, SMALL_BLOCKS * SMALL_BLOCK, &s->m), OK);
	s->m.bytes = dev_memory_bytes(s->hook.below);
	for (fsblk_t nr = 0; nr < SMALL_BLOCKS; nr++)
		small_fill(small_home(s, nr), nr);
	s->runs[0] = (struct journal_run){0, 10, 100};
	s->runs[1] = (struct journal_run){10, 500, 300};
	s->runs[2] = (struct journal_run){510, SMALL_LOG - 510, 1000};
	s->config = (struct journal_open_config){
		.log = {.block_bytes = SMALL_BLOCK,
			.fs_blocks = SMALL_BLOCKS,
			.volume = s->m.volume,
			.runs = s->runs,
			.run_count = 3},
		.fs_64bit = true,
		.fs_metadata_csum = true,
		.commit_interval_ms = 3600 * 1000,
	};
	super = small_super(s);
	memset(super, 0, SMALL_BLOCK);
	super->s_header.h_magic = be32_make((uint32_t)JBD2_MAGIC);
	super->s_header.h_blocktype = be32_make(JBD2_SUPERBLOCK_V2);
	super->s_blocksize = be32_make(SMALL_BLOCK);
	super->s_maxlen = be32_make(SMALL_LOG);
	super->s_first = be32_make(1);
	super->s_sequence = be32_make(10);
	super->s_feature_incompat =
		be32_make(JBD2_INCOMPAT_REVOKE | JBD2_INCOMPAT_64BIT | JBD2_INCOMPAT_CSUM_V3);
	super->s_checksum_type = JBD2_CHKSUM_CRC32C;
	memset(super->s_uuid, 0x77, sizeof(super->s_uuid));
	small_seal(s);
}

static inline enum err small_open(struct small *s)
{
	enum err e = OK;

	if (s->cache == NULL)
		e = cache_create(&(struct cache_config){.volume = s->m.volume,
					 .block_bytes = SMALL_BLOCK,
					 .blocks = SMALL_BLOCKS,
					 .capacity_bytes = 256 * SMALL_BLOCK},
			&s->cache);
	s->config.cache = s->cache;
	err_clear_detail();
	return e == OK ? journal_open(&s->config, &s->journal) : e;
}

static inline void small_start(struct small *s)
{
	small_make(s);
	ck_assert_int_eq(small_open(s), OK);
}

static inline void small_free(struct small *s)
{
	s->hook.before_write = NULL;
	s->hook.before_flush = s->hook.after_flush = NULL;
	cache_destroy(s->cache);
	memory_volume_close(&s->m);
}

static inline void small_stop(struct small *s)
{
	s->hook.before_write = NULL;
	s->hook.before_flush = s->hook.after_flush = NULL;
	ck_assert_int_eq(journal_close(s->journal), OK);
	small_free(s);
}

/* --- use ------------------------------------------------------------------------------------- */

static inline void small_begin(struct small *s, uint32_t credits, struct journal_handle *h)
{
	ck_assert_int_eq(journal_start(s->journal, credits, h), OK);
}

/* Under an open handle: the block gets the content of `value`. */
static inline void small_put(struct small *s, struct journal_handle *h, fsblk_t nr, uint64_t value)
{
	struct cache_block *b;

	ck_assert_int_eq(cache_get(s->cache, nr, &b), OK);
	ck_assert_int_eq(journal_write(h, b), OK);
	small_fill(b->data, value);
	cache_put(s->cache, b);
}

/* One handle for one block; its transaction. */
static inline uint64_t small_change(struct small *s, fsblk_t nr, uint64_t value)
{
	struct journal_handle h;

	small_begin(s, 1, &h);
	small_put(s, &h, nr, value);
	uint64_t seq = h.seq;

	ck_assert_int_eq(journal_stop(&h), OK);
	return seq;
}

static inline uint64_t small_forget(struct small *s, fsblk_t nr, uint32_t count)
{
	struct journal_handle h;

	small_begin(s, 0, &h);
	ck_assert_int_eq(journal_forget(&h, nr, count), OK);
	uint64_t seq = h.seq;

	ck_assert_int_eq(journal_stop(&h), OK);
	return seq;
}

static inline bool small_cached(struct small *s, fsblk_t nr, uint64_t value)
{
	struct cache_block *b;

	ck_assert_int_eq(cache_get(s->cache, nr, &b), OK);
	bool holds = small_holds(b->data, value);

	cache_put(s->cache, b);
	return holds;
}

static inline struct journal_stats small_stats(struct small *s)
{
	struct journal_stats stats;

	journal_stats(s->journal, &stats);
	return stats;
}

/* What a replay of the bytes that are on the device now would make of the block. */
static inline bool small_replayed(struct small *s, fsblk_t nr, uint64_t value)
{
	struct overlay *o = NULL;
	struct journal_info info;
	const struct overlay_entry *entry = NULL;
	uint8_t copy[SMALL_BLOCK];

	ck_assert_int_eq(journal_scan(&s->config.log, &o, &info), OK);
	if (o != NULL)
		entry = overlay_find(o, nr, 1);
	if (entry != NULL)
		ck_assert_int_eq(overlay_read(entry, s->m.volume, SMALL_BLOCK, copy), OK);
	else
		memcpy(copy, small_home(s, nr), SMALL_BLOCK);
	overlay_destroy(o);
	return small_holds(copy, value);
}

static inline uint64_t small_flushes(const struct small *s)
{
	return dev_fault_calls(s->m.fault, DEV_FAULT_FLUSH);
}
static inline uint64_t small_writes(const struct small *s)
{
	return dev_fault_calls(s->m.fault, DEV_FAULT_WRITE);
}

/* Until it holds; the case's limit ends a wait for what never does. */
#define small_wait(cond)              \
	do {                          \
		while (!(cond))       \
			usleep(1000); \
	} while (0)

#endif
