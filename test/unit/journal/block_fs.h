/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A file system of blocks, for the writer's suites: the blocks of one file in an image of mke2fs
 * stand for metadata. Handles change them at random, free them, use freed ones as data and take
 * them back; a model keeps what each transaction made of each block. The device is a recorder, so
 * that the images of power cuts can be held against the model, and against what e2fsck and the
 * kernel make of them: whatever the file holds, the image around it is whole.
 *
 * Block 0 of the area is written by every handle and holds its transaction's number.
 */
#ifndef CRYPTFS_TEST_BLOCK_FS_H
#define CRYPTFS_TEST_BLOCK_FS_H

#include "image.h"
#include "rig_run.h"
#include "writer_int.h"

enum { AREA = 240, EVENTS_MAX = 4000, MARKS_MAX = 20000, TAKE_MAX = 12 };

enum event_kind { EVENT_META, EVENT_FREED, EVENT_DATA };
struct event {
	enum event_kind kind;
	uint64_t seq;     /* META, FREED: the transaction */
	uint64_t value;   /* META, DATA: the content */
	uint64_t issued;  /* DATA: a cut at or before this stamp is before it */
	uint64_t durable; /* DATA: a cut at or after this stamp is after its flush */
};
struct area_block {
	pthread_mutex_t lock; /* the layer above: one at a time uses the block, by rising number */
	fsblk_t nr;
	struct event *events; /* EVENTS_MAX */
	size_t count;
};
struct mark {
	uint64_t stamp, seq; /* from here on this transaction must be there */
};

struct block_fs_row {
	const char *mkfs; /* mke2fs's arguments */
	const char *size;
	int version; /* of checksums that the journal is given; -1: what we choose */
	bool fs_64bit, metadata_csum;
	uint32_t sequence; /* 0: mke2fs's */
	uint64_t dirty_limit_bytes;
};

struct block_fs {
	struct image i; /* as mke2fs made it, in memory */
	const struct block_fs_row *row;
	struct dev *recorder;
	struct memory_volume m; /* over the recorder */
	struct journal_config config;
	struct cache *cache;
	struct journal *journal;
	struct area_block area[AREA];
	_Atomic uint64_t next_value;
	uint64_t first_seq;
	uint32_t commit_interval_ms;
	pthread_mutex_t marks_lock;
	struct mark marks[MARKS_MAX];
	size_t mark_count;
	struct memory_volume cut; /* a cut's image */
};

static inline struct disk_super *image_journal_super(struct image *i)
{
	return (void *)(i->m.bytes + i->runs[0].physical * i->block_bytes);
}

/* --- content --------------------------------------------------------------------------------- */

/* Every fifth block starts with jbd2's magic. */
static inline void area_fill(uint8_t *data, uint64_t value, uint32_t block_bytes)
{
	for (uint32_t at = 0; at < block_bytes; at += 8) {
		uint64_t word = (value + 1) * UINT64_C(0x9e3779b97f4a7c15) + at;

		memcpy(data + at, &word, 8);
	}
	if (value % 5 == 0)
		memcpy(data, "\xc0\x3b\x39\x98", 4);
	memcpy(data + 8, &value, 8);
}

static inline bool area_holds(const uint8_t *data, uint64_t value, uint32_t block_bytes)
{
	static _Thread_local uint8_t want[65536];

	area_fill(want, value, block_bytes);
	return memcmp(data, want, block_bytes) == 0;
}

static inline void area_event(struct area_block *b, struct event e)
{
	ensure(b->count < EVENTS_MAX);
	b->events[b->count++] = e;
}

static inline const struct event *area_last(const struct area_block *b)
{
	return &b->events[b->count - 1];
}

/* --- setting up ------------------------------------------------------------------------------ */

static inline void block_fs_find_area(struct block_fs *fs)
{
	struct journal_run runs[IMAGE_RUNS_MAX];
	size_t count = image_parse_runs(&fs->i, "area", runs);
	int n = 0;

	for (size_t r = 0; r < count; r++)
		for (uint32_t k = 0; k < runs[r].count && n < AREA; k++)
			fs->area[n++].nr = runs[r].physical + k;
	ck_assert_int_eq(n, AREA);
}

