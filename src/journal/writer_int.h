/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The writer's private structures: transactions, the blocks in them and in the log, the log's
 * space, and how a commit is laid out.
 *
 * Method. A commit locks the running transaction, waits for its handles, copies every member into
 * one buffer that has the log's layout, and opens the next transaction before any I/O. So a cached
 * block is always the running version and the buffer the committed one; nothing is ever copied on
 * a handle's way. The thread that commits also writes home and moves the tail, so that these never
 * overlap: the tail cannot pass a transaction whose blocks went over to one that is not durable,
 * and a freed block cannot be on its way home when its transaction becomes durable.
 *
 * Threads: the journal's mutex guards what says so. The buffer, `homes` and the superblock belong
 * to the journal's own thread once it runs. No I/O is done under the mutex.
 */
#ifndef CRYPTFS_JOURNAL_WRITER_INT_H
#define CRYPTFS_JOURNAL_WRITER_INT_H

#include "journal_int.h"

/*
 *              commit_lock          commit_copy           commit_publish
 *   RUNNING ---------------> LOCKED ------------> LOGGING ---------------> COMMITTED
 *                                                                              |
 *                                       log_move_tail: every block home, or    v
 *                                       in a newer durable transaction      (freed)
 *
 * state      is                    handles  members, revokes       logged    in j->used
 * RUNNING    j->running            any      what handles did       empty     no
 * LOCKED     j->running            to 0     constant from 0 on     empty     no
 * LOGGING    j->logging            0        members empty          complete  yes
 * COMMITTED  on j->committed       0        both empty             shrinks   yes
 *
 * A failed journal keeps every transaction in the state it had; journal_close frees them.
 */
enum transaction_state {
	TRANSACTION_RUNNING,
	TRANSACTION_LOCKED,
	TRANSACTION_LOGGING,
	TRANSACTION_COMMITTED,
};

struct journal_transaction {
	struct list link; /* COMMITTED: on j->committed, oldest first */
	uint64_t seq;
	enum transaction_state state;
	uint32_t handles;
	uint32_t outstanding;         /* credits that open handles have not used */
	uint32_t member_count;        /* on `members`; with `outstanding` at most j->members_max */
	uint32_t revoke_count;        /* on `revokes`, until they are copied */
	struct list members, revokes; /* journal_block.join */
	struct list logged;     /* journal_block.in_log: those whose newest copy is this one's */
	uint32_t pending;       /* of `logged`: not home */
	uint64_t superseded_by; /* the newest transaction that took over a pending block */
	uint32_t log_start, log_blocks;
	uint64_t started_ns; /* RUNNING: when it ceased to be empty */
	uint64_t committed_ns;
};

/*
 * What the journal knows of a home block: one for each that is in the running transaction or has a
 * copy in the log.
 *
 * joined    is on                          block
 * NONE      nothing                        the cached block when pending, else NULL
 * MEMBER    running->members               the cached block
 * REVOKED   the revokes of a running or    the cached block, or NULL; `logged` is not NULL
 *           logging transaction
 *
 * A cached block that `block` points at is dirty, and so it stays where it is; but see `homing`.
 */
enum block_joined { JOINED_NONE, JOINED_MEMBER, JOINED_REVOKED };

struct journal_block {
	fsblk_t nr;
	struct journal_block *chain; /* in its bucket, or in the list of free ones */
	struct cache_block *block;
	enum block_joined joined;
	struct journal_transaction *joined_to;
	struct list join;
	struct journal_transaction *logged; /* has its newest copy; NULL: none is in the log */
	struct list in_log;                 /* on logged->logged */
	bool pending;                       /* that copy is not home */
	bool homing; /* it is being written: may be clean already, and `block` evicted */
};

