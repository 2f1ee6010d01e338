/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing: dirty blocks home, and file data past the cache.
 *
 * A block goes home as a copy that was taken under its shard's lock, when its transaction was
 * durable. Whoever changes a block pins it to a newer transaction first, under the same lock, so
 * that a copy is always the whole content of a committed transaction. Copies of adjacent blocks
 * are gathered in one bounce buffer and written together.
 *
 * Threads: one write home at a time, because two copies of one block could overtake each other.
 * Does not flush, and does not know the log: see the journal.
 */
#include "cache_int.h"

#include <stdlib.h>

enum { HOME_RUN_MAX = HOME_RUN_BYTES / 1024 }; /* blocks, at the smallest block size */

enum err cache_allow_writing(struct cache *c)
{
	ensure(c->overlay == NULL);
	if (c->home_bounce == NULL)
		c->home_bounce = aligned_alloc(PAGE_BYTES, HOME_RUN_BYTES);
	return c->home_bounce != NULL ? OK : ERR_NOMEM;
}

void cache_pin(struct cache *c, struct cache_block *b, uint64_t seq)
{
	ensure(c->home_bounce != NULL);
	block_dirty(c, container_of(b, struct block, pub), seq);
}

void cache_set_durable(struct cache *c, uint64_t seq)
{
	ensure(seq >= atomic_load_explicit(&c->durable_seq, memory_order_relaxed));
	atomic_store_explicit(&c->durable_seq, seq, memory_order_release);
}

uint64_t cache_durable(const struct cache *c)
{
	return atomic_load_explicit(&c->durable_seq, memory_order_acquire);
}

void cache_forget(struct cache *c, fsblk_t nr)
{
	block_forget(c, nr);
}

/* --- home ------------------------------------------------------------------------------------ */

/* Adjacent blocks, captured for one write. */
struct home_run {
	size_t count;
	struct block *block[HOME_RUN_MAX];
	size_t index[HOME_RUN_MAX]; /* in the caller's array */
};

static enum err home_write(struct cache *c, struct home_run *run, bool *done)
{
	if (run->count == 0)
		return OK;

	enum err e = volume_write(c->volume, c->home_bounce, run->count * c->block_bytes,
		run->block[0]->pub.nr * c->block_bytes);

	for (size_t i = 0; i < run->count; i++) {
		done[run->index[i]] = e == OK;
		block_home(c, run->block[i], e);
	}
	run->count = 0;
	return e;
}

enum err cache_write_home(
	struct cache *c, struct cache_block *const *blocks, size_t count, bool *done)
{
	const size_t run_max = MIN(HOME_RUN_BYTES / c->block_bytes, (size_t)HOME_RUN_MAX);
	struct home_run run = {.count = 0};
	enum err e = OK;

	ensure(!atomic_exchange(&c->writing_home, true));
	memset(done, 0, count * sizeof(*done));
	for (size_t i = 0; i < count && e == OK; i++) {
		struct block *b = container_of(blocks[i], struct block, pub);

		ensure(i == 0 || blocks[i - 1]->nr < b->pub.nr);
		if (run.count == run_max ||
			(run.count > 0 && run.block[run.count - 1]->pub.nr + 1 != b->pub.nr))
			e = home_write(c, &run, done);
		if (e != OK || !block_capture(c, b, c->home_bounce + run.count * c->block_bytes))
			continue;
		run.block[run.count] = b;
		run.index[run.count++] = i;
	}
	if (e == OK)
		e = home_write(c, &run, done);
	atomic_store(&c->writing_home, false);
	return e;
}

/* --- past the cache -------------------------------------------------------------------------- */

enum err cache_write_past(
	struct cache *c, fsblk_t nr, uint32_t count_blocks, const struct iovec *iov, int iov_count)
{
	uint64_t bytes = 0;

	ensure(c->overlay == NULL);
	for (int i = 0; i < iov_count; i++)
		bytes += iov[i].iov_len;
	ensure(bytes == (uint64_t)count_blocks * c->block_bytes);
	if (nr >= c->blocks || count_blocks > c->blocks - nr)
		return err_set_detail(ERR_CORRUPT,
			"the file system is damaged: blocks %llu to %llu lie past its end; run "
			"fsck.cryptfs",
			(unsigned long long)nr, (unsigned long long)nr + count_blocks);
	return volume_writev(c->volume, iov, iov_count, nr * c->block_bytes);
}
