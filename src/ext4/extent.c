/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * extent: the extent tree: the path to a leaf, and the tree read one leaf at a time.
 *
 * The root stands in the inode, every other node in a block of its own. What a node says of itself
 * (magic, counts, order, places inside the file system, checksum) is verified once per read from
 * the device; that it is the node its parent meant (depth, range of logical blocks) is verified on
 * every descent, since two parents of a damaged file system may name the same block. A descent is
 * at most EXT4_EXTENT_DEPTH_MAX deep, as the depth falls by one a level.
 *
 * Source: the kernel's Documentation/filesystems/ext4/ifork.rst.
 * Threads: any. map_lock guards the tree, shared is enough here. A reader does not hold it across
 * I/O: a node that is not in the cache is read without it, and then the descent begins anew. Only
 * when the tree has changed over and over between does the last try read under the lock.
 */
#include "extent_int.h"

#include <stdlib.h>

enum { LOAD_TRIES = 2 * EXT4_EXTENT_DEPTH_MAX };

static enum err node_verify_entries(const struct ext4_inode *inode, const struct extent_node *n)
{
	const struct ext4 *fs = inode->fs;
	unsigned entries = extent_entries(n);
	uint64_t least = 0;

	for (unsigned i = 0; i < entries; i++) {
		fsblk_t start;
		uint64_t logical, end, count;

		if (extent_depth(n) > 0) {
			logical = extent_key(n, i);
			end = logical + 1;
			start = extent_child(n, i);
			count = 1;
		} else {
			struct ext4_run x = extent_get(n, i);
			logical = x.logical;
			end = extent_run_end(&x);
			start = x.physical;
			count = x.count;
		}
		if (logical < least || end <= logical || end > EXT4_LBLK_END)
			return ext4_corrupt(fs, inode->inum,
				"the extents at block %llu are out of order",
				(unsigned long long)logical);
		if (!ext4_blocks_valid(fs, start, count))
			return ext4_corrupt(fs, inode->inum,
				"an extent names block %llu, which is outside",
				(unsigned long long)start);
		least = end;
	}
	return OK;
}

/* What a node says of itself. */
static enum err node_verify(const struct ext4_inode *inode, const struct extent_node *n)
{
	const struct ext4_extent_header *h = extent_header(n);
	unsigned entries = extent_entries(n), max = le16_get(h->eh_max);

	if (le16_get(h->eh_magic) != EXT4_EXTENT_MAGIC)
		return ext4_corrupt(inode->fs, inode->inum, "an extent node has no magic");
	if (max == 0 || max > extent_fit(n) || entries > max ||
		extent_depth(n) > EXT4_EXTENT_DEPTH_MAX || (extent_depth(n) > 0 && entries == 0))
		return ext4_corrupt(inode->fs, inode->inum,
			"an extent node has %u entries of %u at depth %u", entries, max,
			extent_depth(n));
	return node_verify_entries(inode, n);
}

/* What its parent says of it: its depth, and that it keeps to [first, n->end). */
static enum err node_verify_place(
	const struct ext4_inode *inode, const struct extent_node *n, unsigned depth, uint64_t first)
{
	unsigned entries = extent_entries(n);
	uint64_t least, end;

	if (extent_depth(n) != depth)
		return ext4_corrupt(inode->fs, inode->inum,
			"an extent node has depth %u where it should be %u", extent_depth(n),
			depth);
	if (entries == 0)
		return OK;
	least = extent_key(n, 0);
	end = extent_key(n, entries - 1) + 1ull;
	if (depth == 0) {
		struct ext4_run last = extent_get(n, entries - 1);
		end = extent_run_end(&last);
	}
	if (least < first || end > n->end)
		return ext4_corrupt(inode->fs, inode->inum,
			"an extent node for blocks %llu to %llu holds %llu to %llu",
			(unsigned long long)first, (unsigned long long)n->end,
			(unsigned long long)least, (unsigned long long)end);
	return OK;
}

static struct extent_node node_root(const struct ext4_inode *inode)
{
	return (struct extent_node){
		.bytes = inode->raw + offsetof(struct ext4_disk_inode, i_block),
		.room_bytes = EXT4_I_BLOCK_BYTES,
		.end = EXT4_LBLK_END,
	};
}

enum err ext4_extent_check_root(const struct ext4_inode *inode)
{
	struct extent_node root = node_root(inode);

	return node_verify(inode, &root);
}

/* Verifies the pinned block of a node below the root. */
static enum err node_check(
	struct ext4_inode *inode, struct extent_node *n, unsigned depth, uint64_t first)
{
	struct cache_block *b = n->block;
	enum err e = OK;

