/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Files whose maps are changed at random, beside the truth in memory. A file is seen through
 * windows onto its logical blocks: the beginning, a place in the middle, the very end. Included by
 * tests only, after write_rig.h.
 */
#ifndef CRYPTFS_TEST_EXT4_MAP_RIG_H
#define CRYPTFS_TEST_EXT4_MAP_RIG_H

#include "write_rig.h"
#include "extent_int.h"

enum { MAP_WINDOWS = 3, MAP_FILES_MAX = 8 };

struct map_block {
	fsblk_t physical; /* 0: a hole */
	bool unwritten;
};
struct map_file {
	struct image *im;
	struct ext4_inode *inode;
	uint32_t window_blocks;
	uint64_t random;         /* a state of its own, so that threads repeat */
	struct map_block *block; /* MAP_WINDOWS * window_blocks */
};

/* Empty files in an image that is made anew; their numbers start with IMAGE_FIRST_INUM. */
__attribute__((unused)) static void map_make(
	struct image *im, const char *layout, const char *size, unsigned files)
{
	char commands[64 * MAP_FILES_MAX] = "";

	image_run(": > empty");
	image_make("image", layout, size);
	for (unsigned i = 0; i < files; i++)
		snprintf(commands + strlen(commands), 64, "write empty f%u\n", i);
	image_debugfs("image", commands);
	image_load(im, "image");
}

static lblk_t map_logical(const struct map_file *f, uint32_t at)
{
	static const uint64_t ends[MAP_WINDOWS] = {0, 1ull << 31, EXT4_LBLK_END};
	uint32_t window = at / f->window_blocks, within = at % f->window_blocks;

	return window == 0 ? within : (lblk_t)(ends[window] - f->window_blocks + within);
}

static uint32_t map_blocks(const struct map_file *f)
{
	return MAP_WINDOWS * f->window_blocks;
}
/* One past the last block of the window that `at` is in. */
static uint32_t map_window_end(const struct map_file *f, uint32_t at)
{
	return (at / f->window_blocks + 1) * f->window_blocks;
}

static uint64_t map_random(struct map_file *f, uint64_t below)
{
	f->random ^= f->random << 13;
	f->random ^= f->random >> 7;
	f->random ^= f->random << 17;
	return f->random % below;
}

__attribute__((unused)) static void map_open(
	struct map_file *f, struct image *im, unsigned nth, uint32_t window_blocks)
{
	*f = (struct map_file){.im = im, .window_blocks = window_blocks};
	f->random = scratch_random(UINT64_MAX) | 1;
	f->block = calloc(map_blocks(f), sizeof(*f->block));
	ensure(f->block != NULL);
	ck_ok(ext4_inode_get(im->fs, IMAGE_FIRST_INUM + nth, &f->inode));
}

/* The size, as the layer above would have set it, in whole blocks. */
static void map_set_size_to(struct map_file *f, uint64_t blocks)
{
	struct journal_handle h = write_start(f->im, 1);
	uint64_t size = blocks << f->im->fs->block_bits;

	extent_lock(&f->inode->map_lock);
	f->inode->disk_size_bytes = f->inode->attr.size_bytes = size;
	ck_ok(ext4_inode_log(&h, f->inode));
	extent_unlock(&f->inode->map_lock);
	ck_ok(journal_stop(&h));
}

/* Up to the last mapped block. */
__attribute__((unused)) static void map_set_size(struct map_file *f)
{
	uint64_t blocks = 0;

	for (uint32_t at = 0; at < map_blocks(f); at++)
		if (f->block[at].physical)
			blocks = map_logical(f, at) + 1ull;
	map_set_size_to(f, blocks);
}

__attribute__((unused)) static void map_close(struct map_file *f)
{
	map_set_size(f);
	ext4_inode_put(f->inode);
	f->inode = NULL;
}

/* --- one operation ---------------------------------------------------------------------------- */

static unsigned map_depth(struct map_file *f)
{
	const struct ext4_extent_header *root = (const void *)ext4_inode_disk(f->inode)->i_block;

	return le16_get(root->eh_depth);
}

/* Maps the hole [at, at + count), or as much of it as comes in one piece. */
__attribute__((unused)) static enum err map_do_insert(
	struct map_file *f, uint32_t at, uint32_t count, bool unwritten)
{
	struct ext4 *fs = f->im->fs;
	lblk_t logical = map_logical(f, at);
	uint32_t tree = ext4_map_blocks_max(f->inode), reserved = tree;
	struct ext4_take take;
	struct journal_handle h;
	struct ext4_run run;
	enum err e = ext4_reserve(fs, count + tree, false), stopped;

