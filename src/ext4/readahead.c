/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * readahead: sequential readers find the next piece of the file already read and decrypted.
 *
 * A read that starts where the one before ended makes a stream; an inode keeps a few, so that two
 * readers of one file do not spoil each other's. Ahead of a stream lie windows, page runs of up to
 * 1 MiB, which helper threads fill; how far they reach doubles up to READAHEAD_BYTES_MAX. A read
 * that is covered by windows is answered from them; any other is the caller's own, in its own
 * thread, so random reads neither start this nor wait for it. Requests of one stream may come a
 * little out of order, as the kernel sends them from several threads.
 *
 *            launch            helper, or a reader
 *   (none) ----------> QUEUED ---------------------> READING ----> READY
 *                                                        \-------> FAILED
 *
 *   QUEUED   in the pool's queue; the first to come, a helper or a reader who needs it, fills it
 *   READING  its bytes are being read; readers wait for ra->filled
 *   READY    its bytes may be read by everyone, and handed out while it has a reference
 *   FAILED   readers read for themselves, and get the error
 *
 * References of a window: one while it is in ra->windows, one while it is in the pool's queue or
 * being filled by a helper, one for each part handed out. It leaves ra->windows when it was read to
 * its end, when its stream is far past it or replaced, or after READAHEAD_IDLE_NS. An entry of the
 * queue also holds the inode. All windows of a mount together are bounded by READAHEAD_POOL_BYTES:
 * at the bound nothing is launched, and readers read for themselves.
 *
 * Locks: pool->lock (rank shard), then ra->lock (rank ioq). No I/O and no page is freed under
 * either. A helper takes the inode's lock before it marks a window READING, so a reader who holds
 * that lock never waits for a helper who is waiting for it.
 */
#include "readahead_int.h"

#include <stdlib.h>

/* --- planning -------------------------------------------------------------------------------- */

static struct window *window_create(struct ext4_readahead *ra, struct stream *s, uint64_t end)
	REQUIRES(ioq_token);
/* A window at the stream's end; NULL: no memory, or at the pool's bound. */
static struct window *window_create(struct ext4_readahead *ra, struct stream *s, uint64_t end)
{
	const struct ext4 *fs = ra->inode->fs;
	struct ext4_readahead_pool *pool = fs->readahead_pool;
	uint64_t offset = s->ahead_end & ~(uint64_t)(fs->block_bytes - 1);
	size_t len = (size_t)MIN(end - offset, (uint64_t)READAHEAD_WINDOW_BYTES);
	size_t buf_bytes = (len + fs->block_bytes - 1) & ~(size_t)(fs->block_bytes - 1);
	struct window *w;

	if (atomic_fetch_add(&pool->bytes, (int64_t)buf_bytes) + (int64_t)buf_bytes >
		READAHEAD_POOL_BYTES)
		goto refused;
	w = calloc(1, sizeof(*w));
	if (!w)
		goto refused;
	w->ra = ra;
	w->stream = s;
	w->offset = offset;
	w->len = len;
	w->buf_bytes = buf_bytes;
	w->order = page_order_for(buf_bytes);
	w->state = WINDOW_QUEUED;
	w->refs = 2; /* ra->windows and the queue */
	list_init(&w->launch_link);
	list_push_back(&ra->windows, &w->link);
	s->ahead_end = offset + len;
	return w;
refused:
	atomic_fetch_sub(&pool->bytes, (int64_t)buf_bytes);
	return NULL;
}

static void stream_plan(struct ext4_readahead *ra, struct stream *s, struct list *launch)
	REQUIRES(ioq_token);
/* Where half of what lies ahead was used up, makes windows for twice as much. */
static void stream_plan(struct ext4_readahead *ra, struct stream *s, struct list *launch)
{
	uint64_t size = ra->inode->attr.size_bytes, end;

	s->ahead_end = MAX(s->ahead_end, s->next);
	if (s->ahead_end >= size || s->ahead_end - s->next > s->window_bytes / 2)
		return;
	s->window_bytes = s->window_bytes ? MIN(2 * s->window_bytes, (uint64_t)READAHEAD_BYTES_MAX)
					  : (uint64_t)READAHEAD_BYTES_MIN;
	end = MIN(s->next + s->window_bytes, size);
	while (s->ahead_end < end) {
		struct window *w = window_create(ra, s, end);
		if (!w)
			break;
		list_push_back(launch, &w->launch_link);
	}
}

/* --- streams --------------------------------------------------------------------------------- */

