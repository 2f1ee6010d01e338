/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * readahead_pool: windows and the helper threads that fill them.
 *
 * One pool a mount. The helpers start with the first window, since a daemon forks before it
 * serves, and end at unmount. An idle helper also gives up windows that nobody asked for in
 * READAHEAD_IDLE_NS. States, references and locks are drawn in readahead.c.
 */
#include "readahead_int.h"

#include <stdlib.h>

/* --- windows --------------------------------------------------------------------------------- */

void readahead_window_unref(struct window *w, struct list *freed)
{
	ensure(w->refs > 0);
	if (--w->refs == 0)
		list_push_back(freed, &w->launch_link);
}

void readahead_window_drop(struct window *w, struct list *freed)
{
	if (list_empty(&w->link))
		return;
	list_remove(&w->link);
	readahead_window_unref(w, freed);
}

void readahead_windows_free(struct ext4 *fs, struct list *freed)
{
	list_for_each_safe (n, freed) {
		struct window *w = list_entry(n, struct window, launch_link);
		list_remove(&w->launch_link);
		if (w->buf)
			page_put(fs->options.pages, w->buf, w->order);
		atomic_fetch_sub(&fs->readahead_pool->bytes, (int64_t)w->buf_bytes);
		free(w);
	}
}

void readahead_window_fill(struct window *w)
{
	struct ext4_inode *inode = w->ra->inode;
	struct iovec iov = {.iov_len = w->buf_bytes};
	enum err e = ERR_NOMEM;

	w->buf = page_get(inode->fs->options.pages, w->order);
	iov.iov_base = w->buf;
	if (w->buf)
		e = ext4_file_read_blocks(
			inode, (lblk_t)(w->offset >> inode->fs->block_bits), &iov, 1);
	/* A reader who needs these bytes reads them again and reports the error. */
	if (e)
		err_clear_detail();
	ioq_lock(&w->ra->lock);
	w->state = e ? WINDOW_FAILED : WINDOW_READY;
	cond_broadcast(&w->ra->filled);
	ioq_unlock(&w->ra->lock);
}

/* --- helpers --------------------------------------------------------------------------------- */

void readahead_streams_drop(struct ext4_readahead *ra, struct stream *s, struct list *freed)
{
	list_for_each_safe (n, &ra->windows) {
		struct window *w = list_entry(n, struct window, link);
		if (!s || w->stream == s)
			readahead_window_drop(w, freed);
	}
	for (int i = 0; i < READAHEAD_STREAMS; i++)
		if (!s || s == &ra->stream[i])
			ra->stream[i].ahead_end = ra->stream[i].window_bytes = 0;
}

/* Gives up what nobody has asked for lately. */
static void pool_sweep(struct ext4_readahead_pool *pool, struct list *freed) REQUIRES(shard_token);
static void pool_sweep(struct ext4_readahead_pool *pool, struct list *freed)
{
	uint64_t now = clock_ns();

	if (now - pool->swept_ns < READAHEAD_SWEEP_NS)
		return;
	pool->swept_ns = now;
	list_for_each_safe (n, &pool->active) {
		struct ext4_readahead *ra = list_entry(n, struct ext4_readahead, pool_link);
		ioq_lock(&ra->lock);
		if (now > ra->used_ns && now - ra->used_ns > READAHEAD_IDLE_NS)
			readahead_streams_drop(ra, NULL, freed);
		if (list_empty(&ra->windows))
			list_remove(&ra->pool_link);
		ioq_unlock(&ra->lock);
	}
}

/* The next queued window, or NULL to stop. */
static struct window *pool_next(struct ext4 *fs)
{
	struct ext4_readahead_pool *pool = fs->readahead_pool;
	struct window *w = NULL;
	struct list freed;

	list_init(&freed);
	shard_lock(&pool->lock);
	for (;;) {
		pool_sweep(pool, &freed);
		if (!list_empty(&freed)) {
			shard_unlock(&pool->lock);
			readahead_windows_free(fs, &freed);
			shard_lock(&pool->lock);
		}
		if (pool->stop)
			break;
		if (!list_empty(&pool->queue)) {
			w = list_entry(pool->queue.next, struct window, launch_link);
			list_remove(&w->launch_link);
			w->queued = false;
			break;
		}
		if (list_empty(&pool->active))
			cond_wait(&pool->work, &pool->lock);
		else
			(void)cond_wait_until(
				&pool->work, &pool->lock, clock_ns() + READAHEAD_SWEEP_NS);
	}
	shard_unlock(&pool->lock);
	return w;
}

static void *helper_run(void *arg)
{
	struct ext4 *fs = arg;
	struct window *w;

	while ((w = pool_next(fs))) {
		struct ext4_readahead *ra = w->ra;
		struct ext4_inode *inode = ra->inode;
		struct list freed;
		bool mine;

		list_init(&freed);
		inode_lock_shared(&inode->lock);
		ioq_lock(&ra->lock);
		/* Only the queue's reference left: nobody will ask for it any more. */
		mine = w->state == WINDOW_QUEUED && w->refs > 1;
		if (mine)
			w->state = WINDOW_READING;
		ioq_unlock(&ra->lock);
		if (mine)
			readahead_window_fill(w);
		inode_unlock_shared(&inode->lock);
		ioq_lock(&ra->lock);
		readahead_window_unref(w, &freed);
		ioq_unlock(&ra->lock);
		readahead_windows_free(fs, &freed);
		ext4_inode_put(inode);
	}
	return NULL;
}