enum {
	JOURNAL_BLOCKS_MIN = 1024, /* of the journal, as the kernel wants it */
	JOURNAL_COMMIT_INTERVAL_MS = 5000,
	HOME_BATCH = 4096,                /* blocks sorted together for writing home */
	HOME_CHUNK = 64,                  /* written home before a commit may come between */
	LOG_WRITE_BYTES = 1 << 20,        /* the largest write to the log */
	TRANSACTION_BYTES_MAX = 32 << 20, /* bounds the buffer where the log is large */
	BUFFER_KEPT_BYTES = 4 << 20,      /* of it, between commits */
};
#define JOURNAL_HOME_AGE_NS   UINT64_C(30000000000) /* a committed block goes home by then */
#define JOURNAL_HOME_RETRY_NS UINT64_C(1000000000)  /* when the running transaction holds some */
/* The first transaction's number in memory has this bit, so that 0 is before every one. */
#define JOURNAL_SEQ_BASE (UINT64_C(1) << 32)

struct journal {
	/* Constant after journal_open. */
	struct journal_config config;
	struct journal_run *runs;
	struct log log; /* geometry and format; its window is not used */
	struct cache *cache;
	uint32_t log_blocks;        /* [log.first, log.last) */
	uint32_t tags_per_block;    /* of a descriptor block */
	uint32_t revokes_per_block; /* of a revoke block */
	uint32_t members_max;       /* of a transaction */
	uint64_t interval_ns;
	uint32_t dirty_max; /* pending blocks beyond which they go home early */
	pthread_t thread;

	/* Of the journal's thread. */
	struct disk_super *super;
	bool marked_empty;   /* the superblock on the disk says s_start = 0 */
	uint64_t commit_sec; /* of the latest commit block: never decreases */
	uint8_t *buffer;     /* buffer_blocks, in the log's layout; mapped */
	size_t buffer_blocks;
	fsblk_t *homes; /* of the members in the buffer, in order; members_max; mapped */
	struct journal_block **batch; /* HOME_BATCH, being written home */
	struct cache_block **batch_cached;
	bool *batch_done;

	/* Read without the mutex, written under it. */
	_Atomic uint64_t running_seq, durable_seq;
	_Atomic bool failed;

	struct mutex lock;
	struct cond work;      /* for the thread: something to do */
	struct cond drained;   /* for the thread: the locked transaction has no handle */
	struct cond room;      /* for journal_start: a new transaction, or log space */
	struct cond committed; /* for journal_commit and journal_checkpoint */
	enum err error GUARDED_BY(journal_token); /* why it failed */
	struct journal_transaction *running GUARDED_BY(journal_token);
	struct journal_transaction *logging GUARDED_BY(journal_token);
	struct list committed_list GUARDED_BY(journal_token);
	uint32_t head GUARDED_BY(journal_token);    /* position of the next commit */
	uint32_t used GUARDED_BY(journal_token);    /* blocks of logging and committed ones */
	uint32_t in_log GUARDED_BY(journal_token);  /* journal_blocks with a copy in the log */
	uint32_t pending GUARDED_BY(journal_token); /* of them: not home */

	uint64_t commit_wanted GUARDED_BY(journal_token);     /* up to this transaction */
	uint64_t checkpoint_wanted GUARDED_BY(journal_token); /* up to this transaction */
	uint64_t checkpoint_done GUARDED_BY(journal_token);   /* what was wanted and is done */
	bool space_wanted GUARDED_BY(journal_token);          /* a handle waits for log space */
	/* Nothing went home since the last commit, as the running transaction holds the rest. */
	bool stuck GUARDED_BY(journal_token);
	bool stopping GUARDED_BY(journal_token);
	uint64_t home_due_ns GUARDED_BY(journal_token); /* not before, unless it is wanted */

	struct journal_block *pool; /* mapped; pool_count */
	size_t pool_count;
	size_t pool_used GUARDED_BY(journal_token); /* taken at least once */
	struct journal_block *pool_free GUARDED_BY(journal_token);
	struct journal_block **table GUARDED_BY(journal_token); /* 1 << table_bits buckets */
	unsigned table_bits;

