/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Part of base.h: lock classes with ranks.
 *
 * Every lock belongs to a class and every class has a rank. A thread takes locks in rising rank
 * order only; two locks of one class only through the class's _lock_second(), whose caller states
 * the order (by inode number, by address). A debug build (-DCRYPTFS_DEBUG_LOCKS) checks the
 * ranks at run time, and clang checks at compile time which class guards which field: its
 * analysis cannot express "the lock beside me" in C, so each class has one token and a field says
 * GUARDED_BY(class_token).
 */
#ifndef CRYPTFS_LOCK_H
#define CRYPTFS_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__clang__)
#define THREAD_ATTR(a) __attribute__((a))
#else
#define THREAD_ATTR(a)
#endif
#define LOCK_TOKEN           THREAD_ATTR(capability("mutex"))
#define GUARDED_BY(t)        THREAD_ATTR(guarded_by(t))
#define PT_GUARDED_BY(t)     THREAD_ATTR(pt_guarded_by(t))
#define REQUIRES(...)        THREAD_ATTR(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) THREAD_ATTR(requires_shared_capability(__VA_ARGS__))
#define EXCLUDES(...)        THREAD_ATTR(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...)         THREAD_ATTR(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...)  THREAD_ATTR(acquire_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...)     THREAD_ATTR(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...)         THREAD_ATTR(release_capability(__VA_ARGS__))
#define RELEASE_SHARED(...)  THREAD_ATTR(release_shared_capability(__VA_ARGS__))
#define NO_LOCK_ANALYSIS     THREAD_ATTR(no_thread_safety_analysis)

/* From the outermost to the innermost. */
enum lock_rank {
	LOCK_RANK_nodes = 1, /* front's list of workers */
	LOCK_RANK_rename,    /* one directory rename at a time */
	LOCK_RANK_inode,     /* an inode: shared across reads and write-back, else exclusive */
	LOCK_RANK_handle,    /* a journal handle's start */
	LOCK_RANK_super,     /* the superblock and the orphan list */
	LOCK_RANK_extent,    /* an inode's cached map */
	LOCK_RANK_xattr,     /* reference counts of attribute blocks */
	LOCK_RANK_alloc,     /* freed blocks on their way back, and refusals */
	LOCK_RANK_group,     /* a block group's descriptor and bitmaps */
	LOCK_RANK_journal,   /* the journal's transactions */
	LOCK_RANK_shard,     /* a shard of a cache */
	LOCK_RANK_page,      /* the page depot */
	LOCK_RANK_ioq,       /* request queues and their statistics */
	LOCK_RANK_counter,   /* a counter's slow path, whatever else is held */
	LOCK_RANK_log,       /* leaf: nothing is taken under it */
};

struct LOCK_TOKEN lock_token {
	char unused;
};
struct mutex {
	pthread_mutex_t m;
};
struct rwlock {
	pthread_rwlock_t l;
};
struct cond {
	pthread_cond_t c; /* CLOCK_MONOTONIC */
};

void mutex_init(struct mutex *m);
void mutex_destroy(struct mutex *m);
void rwlock_init(struct rwlock *l);
void rwlock_destroy(struct rwlock *l);
void cond_init(struct cond *c);
void cond_destroy(struct cond *c);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);
/* The caller holds m, of whatever class. The second returns false at the deadline (clock_ns()). */
void cond_wait(struct cond *c, struct mutex *m);
bool cond_wait_until(struct cond *c, struct mutex *m, uint64_t deadline_ns);

/* Private to the macros below. `second` allows a lock of the same rank to be held. */
void lock_mutex_take(struct mutex *m, enum lock_rank rank, bool second);
bool lock_mutex_try(struct mutex *m, enum lock_rank rank);
void lock_mutex_drop(struct mutex *m, enum lock_rank rank);
void lock_rw_take(struct rwlock *l, enum lock_rank rank, bool exclusive, bool second);
void lock_rw_drop(struct rwlock *l, enum lock_rank rank);

#define LOCK_CLASS_MUTEX(class)                                                                    \
	extern struct lock_token class##_token;                                                    \
	static inline NO_LOCK_ANALYSIS ACQUIRE(class##_token) void class##_lock(struct mutex *m)   \
	{                                                                                          \
		lock_mutex_take(m, LOCK_RANK_##class, false);                                      \
	}                                                                                          \
	static inline NO_LOCK_ANALYSIS TRY_ACQUIRE(true, class##_token) bool class##_trylock(      \
		struct mutex *m)                                                                   \
	{                                                                                          \
		return lock_mutex_try(m, LOCK_RANK_##class);                                       \
	}                                                                                          \
	static inline NO_LOCK_ANALYSIS RELEASE(class##_token) void class##_unlock(struct mutex *m) \
	{                                                                                          \
		lock_mutex_drop(m, LOCK_RANK_##class);                                             \
	}

#define LOCK_CLASS_RWLOCK(class)                                                                  \
	extern struct lock_token class##_token;                                                   \
	static inline NO_LOCK_ANALYSIS ACQUIRE(class##_token) void class##_lock(struct rwlock *l) \
	{                                                                                         \
		lock_rw_take(l, LOCK_RANK_##class, true, false);                                  \
	}                                                                                         \
	static inline NO_LOCK_ANALYSIS void class##_lock_second(struct rwlock *l)                 \
	{                                                                                         \
		lock_rw_take(l, LOCK_RANK_##class, true, true);                                   \
	}                                                                                         \
	static inline NO_LOCK_ANALYSIS RELEASE(class##_token) void class##_unlock(                \
		struct rwlock *l)                                                                 \
	{                                                                                         \
		lock_rw_drop(l, LOCK_RANK_##class);                                               \
	}                                                                                         \
	static inline NO_LOCK_ANALYSIS void class##_unlock_second(struct rwlock *l)               \
	{                                                                                         \
		lock_rw_drop(l, LOCK_RANK_##class);                                               \
	}                                                                                         \
	static inline NO_LOCK_ANALYSIS ACQUIRE_SHARED(class##_token) void class##_lock_shared(    \
		struct rwlock *l)                                                                 \
	{                                                                                         \
		lock_rw_take(l, LOCK_RANK_##class, false, false);                                 \
	}                                                                                         \
	static inline NO_LOCK_ANALYSIS RELEASE_SHARED(class##_token) void class##_unlock_shared(  \
		struct rwlock *l)                                                                 \
	{                                                                                         \
		lock_rw_drop(l, LOCK_RANK_##class);                                               \
	}

LOCK_CLASS_MUTEX(nodes)
LOCK_CLASS_MUTEX(rename)
LOCK_CLASS_RWLOCK(inode)
LOCK_CLASS_MUTEX(handle)
LOCK_CLASS_MUTEX(super)
LOCK_CLASS_RWLOCK(extent)
LOCK_CLASS_MUTEX(xattr)
LOCK_CLASS_MUTEX(alloc)
LOCK_CLASS_MUTEX(group)
LOCK_CLASS_MUTEX(journal)
LOCK_CLASS_MUTEX(shard)
LOCK_CLASS_MUTEX(page)
LOCK_CLASS_MUTEX(ioq)
LOCK_CLASS_MUTEX(counter)
LOCK_CLASS_MUTEX(log)

#endif
