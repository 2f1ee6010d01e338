/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * alloc: blocks taken in memory, near a goal, in long runs.
 *
 * Who takes has been promised the blocks before (reserve.c), so there always is one to find; only
 * the place is searched for:
 *
 *   1. at the goal itself, whatever is free there: it continues the file's last extent
 *   2. the first run of `want` blocks in the goal's group, from the goal on
 *   3. such a run in other groups, by rising number from the goal's: only those that may have one
 *      are looked into, VISITS_MAX of them, of which LOADS_MAX may cost a read
 *   4. the longest run that was seen, else the first group in which anything is free
 *
 * Small files thereby fill the holes near their directory. What a group has is known without its
 * bitmap: the count from its descriptor, and once it was searched in vain a bound on its longest
 * run. So a nearly full volume costs at most a few reads a call, however many groups it has.
 *
 * Threads: any. A group's lock is held for one search of one bitmap.
 */
#include "alloc_int.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>

enum {
	VISITS_MAX = 16,
	LOADS_MAX = 4,
	/* Others moved blocks about each time; more would mean that the counts are wrong. */
	PASSES_MAX = 1000,
};

/* --- open and close -------------------------------------------------------------------------- */

static enum err alloc_open_groups(struct ext4 *fs)
{
	struct ext4_alloc *a = fs->alloc;
	uint64_t free_blocks = 0;

	a->group = calloc(fs->groups, sizeof(*a->group));
	a->hint = calloc(fs->groups, sizeof(*a->hint));
	if (!a->group || !a->hint)
		return ERR_NOMEM;
	for (group_t n = 0; n < fs->groups; n++) {
		const struct ext4_group *g = &fs->group[n];
		uint32_t available = MIN(g->free_blocks, ext4_group_blocks(fs, n));

		mutex_init(&a->group[n].lock);
		atomic_init(&a->hint[n].available, available);
		atomic_init(&a->hint[n].longest, available);
		free_blocks += available;
		a->inodes_free += g->free_inodes;
		a->dirs += g->used_dirs;
	}
	return alloc_reserve_open(fs, (int64_t)free_blocks);
}

static void alloc_free_memory(struct ext4_alloc *a)
{
	free(a->group);
	free(a->hint);
	free(a->system);
	free(a);
}

NO_LOCK_ANALYSIS void ext4_alloc_close(struct ext4 *fs)
{
	struct ext4_alloc *a = fs->alloc;
	uint64_t blocks, inodes;

	if (!a)
		return;
	ext4_alloc_settle(fs);
	ext4_alloc_counts(fs, &blocks, &inodes);
	fs->free_clusters = blocks;
	fs->free_inodes = inodes;
	for (group_t n = 0; n < fs->groups; n++) {
		free(a->group[n].used);
		mutex_destroy(&a->group[n].lock);
	}
	alloc_reserve_close(fs);
	fs->alloc = NULL;
	alloc_free_memory(a);
}

enum err ext4_alloc_open(struct ext4 *fs)
{
	struct ext4_alloc *a;
	uint32_t random[2] = {0};
	enum err e;

	ensure(fs->journal && !fs->alloc);
	if (fs->cluster_bits)
		return err_set_detail(
			ERR_EXT4_FEATURE, "the ext4 feature 'bigalloc' is not written");
	a = aligned_alloc(64, (sizeof(*a) + 63) & ~(size_t)63);
	if (!a)
		return ERR_NOMEM;
	memset(a, 0, sizeof(*a));
	/* Not for secrets: without it, two mounts would look alike, which is no harm. */
	(void)!getrandom(random, sizeof(random), GRND_NONBLOCK);
	a->generation = random[0];
	atomic_init(&a->spread, random[1]);
	fs->alloc = a;
	e = alloc_system_build(fs);
	if (!e)
		e = alloc_open_groups(fs);
	if (e) {
		fs->alloc = NULL;
		alloc_free_memory(a);
	}
	return e;
}

void ext4_alloc_counts(const struct ext4 *fs, uint64_t *blocks, uint64_t *inodes)
{
	const struct ext4_alloc *a = fs->alloc;
	int64_t sum = credit_counter_sum(&a->credit) + atomic_load(&a->kept) +
		      atomic_load(&a->freed_blocks);

	*blocks = (uint64_t)MAX(sum, 0);
	*inodes = atomic_load(&a->inodes_free);
}

/* --- in one group ---------------------------------------------------------------------------- */

/* Marks the run taken; everything else knows it by its counts. */
static void group_mark(struct ext4 *fs, group_t group, struct bitmap_run run, struct ext4_take *out)
	REQUIRES(group_token);
