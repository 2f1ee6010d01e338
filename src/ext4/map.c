/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * map: where a file's blocks lie, from the part of the map that is in memory.
 *
 * What was read is kept as a sorted array of runs, holes included, so that a gap in the array
 * means "not read yet". A leaf of the tree is read at a time, without the map's lock, and put in;
 * neighbours that continue each other, across leaves too, are one run, so that a contiguous file
 * is one run and a read of it one request.
 *
 * Bounds: MAP_RUNS_MAX an inode (then its map starts anew), and MAP_RUNS_CROWDED in all inodes,
 * from where on inodes without references are given up early (inode.c).
 *
 * Who changes the map on disk changes what is here too, by ext4_map_changed(). What a reader has
 * read meanwhile is an answer to its own question, but is not kept.
 *
 * Locks: map_lock (rank extent) guards the array, shared to look up; never held across I/O.
 */
#include "ext4_int.h"

#include <stdlib.h>

enum {
	MAP_RUNS_MAX = 32768,
	MAP_RUNS_CROWDED = 1 << 20,
};

struct ext4_map_cache {
	struct ext4_run *run;
	size_t count, room;
};

static uint64_t run_end(const struct ext4_run *r)
{
	return (uint64_t)r->logical + r->count;
}

/* Whether b, which starts where a ends, is more of the same. */
static bool run_continues(const struct ext4_run *a, const struct ext4_run *b)
{
	if (run_end(a) != b->logical || a->unwritten != b->unwritten)
		return false;
	if (a->physical == 0 || b->physical == 0)
		return a->physical == b->physical;
	return a->physical + a->count == b->physical;
}

enum err ext4_runs_add(struct ext4_runs *runs, struct ext4_run run)
{
	if (runs->count > 0 && run_continues(&runs->run[runs->count - 1], &run)) {
		runs->run[runs->count - 1].count += run.count;
		return OK;
	}
	if (runs->count == runs->room) {
		size_t room = runs->room ? 2 * runs->room : 16;
		struct ext4_run *more = realloc(runs->run, room * sizeof(*more));
		if (!more)
			return ERR_NOMEM;
		runs->run = more;
		runs->room = room;
	}
	runs->run[runs->count++] = run;
	return OK;
}

/* The number of runs that start at or before `logical`. */
static size_t runs_search(const struct ext4_run *run, size_t count, uint64_t logical)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (run[middle].logical <= logical)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The part from `logical` on of the run that covers it, cut to limit; false: not there. */
static bool runs_answer(const struct ext4_run *run, size_t count, lblk_t logical, uint32_t limit,
	struct ext4_run *out)
{
	size_t n = runs_search(run, count, logical);
	const struct ext4_run *r = n ? &run[n - 1] : NULL;
	uint32_t skip;

	if (!r || logical >= run_end(r))
		return false;
	skip = logical - r->logical;
	*out = (struct ext4_run){.logical = logical,
		.count = MIN(r->count - skip, limit),
		.physical = r->physical ? r->physical + skip : 0,
		.unwritten = r->unwritten};
	return true;
}

static bool map_make_room(struct ext4_map_cache *m, size_t more)
{
	struct ext4_run *run;
	size_t room = m->room;

	if (m->run && m->count + more <= room)
		return true;
	room = MAX(2 * room, m->count + more);
	run = realloc(m->run, room * sizeof(*run));
	if (!run)
		return false;
	m->run = run;
	m->room = room;
	return true;
}

static void map_join_at(struct ext4_map_cache *m, size_t at)
{
	if (at == 0 || at >= m->count || !run_continues(&m->run[at - 1], &m->run[at]))
		return;
	m->run[at - 1].count += m->run[at].count;
	memmove(&m->run[at], &m->run[at + 1], (m->count - at - 1) * sizeof(*m->run));
	m->count--;
}

/* Puts a leaf's runs in, unless another thread was first. Without memory the map stays as it is. */
static void map_insert(struct ext4_map_cache *m, const struct ext4_runs *runs)
{
	uint64_t first = runs->run[0].logical, end = run_end(&runs->run[runs->count - 1]);
	size_t at;

	if (m->count + runs->count > MAP_RUNS_MAX)
		m->count = 0;
	if (runs->count > MAP_RUNS_MAX || !map_make_room(m, runs->count))
		return;
	at = runs_search(m->run, m->count, first);
	ensure(at <= m->count);
	if ((at > 0 && run_end(&m->run[at - 1]) > first) ||
		(at < m->count && m->run[at].logical < end))
		return;
	memmove(&m->run[at + runs->count], &m->run[at], (m->count - at) * sizeof(*m->run));
	memcpy(&m->run[at], runs->run, runs->count * sizeof(*m->run));
	m->count += runs->count;
	map_join_at(m, at + runs->count);
	map_join_at(m, at);
}

/* Tells the sum over all inodes that this one's runs were `before` many. */
static void map_account(const struct ext4_inode *inode, size_t before)
	REQUIRES_SHARED(extent_token);
static void map_account(const struct ext4_inode *inode, size_t before)
{
	if (inode->map->count != before)
		atomic_fetch_add_explicit(&inode->fs->map_runs,
			(int64_t)inode->map->count - (int64_t)before, memory_order_relaxed);
}

