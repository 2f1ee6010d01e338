/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A device that remembers every write, flush and mark, and makes the images that a power cut at
 * any moment could leave. For tests.
 *
 * Time is a counter of stamps. Every operation gets a stamp when it starts and another when it has
 * ended, so that the record is true for parallel callers too. At a cut at stamp t:
 *   - a write that had ended before the start of a flush that had ended before t is durable;
 *   - any other write that had started before t may be there, be missing, or be there in part, in
 *     pieces of tear_bytes; which of these is drawn from the cut's seed (seed 0: all are there);
 *   - later writes are not there.
 * Surviving writes are applied in the order in which they started. A discard counts as a write of
 * zeros. A mark is a claim of the layer above ("from here on this file is synced") that must hold
 * in every image cut after it.
 *
 * The content before the first operation is the device below as it was when the recorder was
 * opened. Reads go to the device below. Threads: any, in parallel.
 */
#include <stdlib.h>

#include "dev.h"

enum record_kind { RECORD_WRITE, RECORD_DISCARD, RECORD_FLUSH, RECORD_MARK };

struct record {
	enum record_kind kind;
	uint64_t start, end; /* stamps; end is UINT64_MAX while in flight or when it failed */
	uint64_t offset_bytes, len_bytes;
	uint8_t *data;    /* of a write */
	uint64_t mark_id; /* of a mark */
};

struct dev_recorder {
	struct dev dev;
	struct dev *below;
	uint8_t *base; /* the content at the start */
	struct mutex lock;
	uint64_t stamp GUARDED_BY(ioq_token);
	struct record *records GUARDED_BY(ioq_token);
	size_t count GUARDED_BY(ioq_token), room GUARDED_BY(ioq_token);
};

static struct dev_recorder *recorder_of(struct dev *d)
{
	ensure(d->kind == DEV_RECORDER);
	return container_of(d, struct dev_recorder, dev);
}

/* Appends a record with its start stamp and gives its index. */
static enum err recorder_begin(struct dev_recorder *r, struct record rec, size_t *index)
{
	enum err e = OK;

	ioq_lock(&r->lock);
	if (r->count == r->room) {
		size_t room = r->room ? r->room * 2 : 1024;
		struct record *grown = realloc(r->records, room * sizeof(*grown));
		if (!grown) {
			e = ERR_NOMEM;
			goto out;
		}
		r->records = grown;
		r->room = room;
	}
	rec.start = ++r->stamp;
	rec.end = UINT64_MAX;
	*index = r->count;
	r->records[r->count++] = rec;
out:
	ioq_unlock(&r->lock);
	return e;
}

static void recorder_end(struct dev_recorder *r, size_t index)
{
	ioq_lock(&r->lock);
	r->records[index].end = ++r->stamp;
	ioq_unlock(&r->lock);
}

static enum err recorder_readv(struct dev *d, const struct iovec *iov, int count, uint64_t offset)
{
	return dev_readv(recorder_of(d)->below, iov, count, offset);
}

static enum err recorder_writev(struct dev *d, const struct iovec *iov, int count, uint64_t offset)
{
	struct dev_recorder *r = recorder_of(d);
	struct record rec = {.kind = RECORD_WRITE, .offset_bytes = offset};
	size_t index, filled = 0;
	enum err e;

	for (int i = 0; i < count; i++)
		rec.len_bytes += iov[i].iov_len;
	rec.data = malloc(rec.len_bytes ? rec.len_bytes : 1);
	if (!rec.data)
		return ERR_NOMEM;
	for (int i = 0; i < count; i++) {
		memcpy(rec.data + filled, iov[i].iov_base, iov[i].iov_len);
		filled += iov[i].iov_len;
	}
	e = recorder_begin(r, rec, &index);
	if (e) {
		free(rec.data);
		return e;
	}
	e = dev_writev(r->below, iov, count, offset);
	if (!e)
		recorder_end(r, index);
	return e;
}

static enum err recorder_discard(struct dev *d, uint64_t offset, uint64_t len)
{
	struct dev_recorder *r = recorder_of(d);
	struct record rec = {.kind = RECORD_DISCARD, .offset_bytes = offset, .len_bytes = len};
	size_t index;
	enum err e = recorder_begin(r, rec, &index);

	if (e)
		return e;
	e = dev_discard(r->below, offset, len);
	if (!e)
		recorder_end(r, index);
	return e;
}

static enum err recorder_flush(struct dev *d)
{
	struct dev_recorder *r = recorder_of(d);
	size_t index;
	enum err e = recorder_begin(r, (struct record){.kind = RECORD_FLUSH}, &index);

	if (e)
		return e;
	e = dev_flush(r->below);
	if (!e)
		recorder_end(r, index);
	return e;
}

