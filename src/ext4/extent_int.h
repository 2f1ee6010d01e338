/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What reading and changing extent trees share: a node, and the path from the root to a leaf.
 *
 * A node is bytes: of i_block for the root, else of a pinned block. All its numbers were verified
 * when it was reached; whoever changes it holds the inode's map_lock exclusive and has called
 * journal_write() for its block.
 */
#ifndef CRYPTFS_EXT4_EXTENT_INT_H
#define CRYPTFS_EXT4_EXTENT_INT_H

#include "write_int.h"

struct extent_node {
	uint8_t *bytes;
	size_t room_bytes;         /* EXT4_I_BLOCK_BYTES or the block's */
	struct cache_block *block; /* pinned; NULL for the root */
	uint64_t first, end;       /* the logical blocks that it may speak of */
	/* The last entry that starts at or before the block that was looked for; -1: none does. */
	int at;
};
struct extent_path {
	struct extent_node node[EXT4_EXTENT_DEPTH_MAX + 1];
	unsigned depth;  /* node[depth] is the leaf, and that is the tree's depth */
	fsblk_t missing; /* not 0: this node is not in the cache, and the path ends above it */
};

/* --- extent_node.c: entries of one node; pure --------------------------------------------------
 */
static inline struct ext4_extent_header *extent_header(const struct extent_node *n)
{
	return (void *)n->bytes;
}
static inline struct ext4_extent *extent_leaf(const struct extent_node *n)
{
	return (void *)(n->bytes + sizeof(struct ext4_extent_header));
}
static inline struct ext4_extent_index *extent_index(const struct extent_node *n)
{
	return (void *)(n->bytes + sizeof(struct ext4_extent_header));
}
static inline unsigned extent_entries(const struct extent_node *n)
{
	return le16_get(extent_header(n)->eh_entries);
}
static inline unsigned extent_depth(const struct extent_node *n)
{
	return le16_get(extent_header(n)->eh_depth);
}
/* Entries that have room; what eh_max says is brought to it by the first change. */
static inline unsigned extent_fit(const struct extent_node *n)
{
	return (unsigned)((n->room_bytes - sizeof(struct ext4_extent_header)) /
			  sizeof(struct ext4_extent));
}
static inline uint64_t extent_run_end(const struct ext4_run *r)
{
	return (uint64_t)r->logical + r->count;
}
static inline uint32_t extent_blocks_max(bool unwritten)
{
	return unwritten ? EXT4_EXTENT_INIT_MAX - 1 : EXT4_EXTENT_INIT_MAX;
}

struct ext4_run extent_get(const struct extent_node *leaf, unsigned at);
fsblk_t extent_child(const struct extent_node *n, unsigned at);
/* The logical block that an entry starts with; in an index as in a leaf. */
lblk_t extent_key(const struct extent_node *n, unsigned at);
/* The last entry that starts at or before `logical`; -1: none does. */
int extent_search(const struct extent_node *n, lblk_t logical);

void extent_node_init(struct extent_node *n, unsigned depth); /* without entries */
/* Entries [at, at + drop) of a leaf become with[count]; there is room (ensure). */
void extent_replace(struct extent_node *leaf, unsigned at, unsigned drop,
	const struct ext4_run *with, unsigned count);
void extent_index_insert(struct extent_node *n, unsigned at, lblk_t key, fsblk_t child);
void extent_index_remove(struct extent_node *n, unsigned at);
void extent_index_set_key(struct extent_node *n, unsigned at, lblk_t key);
/* The entries from `at` on become the content of `to`, which is empty and of the same depth. */
void extent_move_tail(struct extent_node *from, unsigned at, struct extent_node *to);
/* The content becomes that of `to`; there is room (ensure). */
void extent_copy(const struct extent_node *from, struct extent_node *to);
/*
 * Joins neighbours in list[] that continue each other into as few extents as the format allows,
 * the first ones full. Returns how many are left.
 */
unsigned extent_coalesce(struct ext4_run *list, unsigned count);
/* Appends a run, in pieces where it is too long for an extent. Returns the list's new length. */
unsigned extent_push(struct ext4_run *list, unsigned count, const struct ext4_run *run);

/* --- extent.c -------------------------------------------------------------------------------- */
/*
 * The way to the leaf that speaks of `logical`, each node verified and pinned. With may_read false
 * a node that is not in the cache ends it, with its number in `missing`, and nothing is read. The
 * path is to be closed, unless there was an error.
 */
enum err extent_path_find(struct ext4_inode *inode, lblk_t logical, bool may_read,
	struct extent_path *out) must_check REQUIRES_SHARED(extent_token);
void extent_path_close(struct ext4_inode *inode, struct extent_path *path);

/* --- extent_edit.c: one change of one leaf, under a handle -------------------------------------
 */
enum { EXTENT_EDIT_MAX = 8, EXTENT_FRESH_MAX = EXT4_EXTENT_DEPTH_MAX + 1 };

/*
 * Entries [at, at + drop) of the path's leaf become with[count]; the leaf is not left empty unless
 * it is the root. The first group of fields is the caller's, who also closes the path.
 */
struct extent_edit {
	struct journal_handle *h;
	struct ext4_inode *inode;
	uint32_t *reserved; /* blocks that the tree may take; NULL where it cannot grow */
	struct extent_path path;
	unsigned at, drop, count;
	struct ext4_run with[EXTENT_EDIT_MAX];

	unsigned top; /* the highest level whose node changes */
	unsigned fresh_count, fresh_used;
	struct extent_node fresh[EXTENT_FRESH_MAX];
};

/* What one edit of a tree of this depth needs at most, the inode's credit with it. */
uint32_t extent_edit_credits(unsigned depth);
uint32_t extent_edit_blocks(unsigned depth);
/* Leaves out what the edit would replace by itself. */
void extent_edit_trim(struct extent_edit *t);
/*
 * Takes the blocks and has the nodes that will change join the transaction. After an error
 * nothing has changed, or the journal is failed. ERR_BUSY: handle or reservation are too small.
 */
enum err extent_edit_prepare(struct extent_edit *t) must_check REQUIRES(extent_token);
/* Makes the change; the caller logs the inode. */
void extent_edit_finish(struct extent_edit *t) REQUIRES(extent_token);
/* Joins the transaction: the path's nodes from `top` to `bottom`, the root left out. */
enum err extent_join(struct journal_handle *h, struct extent_path *path, unsigned top,
	unsigned bottom) must_check;
/* The highest level that changes when the first key of the node at `level` becomes `key`. */
unsigned extent_keys_top(const struct extent_path *path, unsigned level, lblk_t key);
void extent_keys_set(struct extent_path *path, unsigned level, lblk_t key);
/* Checksums of the path's nodes from `top` to `bottom`. */
void extent_seal(
	const struct ext4_inode *inode, struct extent_path *path, unsigned top, unsigned bottom);
/* Adds to what i_blocks counts. */
void extent_count_blocks(struct ext4_inode *inode, int64_t blocks) REQUIRES(extent_token);
/* The tree or the bitmaps are half changed: the journal fails. Returns e. */
enum err extent_fail(struct journal_handle *h, enum err e);

#endif
