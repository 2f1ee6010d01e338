/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * extent: the extent tree, read one leaf at a time.
 *
 * The root stands in the inode, every other node in a block of its own. What a node says of itself
 * (magic, counts, order, places inside the file system, checksum) is verified once per read from
 * the device; that it is the node its parent meant (depth, range of logical blocks) is verified on
 * every descent, since two parents of a damaged file system may name the same block. A descent is
 * at most EXT4_EXTENT_DEPTH_MAX deep, as the depth falls by one a level.
 *
 * Source: the kernel's Documentation/filesystems/ext4/ifork.rst.
 * Threads: any; the inode's raw bytes are constant.
 */
#include "ext4_int.h"

#include <stdlib.h>

/* A node on the way down: the logical blocks it may speak of are [first, end). */
struct node {
	const uint8_t *bytes;
	size_t room_bytes;
	unsigned depth;
	uint64_t first, end;
};

static const struct ext4_extent_header *node_header(const struct node *n)
{
	return (const void *)n->bytes;
}
static const struct ext4_extent *node_extents(const struct node *n)
{
	return (const void *)(n->bytes + sizeof(struct ext4_extent_header));
}
static const struct ext4_extent_index *node_indexes(const struct node *n)
{
	return (const void *)(n->bytes + sizeof(struct ext4_extent_header));
}

static fsblk_t extent_start(const struct ext4_extent *x)
{
	return le32_get(x->ee_start_lo) | (fsblk_t)le16_get(x->ee_start_hi) << 32;
}
static bool extent_unwritten(const struct ext4_extent *x)
{
	return le16_get(x->ee_len) > EXT4_EXTENT_INIT_MAX;
}
static uint32_t extent_blocks(const struct ext4_extent *x)
{
	uint32_t len = le16_get(x->ee_len);

	return len > EXT4_EXTENT_INIT_MAX ? len - EXT4_EXTENT_INIT_MAX : len;
}
static uint64_t extent_end(const struct ext4_extent *x)
{
	return (uint64_t)le32_get(x->ee_block) + extent_blocks(x);
}
static fsblk_t index_leaf(const struct ext4_extent_index *x)
{
	return le32_get(x->ei_leaf_lo) | (fsblk_t)le16_get(x->ei_leaf_hi) << 32;
}

static enum err node_verify_entries(const struct ext4_inode *inode, const struct node *n)
{
	const struct ext4 *fs = inode->fs;
	const struct ext4_extent_header *h = node_header(n);
	unsigned entries = le16_get(h->eh_entries);
	uint64_t least = 0;

