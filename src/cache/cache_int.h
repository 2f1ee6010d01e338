/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cache's private structures: blocks, shards and the states a block goes through.
 *
 * Threads: a shard's mutex guards its table, its list and the bookkeeping of every block in it.
 * The content of a block is written only by the thread that claimed it, while it is READING, and
 * is constant from then on.
 */
#ifndef CRYPTFS_CACHE_INT_H
#define CRYPTFS_CACHE_INT_H

#include "cache.h"

/*
 *             block_get, block_claim  block_complete(OK)
 *    EMPTY ---------------> READING ----------------------> CLEAN
 *      ^                       |                              |
 *      |                       | block_complete(error)        |
 *      |                       v                              |
 *      +-------------------- FAILED                           |
 *      |   block_leave: the last waiter                       |
 *      +------------------------------------------------------+
 *          shard_recycle, block_leave over capacity: nobody has it pinned
 *
 * transition          function        under the shard's mutex
 * EMPTY   -> READING  block_get,      the block enters the table, pinned by the thread that
 *                     block_claim     reads
 * READING -> CLEAN    block_complete  content is there; waiters are woken
 * READING -> FAILED   block_complete  it leaves the table, so that the next cache_get tries again;
 *                                     waiters are woken and get the error
 * CLEAN   -> EMPTY    shard_recycle   its memory becomes another block
 * CLEAN   -> EMPTY    block_leave     freed, when pins had let the shard grow past its capacity
 * FAILED  -> EMPTY    block_leave     freed by the last that held it
 *
 * state     in the table  on the idle list  pins                content
 * EMPTY     no            no                0                   undefined
 * READING   yes           no                1 + waiters         being read by one thread
 * CLEAN     yes           when pins is 0    any                 valid, constant
 * FAILED    no            no                the reader, and     undefined
 *                                           waiters on their way out
 */
enum block_state { BLOCK_EMPTY, BLOCK_READING, BLOCK_CLEAN, BLOCK_FAILED };

struct block {
	struct cache_block pub;
	struct block *chain GUARDED_BY(shard_token); /* next in the table's bucket */
	struct list idle GUARDED_BY(shard_token);    /* on the shard's idle list when pins is 0 */
	uint32_t pins GUARDED_BY(shard_token);
	uint32_t waiters GUARDED_BY(shard_token); /* of the pins: asleep until the read ends */
	enum block_state state GUARDED_BY(shard_token);
	enum err error GUARDED_BY(shard_token); /* FAILED: what the waiters are told */
};

struct shard {
	struct mutex lock;
	struct cond read_ended;                       /* some read in this shard ended */
	struct block **table GUARDED_BY(shard_token); /* 1 << table_bits buckets */
	struct list idle GUARDED_BY(shard_token);     /* pins 0; the front was used longest ago */
	size_t count GUARDED_BY(shard_token);         /* blocks in the table */
	size_t idle_count GUARDED_BY(shard_token);    /* of them on the idle list */
	uint64_t hits GUARDED_BY(shard_token);        /* found CLEAN */
	uint64_t misses GUARDED_BY(shard_token);      /* everything else, prefetches included */
	uint64_t evictions GUARDED_BY(shard_token);   /* recycled or freed for capacity */
} cacheline_aligned;

struct cache {
	struct volume *volume;
	struct overlay *overlay; /* NULL for none */
	uint32_t block_bytes;
	fsblk_t blocks;
	unsigned shard_bits, table_bits;
	size_t shard_capacity; /* blocks */
	struct shard *shards;  /* 1 << shard_bits */
};

/* --- shard.c --------------------------------------------------------------------------------- */
enum err shard_init(struct shard *s, unsigned table_bits) must_check;
/* Frees everything; every block must be idle (ensure). */
void shard_destroy(struct shard *s);

/*
 * The block CLEAN and pinned, or claimed: then *must_read is set, the block is READING and pinned,
 * and the caller reads it and calls block_complete. Waits where another thread is reading it.
 * ERR_NOMEM, or the error of the read it waited for.
 */
enum err block_get(struct cache *c, fsblk_t nr, struct block **out, bool *must_read)
	must_check EXCLUDES(shard_token);
/* As above where the block is absent; *out is NULL, and nothing pinned, where it is there. */
enum err block_claim(struct cache *c, fsblk_t nr, struct block **out)
	must_check EXCLUDES(shard_token);
/* Ends the read with its result; the caller's pin stays, also on a FAILED block. */
void block_complete(struct cache *c, struct block *b, enum err result) EXCLUDES(shard_token);
/* Gives a pin back; the block is idle, or gone, when it was the last. */
void block_leave(struct cache *c, struct block *b) EXCLUDES(shard_token);

/* --- cache.c --------------------------------------------------------------------------------- */
/* Reads a claimed block from its home or from the log. */
enum err cache_fill(struct cache *c, struct block *b) must_check;

#endif
