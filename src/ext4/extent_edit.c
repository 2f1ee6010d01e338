/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * extent_edit: one change of one leaf of an extent tree, with the splits and the growth it takes.
 *
 * Everything that can fail comes first: the blocks for new nodes are taken, and every node that
 * will change joins the transaction. Then the change itself is made in memory, from the leaf
 * upwards:
 *
 *   the leaf has room            it is changed
 *   the leaf is full             its upper half moves to a new leaf, whose key goes to the parent;
 *                                at the end nothing moves and the new leaf starts with what is
 *                                added, so that a file that is written in order has full leaves
 *   a parent is full             it splits in the same way
 *   the root is full             its entries move to a new node, which has more room, and the root
 *                                becomes an index of that one node
 *
 * A node's key in its parent is always its first entry's, as e2fsck wants it. No node but an empty
 * root is left without entries.
 *
 * Threads: the inode's map_lock is held exclusive. A node that is not in the cache is read under
 * it; callers have looked the place up before they started their handle, so this is rare.
 */
#include "extent_int.h"

uint32_t extent_edit_blocks(unsigned depth)
{
	return MIN(depth, EXT4_EXTENT_DEPTH_MAX) + 1;
}

/* The path below the root; a new node, its bitmap and its descriptor at each level; the inode. */
uint32_t extent_edit_credits(unsigned depth)
{
	return MIN(depth, EXT4_EXTENT_DEPTH_MAX) + 3 * extent_edit_blocks(depth) +
	       EXT4_CREDITS_INODE;
}

enum err extent_fail(struct journal_handle *h, enum err e)
{
	journal_fail(h->journal, e, "a file's map is half changed");
	return e;
}

void extent_count_blocks(struct ext4_inode *inode, int64_t blocks)
{
	uint64_t count_512 = (uint64_t)(blocks < 0 ? -blocks : blocks)
			     << (inode->fs->block_bits - 9);

	if (blocks >= 0)
		inode->attr.blocks_512 += count_512;
	else
		inode->attr.blocks_512 -= MIN(count_512, inode->attr.blocks_512);
}

/* --- keys ------------------------------------------------------------------------------------ */

unsigned extent_keys_top(const struct extent_path *path, unsigned level, lblk_t key)
{
	while (level > 0) {
		const struct extent_node *above = &path->node[level - 1];
		unsigned at = (unsigned)MAX(above->at, 0);
		if (extent_key(above, at) == key)
			break;
		level--;
		if (at > 0)
			break;
	}
	return level;
}

void extent_keys_set(struct extent_path *path, unsigned level, lblk_t key)
{
	unsigned top = extent_keys_top(path, level, key);

	while (level-- > top)
		extent_index_set_key(
			&path->node[level], (unsigned)MAX(path->node[level].at, 0), key);
}

enum err extent_join(
	struct journal_handle *h, struct extent_path *path, unsigned top, unsigned bottom)
{
	enum err e = OK;

	for (unsigned i = MAX(top, 1u); i <= bottom && !e; i++)
		e = journal_write(h, path->node[i].block);
	return e;
}

void extent_seal(
	const struct ext4_inode *inode, struct extent_path *path, unsigned top, unsigned bottom)
{
	for (unsigned i = MAX(top, 1u); i <= bottom; i++)
		ext4_csum_extent_set(inode, path->node[i].bytes);
}

/* --- before the change ----------------------------------------------------------------------- */

static struct extent_node *edit_leaf(struct extent_edit *t)
{
	return &t->path.node[t->path.depth];
}
static unsigned edit_entries_after(struct extent_edit *t)
{
	return extent_entries(edit_leaf(t)) - t->drop + t->count;
}

static bool run_equal(const struct ext4_run *a, const struct ext4_run *b)
{
	return a->logical == b->logical && a->count == b->count && a->physical == b->physical &&
	       a->unwritten == b->unwritten;
}

void extent_edit_trim(struct extent_edit *t)
{
	struct ext4_run there;

	while (t->drop && t->count) {
		there = extent_get(edit_leaf(t), t->at);
		if (!run_equal(&there, &t->with[0]))
			break;
		t->at++;
		t->drop--;
		t->count--;
		memmove(&t->with[0], &t->with[1], t->count * sizeof(t->with[0]));
	}
	while (t->drop && t->count) {
		there = extent_get(edit_leaf(t), t->at + t->drop - 1);
		if (!run_equal(&there, &t->with[t->count - 1]))
			break;
		t->drop--;
		t->count--;
	}
}