static struct stream *stream_find(struct ext4_readahead *ra, uint64_t offset, size_t len)
	REQUIRES(ioq_token);
/* The stream that a read continues, exactly or nearly. */
static struct stream *stream_find(struct ext4_readahead *ra, uint64_t offset, size_t len)
{
	struct stream *near = NULL;

	for (int i = 0; i < READAHEAD_STREAMS; i++) {
		struct stream *s = &ra->stream[i];
		uint64_t apart = s->next > offset ? s->next - offset : offset - s->next;
		if (s->next && s->next == offset)
			return s;
		if (s->next && len >= READAHEAD_SLACK_LEN && apart <= READAHEAD_SLACK_BYTES)
			near = s;
	}
	return near;
}

/*
 * Whether a read starts a stream behind a read that ended at `end`: there, or, for the sizes that
 * the kernel's own read-ahead asks for, where a request or two may still be on their way.
 */
static bool stream_continues(uint64_t end, uint64_t offset, size_t len)
{
	if (end == 0 || offset < end)
		return false;
	return offset == end || (len >= READAHEAD_SLACK_LEN && offset - end <= 2 * len);
}

static struct stream *stream_make(struct ext4_readahead *ra, struct list *freed)
	REQUIRES(ioq_token);
/* A slot for a new stream: a free one, or the one that was used longest ago. */
static struct stream *stream_make(struct ext4_readahead *ra, struct list *freed)
{
	struct stream *s = &ra->stream[0];

	for (int i = 1; i < READAHEAD_STREAMS; i++)
		if (ra->stream[i].used_ns < s->used_ns)
			s = &ra->stream[i];
	readahead_streams_drop(ra, s, freed);
	*s = (struct stream){0};
	return s;
}

static struct stream *stream_of_read(struct ext4_readahead *ra, uint64_t offset, size_t len,
	struct list *freed) REQUIRES(ioq_token);
/* The stream of this read, an old or a new one; NULL when it stands alone. */
static struct stream *stream_of_read(
	struct ext4_readahead *ra, uint64_t offset, size_t len, struct list *freed)
{
	struct stream *s = stream_find(ra, offset, len);

	for (int i = 0; i < READAHEAD_CANDIDATES && !s; i++)
		if (stream_continues(ra->candidate[i], offset, len)) {
			ra->candidate[i] = 0;
			s = stream_make(ra, freed);
		}
	if (!s) {
		ra->candidate[ra->candidate_at++ % READAHEAD_CANDIDATES] = offset + len;
		return NULL;
	}
	s->next = MAX(s->next, offset + len);
	s->used_ns = ra->used_ns = clock_ns();
	/* What lies far behind was jumped over. */
	list_for_each_safe (n, &ra->windows) {
		struct window *w = list_entry(n, struct window, link);
		if (w->stream == s && w->offset + w->len + READAHEAD_SLACK_BYTES <= s->next)
			readahead_window_drop(w, freed);
	}
	return s;
}

static NO_LOCK_ANALYSIS struct ext4_readahead *readahead_create(
	struct ext4_inode *inode, uint64_t first_end)
{
	struct ext4_readahead *ra = calloc(1, sizeof(*ra)), *other = NULL;

	if (!ra)
		return NULL;
	ra->inode = inode;
	mutex_init(&ra->lock);
	cond_init(&ra->filled);
	list_init(&ra->windows);
	list_init(&ra->pool_link);
	ra->candidate[ra->candidate_at++] = first_end;
	if (atomic_compare_exchange_strong(&inode->readahead, &other, ra))
		return ra;
	mutex_destroy(&ra->lock);
	cond_destroy(&ra->filled);
	free(ra);
	return other;
}

/* Before there is a stream: two reads in a row make one. NULL: this is not one of them. */
static struct ext4_readahead *readahead_of_inode(
	struct ext4_inode *inode, uint64_t offset, size_t len)
{
	struct ext4_readahead *ra = atomic_load(&inode->readahead);
	uint64_t expected;

	if (ra)
		return ra;
	expected = atomic_load_explicit(&inode->expected_offset, memory_order_relaxed);
	if (stream_continues(expected, offset, len))
		return readahead_create(inode, offset);
	/* A read that was overtaken by its successor must not make the stream look broken. */
	if (len < READAHEAD_SLACK_LEN || offset >= expected ||
		expected - offset > READAHEAD_SLACK_BYTES)
		atomic_store_explicit(&inode->expected_offset, offset + len, memory_order_relaxed);
	return NULL;
}

