/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * extent_node: the entries of one extent node, in memory.
 *
 * A node is a header and entries by rising logical block, without overlap; in a leaf they are
 * extents, above it they name a node each by the first block that is in it. Functions here keep
 * the order that they find, count, and leave the checksum to whoever is done with the node. Pure:
 * no locks, no cache, no journal.
 *
 * Source: the kernel's Documentation/filesystems/ext4/ifork.rst.
 */
#include "extent_int.h"

static_assert(sizeof(struct ext4_extent) == sizeof(struct ext4_extent_index), "entries move alike");

struct ext4_run extent_get(const struct extent_node *leaf, unsigned at)
{
	const struct ext4_extent *x = &extent_leaf(leaf)[at];
	uint32_t len = le16_get(x->ee_len);
	bool unwritten = len > EXT4_EXTENT_INIT_MAX;

	return (struct ext4_run){
		.logical = le32_get(x->ee_block),
		.count = unwritten ? len - EXT4_EXTENT_INIT_MAX : len,
		.physical = le32_get(x->ee_start_lo) | (fsblk_t)le16_get(x->ee_start_hi) << 32,
		.unwritten = unwritten,
	};
}

static struct ext4_extent extent_make(const struct ext4_run *r)
{
	ensure(r->count > 0 && r->count <= extent_blocks_max(r->unwritten) && r->physical > 0);
	return (struct ext4_extent){
		.ee_block = le32_make(r->logical),
		.ee_len = le16_make(
			(uint16_t)(r->unwritten ? r->count + EXT4_EXTENT_INIT_MAX : r->count)),
		.ee_start_hi = le16_make((uint16_t)(r->physical >> 32)),
		.ee_start_lo = le32_make((uint32_t)r->physical),
	};
}

fsblk_t extent_child(const struct extent_node *n, unsigned at)
{
	const struct ext4_extent_index *x = &extent_index(n)[at];

	return le32_get(x->ei_leaf_lo) | (fsblk_t)le16_get(x->ei_leaf_hi) << 32;
}

lblk_t extent_key(const struct extent_node *n, unsigned at)
{
	return le32_get(extent_index(n)[at].ei_block);
}

int extent_search(const struct extent_node *n, lblk_t logical)
{
	int low = 0, high = (int)extent_entries(n);

	while (low < high) {
		int middle = (low + high) / 2;
		if (extent_key(n, (unsigned)middle) <= logical)
			low = middle + 1;
		else
			high = middle;
	}
	return low - 1;
}

static void node_set_entries(struct extent_node *n, unsigned entries)
{
	struct ext4_extent_header *h = extent_header(n);

	ensure(entries <= extent_fit(n));
	h->eh_entries = le16_make((uint16_t)entries);
	h->eh_max = le16_make((uint16_t)extent_fit(n));
}

void extent_node_init(struct extent_node *n, unsigned depth)
{
	memset(n->bytes, 0, n->room_bytes);
	extent_header(n)->eh_magic = le16_make(EXT4_EXTENT_MAGIC);
	extent_header(n)->eh_depth = le16_make((uint16_t)depth);
	node_set_entries(n, 0);
}

/* Makes room for `more` entries in place of `drop` at `at`. */
static void node_shift(struct extent_node *n, unsigned at, unsigned drop, unsigned more)
{
	struct ext4_extent *x = extent_leaf(n);
	unsigned entries = extent_entries(n);

	ensure(at + drop <= entries);
	node_set_entries(n, entries - drop + more);
	memmove(&x[at + more], &x[at + drop], (entries - at - drop) * sizeof(*x));
}

void extent_replace(struct extent_node *leaf, unsigned at, unsigned drop,
	const struct ext4_run *with, unsigned count)
{
	node_shift(leaf, at, drop, count);
	for (unsigned i = 0; i < count; i++)
		extent_leaf(leaf)[at + i] = extent_make(&with[i]);
}

void extent_index_insert(struct extent_node *n, unsigned at, lblk_t key, fsblk_t child)
{
	node_shift(n, at, 0, 1);
	extent_index(n)[at] = (struct ext4_extent_index){
		.ei_block = le32_make(key),
		.ei_leaf_lo = le32_make((uint32_t)child),
		.ei_leaf_hi = le16_make((uint16_t)(child >> 32)),
	};
}

void extent_index_remove(struct extent_node *n, unsigned at)
{
	node_shift(n, at, 1, 0);
}

void extent_index_set_key(struct extent_node *n, unsigned at, lblk_t key)
{
	extent_index(n)[at].ei_block = le32_make(key);
	node_set_entries(n, extent_entries(n));
}

void extent_move_tail(struct extent_node *from, unsigned at, struct extent_node *to)
{
	unsigned entries = extent_entries(from);

	ensure(extent_entries(to) == 0 && at <= entries);
	node_set_entries(to, entries - at);
	memcpy(extent_leaf(to), &extent_leaf(from)[at],
		(entries - at) * sizeof(struct ext4_extent));
	node_set_entries(from, at);
}

void extent_copy(const struct extent_node *from, struct extent_node *to)
{
	unsigned entries = extent_entries(from);

	extent_node_init(to, extent_depth(from));
	node_set_entries(to, entries);
	memcpy(extent_leaf(to), extent_leaf(from), entries * sizeof(struct ext4_extent));
}

/* Whether b, which comes after a, is more of the same. */
static bool run_continues(const struct ext4_run *a, const struct ext4_run *b)
{
	return extent_run_end(a) == b->logical && a->unwritten == b->unwritten &&
	       a->physical + a->count == b->physical;
}

unsigned extent_coalesce(struct ext4_run *list, unsigned count)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < count; i++) {
		struct ext4_run next = list[i], *last = kept ? &list[kept - 1] : NULL;

		if (last && run_continues(last, &next)) {
			uint32_t room = extent_blocks_max(last->unwritten) - last->count;
			uint32_t moved = MIN(room, next.count);

			last->count += moved;
			next.logical += moved;
			next.physical += moved;
			next.count -= moved;
		}
		if (next.count)
			list[kept++] = next;
	}
	return kept;
}

unsigned extent_push(struct ext4_run *list, unsigned count, const struct ext4_run *run)
{
	struct ext4_run rest = *run;

	while (rest.count) {
		struct ext4_run piece = rest;

		piece.count = MIN(rest.count, extent_blocks_max(rest.unwritten));
		list[count++] = piece;
		rest.logical += piece.count;
		rest.physical += piece.count;
		rest.count -= piece.count;
	}
	return count;
}