	n->bytes = b->data;
	n->room_bytes = inode->fs->block_bytes;
	if (b->verified != EXT4_KIND_EXTENT) {
		e = node_verify(inode, n);
		if (!e && !ext4_csum_extent_valid(inode, b->data))
			e = err_set_detail(ERR_CHECKSUM,
				"inode %u: the checksum of extent block %llu does not match; "
				"run fsck.cryptfs",
				inode->inum, (unsigned long long)b->nr);
		if (!e)
			b->verified = EXT4_KIND_EXTENT;
	}
	return e ? e : node_verify_place(inode, n, depth, first);
}

/* --- the path -------------------------------------------------------------------------------- */

void extent_path_close(struct ext4_inode *inode, struct extent_path *path)
{
	for (unsigned i = 0; i <= path->depth; i++) {
		cache_put(inode->fs->cache, path->node[i].block);
		path->node[i].block = NULL;
	}
}

/*
 * Steps from the path's last node to the child that speaks of `logical`. What lies before the
 * first entry belongs to the first child, which keeps to its own key as long as nothing is
 * inserted.
 */
static enum err path_step(
	struct ext4_inode *inode, struct extent_path *path, unsigned level, bool may_read)
{
	struct cache *cache = inode->fs->cache;
	const struct extent_node *above = &path->node[level];
	struct extent_node *n = &path->node[level + 1];
	unsigned i = (unsigned)MAX(above->at, 0);
	fsblk_t nr = extent_child(above, i);
	lblk_t key = extent_key(above, i);

	*n = (struct extent_node){.first = above->at < 0 ? above->first : key, .end = above->end};
	if (i + 1 < extent_entries(above))
		n->end = extent_key(above, i + 1);
	if (may_read) {
		enum err e = cache_get(cache, nr, &n->block);
		if (e)
			return e;
	} else if (!cache_get_cached(cache, nr, &n->block)) {
		path->missing = nr;
		return OK;
	}
	path->depth = level + 1;
	return node_check(inode, n, extent_depth(above) - 1, key);
}

enum err extent_path_find(
	struct ext4_inode *inode, lblk_t logical, bool may_read, struct extent_path *out)
{
	struct extent_path path = {.node[0] = node_root(inode)};
	enum err e;

	/* A short symlink's root was not verified when the inode was read. */
	e = ext4_extent_check_root(inode);
	if (e)
		return e;
	for (unsigned level = 0;; level++) {
		struct extent_node *n = &path.node[level];
		n->at = extent_search(n, logical);
		if (extent_depth(n) == 0)
			break;
		e = path_step(inode, &path, level, may_read);
		if (e || path.missing)
			break;
	}
	if (e) {
		extent_path_close(inode, &path);
		return e;
	}
	*out = path;
	return OK;
}

/* --- reading --------------------------------------------------------------------------------- */

static enum err runs_add_hole(struct ext4_runs *runs, uint64_t first, uint64_t end)
{
	if (first >= end)
		return OK;
	return ext4_runs_add(runs,
		(struct ext4_run){.logical = (lblk_t)first, .count = (uint32_t)(end - first)});
}

static enum err leaf_runs(const struct extent_node *leaf, struct ext4_runs *out)
{
	unsigned entries = extent_entries(leaf);
	uint64_t at = leaf->first;
	enum err e = OK;

	for (unsigned i = 0; i < entries && !e; i++) {
		struct ext4_run x = extent_get(leaf, i);
		e = runs_add_hole(out, at, x.logical);
		if (!e)
			e = ext4_runs_add(out, x);
		at = extent_run_end(&x);
	}
	return e ? e : runs_add_hole(out, at, leaf->end);
}

/* One try; *missing is the node that has to be read before the next. */
static enum err extent_load_try(struct ext4_inode *inode, lblk_t logical, bool may_read,
	struct ext4_runs *out, fsblk_t *missing)
{
	struct ext4_runs runs = {0};
	struct extent_path path;
	enum err e;

	extent_lock_shared(&inode->map_lock);
	e = extent_path_find(inode, logical, may_read, &path);
	if (!e) {
		*missing = path.missing;
		if (!path.missing)
			e = leaf_runs(&path.node[path.depth], &runs);
		extent_path_close(inode, &path);
	}
	extent_unlock_shared(&inode->map_lock);
	if (e)
		free(runs.run);
	else
		*out = runs;
	return e;
}

enum err ext4_extent_load(struct ext4_inode *inode, lblk_t logical, struct ext4_runs *out)
{
	struct cache_block *held[LOAD_TRIES];
	unsigned count = 0;
	enum err e;

	for (;;) {
		fsblk_t missing = 0;
		e = extent_load_try(inode, logical, count == LOAD_TRIES, out, &missing);
		if (e || !missing)
			break;
		/* Held, so that the next try finds it whatever else is read meanwhile. */
		e = cache_get(inode->fs->cache, missing, &held[count]);
		if (e)
			break;
		count++;
	}
	while (count > 0)
		cache_put(inode->fs->cache, held[--count]);
	return e;
}
