/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cache: metadata blocks of one file system, read through its volume, pinned while in use.
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
 * Threads: everything may be called from any thread. cache_get blocks for device I/O.
 */
#ifndef CRYPTFS_CACHE_H
#define CRYPTFS_CACHE_H

#include "base.h"
#include "cipher.h"

struct cache;
struct overlay;

struct cache_block {
	uint8_t *data; /* block_bytes; constant while pinned on a read-only mount */
	fsblk_t nr;
	_Atomic uint32_t verified; /* 0, or the kind the owner of the content gave it */
};

struct cache_config {
	struct volume *volume; /* borrowed */
	uint32_t block_bytes;
	fsblk_t blocks;          /* of the file system: anything beyond is ERR_CORRUPT */
	uint64_t capacity_bytes; /* of unpinned and pinned blocks together; pins may exceed it */
	struct overlay *overlay; /* owned from success on; NULL for none */
};
struct cache_stats {
	uint64_t hits, misses, evictions;
	uint64_t resident_bytes, pinned_blocks;
};

enum err cache_create(const struct cache_config *config, struct cache **out) must_check;
void cache_destroy(struct cache *c); /* no pins may be left (ensure) */
uint32_t cache_block_bytes(const struct cache *c);

/* ERR_CORRUPT for a block number past the file system, ERR_IO and the volume's other errors. */
enum err cache_get(struct cache *c, fsblk_t nr, struct cache_block **out) must_check;
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
