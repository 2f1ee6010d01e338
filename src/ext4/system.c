/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * system: which blocks are the file system's own: superblocks, descriptors and what is reserved
 * for more of them, bitmaps, inode tables, the journal.
 *
 * None of them may ever be freed, and none may be free in a bitmap. They are a sorted array of
 * runs, built when writing starts and constant after. With flex_bg the bitmaps and tables of
 * neighbouring groups lie together, so that the array is short: about three runs a flex group.
 *
 * Source: the kernel's Documentation/filesystems/ext4/blockgroup.rst.
 */
#include "alloc_int.h"

#include <stdlib.h>

/* While it is built; last[kind] is the newest run of a kind, which the next one may continue. */
enum { KIND_BASE, KIND_BLOCK_BITMAP, KIND_INODE_BITMAP, KIND_TABLE, KIND_JOURNAL, KINDS };
struct system_list {
	struct alloc_run *run;
	size_t count, room;
	size_t last[KINDS]; /* index + 1 */
};

static enum err system_add(struct system_list *l, int kind, fsblk_t first, uint64_t count)
{
	struct alloc_run *last = l->last[kind] ? &l->run[l->last[kind] - 1] : NULL;

	if (count == 0)
		return OK;
	if (last && last->first + last->count == first) {
		last->count += count;
		return OK;
	}
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct alloc_run *more = realloc(l->run, room * sizeof(*more));
		if (!more)
			return ERR_NOMEM;
		l->run = more;
		l->room = room;
	}
	l->run[l->count++] = (struct alloc_run){.first = first, .count = count};
	l->last[kind] = l->count;
	return OK;
}

static enum err system_add_groups(const struct ext4 *fs, struct system_list *l)
{
	enum err e = system_add(l, KIND_BASE, 0, fs->first_data_block);

	for (group_t n = 0; n < fs->groups && !e; n++) {
		const struct ext4_group *g = &fs->group[n];

		e = system_add(
			l, KIND_BASE, ext4_group_first_block(fs, n), ext4_group_base_blocks(fs, n));
		if (!e)
			e = system_add(l, KIND_BLOCK_BITMAP, g->block_bitmap, 1);
		if (!e)
			e = system_add(l, KIND_INODE_BITMAP, g->inode_bitmap, 1);
		if (!e)
			e = system_add(l, KIND_TABLE, g->inode_table, fs->inode_table_blocks);
	}
	return e;
}

static enum err system_add_journal(struct ext4 *fs, struct system_list *l)
{
	struct ext4_inode *inode;
	enum err e = ext4_inode_get_special(fs, le32_get(fs->super.s_journal_inum), &inode);
	uint64_t blocks;

	if (e)
		return e;
	blocks = inode->attr.size_bytes >> fs->block_bits;
	for (uint64_t at = 0; at < blocks && !e;) {
		struct ext4_run run;

		e = ext4_map(inode, (lblk_t)at, (uint32_t)MIN(blocks - at, UINT32_MAX), &run);
		if (e)
			break;
		if (run.physical)
			e = system_add(l, KIND_JOURNAL, run.physical, run.count);
		at += run.count;
	}
	ext4_inode_put(inode);
	return e;
}

static int system_compare(const void *a, const void *b)
{
	const struct alloc_run *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

enum err alloc_system_build(struct ext4 *fs)
{
	struct system_list l = {0};
	size_t kept = 0;
	enum err e = system_add_groups(fs, &l);

	if (!e && ext4_has_compat(fs, EXT4_COMPAT_HAS_JOURNAL) &&
		le32_get(fs->super.s_journal_inum))
		e = system_add_journal(fs, &l);
	if (e) {
		free(l.run);
		return e;
	}
	ensure(l.run != NULL); /* every group has a table */
	qsort(l.run, l.count, sizeof(*l.run), system_compare);
	for (size_t i = 1; i < l.count; i++) {
		struct alloc_run *last = &l.run[kept], *next = &l.run[i];
		fsblk_t end = next->first + next->count;

		if (next->first > last->first + last->count)
			l.run[++kept] = *next;
		else if (end > last->first + last->count)
			last->count = end - last->first;
	}
	fs->alloc->system = l.run;
	fs->alloc->system_count = kept + 1;
	return OK;
}

/* The first run that ends behind nr. */
static size_t system_search(const struct ext4_alloc *a, fsblk_t nr)
{
	size_t low = 0, high = a->system_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (a->system[middle].first + a->system[middle].count <= nr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool alloc_system_overlaps(const struct ext4 *fs, fsblk_t first, uint64_t count)
{
	size_t n = system_search(fs->alloc, first);

	return n < fs->alloc->system_count && fs->alloc->system[n].first < first + count;
}

void alloc_system_mark(const struct ext4 *fs, group_t group, uint8_t *bytes)
{
	const struct ext4_alloc *a = fs->alloc;
	fsblk_t first = ext4_group_first_block(fs, group);
	fsblk_t end = first + ext4_group_blocks(fs, group);

	for (size_t n = system_search(a, first); n < a->system_count && a->system[n].first < end;
		n++) {
		fsblk_t from = MAX(a->system[n].first, first);
		fsblk_t to = MIN(a->system[n].first + a->system[n].count, end);

		bitmap_fill(bytes, (uint32_t)(from - first), (uint32_t)(to - from), true);
	}
}