static void group_mark(struct ext4 *fs, group_t group, struct bitmap_run run, struct ext4_take *out)
{
	struct ext4_alloc *a = fs->alloc;

	bitmap_fill(a->group[group].used, run.first, run.count, true);
	atomic_fetch_sub(&a->hint[group].available, run.count);
	*out = (struct ext4_take){
		.first = ext4_group_first_block(fs, group) + run.first, .count = run.count};
}

/*
 * Takes a run of at least `least` and at most `want` blocks, the first from bit `from` on that has
 * all of `want`; at `from` itself any length is good with `exact`. False: there is none.
 */
struct group_wish {
	uint32_t from, want, least;
	bool exact;
};
static bool group_take(
	struct ext4 *fs, group_t group, const struct group_wish *wish, struct ext4_take *out)
{
	struct ext4_alloc *a = fs->alloc;
	struct alloc_group *g = &a->group[group];
	uint32_t end = ext4_group_blocks(fs, group);
	struct bitmap_run run = {0};
	bool complete, took = false;

	group_lock(&g->lock);
	if (!g->used || atomic_load(&a->hint[group].available) == 0)
		goto out;
	if (wish->exact && wish->from < end) {
		uint32_t most = MIN(wish->want, end - wish->from);
		run.first = wish->from;
		run.count = bitmap_next(g->used, wish->from, wish->from + most, true) - wish->from;
	}
	if (run.count == 0) {
		run = bitmap_find(g->used, wish->from, end, wish->want, &complete);
		if (complete)
			atomic_store(&a->hint[group].longest, run.count);
		if (run.count == 0 || run.count < wish->least)
			goto out;
	}
	group_mark(fs, group, run, out);
	took = true;
out:
	group_unlock(&g->lock);
	return took;
}

void alloc_group_release(struct ext4 *fs, fsblk_t first, uint32_t count)
{
	struct ext4_alloc *a = fs->alloc;

	while (count > 0) {
		group_t group = alloc_group_of(fs, first);
		struct alloc_group *g = &a->group[group];
		uint32_t bit = (uint32_t)(first - ext4_group_first_block(fs, group));
		uint32_t end = ext4_group_blocks(fs, group), part = MIN(count, end - bit), run;

		group_lock(&g->lock);
		ensure(g->used && bitmap_is(g->used, bit, part, true));
		bitmap_fill(g->used, bit, part, false);
		run = bitmap_next(g->used, bit, end, true) -
		      bitmap_previous_end(g->used, bit, true);
		if (run > atomic_load(&a->hint[group].longest))
			atomic_store(&a->hint[group].longest, run);
		atomic_fetch_add(&a->hint[group].available, part);
		group_unlock(&g->lock);
		first += part;
		count -= part;
	}
}

/* --- the search ------------------------------------------------------------------------------ */

struct search {
	struct ext4 *fs;
	group_t goal;
	uint32_t goal_bit, want;
	group_t best; /* where the longest run was seen, or may be */
	uint32_t best_longest;
	enum err error; /* of a group that could not be loaded */
};

static bool group_is_loaded(struct ext4 *fs, group_t group)
{
	struct alloc_group *g = &fs->alloc->group[group];
	bool loaded;

	group_lock(&g->lock);
	loaded = g->used != NULL;
	group_unlock(&g->lock);
	return loaded;
}

static bool search_group(
	struct search *s, group_t group, const struct group_wish *wish, struct ext4_take *out)
{
	uint32_t longest;
	enum err e = alloc_group_load(s->fs, group);

	if (e) {
		s->error = e;
		return false;
	}
	if (group_take(s->fs, group, wish, out))
		return true;
	longest = atomic_load(&s->fs->alloc->hint[group].longest);
	if (longest > s->best_longest) {
		s->best = group;
		s->best_longest = longest;
	}
	return false;
}

/* Groups behind the goal's that may have a run of `want`. */
static bool search_others(struct search *s, struct ext4_take *out)
{
	struct ext4 *fs = s->fs;
	const struct group_wish wish = {.want = s->want, .least = s->want};
	unsigned visits = 0, loads = 0;
	group_t group = s->goal;

	for (group_t n = 1; n < fs->groups && visits < VISITS_MAX; n++) {
		if (++group == fs->groups)
			group = 0;
		if (atomic_load_explicit(&fs->alloc->hint[group].longest, memory_order_relaxed) <
			s->want)
			continue;
		if (!(atomic_load(&fs->group[group].flags) & EXT4_BG_BLOCK_UNINIT) &&
			!group_is_loaded(fs, group) && loads++ == LOADS_MAX)
			return false;
		visits++;
		if (search_group(s, group, &wish, out))
			return true;
	}
	return false;
}

