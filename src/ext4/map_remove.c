/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * map_remove: blocks taken out of an extent tree and freed, from the end downwards.
 *
 * A step frees the part of one extent that lies in the span and in one block group, so that the
 * credits it needs do not depend on how long the extent is. A leaf whose last extent went is
 * freed, and with it every node above that has nothing else; when the root is empty the tree is of
 * depth 0 again. At the end a root that leads to a single small node takes that node's place.
 *
 * From the end, so that a truncate that is cut short by a crash leaves the file's beginning, and
 * the last extent of a leaf is the cheap one to take out.
 *
 * Threads: map_lock is held exclusive, and the inode lock too, since what was freed may be another
 * file's soon: no reader may hold a piece of the map.
 */
#include "extent_int.h"

/* One step: the path, the data's group, each freed node's group, the inode. */
static uint32_t remove_step_credits(unsigned depth)
{
	uint32_t plain = depth + 2 + 2 * depth + EXT4_CREDITS_INODE;

	return MAX(plain, extent_edit_credits(depth) + 2);
}

/* True when the handle has, or gets, what the next step may need. */
static bool remove_may_step(struct journal_handle *h, const struct ext4_inode *inode, bool first)
{
	struct extent_node root = {.bytes = inode->raw + offsetof(struct ext4_disk_inode, i_block)};
	uint32_t need = remove_step_credits(extent_depth(&root));

	return h->credits >= need || (first && journal_extend(h, need - h->credits));
}

/* --- a node whose last entry goes ------------------------------------------------------------- */

/* The node to keep: the lowest above the leaf that has another entry, or the root. */
static unsigned remove_keep_level(const struct extent_path *path)
{
	unsigned level = path->depth - 1;

	while (level > 0 && extent_entries(&path->node[level]) == 1)
		level--;
	return level;
}

static enum err free_nodes(struct extent_edit *t, unsigned keep) REQUIRES(extent_token);
static enum err free_nodes(struct extent_edit *t, unsigned keep)
{
	struct ext4 *fs = t->inode->fs;
	enum err e = OK;

	for (unsigned i = keep + 1; i <= t->path.depth && !e; i++)
		e = ext4_alloc_free(t->h, fs, t->path.node[i].block->nr, 1, true);
	extent_count_blocks(t->inode, -(int64_t)(t->path.depth - keep));
	return e;
}

/* Frees the leaf's only extent, the leaf, and the nodes above that hold nothing else. */
static enum err remove_leaf(struct extent_edit *t, const struct ext4_run *data)
	REQUIRES(extent_token);
static enum err remove_leaf(struct extent_edit *t, const struct ext4_run *data)
{
	unsigned keep = remove_keep_level(&t->path), top = keep;
	struct extent_node *n = &t->path.node[keep];
	unsigned at = (unsigned)MAX(n->at, 0);
	bool first_goes = at == 0 && extent_entries(n) > 1;
	lblk_t key = first_goes ? extent_key(n, 1) : 0;
	enum err e;

	if (first_goes)
		top = extent_keys_top(&t->path, keep, key);
	e = extent_join(t->h, &t->path, top, keep);
	if (!e)
		e = ext4_alloc_free(t->h, t->inode->fs, data->physical, data->count, false);
	if (e)
		return e;
	if (first_goes)
		extent_keys_set(&t->path, keep, key);
	extent_index_remove(n, at);
	if (extent_entries(n) == 0)
		extent_node_init(n, 0);
	extent_seal(t->inode, &t->path, top, keep);
	e = free_nodes(t, keep);
	return e ? extent_fail(t->h, e) : OK;
}

/* --- one step -------------------------------------------------------------------------------- */

/* The extent's last part that lies in the span and in one group. */
static struct ext4_run remove_part(
	const struct ext4 *fs, const struct ext4_run *x, const struct ext4_span *span)
{
	uint64_t end = MIN(extent_run_end(x), span->end), first = MAX(x->logical, span->first);
	fsblk_t last = x->physical + (end - 1 - x->logical);
	group_t group = (group_t)((last - fs->first_data_block) / fs->blocks_per_group);
	fsblk_t least = ext4_group_first_block(fs, group);

	if (x->physical < least)
		first = MAX(first, x->logical + (least - x->physical));
	return (struct ext4_run){.logical = (lblk_t)first,
		.count = (uint32_t)(end - first),
		.physical = x->physical + (first - x->logical)};
}

/* The extent without the part. */
static enum err remove_from_leaf(struct extent_edit *t, const struct ext4_run *x,
	const struct ext4_run *part) REQUIRES(extent_token);
