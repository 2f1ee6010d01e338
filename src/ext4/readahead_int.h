/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the two halves of read-ahead share: streams and windows (readahead.c), and the pool of
 * helpers that fill windows (readahead_pool.c). States and references are drawn in readahead.c.
 */
#ifndef CRYPTFS_EXT4_READAHEAD_INT_H
#define CRYPTFS_EXT4_READAHEAD_INT_H

#include "ext4_int.h"

enum {
	READAHEAD_STREAMS = 4,
	READAHEAD_CANDIDATES = 4,
	READAHEAD_HELPERS = 2,
	READAHEAD_BYTES_MIN = 256 << 10,
	READAHEAD_BYTES_MAX = 4 << 20,
	READAHEAD_WINDOW_BYTES = 1 << 20,
	READAHEAD_POOL_BYTES = 64 << 20,
	/* How far out of order requests of a stream may be, and from which length on. */
	READAHEAD_SLACK_BYTES = 1 << 20,
	READAHEAD_SLACK_LEN = 32 << 10,
};
#define READAHEAD_IDLE_NS  (2 * 1000000000ull)
#define READAHEAD_SWEEP_NS (1 * 1000000000ull)

enum window_state { WINDOW_QUEUED, WINDOW_READING, WINDOW_READY, WINDOW_FAILED };

struct stream {
	uint64_t next;         /* where its reader goes on; 0: the slot is free */
	uint64_t ahead_end;    /* windows were launched up to here */
	uint64_t window_bytes; /* how far ahead it is read at present */
	uint64_t used_ns;
};

struct window {
	struct ext4_readahead *ra;
	struct stream *stream;
	uint64_t offset;
	size_t len;       /* of the file; the last one ends at the file's end */
	size_t buf_bytes; /* whole blocks */
	unsigned order;
	uint8_t *buf; /* set before READY, constant from then on */
	enum window_state state;
	unsigned refs;
	size_t consumed;         /* handed out so far */
	struct list link;        /* in ra->windows */
	struct list launch_link; /* in a launch's list, the pool's queue or a list to be freed */
	bool queued GUARDED_BY(shard_token); /* launch_link is in the pool's queue */
};

struct ext4_readahead {
	struct ext4_inode *inode;
	struct mutex lock; /* rank ioq */
	struct cond filled;
	struct stream stream[READAHEAD_STREAMS] GUARDED_BY(ioq_token);
	uint64_t candidate[READAHEAD_CANDIDATES] GUARDED_BY(ioq_token); /* ends of single reads */
	unsigned candidate_at GUARDED_BY(ioq_token);
	struct list windows GUARDED_BY(ioq_token);
	uint64_t used_ns GUARDED_BY(ioq_token);
	struct list pool_link GUARDED_BY(shard_token); /* on pool->active while it has windows */
};

struct ext4_readahead_pool {
	struct mutex lock; /* rank shard */
	struct cond work;
	struct list queue GUARDED_BY(shard_token);
	struct list active GUARDED_BY(shard_token);
	unsigned helpers GUARDED_BY(shard_token);
	bool stop GUARDED_BY(shard_token);
	uint64_t swept_ns GUARDED_BY(shard_token);
	pthread_t thread[READAHEAD_HELPERS] GUARDED_BY(shard_token);
	_Atomic int64_t bytes; /* of all windows that have a buffer or will get one */
};

/* Gives a reference back; the last one puts the window on `freed`. */
void readahead_window_unref(struct window *w, struct list *freed) REQUIRES(ioq_token);
/* Takes it out of ra->windows, if it is there. */
void readahead_window_drop(struct window *w, struct list *freed) REQUIRES(ioq_token);
/* Drops the windows of one stream, or of all for NULL. */
void readahead_streams_drop(struct ext4_readahead *ra, struct stream *s, struct list *freed)
	REQUIRES(ioq_token);
void readahead_windows_free(struct ext4 *fs, struct list *freed);
/* Reads a window's bytes. The caller has marked it READING and holds the inode's lock. */
void readahead_window_fill(struct window *w);
/*
 * Takes a window that the caller has marked READING out of the queue, so that its memory does not
 * wait for a helper to come by. The caller has a reference and no lock of rank shard or below.
 */
void readahead_window_unqueue(struct window *w);
/* Hands new windows to the helpers. The caller holds a reference to the inode and no lock here. */
void readahead_windows_launch(struct ext4_readahead *ra, struct list *launch);

#endif