/* Gives the empty journal the row's checksum version and number. */
static inline void block_fs_set_super(struct block_fs *fs)
{
	struct disk_super *s = image_journal_super(&fs->i);
	int version = fs->row->version;

	if (fs->row->sequence != 0)
		s->s_sequence = be32_make(fs->row->sequence);
	if (version < 0)
		return;
	s->s_feature_compat = be32_make(version == 1 ? JBD2_COMPAT_CHECKSUM : 0);
	s->s_feature_incompat = be32_make(version == 2   ? JBD2_INCOMPAT_CSUM_V2
					  : version == 3 ? JBD2_INCOMPAT_CSUM_V3
							 : 0);
	s->s_checksum_type = version >= 2 ? JBD2_CHKSUM_CRC32C : 0;
	s->s_checksum = be32_make(0);
	if (version >= 2)
		s->s_checksum = be32_make(crc32c(UINT32_MAX, s, sizeof(*s)));
}

static inline void block_fs_make_image(struct block_fs *fs)
{
	image_open(&fs->i);
	ck_assert_int_eq(
		image_shell("mkdir %s/content && head -c 1200K /dev/urandom > %s/content/area && "
			    "mke2fs -q -F -E lazy_itable_init=0 -d %s/content %s %s %s && "
			    "debugfs -w -R 'feature needs_recovery' %s",
			fs->i.dir, fs->i.dir, fs->i.dir, fs->row->mkfs, fs->i.path, fs->row->size,
			fs->i.path),
		0);
	image_load(&fs->i);
	block_fs_find_area(fs);
	block_fs_set_super(fs);
	for (int n = 0; n < AREA; n++) {
		struct area_block *b = &fs->area[n];

		pthread_mutex_init(&b->lock, NULL);
		b->events = calloc(EVENTS_MAX, sizeof(*b->events));
		ck_assert_ptr_nonnull(b->events);
		area_fill(
			fs->i.m.bytes + b->nr * fs->i.block_bytes, (uint64_t)n, fs->i.block_bytes);
	}
}

static inline enum err block_fs_open_journal(struct block_fs *fs)
{
	enum err e = cache_create(&(struct cache_config){.volume = fs->m.volume,
					  .block_bytes = fs->i.block_bytes,
					  .blocks = fs->i.blocks,
					  .capacity_bytes = 64 * fs->i.block_bytes},
		&fs->cache);

	if (e != OK)
		return e;
	e = journal_open(&(struct journal_open_config){.log = fs->config,
				 .cache = fs->cache,
				 .fs_64bit = fs->row->fs_64bit,
				 .fs_metadata_csum = fs->row->metadata_csum,
				 .commit_interval_ms = fs->commit_interval_ms,
				 .dirty_limit_bytes = fs->row->dirty_limit_bytes},
		&fs->journal);
	if (e != OK) {
		cache_destroy(fs->cache);
		fs->cache = NULL;
	}
	return e;
}

/* A device with the image as it was made, recorded from here on; the model begins anew. */
static inline void block_fs_attach(struct block_fs *fs)
{
	struct dev *memory;

	ck_assert_int_eq(dev_open_memory(fs->i.m.size_bytes, &memory), OK);
	memcpy(dev_memory_bytes(memory), fs->i.m.bytes, fs->i.m.size_bytes);
	ck_assert_int_eq(dev_open_recorder(memory, &fs->recorder), OK);
	ck_assert_int_eq(memory_volume_open_over(fs->recorder, fs->i.m.size_bytes, &fs->m), OK);
	fs->m.bytes = dev_memory_bytes(memory);
	fs->config = fs->i.config;
	fs->config.volume = fs->m.volume;
	for (int n = 0; n < AREA; n++) {
		fs->area[n].count = 0;
		area_event(&fs->area[n], (struct event){.kind = EVENT_META, .value = (uint64_t)n});
	}
	fs->next_value = AREA;
	fs->mark_count = 0;
	fs->first_seq = 0;
}

static inline void block_fs_detach(struct block_fs *fs)
{
	cache_destroy(fs->cache);
	fs->cache = NULL;
	memory_volume_close(&fs->m);
}

/* Makes the image and attaches it; the journal is not open. */
static inline void block_fs_start(struct block_fs *fs, const struct block_fs_row *row)
{
	memset(fs, 0, sizeof(*fs));
	fs->row = row;
	fs->commit_interval_ms = 30;
	pthread_mutex_init(&fs->marks_lock, NULL);
	block_fs_make_image(fs);
	ck_assert_int_eq(memory_volume_open(fs->i.m.size_bytes, &fs->cut), OK);
	block_fs_attach(fs);
}

