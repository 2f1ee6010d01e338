/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * map_write: runs put into an extent tree, and extents turned from unwritten to written and back.
 *
 * A change looks at the extents on both sides too: what continues one of them becomes a part of
 * it. It is then a replacement of a few entries of one leaf (extent_edit.c). Extents in different
 * leaves are not joined, as in the kernel.
 *
 * Threads: map_lock is held exclusive, the inode lock at least shared; readers see the tree, the
 * map in memory and i_blocks change together. Does not change ext2's block maps.
 */
#include "extent_int.h"

#include <sys/stat.h>

/* The data that a punched extent frees: a bitmap and a descriptor. */
enum { FREE_CREDITS = 2 };

bool ext4_map_exists(const struct ext4_inode *inode)
{
	const struct ext4_attr *a = &inode->attr;

	if (a->flags & EXT4_INLINE_DATA_FL)
		return false;
	if (a->flags & EXT4_EXTENTS_FL)
		return true;
	if (S_ISLNK(a->mode))
		return a->size_bytes >= EXT4_I_BLOCK_BYTES;
	return S_ISREG(a->mode) || S_ISDIR(a->mode);
}

/* One level more than there is: others may split nodes before the handle has started. */
static unsigned map_depth_soon(struct ext4_inode *inode)
{
	struct extent_node root = {.bytes = inode->raw + offsetof(struct ext4_disk_inode, i_block)};
	unsigned depth;

	extent_lock_shared(&inode->map_lock);
	depth = extent_depth(&root);
	extent_unlock_shared(&inode->map_lock);
	return depth + 1;
}

uint32_t ext4_map_credits(struct ext4_inode *inode)
{
	return extent_edit_credits(map_depth_soon(inode)) + FREE_CREDITS;
}

uint32_t ext4_map_blocks_max(struct ext4_inode *inode)
{
	return extent_edit_blocks(map_depth_soon(inode));
}

/* The edit of the leaf that speaks of `logical`; the caller closes its path. */
static enum err edit_start(struct extent_edit *t, struct journal_handle *h,
	struct ext4_inode *inode, lblk_t logical, uint32_t *reserved) REQUIRES(extent_token);
static enum err edit_start(struct extent_edit *t, struct journal_handle *h,
	struct ext4_inode *inode, lblk_t logical, uint32_t *reserved)
{
	t->h = h;
	t->inode = inode;
	t->reserved = reserved;
	t->drop = t->count = 0;
	if (!(inode->attr.flags & EXT4_EXTENTS_FL))
		return err_set_detail(ERR_OPNOTSUPP,
			"inode %u has a block map of ext2, which is only read", inode->inum);
	return extent_path_find(inode, logical, true, &t->path);
}

/* The extent at `at`, or an empty run. */
static struct ext4_run leaf_extent(const struct extent_node *leaf, int at)
{
	if (at < 0 || (unsigned)at >= extent_entries(leaf))
		return (struct ext4_run){0};
	return extent_get(leaf, (unsigned)at);
}

/* Adds an extent of the leaf to what will be replaced, so that it can be joined. */
static void edit_keep(struct extent_edit *t, const struct ext4_run *there)
{
	if (!there->count)
		return;
	t->with[t->count++] = *there;
	t->drop++;
}

static enum err edit_run(struct extent_edit *t) REQUIRES(extent_token);
static enum err edit_run(struct extent_edit *t)
{
	enum err e;

	t->count = extent_coalesce(t->with, t->count);
	extent_edit_trim(t);
	e = extent_edit_prepare(t);
	if (!e)
		extent_edit_finish(t);
	return e;
}

/* --- insert ---------------------------------------------------------------------------------- */

static enum err insert_plan(struct extent_edit *t, const struct ext4_run *run)
{
	const struct extent_node *leaf = &t->path.node[t->path.depth];
	struct ext4_run left = leaf_extent(leaf, leaf->at);
	struct ext4_run right = leaf_extent(leaf, leaf->at + 1);

	if ((left.count && extent_run_end(&left) > run->logical) ||
		extent_run_end(run) > (right.count ? right.logical : leaf->end))
		return ext4_corrupt(t->inode->fs, t->inode->inum,
			"its block %u is mapped where a hole was", run->logical);
	t->at = (unsigned)(leaf->at + (left.count ? 0 : 1));
	edit_keep(t, &left);
	t->count = extent_push(t->with, t->count, run);
	edit_keep(t, &right);
	return OK;
}

/* Without huge_file i_blocks has 32 bits of sectors; asked before anything is changed. */
static enum err insert_check_count(const struct ext4_inode *inode, uint32_t blocks)
	REQUIRES(extent_token);