	if (e)
		return e;
	e = ext4_alloc_take(fs, ext4_alloc_goal(f->inode, logical), count, &take);
	if (e) {
		ext4_unreserve(fs, count + tree);
		return e;
	}
	ext4_unreserve(fs, count - take.count);
	/* Exactly what the doors say: the data's bitmap, and the map's own. */
	e = journal_start(fs->journal, 2 + extent_edit_credits(map_depth(f)), &h);
	if (e) {
		ext4_alloc_untake(fs, &take);
		ext4_unreserve(fs, tree);
		return e;
	}
	e = ext4_alloc_commit(&h, fs, &take);
	run = (struct ext4_run){.logical = logical,
		.count = take.count,
		.physical = take.first,
		.unwritten = unwritten};
	if (!e) {
		extent_lock(&f->inode->map_lock);
		e = ext4_map_insert(&h, f->inode, &run, &reserved);
		extent_unlock(&f->inode->map_lock);
	}
	stopped = journal_stop(&h);
	ext4_unreserve(fs, reserved);
	for (uint32_t i = 0; i < take.count && !e; i++)
		f->block[at + i] = (struct map_block){take.first + i, unwritten};
	return e ? e : stopped;
}

__attribute__((unused)) static enum err map_do_convert(
	struct map_file *f, uint32_t at, uint32_t count, bool unwritten)
{
	struct ext4 *fs = f->im->fs;
	enum err e = OK;

	while (count > 0 && !e) {
		uint32_t reserved = ext4_map_blocks_max(f->inode), done = 0;
		struct ext4_run want = {
			.logical = map_logical(f, at), .count = count, .unwritten = unwritten};
		struct journal_handle h;
		enum err stopped;

		e = ext4_reserve(fs, reserved, false);
		if (e)
			break;
		e = journal_start(fs->journal, extent_edit_credits(map_depth(f)), &h);
		if (!e) {
			extent_lock(&f->inode->map_lock);
			e = ext4_map_convert(&h, f->inode, &want, &reserved, &done);
			extent_unlock(&f->inode->map_lock);
			stopped = journal_stop(&h);
			e = e ? e : stopped;
		}
		ext4_unreserve(fs, reserved);
		ck_assert(e || (done > 0 && done <= count));
		for (uint32_t i = 0; i < done; i++)
			f->block[at + i].unwritten = unwritten;
		at += done;
		count -= done;
	}
	return e;
}

/* Frees [at, at + count) in handles of `credits`; 0: as the product does it. */
__attribute__((unused)) static enum err map_do_remove(
	struct map_file *f, uint32_t at, uint32_t count, uint32_t credits)
{
	struct ext4 *fs = f->im->fs;
	struct ext4_span span = {.first = map_logical(f, at)};
	uint32_t reserved = ext4_map_blocks_max(f->inode);
	struct journal_handle h;
	enum err e, stopped;

	span.end = span.first + count;
	e = ext4_reserve(fs, reserved, true);
	if (e)
		return e;
	if (credits == 0) {
		inode_lock(&f->inode->lock);
		e = ext4_punch_blocks(f->inode, span, &reserved);
		inode_unlock(&f->inode->lock);
	} else {
		e = journal_start(fs->journal, credits, &h);
		while (!e) {
			uint64_t before = span.end;
			extent_lock(&f->inode->map_lock);
			e = ext4_map_remove(&h, f->inode, &span, &reserved);
			extent_unlock(&f->inode->map_lock);
			ck_assert(e || span.end < before);
			if (e || span.end == span.first) {
				stopped = journal_stop(&h);
				e = e ? e : stopped;
				break;
			}
			e = journal_restart(&h, credits);
		}
	}
	ext4_unreserve(fs, reserved);
	for (uint32_t i = 0; i < count && !e; i++)
		f->block[at + i] = (struct map_block){0};
	return e;
}

/* --- random operations ------------------------------------------------------------------------ */

/* How often each comes, and how long runs are. */
struct map_mix {
	unsigned insert, convert, remove;
	uint32_t run_max;
	uint32_t remove_max;
	uint32_t step; /* inserts start at multiples of it */
};