NO_LOCK_ANALYSIS enum err ext4_readahead_start(struct ext4 *fs)
{
	struct ext4_readahead_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return ERR_NOMEM;
	mutex_init(&pool->lock);
	cond_init(&pool->work);
	list_init(&pool->queue);
	list_init(&pool->active);
	fs->readahead_pool = pool;
	return OK;
}

/* Drops all windows of an inode that nobody reads. */
static void readahead_drop_all(struct ext4_readahead *ra)
{
	struct ext4 *fs = ra->inode->fs;
	struct list freed;

	list_init(&freed);
	ioq_lock(&ra->lock);
	readahead_streams_drop(ra, NULL, &freed);
	ioq_unlock(&ra->lock);
	readahead_windows_free(fs, &freed);
}

NO_LOCK_ANALYSIS void ext4_readahead_stop(struct ext4 *fs)
{
	struct ext4_readahead_pool *pool = fs->readahead_pool;

	if (!pool)
		return;
	shard_lock(&pool->lock);
	pool->stop = true;
	cond_broadcast(&pool->work);
	shard_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->helpers; i++)
		pthread_join(pool->thread[i], NULL);
	list_for_each_safe (n, &pool->queue) {
		struct window *w = list_entry(n, struct window, launch_link);
		struct ext4_inode *inode = w->ra->inode;
		struct list freed;

		list_init(&freed);
		list_remove(&w->launch_link);
		ioq_lock(&w->ra->lock);
		readahead_window_unref(w, &freed);
		ioq_unlock(&inode->readahead->lock);
		readahead_windows_free(fs, &freed);
		ext4_inode_put(inode);
	}
	list_for_each_safe (n, &pool->active) {
		struct ext4_readahead *ra = list_entry(n, struct ext4_readahead, pool_link);
		list_remove(&ra->pool_link);
		readahead_drop_all(ra);
	}
	ensure(atomic_load(&pool->bytes) == 0);
	mutex_destroy(&pool->lock);
	cond_destroy(&pool->work);
	free(pool);
	fs->readahead_pool = NULL;
}

void ext4_readahead_forget(struct ext4_inode *inode)
{
	struct ext4_readahead *ra = atomic_load(&inode->readahead);
	struct ext4_readahead_pool *pool = inode->fs->readahead_pool;

	if (!ra)
		return;
	if (pool) {
		shard_lock(&pool->lock);
		list_remove(&ra->pool_link);
		shard_unlock(&pool->lock);
		readahead_drop_all(ra);
	}
	mutex_destroy(&ra->lock);
	cond_destroy(&ra->filled);
	free(ra);
}

/* --- launching ------------------------------------------------------------------------------- */

/* Starts the helpers at the first launch. */
static bool pool_has_helpers(struct ext4 *fs) REQUIRES(shard_token);
static bool pool_has_helpers(struct ext4 *fs)
{
	struct ext4_readahead_pool *pool = fs->readahead_pool;

	while (pool->helpers < READAHEAD_HELPERS) {
		if (thread_start(&pool->thread[pool->helpers], "readahead", helper_run, fs))
			break;
		pool->helpers++;
	}
	return pool->helpers > 0;
}

void readahead_window_unqueue(struct window *w)
{
	struct ext4_inode *inode = w->ra->inode;
	struct ext4_readahead_pool *pool = inode->fs->readahead_pool;
	struct list freed;
	bool was_queued;

	list_init(&freed);
	shard_lock(&pool->lock);
	was_queued = w->queued;
	if (was_queued)
		list_remove(&w->launch_link);
	w->queued = false;
	shard_unlock(&pool->lock);
	if (!was_queued)
		return;
	ioq_lock(&w->ra->lock);
	readahead_window_unref(w, &freed);
	ioq_unlock(&w->ra->lock);
	ensure(list_empty(&freed));
	ext4_inode_put(inode); /* the queue's; the caller has its own */
}

void readahead_windows_launch(struct ext4_readahead *ra, struct list *launch)
{
	struct ext4 *fs = ra->inode->fs;
	struct ext4_readahead_pool *pool = fs->readahead_pool;

	list_for_each_safe (n, launch) {
		ext4_inode_ref(ra->inode);
		shard_lock(&pool->lock);
		list_remove(n);
		list_push_back(&pool->queue, n);
		list_entry(n, struct window, launch_link)->queued = true;
		if (list_empty(&ra->pool_link))
			list_push_back(&pool->active, &ra->pool_link);
		/* Without helpers a window waits in the queue for a reader who needs it. */
		if (pool_has_helpers(fs))
			cond_signal(&pool->work);
		shard_unlock(&pool->lock);
	}
}