static inline void block_fs_open(struct block_fs *fs)
{
	enum err e = block_fs_open_journal(fs);

	ck_assert_msg(e == OK, "%s: %s", err_name(e), err_detail());
	fs->first_seq = journal_running(fs->journal);
}

static inline void block_fs_stop(struct block_fs *fs)
{
	block_fs_detach(fs);
	memory_volume_close(&fs->cut);
	for (int n = 0; n < AREA; n++)
		free(fs->area[n].events);
	image_close(&fs->i);
}

/* --- operations ------------------------------------------------------------------------------
 * Each gives ERR_ROFS when the journal has failed; the model is then ahead of the disk. They use
 * ensure() in place of check's macros, which allocate memory, and that may be made to fail.
 */

/* The blocks are locked. Adds what the handle makes of one to the model. */
static inline enum err block_fs_put_meta(
	struct block_fs *fs, struct journal_handle *h, int n, uint64_t value, bool new)
{
	struct area_block *b = &fs->area[n];
	struct cache_block *cached;
	enum err e = new ? cache_get_new(fs->cache, b->nr, &cached)
			 : cache_get(fs->cache, b->nr, &cached);

	if (e != OK)
		return e;
	e = journal_write(h, cached);
	if (e == OK) {
		area_fill(cached->data, value, fs->i.block_bytes);
		area_event(b, (struct event){.kind = EVENT_META, .seq = h->seq, .value = value});
	}
	cache_put(fs->cache, cached);
	return e;
}

static inline enum err block_fs_stamp(struct block_fs *fs, struct journal_handle *h)
{
	enum err e;

	pthread_mutex_lock(&fs->area[0].lock);
	if (area_last(&fs->area[0])->seq == h->seq)
		e = OK;
	else
		e = block_fs_put_meta(fs, h, 0, h->seq, false);
	pthread_mutex_unlock(&fs->area[0].lock);
	return e;
}

/* One handle that changes `count` blocks from n on, as far as they are metadata. */
static inline enum err block_fs_change(struct block_fs *fs, int n, int count, uint64_t *seq)
{
	struct journal_handle h;
	enum err e = journal_start(fs->journal, (uint32_t)count + 1, &h), stopped;

	if (e != OK)
		return e;
	e = block_fs_stamp(fs, &h);
	for (int k = n; e == OK && k < n + count && k < AREA; k++) {
		pthread_mutex_lock(&fs->area[k].lock);
		if (area_last(&fs->area[k])->kind == EVENT_META)
			e = block_fs_put_meta(
				fs, &h, k, atomic_fetch_add(&fs->next_value, 1), false);
		pthread_mutex_unlock(&fs->area[k].lock);
	}
	*seq = h.seq;
	stopped = journal_stop(&h);
	return e != OK ? e : stopped;
}

/* The same in steps of one credit, extended or restarted as it comes. */
static inline enum err block_fs_walk(struct block_fs *fs, int n, int count, uint64_t *seq)
{
	struct journal_handle h;
	enum err e = journal_start(fs->journal, 2, &h);

	for (int k = n; e == OK && k < n + count && k < AREA; k++) {
		if (k > n && !(k % 3 > 0 && journal_extend(&h, 2)))
			e = journal_restart(&h, 2);
		if (e != OK)
			return e;
		e = block_fs_stamp(fs, &h);
		pthread_mutex_lock(&fs->area[k].lock);
		if (e == OK && area_last(&fs->area[k])->kind == EVENT_META)
			e = block_fs_put_meta(
				fs, &h, k, atomic_fetch_add(&fs->next_value, 1), false);
		pthread_mutex_unlock(&fs->area[k].lock);
		if (e != OK) {
			(void)!journal_stop(&h);
			return e;
		}
	}
	if (e != OK)
		return e;
	*seq = h.seq;
	return journal_stop(&h);
}