/* The first key of the leaf after the change. */
static bool edit_first_key(struct extent_edit *t, lblk_t *key)
{
	if (t->at > 0 || edit_entries_after(t) == 0)
		return false;
	*key = t->count ? t->with[0].logical : extent_key(edit_leaf(t), t->drop);
	return true;
}

/* Counts the new nodes and finds the highest one that changes. */
static enum err edit_plan(struct extent_edit *t)
{
	unsigned level = t->path.depth;
	lblk_t key;

	t->top = level;
	t->fresh_count = t->fresh_used = 0;
	ensure(edit_entries_after(t) > 0 || t->path.depth == 0);
	if (edit_first_key(t, &key))
		t->top = extent_keys_top(&t->path, level, key);
	if (edit_entries_after(t) <= extent_fit(edit_leaf(t)))
		return OK;
	for (;;) {
		t->fresh_count++;
		if (level == 0)
			break;
		level--;
		if (extent_entries(&t->path.node[level]) < extent_fit(&t->path.node[level]))
			break;
	}
	if (level == 0 && t->fresh_count > t->path.depth && t->path.depth == EXT4_EXTENT_DEPTH_MAX)
		return err_set_detail(
			ERR_FBIG, "inode %u: its map cannot become deeper", t->inode->inum);
	t->top = MIN(t->top, level);
	return OK;
}

static void edit_put_fresh(struct extent_edit *t)
{
	for (unsigned i = 0; i < t->fresh_count; i++) {
		cache_put(t->inode->fs->cache, t->fresh[i].block);
		t->fresh[i].block = NULL;
	}
}

/* Near the leaf, or else at the start of the group that the data is in, out of the data's way. */
static fsblk_t edit_goal(struct extent_edit *t)
{
	const struct ext4 *fs = t->inode->fs;

	if (t->path.depth > 0)
		return edit_leaf(t)->block->nr;
	return ext4_group_first_block(
		fs, (group_t)((t->with[0].physical - fs->first_data_block) / fs->blocks_per_group));
}

/* Takes blocks for the new nodes and pins them. */
static enum err edit_take(struct extent_edit *t, struct ext4_take *take, unsigned *takes)
{
	struct ext4 *fs = t->inode->fs;
	unsigned got = 0;
	enum err e = OK;

	*takes = 0;
	while (got < t->fresh_count && !e) {
		struct ext4_take *one = &take[*takes];
		e = ext4_alloc_take(fs, edit_goal(t), t->fresh_count - got, one);
		if (e)
			break;
		++*takes;
		*t->reserved -= one->count;
		for (uint32_t i = 0; i < one->count && !e; i++, got++) {
			struct extent_node *n = &t->fresh[got];
			*n = (struct extent_node){.room_bytes = fs->block_bytes};
			e = cache_get_new(fs->cache, one->first + i, &n->block);
			if (!e)
				n->bytes = n->block->data;
		}
	}
	return e;
}

static enum err edit_check_budget(struct extent_edit *t)
{
	uint32_t need = t->path.depth - t->top + 1 + 3 * t->fresh_count + EXT4_CREDITS_INODE;

	if (t->fresh_count > (t->reserved ? *t->reserved : 0))
		return ERR_BUSY;
	if (t->h->credits < need && !journal_extend(t->h, need - t->h->credits))
		return ERR_BUSY;
	return OK;
}

enum err extent_edit_prepare(struct extent_edit *t)
{
	struct ext4 *fs = t->inode->fs;
	struct ext4_take take[EXTENT_FRESH_MAX];
	unsigned takes = 0, committed = 0;
	enum err e;

	memset(t->fresh, 0, sizeof(t->fresh));
	e = edit_plan(t);
	if (!e)
		e = edit_check_budget(t);
	if (!e)
		e = edit_take(t, take, &takes);
	if (!e)
		e = extent_join(t->h, &t->path, t->top, t->path.depth);
	for (unsigned i = 0; i < t->fresh_count && !e; i++)
		e = journal_write(t->h, t->fresh[i].block);
	while (!e && committed < takes) {
		e = ext4_alloc_commit(t->h, fs, &take[committed]);
		committed++;
	}
	if (!e)
		return OK;
	edit_put_fresh(t);
	if (committed > 0)
		return extent_fail(t->h, e);
	while (takes > 0)
		ext4_alloc_untake(fs, &take[--takes]);
	return e;
}

