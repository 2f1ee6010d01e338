/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cache's private structures: blocks, shards and the states a block goes through.
 *
 * Threads: a shard's mutex guards its table, its list and the bookkeeping of every block in it.
 * The content of a block is written by the thread that claimed it, while it is READING; from then
 * on only between a cache_pin and the durability of that transaction, by whoever holds the locks
 * of the layer that owns the content.
 */
#ifndef CRYPTFS_CACHE_INT_H
#define CRYPTFS_CACHE_INT_H

#include "cache.h"

/*
 *             block_get, block_claim  block_complete(OK)
 *    EMPTY ---------------> READING ----------------------> CLEAN
 *      ^                       |                           |  ^ |
 *      |                       | block_complete(error)     |  | | block_dirty
 *      |                       v                           |  | v
 *      +-------------------- FAILED                        |  | DIRTY <---------+
 *      |   block_leave: the last that held it              |  |  | ^            |
 *      |                                                   |  |  | | block_home |
 *      +---------------------------------------------------+  |  | | (error)    |
 *      |   shard_recycle, block_leave over capacity:          |  v |            | block_home
 *      |   nobody has it pinned                               WRITING           |
 *      |                                         block_home(OK)  |              |
 *      |                                                         | block_dirty  |
 *      |                                                         v              |
 *      |    block_forget, from CLEAN or DIRTY                 REDIRTIED --------+
 *      +--- GONE <---
 *           block_leave: the last that held it
 *
 * transition             function        under the shard's mutex
 * EMPTY     -> READING   block_get,      the block enters the table, pinned by the thread that
 *                        block_claim     reads
 * READING   -> CLEAN     block_complete  content is there; waiters are woken
 * READING   -> FAILED    block_complete  it leaves the table, so that the next cache_get tries
 *                                        again; waiters are woken and get the error
 * CLEAN     -> EMPTY     shard_recycle   its memory becomes another block
 * CLEAN     -> EMPTY     block_leave     freed, when pins had let the shard grow past its capacity
 * FAILED    -> EMPTY     block_leave     freed by the last that held it
 * CLEAN     -> DIRTY     block_dirty     a transaction pins it
 * DIRTY     -> WRITING   block_capture   its transaction is durable: the content is copied out
 * WRITING   -> CLEAN     block_home      the copy is home
 * WRITING   -> DIRTY     block_home      the write failed
 * WRITING   -> REDIRTIED block_dirty     a later transaction pins it, the copy is still under way
 * REDIRTIED -> DIRTY     block_home      the write of the copy has ended, well or not
 * CLEAN, DIRTY -> GONE   block_forget    somebody has it pinned; it leaves the table
 * CLEAN, DIRTY -> EMPTY  block_forget    freed, nobody has
 * GONE      -> EMPTY     block_leave     freed by the last that held it
 *
 * state      in the table  on the idle list  pins                content
 * EMPTY      no            no                0                   undefined
 * READING    yes           no                1 + waiters         being read by one thread
 * CLEAN      yes           when pins is 0    any                 valid, as at home
 * DIRTY      yes           no                any                 valid, of transaction pin_seq
 * WRITING    yes           no                any                 valid, as in the copy under way
 * REDIRTIED  yes           no                any                 valid, newer than that copy
 * FAILED     no            no                the reader, and     undefined
 *                                            waiters on their way out
 * GONE       no            no                1 or more           of no use
 */
enum block_state {
	BLOCK_EMPTY,
	BLOCK_READING,
	BLOCK_CLEAN,
	BLOCK_DIRTY,
	BLOCK_WRITING,
	BLOCK_REDIRTIED,
	BLOCK_FAILED,
	BLOCK_GONE,
};

struct block {
	struct cache_block pub;
	struct block *chain GUARDED_BY(shard_token); /* next in the table's bucket */
	struct list idle GUARDED_BY(shard_token);    /* on the shard's idle list when pins is 0 */
	uint32_t pins GUARDED_BY(shard_token);
	uint32_t waiters GUARDED_BY(shard_token); /* of the pins: asleep until the read ends */
	enum block_state state GUARDED_BY(shard_token);
	enum err error GUARDED_BY(shard_token); /* FAILED: what the waiters are told */
	/* DIRTY, REDIRTIED: the transaction that holds it; rises as long as the block is cached */
	uint64_t pin_seq GUARDED_BY(shard_token);
};

struct shard {
	struct mutex lock;
	struct cond ended; /* some read, or a write home, in this shard ended */
	struct block **table GUARDED_BY(shard_token); /* 1 << table_bits buckets */
	struct list idle GUARDED_BY(shard_token);     /* pins 0; the front was used longest ago */
	size_t count GUARDED_BY(shard_token);         /* blocks in the table */
	size_t idle_count GUARDED_BY(shard_token);    /* of them on the idle list */
	size_t dirty_count GUARDED_BY(shard_token);   /* of them DIRTY, WRITING, REDIRTIED */
	size_t resting_count GUARDED_BY(shard_token); /* of these with no pins */
	unsigned forgetters GUARDED_BY(shard_token);  /* asleep until a read or write ends */
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

	_Atomic uint64_t durable_seq; /* the newest transaction that is safely in the log */
	uint8_t *home_bounce;      /* HOME_RUN_BYTES, for the one write home at a time; or NULL */
	_Atomic bool writing_home; /* that one is under way */
};

enum { HOME_RUN_BYTES = 1 << 20 }; /* the largest write home */

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
/* The block pinned where it is in memory, else NULL. Never waits. */
struct block *block_get_cached(struct cache *c, fsblk_t nr) must_check EXCLUDES(shard_token);
/* As block_get where the block is absent; *out is NULL, and nothing pinned, where it is there. */
enum err block_claim(struct cache *c, fsblk_t nr, struct block **out)
	must_check EXCLUDES(shard_token);
/* Ends the read with its result; the caller's pin stays, also on a FAILED block. */
void block_complete(struct cache *c, struct block *b, enum err result) EXCLUDES(shard_token);
/* Gives a pin back; the block is idle, or gone, when it was the last. */
void block_leave(struct cache *c, struct block *b) EXCLUDES(shard_token);

/* The content is zeroed and unverified, unless the block is dirty; the caller has it pinned. */
void block_wipe(struct cache *c, struct block *b) EXCLUDES(shard_token);
/* The block, which the caller has pinned, is dirty by transaction `seq`. */
void block_dirty(struct cache *c, struct block *b, uint64_t seq) EXCLUDES(shard_token);
/* Copies the content into `copy` where the block's transaction is durable; else false. */
bool block_capture(struct cache *c, struct block *b, uint8_t *copy)
	must_check EXCLUDES(shard_token);
/* The write of a captured copy has ended. The block may be freed. */
void block_home(struct cache *c, struct block *b, enum err result) EXCLUDES(shard_token);
void block_forget(struct cache *c, fsblk_t nr) EXCLUDES(shard_token);

/* --- cache.c --------------------------------------------------------------------------------- */
/* Reads a claimed block from its home or from the log. */
enum err cache_fill(struct cache *c, struct block *b) must_check;

#endif