/* Frees a metadata block, sometimes after having changed it in the same handle. */
static inline enum err block_fs_free(struct block_fs *fs, int n, bool change, uint64_t *seq)
{
	struct area_block *b = &fs->area[n];
	struct journal_handle h;
	enum err e = journal_start(fs->journal, 2, &h), stopped;

	if (e != OK)
		return e;
	e = block_fs_stamp(fs, &h);
	pthread_mutex_lock(&b->lock);
	if (e == OK && area_last(b)->kind == EVENT_META) {
		if (change)
			e = block_fs_put_meta(
				fs, &h, n, atomic_fetch_add(&fs->next_value, 1), false);
		if (e == OK)
			e = journal_forget(&h, b->nr, 1);
		if (e == OK)
			area_event(b, (struct event){.kind = EVENT_FREED, .seq = h.seq});
	}
	pthread_mutex_unlock(&b->lock);
	*seq = h.seq;
	stopped = journal_stop(&h);
	return e != OK ? e : stopped;
}

static inline bool area_is_usable(struct block_fs *fs, const struct area_block *b)
{
	const struct event *last = area_last(b);

	return last->kind == EVENT_DATA ||
	       (last->kind == EVENT_FREED && journal_durable(fs->journal) >= last->seq);
}

/* Writes data to a block that is free or has data; with a flush, or without. */
static inline enum err block_fs_data(struct block_fs *fs, int n, bool flush)
{
	struct area_block *b = &fs->area[n];
	static _Thread_local uint8_t data[65536];
	struct iovec iov = {data, fs->i.block_bytes};
	enum err e = OK;

	pthread_mutex_lock(&b->lock);
	if (area_is_usable(fs, b)) {
		struct event event = {.kind = EVENT_DATA,
			.value = atomic_fetch_add(&fs->next_value, 1),
			.issued = dev_recorder_stamp(fs->recorder),
			.durable = UINT64_MAX};

		area_fill(data, event.value, fs->i.block_bytes);
		area_event(b, event);
		e = cache_write_past(fs->cache, b->nr, 1, &iov, 1);
		if (e == OK && flush)
			e = volume_flush(fs->m.volume);
		if (e == OK && flush)
			e = dev_recorder_mark(fs->recorder, 0, &b->events[b->count - 1].durable);
	}
	pthread_mutex_unlock(&b->lock);
	return e;
}

/* Takes a free block, or one with data, as metadata. */
static inline enum err block_fs_take(struct block_fs *fs, int n, uint64_t *seq)
{
	struct area_block *b = &fs->area[n];
	struct journal_handle h;
	enum err e = journal_start(fs->journal, 2, &h), stopped;

	if (e != OK)
		return e;
	e = block_fs_stamp(fs, &h);
	pthread_mutex_lock(&b->lock);
	if (e == OK && area_is_usable(fs, b))
		e = block_fs_put_meta(fs, &h, n, atomic_fetch_add(&fs->next_value, 1), true);
	pthread_mutex_unlock(&b->lock);
	*seq = h.seq;
	stopped = journal_stop(&h);
	return e != OK ? e : stopped;
}

static inline enum err block_fs_sync(struct block_fs *fs, uint64_t seq)
{
	enum err e = journal_commit(fs->journal, seq);

	pthread_mutex_lock(&fs->marks_lock);
	if (e == OK) {
		ensure(fs->mark_count < MARKS_MAX);
		struct mark *m = &fs->marks[fs->mark_count++];

		m->seq = seq;
		e = dev_recorder_mark(fs->recorder, seq, &m->stamp);
	}
	pthread_mutex_unlock(&fs->marks_lock);
	return e;
}

/* One operation at random; the kinds and how often. */
static inline enum err block_fs_step(struct block_fs *fs, uint64_t *random)
{
	uint64_t seq = 0, draw = rig_random(random);
	int n = 1 + (int)(draw / 256 % (AREA - 1)), kind = (int)(draw % 32);
	int count = 1 + (int)(draw / 65536 % TAKE_MAX);
	enum err e;

	if (kind < 14)
		e = block_fs_change(fs, n, count, &seq);
	else if (kind < 17)
		e = block_fs_walk(fs, n, count, &seq);
	else if (kind < 22)
		e = block_fs_free(fs, n, kind < 19, &seq);
	else if (kind < 27)
		e = block_fs_data(fs, n, kind < 24);
	else
		e = block_fs_take(fs, n, &seq);
	if (e == OK && seq != 0 && draw >> 40 & 1 && (draw >> 41) % 4 == 0)
		e = block_fs_sync(fs, seq);
	if (e == OK && (draw >> 44) % 97 == 0)
		e = journal_checkpoint(fs->journal);
	return e;
}

#endif
