/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * base/lock: the lock classes of lock.h over pthread, and the debug rank checker.
 *
 * With -DCRYPTFS_DEBUG_LOCKS each thread keeps a stack of the locks it holds, and taking one whose
 * rank is not above every rank held is a bug (ensure). A trylock never waits, so it cannot close a
 * cycle: it may be out of order, but not a second hold of one lock. In other builds the checker
 * compiles to nothing. What it does not do: find deadlocks between locks of one rank; the callers
 * of _lock_second() state that order.
 */
#include "base.h"

#include <time.h>

struct lock_token nodes_token, rename_token, inode_token, handle_token, super_token, extent_token,
	xattr_token, alloc_token, group_token, journal_token, shard_token, page_token, ioq_token,
	counter_token, log_token;

#ifdef CRYPTFS_DEBUG_LOCKS
enum { HELD_MAX = 32 };

static _Thread_local struct {
	const void *lock;
	enum lock_rank rank;
} held[HELD_MAX];
static _Thread_local unsigned held_count;

/* Before the wait, so that a bug aborts instead of hanging. */
static void rank_check(const void *lock, enum lock_rank rank, bool second, bool waits)
{
	for (unsigned i = 0; i < held_count; i++) {
		ensure(held[i].lock != lock);
		ensure(!waits || held[i].rank < rank || (second && held[i].rank == rank));
	}
}

static void rank_push(const void *lock, enum lock_rank rank)
{
	ensure(held_count < HELD_MAX);
	held[held_count].lock = lock;
	held[held_count++].rank = rank;
}

static void rank_pop(const void *lock, enum lock_rank rank)
{
	unsigned i = held_count;
	while (i > 0 && held[i - 1].lock != lock)
		i--;
	ensure(i > 0); /* dropped by a thread that does not hold it */
	ensure(held[i - 1].rank == rank);
	for (held_count--; i <= held_count; i++)
		held[i - 1] = held[i];
}

static void rank_check_holds(const void *lock)
{
	unsigned i = 0;
	while (i < held_count && held[i].lock != lock)
		i++;
	ensure(i < held_count);
}
#else
static inline void rank_check(const void *lock, enum lock_rank rank, bool second, bool waits)
{
	(void)lock, (void)rank, (void)second, (void)waits;
}
static inline void rank_push(const void *lock, enum lock_rank rank)
{
	(void)lock, (void)rank;
}
static inline void rank_pop(const void *lock, enum lock_rank rank)
{
	(void)lock, (void)rank;
}
static inline void rank_check_holds(const void *lock)
{
	(void)lock;
}
#endif

void mutex_init(struct mutex *m)
{
	ensure(pthread_mutex_init(&m->m, NULL) == 0);
}

void mutex_destroy(struct mutex *m)
{
	ensure(pthread_mutex_destroy(&m->m) == 0);
}

void rwlock_init(struct rwlock *l)
{
	pthread_rwlockattr_t attr;
	ensure(pthread_rwlockattr_init(&attr) == 0);
	/* glibc's default lets a stream of readers starve a truncate for good. */
	ensure(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) ==
		0);
	ensure(pthread_rwlock_init(&l->l, &attr) == 0);
	ensure(pthread_rwlockattr_destroy(&attr) == 0);
}

void rwlock_destroy(struct rwlock *l)
{
	ensure(pthread_rwlock_destroy(&l->l) == 0);
}

void cond_init(struct cond *c)
{
	pthread_condattr_t attr;
	ensure(pthread_condattr_init(&attr) == 0);
	/* Deadlines must not move when somebody sets the clock. */
	ensure(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
	ensure(pthread_cond_init(&c->c, &attr) == 0);
	ensure(pthread_condattr_destroy(&attr) == 0);
}

void cond_destroy(struct cond *c)
{
	ensure(pthread_cond_destroy(&c->c) == 0);
}

void cond_signal(struct cond *c)
{
	ensure(pthread_cond_signal(&c->c) == 0);
}

void cond_broadcast(struct cond *c)
{
	ensure(pthread_cond_broadcast(&c->c) == 0);
}

void cond_wait(struct cond *c, struct mutex *m)
{
	rank_check_holds(m);
	ensure(pthread_cond_wait(&c->c, &m->m) == 0);
}

bool cond_wait_until(struct cond *c, struct mutex *m, uint64_t deadline_ns)
{
	rank_check_holds(m);
	const struct timespec at = {
		.tv_sec = (time_t)(deadline_ns / 1000000000u),
		.tv_nsec = (long)(deadline_ns % 1000000000u),
	};
	int error = pthread_cond_timedwait(&c->c, &m->m, &at);
	ensure(error == 0 || error == ETIMEDOUT);
	return error == 0;
}

void lock_mutex_take(struct mutex *m, enum lock_rank rank, bool second)
{
	rank_check(m, rank, second, true);
	ensure(pthread_mutex_lock(&m->m) == 0);
	rank_push(m, rank);
}

bool lock_mutex_try(struct mutex *m, enum lock_rank rank)
{
	rank_check(m, rank, false, false);
	int error = pthread_mutex_trylock(&m->m);
	ensure(error == 0 || error == EBUSY);
	if (error == 0)
		rank_push(m, rank);
	return error == 0;
}

void lock_mutex_drop(struct mutex *m, enum lock_rank rank)
{
	rank_pop(m, rank);
	ensure(pthread_mutex_unlock(&m->m) == 0);
}

void lock_rw_take(struct rwlock *l, enum lock_rank rank, bool exclusive, bool second)
{
	rank_check(l, rank, second, true);
	ensure((exclusive ? pthread_rwlock_wrlock(&l->l) : pthread_rwlock_rdlock(&l->l)) == 0);
	rank_push(l, rank);
}

void lock_rw_drop(struct rwlock *l, enum lock_rank rank)
{
	rank_pop(l, rank);
	ensure(pthread_rwlock_unlock(&l->l) == 0);
}
