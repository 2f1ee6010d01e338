/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bitmap: bits of a group, runs of them, and a group's way into memory.
 *
 * A bitmap in memory has the disk's form: bit n is bit n % 8 of byte n / 8, in a buffer of one
 * block. It is searched a 64-bit word at a time.
 *
 * A group is loaded once, when something is first taken or freed in it. Its bitmap must have the
 * right checksum, as many clear bits as the descriptor counts, and the bits of the file system's
 * own structures set: so no damaged bitmap can make us overwrite an inode table. A group that fails
 * is left alone until the mount ends. A group with BLOCK_UNINIT has no bitmap on disk; what it
 * would hold follows from the structures that lie in the group.
 *
 * Source: the kernel's Documentation/filesystems/ext4/bitmaps.rst and blockgroup.rst.
 * Threads: any; a group's bits under its lock. Nothing here writes.
 */
#include "alloc_int.h"

#include <stdlib.h>

static uint64_t bitmap_word(const uint8_t *bytes, uint32_t word, bool value)
{
	le64 w;

	memcpy(&w, bytes + 8u * word, sizeof(w));
	return value ? le64_get(w) : ~le64_get(w);
}

uint32_t bitmap_next(const uint8_t *bytes, uint32_t from, uint32_t end, bool value)
{
	uint32_t word = from / 64;
	uint64_t w;

	if (from >= end)
		return end;
	w = bitmap_word(bytes, word, value) & ~0ull << from % 64;
	while (!w) {
		if (++word * 64 >= end)
			return end;
		w = bitmap_word(bytes, word, value);
	}
	return MIN(word * 64 + (uint32_t)__builtin_ctzll(w), end);
}

uint32_t bitmap_previous_end(const uint8_t *bytes, uint32_t before, bool value)
{
	uint32_t word;
	uint64_t w;

	if (before == 0)
		return 0;
	word = (before - 1) / 64;
	w = bitmap_word(bytes, word, value) & ~0ull >> (63 - (before - 1) % 64);
	while (!w) {
		if (word == 0)
			return 0;
		w = bitmap_word(bytes, --word, value);
	}
	return word * 64 + 64 - (uint32_t)__builtin_clzll(w);
}

void bitmap_fill(uint8_t *bytes, uint32_t first, uint32_t count, bool value)
{
	uint32_t end = first + count;

	for (; first < end && first % 8; first++)
		bytes[first / 8] = (uint8_t)(value ? bytes[first / 8] | 1u << first % 8
						   : bytes[first / 8] & ~(1u << first % 8));
	if (first < end) {
		memset(bytes + first / 8, value ? 0xff : 0, (end - first) / 8);
		first += (end - first) & ~7u;
	}
	for (; first < end; first++)
		bytes[first / 8] = (uint8_t)(value ? bytes[first / 8] | 1u << first % 8
						   : bytes[first / 8] & ~(1u << first % 8));
}

bool bitmap_is(const uint8_t *bytes, uint32_t first, uint32_t count, bool value)
{
	return bitmap_next(bytes, first, first + count, !value) == first + count;
}

uint32_t bitmap_count_clear(const uint8_t *bytes, uint32_t bits)
{
	uint32_t count = 0;

	for (uint32_t word = 0; word < bits / 64; word++)
		count += (uint32_t)__builtin_popcountll(bitmap_word(bytes, word, false));
	if (bits % 64)
		count += (uint32_t)__builtin_popcountll(
			bitmap_word(bytes, bits / 64, false) & ~(~0ull << bits % 64));
	return count;
}

/* The first run of `want` in [from, end), which makes *best at least that long; or a longer best.
 */
static void bitmap_find_in(
	const uint8_t *bytes, uint32_t from, uint32_t end, uint32_t want, struct bitmap_run *best)
{
	while (best->count < want) {
		uint32_t first = bitmap_next(bytes, from, end, false);

		if (first == end)
			return;
		from = bitmap_next(bytes, first, end, true);
		if (from - first > best->count)
			*best = (struct bitmap_run){.first = first, .count = from - first};
	}
}

struct bitmap_run bitmap_find(
	const uint8_t *bytes, uint32_t from, uint32_t end, uint32_t want, bool *complete)
{
	struct bitmap_run best = {0};

	bitmap_find_in(bytes, from, end, want, &best);
	/* Up to `end` once more, as a run may lie across `from`. */
	if (from > 0 && best.count < want)
		bitmap_find_in(bytes, 0, end, want, &best);
	*complete = best.count < want;
	best.count = MIN(best.count, want);
	return best;
}

/* --- a group's way into memory --------------------------------------------------------------- */

void alloc_group_init_bitmap(const struct ext4 *fs, group_t group, uint8_t *bytes)
{
	uint32_t blocks = ext4_group_blocks(fs, group);

	memset(bytes, 0, fs->block_bytes);
	alloc_system_mark(fs, group, bytes);
	bitmap_fill(bytes, blocks, 8 * fs->block_bytes - blocks, true);
}