/* Keeps what was read, unless the map has changed since it was looked up in vain. */
static void map_remember(struct ext4_inode *inode, const struct ext4_runs *runs, uint64_t changes)
{
	extent_lock(&inode->map_lock);
	if (!inode->map)
		inode->map = calloc(1, sizeof(*inode->map));
	if (inode->map && inode->map_changes == changes) {
		size_t before = inode->map->count;
		map_insert(inode->map, runs);
		map_account(inode, before);
	}
	extent_unlock(&inode->map_lock);
}

/* --- changes --------------------------------------------------------------------------------- */

/* Takes [first, end) out: the runs in it go, those that reach over its ends are cut. */
static void map_cut(struct ext4_map_cache *m, uint64_t first, uint64_t end)
{
	size_t at = runs_search(m->run, m->count, first), behind;

	if (at > 0 && run_end(&m->run[at - 1]) > end) {
		struct ext4_run rest = m->run[at - 1];
		uint32_t skip = (uint32_t)(end - rest.logical);
		/* The caller made the room. */
		memmove(&m->run[at + 1], &m->run[at], (m->count - at) * sizeof(*m->run));
		rest.logical += skip;
		rest.count -= skip;
		rest.physical += rest.physical ? skip : 0;
		m->run[at] = rest;
		m->count++;
	}
	if (at > 0 && run_end(&m->run[at - 1]) > first) {
		m->run[at - 1].count = (uint32_t)(first - m->run[at - 1].logical);
		if (m->run[at - 1].count == 0)
			at--;
	}
	behind = at;
	while (behind < m->count && run_end(&m->run[behind]) <= end)
		behind++;
	if (behind < m->count && m->run[behind].logical < end) {
		struct ext4_run *cut = &m->run[behind];
		uint32_t skip = (uint32_t)(end - cut->logical);
		cut->logical += skip;
		cut->count -= skip;
		cut->physical += cut->physical ? skip : 0;
	}
	memmove(&m->run[at], &m->run[behind], (m->count - behind) * sizeof(*m->run));
	m->count -= behind - at;
}

void ext4_map_changed(struct ext4_inode *inode, struct ext4_run run)
{
	struct ext4_map_cache *m = inode->map;
	size_t before, at;

	inode->map_changes++;
	if (!m || run.count == 0)
		return;
	before = m->count;
	if (m->count + 2 > MAP_RUNS_MAX || !map_make_room(m, 2)) {
		m->count = 0;
	} else {
		map_cut(m, run.logical, run_end(&run));
		at = runs_search(m->run, m->count, run.logical);
		memmove(&m->run[at + 1], &m->run[at], (m->count - at) * sizeof(*m->run));
		m->run[at] = run;
		m->count++;
		map_join_at(m, at + 1);
		map_join_at(m, at);
	}
	map_account(inode, before);
}

/* --- answers --------------------------------------------------------------------------------- */

enum err ext4_map(struct ext4_inode *inode, lblk_t logical, uint32_t limit, struct ext4_run *out)
{
	struct ext4_runs runs;
	struct ext4_run answer;
	uint64_t changes;
	bool found;
	enum err e;

	ensure(limit > 0 && !(inode->attr.flags & EXT4_INLINE_DATA_FL));
	if (logical >= EXT4_LBLK_END)
		return ERR_FBIG;
	extent_lock_shared(&inode->map_lock);
	found = inode->map &&
		runs_answer(inode->map->run, inode->map->count, logical, limit, &answer);
	changes = inode->map_changes;
	extent_unlock_shared(&inode->map_lock);
	if (!found) {
		e = inode->attr.flags & EXT4_EXTENTS_FL ? ext4_extent_load(inode, logical, &runs)
							: ext4_indirect_load(inode, logical, &runs);
		if (e)
			return e;
		map_remember(inode, &runs, changes);
		found = runs_answer(runs.run, runs.count, logical, limit, &answer);
		free(runs.run);
		ensure(found);
	}
	*out = answer;
	return OK;
}

enum err ext4_map_block(struct ext4_inode *inode, lblk_t logical, struct cache_block **out)
{
	struct ext4_run run;
	enum err e = ext4_map(inode, logical, 1, &run);

	if (e)
		return e;
	if (run.physical == 0 || run.unwritten)
		return ext4_corrupt(
			inode->fs, inode->inum, "its block %u is not there", (unsigned)logical);
	return cache_get(inode->fs->cache, run.physical, out);
}

bool ext4_map_crowded(const struct ext4 *fs)
{
	return atomic_load_explicit(&fs->map_runs, memory_order_relaxed) > MAP_RUNS_CROWDED;
}

void ext4_map_forget(struct ext4_inode *inode)
{
	struct ext4_map_cache *m;

	extent_lock(&inode->map_lock);
	m = inode->map;
	inode->map = NULL;
	extent_unlock(&inode->map_lock);
	if (!m)
		return;
	atomic_fetch_sub_explicit(&inode->fs->map_runs, (int64_t)m->count, memory_order_relaxed);
	free(m->run);
	free(m);
}