	struct journal_stats stats GUARDED_BY(journal_token); /* what is only counted */
};

/* One commit as it lies in the buffer and in the log. */
struct commit {
	uint64_t seq;
	uint32_t start; /* position in the log */
	uint32_t revoke_blocks;
	uint32_t members;
	uint32_t blocks; /* in all: revoke blocks, descriptors, copies, the commit block */
};

static inline uint32_t journal_ceil(uint32_t n, uint32_t per)
{
	return n / per + (n % per != 0);
}
/* Blocks of the log that a transaction takes. */
static inline uint32_t journal_blocks_for(
	const struct journal *j, uint32_t members, uint32_t revokes)
{
	return journal_ceil(revokes, j->revokes_per_block) +
	       journal_ceil(members, j->tags_per_block) + members + 1;
}
static inline bool transaction_is_empty(const struct journal_transaction *t)
{
	return t->member_count == 0 && t->revoke_count == 0;
}

/* --- blocks.c -------------------------------------------------------------------------------- */
enum err blocks_create(struct journal *j) must_check;
void blocks_destroy(struct journal *j);
struct journal_block *blocks_find(const struct journal *j, fsblk_t nr) REQUIRES(journal_token);
/* There is none for nr. Never fails: there are as many as there can be at once. */
struct journal_block *blocks_add(struct journal *j, fsblk_t nr) REQUIRES(journal_token);
void blocks_remove(struct journal *j, struct journal_block *b) REQUIRES(journal_token);
/* Its copy in the log, if any, need not go home any more. */
void blocks_settle(struct journal *j, struct journal_block *b) REQUIRES(journal_token);
/* The invariants of the tables above, O(1). */
void journal_check(const struct journal *j) REQUIRES(journal_token);
void transaction_check(const struct journal *j, const struct journal_transaction *t)
	REQUIRES(journal_token);

/* --- encode.c -------------------------------------------------------------------------------- */
/* The layout: where in the buffer the nth member's copy and the nth descriptor lie. */
uint32_t encode_copy_at(const struct journal *j, const struct commit *c, uint32_t member);
/* Zeroes a block of the buffer and gives it its header. */
uint8_t *encode_block(struct journal *j, const struct commit *c, uint32_t at, uint32_t type);
/* Adds the nth record to the revoke blocks. */
void encode_revoke(struct journal *j, const struct commit *c, uint32_t n, fsblk_t nr);
/* Everything but the commit block, when copies, homes and records are in place. */
void encode_log(struct journal *j, const struct commit *c);
void encode_commit_block(struct journal *j, const struct commit *c);

/* --- commit.c -------------------------------------------------------------------------------- */
/* Commits the running transaction, with the mutex dropped for the I/O; a failure is journal_fail's.
 */
void commit_run(struct journal *j) REQUIRES(journal_token);
/* Opens the next transaction; there is none running. ERR_NOMEM. */
struct journal_transaction *transaction_create(uint64_t seq) must_check;

/* --- checkpoint.c ---------------------------------------------------------------------------- */
/*
 * Writes home what can go, until a commit is due, and moves the tail, with the mutex dropped for
 * the I/O; a failure is journal_fail's.
 */
void checkpoint_run(struct journal *j) REQUIRES(journal_token);
/*
 * The log is empty: s_start = 0, with the running transaction's number, which no block of the log
 * has. The mutex is dropped for the I/O; a failure is journal_fail's.
 */
void log_mark_empty(struct journal *j) REQUIRES(journal_token);

/* --- thread.c -------------------------------------------------------------------------------- */
void *journal_main(void *arg);
bool commit_is_due(const struct journal *j, uint64_t now_ns) REQUIRES(journal_token);
void journal_fail_locked(struct journal *j, enum err e, const char *why) REQUIRES(journal_token);

#endif