/* What the bitmap says must fit the descriptor and the structures that lie in the group. */
static enum err group_check_bits(const struct ext4 *fs, group_t group, const uint8_t *bytes,
	uint32_t free_blocks, uint8_t *scratch)
{
	uint32_t blocks = ext4_group_blocks(fs, group), clear = bitmap_count_clear(bytes, blocks);

	if (clear != free_blocks)
		return err_set_detail(ERR_CORRUPT,
			"group %u: %u blocks are free in the bitmap and %u in the descriptor; run "
			"fsck.cryptfs",
			group, clear, free_blocks);
	memset(scratch, 0, fs->block_bytes);
	alloc_system_mark(fs, group, scratch);
	for (uint32_t i = 0; i < fs->block_bytes; i++)
		if (scratch[i] & ~bytes[i])
			return err_set_detail(ERR_CORRUPT,
				"group %u: the bitmap has the file system's own blocks as free; "
				"run "
				"fsck.cryptfs",
				group);
	return OK;
}

static enum err group_fill(struct ext4 *fs, group_t group, struct cache_block *bitmap,
	const struct ext4_disk_group *d, uint8_t *bytes)
{
	uint32_t blocks = ext4_group_blocks(fs, group);

	if (!ext4_csum_group_valid(fs, group, d))
		return err_set_detail(ERR_CHECKSUM,
			"group %u: the descriptor's checksum does not match; run fsck.cryptfs",
			group);
	if (!bitmap) {
		alloc_group_init_bitmap(fs, group, bytes);
	} else {
		if (!group_desc_bitmap_valid(fs, d, false, bitmap->data))
			return err_set_detail(ERR_CHECKSUM,
				"group %u: the block bitmap's checksum does not match; run "
				"fsck.cryptfs",
				group);
		atomic_store(&bitmap->verified, EXT4_KIND_BLOCK_BITMAP);
		memcpy(bytes, bitmap->data, fs->block_bytes);
		bitmap_fill(bytes, blocks, 8 * fs->block_bytes - blocks, true);
	}
	return OK;
}

/* The group is left alone; what it promised is taken back. */
static void group_give_up(struct ext4 *fs, group_t group, enum err e)
{
	struct ext4_alloc *a = fs->alloc;
	struct alloc_group *g = &a->group[group];
	uint32_t lost = 0;

	group_lock(&g->lock);
	if (!g->used && !g->corrupt) {
		g->corrupt = true;
		lost = atomic_exchange(&a->hint[group].available, 0);
		atomic_store(&a->hint[group].longest, 0);
	}
	group_unlock(&g->lock);
	if (lost) {
		alloc_credit_take_back(a, lost);
		log_error("%s; %u free blocks in it are left alone",
			*err_detail() ? err_detail() : err_text(e), lost);
	}
}

static enum err group_read(struct ext4 *fs, group_t group, struct cache_block **out_bitmap,
	struct cache_block **out_desc)
{
	struct cache_block *bitmap = NULL;
	uint32_t offset;
	enum err e;

	if (!(atomic_load(&fs->group[group].flags) & EXT4_BG_BLOCK_UNINIT)) {
		e = cache_get(fs->cache, fs->group[group].block_bitmap, &bitmap);
		if (e)
			return e;
	}
	e = cache_get(fs->cache, ext4_group_desc_block(fs, group, &offset), out_desc);
	if (e) {
		cache_put(fs->cache, bitmap);
		return e;
	}
	*out_bitmap = bitmap;
	return OK;
}

enum err alloc_group_load(struct ext4 *fs, group_t group)
{
	struct alloc_group *g = &fs->alloc->group[group];
	struct cache_block *bitmap = NULL, *desc = NULL;
	const struct ext4_disk_group *d;
	uint8_t *bytes = NULL, *scratch = NULL;
	uint32_t offset;
	bool loaded, corrupt;
	enum err e;

	group_lock(&g->lock);
	loaded = g->used != NULL;
	corrupt = g->corrupt;
	group_unlock(&g->lock);
	if (loaded)
		return OK;
	if (corrupt)
		return err_set_detail(ERR_CORRUPT, "group %u is damaged; run fsck.cryptfs", group);
	err_clear_detail();
	bytes = calloc(1, fs->block_bytes);
	scratch = calloc(1, fs->block_bytes);
	e = bytes && scratch ? group_read(fs, group, &bitmap, &desc) : ERR_NOMEM;
	if (e)
		goto out;
	(void)ext4_group_desc_block(fs, group, &offset);
	d = (const void *)(desc->data + offset);
	group_lock(&g->lock);
	/* Who initialises or changes the bitmap on disk has loaded the group before. */
	if (!g->used) {
		e = group_fill(fs, group, bitmap, d, bytes);
		if (!e)
			e = group_check_bits(
				fs, group, bytes, group_desc_free_blocks(fs, d), scratch);
		if (!e) {
			g->used = bytes;
			bytes = NULL;
		}
	}
	group_unlock(&g->lock);
out:
	cache_put(fs->cache, desc);
	cache_put(fs->cache, bitmap);
	free(bytes);
	free(scratch);
	if (e && e != ERR_NOMEM)
		group_give_up(fs, group, e);
	return e;
}