static uint32_t map_holes(const struct map_file *f, uint32_t at, uint32_t most)
{
	uint32_t n = 0, end = map_window_end(f, at);

	while (n < most && at + n < end && f->block[at + n].physical == 0)
		n++;
	return n;
}
static uint32_t map_mapped(const struct map_file *f, uint32_t at, uint32_t most)
{
	uint32_t n = 0, end = map_window_end(f, at);

	while (n < most && at + n < end && f->block[at + n].physical)
		n++;
	return n;
}

__attribute__((unused)) static enum err map_do_random(struct map_file *f, const struct map_mix *mix)
{
	uint64_t dice = map_random(f, mix->insert + mix->convert + mix->remove);
	uint32_t at = (uint32_t)map_random(f, map_blocks(f)), count;
	uint32_t most = 1 + (uint32_t)map_random(f, mix->run_max);
	struct journal *journal = f->im->fs->journal;

	/* In a new transaction every block costs its credit. */
	if (map_random(f, 16) == 0) {
		enum err e = journal_commit(journal, journal_running(journal));
		if (e)
			return e;
	}
	if (dice < mix->insert) {
		at -= at % mix->step;
		count = map_holes(f, at, most);
		return count ? map_do_insert(f, at, count, map_random(f, 3) == 0) : OK;
	}
	if (dice < mix->insert + mix->convert) {
		count = map_mapped(f, at, most);
		return count ? map_do_convert(f, at, count, map_random(f, 2)) : OK;
	}
	most = 1 + (uint32_t)map_random(f, mix->remove_max);
	count = MIN(most, map_window_end(f, at) - at);
	return map_do_remove(
		f, at, count, map_random(f, 2) ? 0 : extent_edit_credits(map_depth(f)) + 2);
}

/* --- comparing -------------------------------------------------------------------------------- */

static void map_compare(struct map_file *f)
{
	uint64_t blocks = 0;

	for (uint32_t at = 0; at < map_blocks(f);) {
		const struct map_block *b = &f->block[at];
		uint32_t end = map_window_end(f, at);
		struct ext4_run run;

		ck_ok(ext4_map(f->inode, map_logical(f, at), end - at, &run));
		for (uint32_t i = 0; i < run.count; i++, b++) {
			fsblk_t want = run.physical ? run.physical + i : 0;
			if (b->physical != want || (want && b->unwritten != run.unwritten))
				ck_abort_msg("block %u: %llu%s, not %llu%s", map_logical(f, at + i),
					(unsigned long long)want, run.unwritten ? "u" : "",
					(unsigned long long)b->physical, b->unwritten ? "u" : "");
			blocks += want != 0;
		}
		at += run.count;
	}
	ck_assert_uint_ge(
		f->inode->attr.blocks_512 * SECTOR_BYTES, blocks * f->im->fs->block_bytes);
}

/* Each window of the file against the truth: as it is in memory, then with nothing of it there. */
__attribute__((unused)) static void map_check(struct map_file *f)
{
	map_compare(f);
	ext4_map_forget(f->inode);
	map_compare(f);
}

/* What debugfs's ex finds in the image "written" against the truth. */
__attribute__((unused)) static void map_check_debugfs(struct map_file *f, unsigned nth)
{
	char command[600], line[256];
	uint32_t at = 0;
	FILE *p;

	snprintf(command, sizeof(command), "cd '%s' && debugfs -R 'ex <%u>' written 2>/dev/null",
		scratch_dir, IMAGE_FIRST_INUM + nth);
	p = popen(command, "r");
	ensure(p != NULL);
	while (fgets(line, sizeof(line), p)) {
		unsigned level, depth, i, n;
		unsigned long long first, last, physical, physical_last, len;

		if (sscanf(line, "%u/ %u %u/ %u %llu - %llu %llu - %llu %llu", &level, &depth, &i,
			    &n, &first, &last, &physical, &physical_last, &len) != 9 ||
			level != depth)
			continue;
		while (at < map_blocks(f) && map_logical(f, at) != first) {
			ck_assert_uint_eq(f->block[at].physical, 0);
			at++;
		}
		for (unsigned long long b = 0; b < len; b++, at++) {
			ck_assert_uint_lt(at, map_blocks(f));
			ck_assert_uint_eq(f->block[at].physical, physical + b);
			ck_assert_int_eq(f->block[at].unwritten, strstr(line, "Uninit") != NULL);
		}
	}
	ck_assert_int_eq(pclose(p), 0);
	for (; at < map_blocks(f); at++)
		ck_assert_uint_eq(f->block[at].physical, 0);
}

#endif