/* Anything at all, where the descriptors say that there is something. */
static bool search_any(struct search *s, struct ext4_take *out)
{
	struct ext4 *fs = s->fs;
	const struct group_wish wish = {.want = s->want, .least = 1};
	group_t group = s->goal;

	for (group_t n = 0; n < fs->groups; n++) {
		if (atomic_load_explicit(&fs->alloc->hint[group].available, memory_order_relaxed) &&
			search_group(s, group, &wish, out))
			return true;
		if (++group == fs->groups)
			group = 0;
	}
	return false;
}

static bool search_pass(struct search *s, struct ext4_take *out)
{
	struct group_wish wish = {
		.from = s->goal_bit, .want = s->want, .least = s->want, .exact = true};

	s->best_longest = 0;
	if (atomic_load(&s->fs->alloc->hint[s->goal].available) &&
		search_group(s, s->goal, &wish, out))
		return true;
	if (search_others(s, out))
		return true;
	wish.exact = false;
	wish.least = 1;
	if (s->best != s->goal)
		wish.from = 0;
	if (s->best_longest && search_group(s, s->best, &wish, out))
		return true;
	return search_any(s, out);
}

enum err ext4_alloc_take(struct ext4 *fs, fsblk_t goal, uint32_t want, struct ext4_take *out)
{
	struct search s = {.fs = fs};

	ensure(want > 0);
	ext4_alloc_settle(fs);
	if (goal < fs->first_data_block || goal >= fs->blocks)
		goal = fs->first_data_block;
	s.goal = alloc_group_of(fs, goal);
	s.goal_bit = (uint32_t)(goal - ext4_group_first_block(fs, s.goal));
	/* A quarter of a group in one piece is as good as all of it. */
	s.want = MIN(want, fs->blocks_per_group / 4);
	for (int pass = 0; pass < PASSES_MAX; pass++) {
		if (search_pass(&s, out))
			return OK;
		if (s.error && s.error != ERR_CORRUPT && s.error != ERR_CHECKSUM)
			return s.error;
		(void)sched_yield();
	}
	return s.error ? s.error
		       : err_set_detail(ERR_CORRUPT, "no free block is found though some are "
						     "counted; run fsck.cryptfs");
}

void ext4_alloc_untake(struct ext4 *fs, const struct ext4_take *take)
{
	if (take->count == 0)
		return;
	alloc_group_release(fs, take->first, take->count);
	alloc_credit_release(fs->alloc, take->count);
}

/* --- goals ----------------------------------------------------------------------------------- */

/*
 * The group of an inode without blocks near by. The first group of a flex group holds the tables
 * and is left to directories; files start in the second, as in the kernel.
 */
static fsblk_t goal_of_group(const struct ext4_inode *inode)
{
	const struct ext4 *fs = inode->fs;
	group_t group = (inode->inum - 1) / fs->inodes_per_group;
	uint32_t flex = inode_group_flex(fs);

	if (flex >= 4) {
		group -= group % flex;
		if (S_ISREG(inode->attr.mode) && group + 1 < fs->groups)
			group++;
	}
	return ext4_group_first_block(fs, group);
}

/* The block that would stand at `logical` if the run were longer, either way. */
static bool goal_near(
	const struct ext4 *fs, const struct ext4_run *run, lblk_t logical, fsblk_t *out)
{
	fsblk_t goal = run->physical + logical - run->logical;

	if (run->physical == 0 ||
		(logical < run->logical && run->physical < (fsblk_t)run->logical - logical))
		return false;
	if (!ext4_blocks_valid(fs, goal, 1))
		return false;
	*out = goal;
	return true;
}

fsblk_t ext4_alloc_goal(struct ext4_inode *inode, lblk_t logical)
{
	struct ext4_run run = {0};
	fsblk_t goal;
	enum err e = OK;

	if (inode->attr.flags & EXT4_INLINE_DATA_FL)
		return goal_of_group(inode);
	if (logical > 0) {
		e = ext4_map(inode, logical - 1, EXT4_LBLK_END, &run);
		if (!e && goal_near(inode->fs, &run, logical, &goal))
			return goal;
	}
	/* A hole before: what follows it, or the start of the file. */
	if (!e && logical > 0 && (uint64_t)run.logical + run.count < EXT4_LBLK_END) {
		e = ext4_map(inode, run.logical + run.count, EXT4_LBLK_END, &run);
		if (!e && goal_near(inode->fs, &run, logical, &goal))
			return goal;
	}
	if (!e)
		e = ext4_map(inode, 0, EXT4_LBLK_END, &run);
	if (!e && goal_near(inode->fs, &run, logical, &goal))
		return goal;
	if (e)
		err_clear_detail();
	return goal_of_group(inode);
}