static enum err insert_check_count(const struct ext4_inode *inode, uint32_t blocks)
{
	const struct ext4 *fs = inode->fs;
	uint64_t more = (uint64_t)blocks + extent_edit_blocks(EXT4_EXTENT_DEPTH_MAX);

	if (ext4_has_ro_compat(fs, EXT4_RO_COMPAT_HUGE_FILE) ||
		inode->attr.blocks_512 + (more << (fs->block_bits - 9)) <= UINT32_MAX)
		return OK;
	return err_set_detail(
		ERR_FBIG, "inode %u: too many blocks without the feature huge_file", inode->inum);
}

enum err ext4_map_insert(struct journal_handle *h, struct ext4_inode *inode,
	const struct ext4_run *run, uint32_t *reserved)
{
	struct extent_edit t;
	enum err e;

	ensure(run->count > 0 && run->count <= EXT4_MAP_INSERT_MAX && run->physical > 0);
	e = insert_check_count(inode, run->count);
	if (!e)
		e = edit_start(&t, h, inode, run->logical, reserved);
	if (e)
		return e;
	e = insert_plan(&t, run);
	if (!e)
		e = edit_run(&t);
	extent_path_close(inode, &t.path);
	if (e)
		return e;
	extent_count_blocks(inode, run->count);
	ext4_map_changed(inode, *run);
	e = ext4_inode_log(h, inode);
	return e ? extent_fail(h, e) : OK;
}

/* --- convert --------------------------------------------------------------------------------- */

/* What becomes of the extent that `first` lies in; *piece is the part that changes. */
static enum err convert_plan(
	struct extent_edit *t, lblk_t first, uint64_t end, bool unwritten, struct ext4_run *piece)
{
	const struct extent_node *leaf = &t->path.node[t->path.depth];
	struct ext4_run left = leaf_extent(leaf, leaf->at - 1), x = leaf_extent(leaf, leaf->at);
	struct ext4_run right = leaf_extent(leaf, leaf->at + 1), head = x, tail = x;

	if (!x.count || extent_run_end(&x) <= first)
		return ext4_corrupt(
			t->inode->fs, t->inode->inum, "its block %u is not mapped any more", first);
	head.count = first - x.logical;
	*piece = (struct ext4_run){.logical = first,
		.count = (uint32_t)(MIN(extent_run_end(&x), end) - first),
		.physical = x.physical + head.count,
		.unwritten = unwritten};
	tail.count -= head.count + piece->count;
	tail.logical += head.count + piece->count;
	tail.physical += head.count + piece->count;

	t->at = (unsigned)(leaf->at - (left.count ? 1 : 0));
	t->drop = 1;
	edit_keep(t, &left);
	t->count = extent_push(t->with, t->count, &head);
	t->count = extent_push(t->with, t->count, piece);
	t->count = extent_push(t->with, t->count, &tail);
	edit_keep(t, &right);
	return OK;
}

/* One extent's part. *again: the next one is in the same leaf, which has the room. */
static enum err convert_step(struct extent_edit *t, lblk_t first, uint64_t end, bool unwritten,
	uint32_t *done, bool *again) REQUIRES(extent_token);
static enum err convert_step(struct extent_edit *t, lblk_t first, uint64_t end, bool unwritten,
	uint32_t *done, bool *again)
{
	struct extent_node *leaf = &t->path.node[t->path.depth];
	struct ext4_run piece;
	unsigned entries;
	enum err e = convert_plan(t, first, end, unwritten, &piece);

	if (!e)
		e = edit_run(t);
	if (e)
		return e;
	ext4_map_changed(t->inode, piece);
	*done += piece.count;
	if (t->fresh_count)
		return OK;
	entries = extent_entries(leaf);
	*again = extent_run_end(&piece) < leaf->end && entries + 2 <= extent_fit(leaf);
	return OK;
}

enum err ext4_map_convert(struct journal_handle *h, struct ext4_inode *inode,
	const struct ext4_run *want, uint32_t *reserved, uint32_t *done)
{
	const uint64_t end = extent_run_end(want);
	uint32_t came = 0;
	bool again;
	enum err e;

	ensure(want->count > 0);
	do {
		struct extent_edit t;
		again = false;
		e = edit_start(&t, h, inode, want->logical + came, reserved);
		if (e)
			break;
		e = convert_step(&t, want->logical + came, end, want->unwritten, &came, &again);
		extent_path_close(inode, &t.path);
	} while (!e && again && came < want->count);
	if (came) {
		enum err logged = ext4_inode_log(h, inode);
		if (logged)
			return extent_fail(h, logged);
		/* The caller learns what is wrong when it goes on from there. */
		*done = came;
		return OK;
	}
	return e;
}