static void recorder_close(struct dev *d)
{
	struct dev_recorder *r = recorder_of(d);

	ioq_lock(&r->lock);
	for (size_t i = 0; i < r->count; i++)
		free(r->records[i].data);
	free(r->records);
	ioq_unlock(&r->lock);
	free(r->base);
	mutex_destroy(&r->lock);
	dev_close(r->below);
	free(r);
}

static const struct dev_ops recorder_ops = {
	.readv = recorder_readv,
	.writev = recorder_writev,
	.flush = recorder_flush,
	.discard = recorder_discard,
	.close = recorder_close,
};

enum err dev_open_recorder(struct dev *below, struct dev **out)
{
	struct dev_recorder *r = calloc(1, sizeof(*r));
	enum err e;

	if (!r)
		return ERR_NOMEM;
	r->base = malloc(below->size_bytes);
	if (!r->base) {
		free(r);
		return ERR_NOMEM;
	}
	e = dev_read(below, r->base, below->size_bytes, 0);
	if (e) {
		free(r->base);
		free(r);
		return e;
	}
	r->dev.ops = &recorder_ops;
	r->dev.kind = DEV_RECORDER;
	r->dev.size_bytes = below->size_bytes;
	r->dev.align_bytes = below->align_bytes;
	r->dev.readonly = below->readonly;
	r->below = below;
	mutex_init(&r->lock);
	*out = &r->dev;
	return OK;
}

enum err dev_recorder_mark(struct dev *d, uint64_t mark_id, uint64_t *stamp)
{
	struct dev_recorder *r = recorder_of(d);
	struct record rec = {.kind = RECORD_MARK, .mark_id = mark_id};
	size_t index;
	enum err e = recorder_begin(r, rec, &index);

	if (!e) {
		ioq_lock(&r->lock);
		*stamp = r->records[index].start;
		ioq_unlock(&r->lock);
	}
	return e;
}

uint64_t dev_recorder_stamp(struct dev *d)
{
	struct dev_recorder *r = recorder_of(d);
	uint64_t stamp;

	ioq_lock(&r->lock);
	stamp = r->stamp + 1;
	ioq_unlock(&r->lock);
	return stamp;
}

size_t dev_recorder_flushes(struct dev *d, uint64_t *stamps, size_t room)
{
	struct dev_recorder *r = recorder_of(d);
	size_t found = 0;

	ioq_lock(&r->lock);
	for (size_t i = 0; i < r->count; i++) {
		if (r->records[i].kind != RECORD_FLUSH)
			continue;
		if (found < room)
			stamps[found] = r->records[i].start;
		found++;
	}
	ioq_unlock(&r->lock);
	return found;
}

/* splitmix64 (Steele, Lea, Flood 2014): one step of a generator whose whole state is the seed. */
static uint64_t recorder_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15U);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
	return z ^ (z >> 31);
}

static void recorder_apply(const struct record *rec, uint64_t from, uint64_t len, uint8_t *image)
{
	if (rec->kind == RECORD_WRITE)
		memcpy(image + rec->offset_bytes + from, rec->data + from, len);
	else
		memset(image + rec->offset_bytes + from, 0, len);
}

/* Applies what the draw keeps of an undecided write: none, all, or some of its pieces. */
static void recorder_apply_torn(
	const struct record *rec, uint32_t tear_bytes, uint64_t *random, uint8_t *image)
{
	uint64_t fate = recorder_random(random) % 4;

	if (fate == 0)
		return;
	if (fate != 1) {
		recorder_apply(rec, 0, rec->len_bytes, image);
		return;
	}
	for (uint64_t at = 0; at < rec->len_bytes;) {
		uint64_t edge = tear_bytes - (rec->offset_bytes + at) % tear_bytes;
		uint64_t len = MIN(edge, rec->len_bytes - at);

		if (recorder_random(random) & 1)
			recorder_apply(rec, at, len, image);
		at += len;
	}
}

void dev_recorder_image(struct dev *d, const struct dev_cut *cut, uint8_t *image)
{
	struct dev_recorder *r = recorder_of(d);
	uint64_t random = cut->seed, flushed = 0;

	ensure(cut->tear_bytes > 0);
	memcpy(image, r->base, r->dev.size_bytes);
	ioq_lock(&r->lock);
	for (size_t i = 0; i < r->count; i++) {
		const struct record *rec = &r->records[i];

		if (rec->kind == RECORD_FLUSH && rec->end < cut->stamp)
			flushed = MAX(flushed, rec->start);
	}
	for (size_t i = 0; i < r->count && r->records[i].start < cut->stamp; i++) {
		const struct record *rec = &r->records[i];

		if (rec->kind != RECORD_WRITE && rec->kind != RECORD_DISCARD)
			continue;
		if (rec->end < flushed || cut->seed == 0)
			recorder_apply(rec, 0, rec->len_bytes, image);
		else
			recorder_apply_torn(rec, cut->tear_bytes, &random, image);
	}
	ioq_unlock(&r->lock);
}