/* --- the change ------------------------------------------------------------------------------ */

static struct extent_node *edit_fresh(struct extent_edit *t, unsigned depth)
{
	struct extent_node *n;

	ensure(t->fresh_used < t->fresh_count);
	n = &t->fresh[t->fresh_used++];
	extent_node_init(n, depth);
	return n;
}

/* The root's entries move to a new node, and the root becomes an index of it. */
static struct extent_node *edit_grow(struct extent_edit *t)
{
	struct extent_node *root = &t->path.node[0];
	struct extent_node *n = edit_fresh(t, extent_depth(root));

	extent_copy(root, n);
	extent_node_init(root, extent_depth(n) + 1);
	return n;
}

/* After the new node has its entries. */
static void edit_name_grown(struct extent_edit *t, const struct extent_node *n)
{
	extent_index_insert(&t->path.node[0], 0, extent_key(n, 0), n->block->nr);
}

/* A new node goes into the index at `level`, behind the one that the path goes through. */
static void edit_insert_above(struct extent_edit *t, unsigned level, struct extent_node *child)
{
	for (;; level--) {
		struct extent_node *n = &t->path.node[level], *right;
		unsigned entries = extent_entries(n), at = (unsigned)MAX(n->at, 0) + 1, middle;
		lblk_t key = extent_key(child, 0);

		if (entries < extent_fit(n)) {
			extent_index_insert(n, at, key, child->block->nr);
			return;
		}
		if (level == 0) {
			struct extent_node *grown = edit_grow(t);
			extent_index_insert(grown, at, key, child->block->nr);
			edit_name_grown(t, grown);
			return;
		}
		right = edit_fresh(t, extent_depth(n));
		middle = at == entries ? entries : entries / 2;
		extent_move_tail(n, middle, right);
		if (at > middle || at == entries)
			extent_index_insert(right, at - middle, key, child->block->nr);
		else
			extent_index_insert(n, at, key, child->block->nr);
		child = right;
	}
}

/* Where a full leaf is split: between entries that stay, and in order at its end. */
static unsigned edit_split_at(const struct extent_edit *t, unsigned entries)
{
	unsigned middle = entries / 2;

	if (t->at + t->drop == entries)
		return t->at;
	if (middle > t->at && middle < t->at + t->drop)
		return t->at + t->drop;
	return middle;
}

static void edit_split(struct extent_edit *t)
{
	struct extent_node *leaf = edit_leaf(t), *right;
	unsigned middle = edit_split_at(t, extent_entries(leaf));

	ensure(middle > 0);
	right = edit_fresh(t, 0);
	extent_move_tail(leaf, middle, right);
	if (t->at >= middle)
		extent_replace(right, t->at - middle, t->drop, t->with, t->count);
	else
		extent_replace(leaf, t->at, t->drop, t->with, t->count);
	edit_insert_above(t, t->path.depth - 1, right);
}

void extent_edit_finish(struct extent_edit *t)
{
	struct extent_node *leaf = edit_leaf(t);
	lblk_t key;

	if (edit_first_key(t, &key))
		extent_keys_set(&t->path, t->path.depth, key);
	if (edit_entries_after(t) <= extent_fit(leaf)) {
		extent_replace(leaf, t->at, t->drop, t->with, t->count);
	} else if (t->path.depth == 0) {
		struct extent_node *grown = edit_grow(t);
		extent_replace(grown, t->at, t->drop, t->with, t->count);
		edit_name_grown(t, grown);
	} else {
		edit_split(t);
	}
	ensure(t->fresh_used == t->fresh_count);
	extent_seal(t->inode, &t->path, t->top, t->path.depth);
	for (unsigned i = 0; i < t->fresh_count; i++) {
		ext4_csum_extent_set(t->inode, t->fresh[i].bytes);
		t->fresh[i].block->verified = EXT4_KIND_EXTENT;
	}
	extent_count_blocks(t->inode, t->fresh_count);
	edit_put_fresh(t);
}