static enum err remove_from_leaf(
	struct extent_edit *t, const struct ext4_run *x, const struct ext4_run *part)
{
	struct ext4_run head = *x, tail = *x;
	uint32_t cut;
	enum err e;

	head.count = part->logical - x->logical;
	cut = head.count + part->count;
	tail.logical += cut;
	tail.physical += cut;
	tail.count -= cut;
	t->drop = 1;
	t->count = extent_push(t->with, 0, &head);
	t->count = extent_push(t->with, t->count, &tail);
	e = extent_edit_prepare(t);
	if (e)
		return e;
	e = ext4_alloc_free(t->h, t->inode->fs, part->physical, part->count, false);
	if (!e || t->fresh_count) {
		extent_edit_finish(t);
		return e ? extent_fail(t->h, e) : OK;
	}
	return e;
}

/* Frees the part of the last extent in the span; *span is what is left to do. */
static enum err remove_step(struct extent_edit *t, struct ext4_span *span) REQUIRES(extent_token);
static enum err remove_step(struct extent_edit *t, struct ext4_span *span)
{
	const struct extent_node *leaf = &t->path.node[t->path.depth];
	struct ext4_run x, part;
	enum err e;

	if (leaf->at < 0) {
		/* Nothing here starts before the end: the leaf to the left is next. */
		span->end = MAX(span->first, leaf->first);
		return OK;
	}
	x = extent_get(leaf, (unsigned)leaf->at);
	if (extent_run_end(&x) <= span->first) {
		span->end = span->first;
		return OK;
	}
	part = remove_part(t->inode->fs, &x, span);
	t->at = (unsigned)leaf->at;
	if (part.count == x.count && extent_entries(leaf) == 1 && t->path.depth > 0)
		e = remove_leaf(t, &part);
	else
		e = remove_from_leaf(t, &x, &part);
	if (e)
		return e;
	extent_count_blocks(t->inode, -(int64_t)part.count);
	ext4_map_changed(t->inode, (struct ext4_run){.logical = part.logical,
					   .count = (uint32_t)(span->end - part.logical)});
	span->end = part.logical;
	return OK;
}

/* --- a root that leads to one small node ------------------------------------------------------ */

static bool collapse_step(struct journal_handle *h, struct ext4_inode *inode)
	REQUIRES(extent_token);
static bool collapse_step(struct journal_handle *h, struct ext4_inode *inode)
{
	struct extent_path path;
	struct extent_node *root = &path.node[0], *child = &path.node[1];
	bool done = false;

	if (h->credits < 2 + EXT4_CREDITS_INODE || extent_path_find(inode, 0, true, &path))
		return false;
	if (path.depth > 0 && extent_entries(root) == 1 &&
		extent_entries(child) <= extent_fit(root) &&
		ext4_alloc_free(h, inode->fs, child->block->nr, 1, true) == OK) {
		extent_copy(child, root);
		extent_count_blocks(inode, -1);
		inode->map_changes++;
		done = true;
	}
	extent_path_close(inode, &path);
	return done;
}

/* A tree that stays deeper than it must be is no error: what is wrong is met again. */
static void remove_collapse(struct journal_handle *h, struct ext4_inode *inode)
	REQUIRES(extent_token);
static void remove_collapse(struct journal_handle *h, struct ext4_inode *inode)
{
	while (collapse_step(h, inode))
		;
	err_clear_detail();
}

enum err ext4_map_remove(struct journal_handle *h, struct ext4_inode *inode, struct ext4_span *span,
	uint32_t *reserved)
{
	bool first = true;
	enum err e = OK, logged;

	if (!(inode->attr.flags & EXT4_EXTENTS_FL))
		return err_set_detail(ERR_OPNOTSUPP,
			"inode %u has a block map of ext2, which is only read", inode->inum);
	span->end = MIN(span->end, (uint64_t)EXT4_LBLK_END);
	if (span->end <= span->first) {
		span->end = span->first;
		return OK;
	}
	while (!e && span->end > span->first && remove_may_step(h, inode, first)) {
		struct extent_edit t = {.h = h, .inode = inode, .reserved = reserved};
		e = extent_path_find(inode, (lblk_t)(span->end - 1), true, &t.path);
		if (e)
			break;
		e = remove_step(&t, span);
		extent_path_close(inode, &t.path);
		first = e && first;
	}
	if (!e && first)
		return ERR_BUSY;
	if (!e && span->end == span->first)
		remove_collapse(h, inode);
	if (first)
		return e;
	logged = ext4_inode_log(h, inode);
	return logged ? extent_fail(h, logged) : e;
}