	for (unsigned i = 0; i < entries; i++) {
		fsblk_t start;
		uint64_t logical, end, count;

		if (le16_get(h->eh_depth) > 0) {
			const struct ext4_extent_index *x = &node_indexes(n)[i];
			logical = le32_get(x->ei_block);
			end = logical + 1;
			start = index_leaf(x);
			count = 1;
		} else {
			const struct ext4_extent *x = &node_extents(n)[i];
			logical = le32_get(x->ee_block);
			end = extent_end(x);
			start = extent_start(x);
			count = extent_blocks(x);
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
static enum err node_verify(const struct ext4_inode *inode, const struct node *n)
{
	const struct ext4_extent_header *h = node_header(n);
	unsigned entries = le16_get(h->eh_entries), max = le16_get(h->eh_max);
	size_t fit = (n->room_bytes - sizeof(*h)) / sizeof(struct ext4_extent);

	if (le16_get(h->eh_magic) != EXT4_EXTENT_MAGIC)
		return ext4_corrupt(inode->fs, inode->inum, "an extent node has no magic");
	if (max == 0 || max > fit || entries > max ||
		le16_get(h->eh_depth) > EXT4_EXTENT_DEPTH_MAX ||
		(le16_get(h->eh_depth) > 0 && entries == 0))
		return ext4_corrupt(inode->fs, inode->inum,
			"an extent node has %u entries of %u at depth %u", entries, max,
			le16_get(h->eh_depth));
	return node_verify_entries(inode, n);
}

/* What its parent says of it. */
static enum err node_verify_place(const struct ext4_inode *inode, const struct node *n)
{
	const struct ext4_extent_header *h = node_header(n);
	unsigned entries = le16_get(h->eh_entries);
	uint64_t first, end;

	if (le16_get(h->eh_depth) != n->depth)
		return ext4_corrupt(inode->fs, inode->inum,
			"an extent node has depth %u where it should be %u", le16_get(h->eh_depth),
			n->depth);
	if (entries == 0)
		return OK;
	/* An extent and an index both start with their first logical block. */
	first = le32_get(node_extents(n)[0].ee_block);
	end = n->depth > 0 ? le32_get(node_indexes(n)[entries - 1].ei_block) + 1ull
			   : extent_end(&node_extents(n)[entries - 1]);
	if (first < n->first || end > n->end)
		return ext4_corrupt(inode->fs, inode->inum,
			"an extent node for blocks %llu to %llu holds %llu to %llu",
			(unsigned long long)n->first, (unsigned long long)n->end,
			(unsigned long long)first, (unsigned long long)end);
	return OK;
}

static struct node node_root(const struct ext4_inode *inode)
{
	struct node root = {
		.bytes = ext4_inode_disk(inode)->i_block,
		.room_bytes = EXT4_I_BLOCK_BYTES,
		.end = EXT4_LBLK_END,
	};

	root.depth = le16_get(node_header(&root)->eh_depth);
	return root;
}

enum err ext4_extent_check_root(const struct ext4_inode *inode)
{
	struct node root = node_root(inode);

	return node_verify(inode, &root);
}

/* Pins the block of a node below the root and verifies it. */
static enum err node_get(
	struct ext4_inode *inode, fsblk_t nr, struct node *n, struct cache_block **out)
{
	struct cache_block *b;
	enum err e = cache_get(inode->fs->cache, nr, &b);

	if (e)
		return e;
	n->bytes = b->data;
	n->room_bytes = inode->fs->block_bytes;
	if (b->verified != EXT4_KIND_EXTENT) {
		e = node_verify(inode, n);
		if (!e && !ext4_csum_extent_valid(inode, b->data))
			e = err_set_detail(ERR_CHECKSUM,
				"inode %u: the checksum of extent block %llu does not match; "
				"run fsck.cryptfs",
				inode->inum, (unsigned long long)nr);
		if (!e)
			b->verified = EXT4_KIND_EXTENT;
	}
	if (!e)
		e = node_verify_place(inode, n);
	if (e) {
		cache_put(inode->fs->cache, b);
		return e;
	}
	*out = b;
	return OK;
}

static enum err runs_add_hole(struct ext4_runs *runs, uint64_t first, uint64_t end)
{
	if (first >= end)
		return OK;
	return ext4_runs_add(runs,
		(struct ext4_run){.logical = (lblk_t)first, .count = (uint32_t)(end - first)});
}

static enum err leaf_runs(const struct node *leaf, struct ext4_runs *out)
{
	unsigned entries = le16_get(node_header(leaf)->eh_entries);
	uint64_t at = leaf->first;
	enum err e = OK;

	for (unsigned i = 0; i < entries && !e; i++) {
		const struct ext4_extent *x = &node_extents(leaf)[i];
		e = runs_add_hole(out, at, le32_get(x->ee_block));
		if (!e)
			e = ext4_runs_add(out, (struct ext4_run){.logical = le32_get(x->ee_block),
						       .count = extent_blocks(x),
						       .physical = extent_start(x),
						       .unwritten = extent_unwritten(x)});
		at = extent_end(x);
	}
	return e ? e : runs_add_hole(out, at, leaf->end);
}

/* The entry of an index node that covers `logical`; -1: it is before the first. */
static int index_search(const struct node *n, lblk_t logical)
{
	int low = 0, high = le16_get(node_header(n)->eh_entries);

	while (low < high) {
		int middle = (low + high) / 2;
		if (le32_get(node_indexes(n)[middle].ei_block) <= logical)
			low = middle + 1;
		else
			high = middle;
	}
	return low - 1;
}

enum err ext4_extent_load(struct ext4_inode *inode, lblk_t logical, struct ext4_runs *out)
{
	struct node node = node_root(inode);
	struct ext4_runs runs = {0};
	struct cache_block *block = NULL;
	enum err e;

	/* A short symlink's root was not verified when the inode was read. */
	e = ext4_extent_check_root(inode);
	while (!e && node.depth > 0) {
		int i = index_search(&node, logical);
		int entries = le16_get(node_header(&node)->eh_entries);
		struct node child = {.depth = node.depth - 1, .end = node.end};
		struct cache_block *above = block;

		if (i < 0) {
			e = runs_add_hole(
				&runs, node.first, le32_get(node_indexes(&node)[0].ei_block));
			break;
		}
		child.first = le32_get(node_indexes(&node)[i].ei_block);
		if (i + 1 < entries)
			child.end = le32_get(node_indexes(&node)[i + 1].ei_block);
		block = NULL;
		e = node_get(inode, index_leaf(&node_indexes(&node)[i]), &child, &block);
		cache_put(inode->fs->cache, above);
		node = child;
	}
	if (!e && runs.count == 0)
		e = leaf_runs(&node, &runs);
	cache_put(inode->fs->cache, block);
	if (e) {
		free(runs.run);
		return e;
	}
	*out = runs;
	return OK;
}