/* --- serving --------------------------------------------------------------------------------- */

static struct window *window_at(struct ext4_readahead *ra, uint64_t offset) REQUIRES(ioq_token);
static struct window *window_at(struct ext4_readahead *ra, uint64_t offset)
{
	list_for_each (n, &ra->windows) {
		struct window *w = list_entry(n, struct window, link);
		if (w->state != WINDOW_FAILED && offset >= w->offset && offset - w->offset < w->len)
			return w;
	}
	return NULL;
}

/* References to the windows that cover the range; 0: they do not, and nothing is referenced. */
static int windows_collect(struct ext4_readahead *ra, uint64_t offset, size_t len,
	struct window *found[EXT4_READ_PARTS]) REQUIRES(ioq_token);
static int windows_collect(struct ext4_readahead *ra, uint64_t offset, size_t len,
	struct window *found[EXT4_READ_PARTS])
{
	uint64_t end = offset + len;
	int n = 0;

	while (offset < end) {
		struct window *w = n < EXT4_READ_PARTS ? window_at(ra, offset) : NULL;
		if (!w)
			return 0;
		found[n++] = w;
		offset = w->offset + w->len;
	}
	for (int i = 0; i < n; i++)
		found[i]->refs++;
	return n;
}

/* Sees to it that a window is READY or FAILED: waits, or fills one that no helper has begun. */
static void window_await(struct window *w)
{
	struct ext4_readahead *ra = w->ra;
	bool mine;

	ioq_lock(&ra->lock);
	mine = w->state == WINDOW_QUEUED;
	if (mine)
		w->state = WINDOW_READING;
	while (!mine && w->state == WINDOW_READING)
		cond_wait(&ra->filled, &ra->lock);
	ioq_unlock(&ra->lock);
	if (!mine)
		return;
	readahead_window_unqueue(w);
	readahead_window_fill(w);
}

static bool windows_serve(struct ext4_readahead *ra, uint64_t offset, size_t len,
	struct window *const *found, int count, struct ext4_read *out)
{
	struct ext4 *fs = ra->inode->fs;
	struct list freed;
	bool ready = true;

	list_init(&freed);
	for (int i = 0; i < count; i++)
		window_await(found[i]);
	ioq_lock(&ra->lock);
	for (int i = 0; i < count; i++)
		ready &= found[i]->state == WINDOW_READY;
	for (int i = 0; i < count; i++) {
		struct window *w = found[i];
		size_t skip = (size_t)(offset - w->offset), here = MIN(len, w->len - skip);
		if (!ready) {
			if (w->state == WINDOW_FAILED)
				readahead_window_drop(w, &freed);
			readahead_window_unref(w, &freed);
			continue;
		}
		/* The reference taken before stays with the part. */
		ext4_read_hold_window(out, w, w->buf + skip, here);
		w->consumed += here;
		if (w->consumed >= w->len)
			readahead_window_drop(w, &freed);
		offset += here;
		len -= here;
	}
	ioq_unlock(&ra->lock);
	readahead_windows_free(fs, &freed);
	return ready;
}

bool ext4_readahead_take(
	struct ext4_inode *inode, uint64_t offset_bytes, size_t len_bytes, struct ext4_read *out)
{
	struct ext4_readahead *ra = readahead_of_inode(inode, offset_bytes, len_bytes);
	struct window *found[EXT4_READ_PARTS];
	struct list launch, freed;
	struct stream *s;
	int count = 0;

	if (!ra)
		return false;
	list_init(&launch);
	list_init(&freed);
	ioq_lock(&ra->lock);
	s = stream_of_read(ra, offset_bytes, len_bytes, &freed);
	if (s) {
		stream_plan(ra, s, &launch);
		count = windows_collect(ra, offset_bytes, len_bytes, found);
	}
	ioq_unlock(&ra->lock);
	readahead_windows_free(inode->fs, &freed);
	readahead_windows_launch(ra, &launch);
	return count > 0 && windows_serve(ra, offset_bytes, len_bytes, found, count, out);
}

void ext4_readahead_release(struct ext4_inode *inode, void *window)
{
	struct ext4_readahead *ra = atomic_load(&inode->readahead);
	struct list freed;

	list_init(&freed);
	ioq_lock(&ra->lock);
	readahead_window_unref(window, &freed);
	ioq_unlock(&ra->lock);
	readahead_windows_free(inode->fs, &freed);
}
