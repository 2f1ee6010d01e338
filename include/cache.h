/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cache: metadata blocks of one file system, read and written through its volume, pinned while in
 * use.
 *
 * A block is of the file system's block size (1 KiB to 64 KiB). Blocks hash into shards, each with
 * its own mutex; the content is read outside the shard's lock, and threads that want a block that
 * is being read wait for that read. Unpinned blocks stay until the capacity is reached and are
 * evicted in about least-recently-used order.
 *
 * Verification belongs to the layer that asked: it marks the block with a kind of its own and
 * later finds the mark, so that a checksum is computed once per read from the device.
 *
 * The overlay serves a read-only mount of a volume whose journal was not replayed on the device: it
 * maps a block to its newest committed copy in the log, and every read of that block, through the
 * cache or past it, takes the copy. File data is read past the cache (cache_read_past), because
 * the kernel caches what is clean.
 *
 * Writing: the cache knows a number for each dirty block, the transaction that holds it, and one
 * for the file system, the newest durable transaction. A dirty block does not go home, and is not
 * evicted, before its transaction is durable. The owner of the numbers is the journal: other
 * layers change a block's content only between journal_write() and journal_stop() (journal.h), and
 * call none of cache_pin, cache_set_durable, cache_write_home, cache_forget.
 *
 *            cache_pin              cache_write_home captures it
 *   clean -------------> dirty(seq) ----------------------------> on its way home
 *     ^                    ^    (durable >= seq only)                 |      |
 *     |                    +------------------------------------------+      |
 *     |                       cache_pin meanwhile, or the write failed       |
 *     +----------------------------------------------------------------------+
 *                               the write succeeded
 *
 * Threads: everything may be called from any thread. cache_get blocks for device I/O.
 */
#ifndef CRYPTFS_CACHE_H
#define CRYPTFS_CACHE_H

#include "base.h"
#include "cipher.h"

struct cache;
struct overlay;

struct cache_block {
	/* block_bytes; changed only between journal_write() and journal_stop(), by a caller whose
	 * own locks keep other readers and writers of the same bytes off. */
	uint8_t *data;
	fsblk_t nr;
	_Atomic uint32_t verified;  /* 0, or the kind the owner of the content gave it */
	_Atomic uint64_t owner_seq; /* the journal's: the transaction it is a member of */
};

struct cache_config {
	struct volume *volume; /* borrowed */
	uint32_t block_bytes;
	fsblk_t blocks;          /* of the file system: anything beyond is ERR_CORRUPT */
	uint64_t capacity_bytes; /* of all blocks; pinned and dirty ones may exceed it */
	struct overlay *overlay; /* owned from success on; NULL for none */
};
struct cache_stats {
	uint64_t hits, misses, evictions;
	uint64_t resident_bytes, pinned_blocks;
	uint64_t dirty_blocks; /* those on their way home included */
};

enum err cache_create(const struct cache_config *config, struct cache **out) must_check;
void cache_destroy(struct cache *c); /* no pins may be left (ensure) */
uint32_t cache_block_bytes(const struct cache *c);

/* ERR_CORRUPT for a block number past the file system, ERR_IO and the volume's other errors. */
enum err cache_get(struct cache *c, fsblk_t nr, struct cache_block **out) must_check;
/* As cache_get where the block is in memory; false: it is not, or is being read. Never waits. */
bool cache_get_cached(struct cache *c, fsblk_t nr, struct cache_block **out) must_check;
/*
 * As cache_get, for a block whose content nobody needs, since it was just allocated: it is not
 * read. Zeroed and unverified, unless it is dirty (freed and allocated within one transaction):
 * whoever cannot rule that out fills all of it after journal_write(). ERR_CORRUPT, ERR_NOMEM.
 */
enum err cache_get_new(struct cache *c, fsblk_t nr, struct cache_block **out) must_check;
void cache_put(struct cache *c, struct cache_block *b); /* NULL is fine */
/*
 * Reads [nr, nr + count) in as few requests as possible and leaves the blocks unpinned in the
 * cache. A hint: errors are left for the cache_get that follows. Blocks for the I/O.
 */
void cache_prefetch(struct cache *c, fsblk_t nr, uint32_t count);
void cache_stats(const struct cache *c, struct cache_stats *out);

/*
 * File data: reads `count_blocks` blocks from nr into the buffers (each a multiple of 512, in all
 * count_blocks * block_bytes), honouring the overlay, leaving nothing in the cache.
 */
enum err cache_read_past(struct cache *c, fsblk_t nr, uint32_t count_blocks,
	const struct iovec *iov, int iov_count) must_check;

/* The counterpart: writes file data. The caller keeps readers of these blocks off. No flush. */
enum err cache_write_past(struct cache *c, fsblk_t nr, uint32_t count_blocks,
	const struct iovec *iov, int iov_count) must_check;

/* --- for the journal only ------------------------------------------------------------------- */
/* Once, before the first cache_pin; there must be no overlay (ensure). ERR_NOMEM. */
enum err cache_allow_writing(struct cache *c) must_check;
/*
 * Before the first change by transaction `seq` of a block that the caller has pinned: it is dirty
 * and does not go home before cache_set_durable(seq). What cache_write_home has captured by then
 * is the content before this call. Numbers only rise (ensure).
 */
void cache_pin(struct cache *c, struct cache_block *b, uint64_t seq);
void cache_set_durable(struct cache *c, uint64_t seq); /* only rises */
uint64_t cache_durable(const struct cache *c);         /* 0 at first */
/*
 * Writes home those of `blocks` (dirty, by rising nr) whose transaction is durable. Each is copied
 * under its shard's lock, so that a cache_pin comes before or after it; adjacent ones go in one
 * write of up to 1 MiB. done[i]: the content of the newest durable transaction that held it is
 * home (not flushed), and the block is clean, or dirty by a later transaction that pinned it
 * meanwhile. One call at a time (ensure). On an error what was not written stays dirty.
 */
enum err cache_write_home(
	struct cache *c, struct cache_block *const *blocks, size_t count, bool *done) must_check;
/*
 * The block's content is of no use any more: it leaves the cache, dirty or not, after a read or a
 * write home under way has ended. Who has it pinned keeps a copy that is no longer the cache's.
 */
void cache_forget(struct cache *c, fsblk_t nr);

/* --- overlay -------------------------------------------------------------------------------- */
struct overlay_entry {
	fsblk_t block; /* the block's home */
	fsblk_t log;   /* where in the file system its newest committed copy lies */
	bool escaped;  /* its first four bytes stand for the journal's magic (jbd2 ESCAPE) */
};
/* Copies the entries; they must have distinct `block`s, in any order. */
enum err overlay_create(const struct overlay_entry *entries, size_t count, struct overlay **out)
	must_check;
void overlay_destroy(struct overlay *o); /* NULL is fine */
size_t overlay_count(const struct overlay *o);
/* The entry with the smallest block in [first, first + count), or NULL. */
const struct overlay_entry *overlay_find(const struct overlay *o, fsblk_t first, uint64_t count);
/* Reads one block's copy from the log, unescaped. */
enum err overlay_read(const struct overlay_entry *e, struct volume *v, uint32_t block_bytes,
	void *buf) must_check;

#endif
