/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading many blocks at once: ahead into the cache, and file data past it.
 *
 * Both split a range where the overlay has a block: the runs between are read from their homes in
 * one request each, the block itself from its place in the log.
 *
 * Threads: cache_prefetch claims the blocks it reads, skips those that are there or are being read
 * by others, and never waits while it holds claims, so that two of them cannot wait for each
 * other. cache_read_past shares nothing.
 */
#include "cache_int.h"

#include <stdlib.h>

enum {
	PREFETCH_RUN_MAX = 256, /* blocks a request: 1 MiB at the usual 4 KiB */
	SLICE_MAX = 64,         /* buffers a request of cache_read_past */
};

/* The first block in [nr, nr + count) that is in the overlay; nr + count where there is none. */
static fsblk_t read_next_in_overlay(const struct cache *c, fsblk_t nr, uint64_t count)
{
	const struct overlay_entry *entry = NULL;

	if (c->overlay != NULL)
		entry = overlay_find(c->overlay, nr, count);
	return entry != NULL ? entry->block : nr + count;
}

/* --- ahead ----------------------------------------------------------------------------------- */

/* Adjacent blocks, claimed for one request. */
struct run {
	int count;
	struct block *block[PREFETCH_RUN_MAX];
	struct iovec iov[PREFETCH_RUN_MAX];
};

static void prefetch_add(struct cache *c, struct run *run, struct block *b)
{
	run->block[run->count] = b;
	run->iov[run->count++] = (struct iovec){b->pub.data, c->block_bytes};
}

static void prefetch_read(struct cache *c, struct run *run)
{
	if (run->count == 0)
		return;

	enum err e = volume_readv(
		c->volume, run->iov, run->count, run->block[0]->pub.nr * c->block_bytes);

	for (int i = 0; i < run->count; i++) {
		block_complete(c, run->block[i], e);
		block_leave(c, run->block[i]);
	}
	run->count = 0;
}

void cache_prefetch(struct cache *c, fsblk_t nr, uint32_t count)
{
	struct block *b;
	struct run run;

	run.count = 0;
	if (nr >= c->blocks)
		return;

	fsblk_t end = nr + MIN((fsblk_t)count, c->blocks - nr);
	fsblk_t in_overlay = read_next_in_overlay(c, nr, end - nr);

	for (; nr < end; nr++) {
		if (block_claim(c, nr, &b) != OK)
			break;
		if (nr == in_overlay) {
			prefetch_read(c, &run);
			if (b != NULL) {
				block_complete(c, b, cache_fill(c, b));
				block_leave(c, b);
			}
			in_overlay = read_next_in_overlay(c, nr + 1, end - nr - 1);
			continue;
		}
		if (b != NULL)
			prefetch_add(c, &run, b);
		if (b == NULL || run.count == PREFETCH_RUN_MAX)
			prefetch_read(c, &run);
	}
	prefetch_read(c, &run);
	/* A hint leaves no word behind: the read that follows says what is wrong. */
	err_clear_detail();
}

/* --- past the cache -------------------------------------------------------------------------- */

/* A place in the caller's buffers. */
struct cursor {
	const struct iovec *iov;
	size_t used; /* bytes of *iov that are behind us */
};

/* Cuts up to len_bytes, and at most SLICE_MAX buffers, off the cursor; returns the bytes cut. */
static size_t cursor_cut(struct cursor *at, size_t len_bytes, struct iovec *slice, int *count)
{
	size_t cut = 0;

	*count = 0;
	while (cut < len_bytes && *count < SLICE_MAX) {
		size_t n = MIN(at->iov->iov_len - at->used, len_bytes - cut);

		if (n > 0)
			slice[(*count)++] =
				(struct iovec){(uint8_t *)at->iov->iov_base + at->used, n};
		cut += n;
		at->used += n;
		if (at->used == at->iov->iov_len) {
			at->iov++;
			at->used = 0;
		}
	}
	return cut;
}

static enum err read_past_run(
	struct cache *c, struct cursor *at, uint64_t offset_bytes, uint64_t len_bytes)
{
	struct iovec slice[SLICE_MAX];
	int count;
	enum err e = OK;

	while (e == OK && len_bytes > 0) {
		size_t cut = cursor_cut(at, (size_t)len_bytes, slice, &count);

		e = volume_readv(c->volume, slice, count, offset_bytes);
		offset_bytes += cut;
		len_bytes -= cut;
	}
	return e;
}

static enum err read_past_overlay(struct cache *c, struct cursor *at, fsblk_t nr, uint8_t **bounce)
{
	const struct overlay_entry *entry = overlay_find(c->overlay, nr, 1);
	struct iovec slice[SLICE_MAX];
	int count;
	size_t done = 0;

	if (*bounce == NULL)
		*bounce = aligned_alloc(c->block_bytes, c->block_bytes);
	if (*bounce == NULL)
		return ERR_NOMEM;

	enum err e = overlay_read(entry, c->volume, c->block_bytes, *bounce);

	while (e == OK && done < c->block_bytes) {
		(void)cursor_cut(at, c->block_bytes - done, slice, &count);
		for (int i = 0; i < count; i++) {
			memcpy(slice[i].iov_base, *bounce + done, slice[i].iov_len);
			done += slice[i].iov_len;
		}
	}
	return e;
}

enum err cache_read_past(
	struct cache *c, fsblk_t nr, uint32_t count_blocks, const struct iovec *iov, int iov_count)
{
	struct cursor at = {iov, 0};
	uint8_t *bounce = NULL;
	uint64_t room_bytes = 0;
	enum err e = OK;

	for (int i = 0; i < iov_count; i++)
		room_bytes += iov[i].iov_len;
	ensure(room_bytes == (uint64_t)count_blocks * c->block_bytes);
	if (nr >= c->blocks || count_blocks > c->blocks - nr)
		return err_set_detail(ERR_CORRUPT,
			"the file system is damaged: blocks %llu to %llu lie past its end; run "
			"fsck.cryptfs",
			(unsigned long long)nr, (unsigned long long)nr + count_blocks);

	fsblk_t end = nr + count_blocks;
	fsblk_t in_overlay = read_next_in_overlay(c, nr, end - nr);

	if (in_overlay == end && iov_count <= SLICE_MAX)
		return volume_readv(c->volume, iov, iov_count, nr * c->block_bytes);
	while (e == OK && nr < end) {
		if (nr < in_overlay) {
			e = read_past_run(
				c, &at, nr * c->block_bytes, (in_overlay - nr) * c->block_bytes);
			nr = in_overlay;
			continue;
		}
		e = read_past_overlay(c, &at, nr, &bounce);
		nr++;
		in_overlay = read_next_in_overlay(c, nr, end - nr);
	}
	free(bounce);
	return e;
}
