/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * indirect: the block map of ext2 and ext3 files: 12 direct blocks, then trees of one, two and
 * three levels of blocks full of block numbers; 0 is a hole.
 *
 * A map is read one leaf at a time (the direct slots, or one lowest indirect block), as runs. The
 * numbers in an indirect block are verified once per read from the device; it has no checksum and
 * no magic. The depth is bounded by the slot, so there can be no loop.
 *
 * Source: the kernel's Documentation/filesystems/ext4/ifork.rst.
 */
#include "ext4_int.h"

#include <stdlib.h>

uint64_t ext4_indirect_blocks_max(const struct ext4 *fs)
{
	uint64_t per_block = fs->block_bytes / sizeof(le32);

	return EXT4_DIRECT_SLOTS + per_block + per_block * per_block +
	       per_block * per_block * per_block;
}

static enum err slots_verify(const struct ext4_inode *inode, const uint8_t *slots, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		fsblk_t nr = le32_get(((const le32 *)(const void *)slots)[i]);
		if (nr && !ext4_blocks_valid(inode->fs, nr, 1))
			return ext4_corrupt(inode->fs, inode->inum,
				"its map names block %llu, which is outside",
				(unsigned long long)nr);
	}
	return OK;
}

static enum err indirect_get(struct ext4_inode *inode, fsblk_t nr, struct cache_block **out)
{
	struct cache_block *b;
	enum err e = cache_get(inode->fs->cache, nr, &b);

	if (e)
		return e;
	if (b->verified != EXT4_KIND_INDIRECT) {
		e = slots_verify(inode, b->data, inode->fs->block_bytes / sizeof(le32));
		if (e) {
			cache_put(inode->fs->cache, b);
			return e;
		}
		b->verified = EXT4_KIND_INDIRECT;
	}
	*out = b;
	return OK;
}

/* Runs of the mapped and the empty slots; they map from `first` on. */
static enum err slots_runs(
	const uint8_t *slots, uint32_t count, uint64_t first, struct ext4_runs *out)
{
	enum err e = OK;

	for (uint32_t i = 0; i < count && !e && first + i < EXT4_LBLK_END; i++)
		e = ext4_runs_add(
			out, (struct ext4_run){.logical = (lblk_t)(first + i),
				     .count = 1,
				     .physical = le32_get(((const le32 *)(const void *)slots)[i])});
	return e;
}

static enum err hole_runs(uint64_t first, uint64_t span, struct ext4_runs *out)
{
	uint64_t end = MIN(first + span, (uint64_t)EXT4_LBLK_END);

	return ext4_runs_add(
		out, (struct ext4_run){.logical = (lblk_t)first, .count = (uint32_t)(end - first)});
}

/*
 * Descends from the root slot of a tree of `level` levels whose first logical block is `first`
 * and which covers `span` blocks.
 */
static enum err tree_runs(struct ext4_inode *inode, unsigned level, uint64_t first, uint64_t span,
	lblk_t logical, struct ext4_runs *out)
{
	uint32_t per_block = inode->fs->block_bytes / sizeof(le32);
	const uint8_t *slots = ext4_inode_disk(inode)->i_block;
	struct cache_block *block = NULL;
	uint64_t slot = EXT4_DIRECT_SLOTS + level - 1;
	enum err e = slots_verify(inode, slots, EXT4_BLOCK_SLOTS);

	for (; !e && level > 0; level--) {
		fsblk_t nr = le32_get(((const le32 *)(const void *)slots)[slot]);
		cache_put(inode->fs->cache, block);
		block = NULL;
		if (nr == 0)
			return hole_runs(first, span, out);
		e = indirect_get(inode, nr, &block);
		if (e)
			break;
		slots = block->data;
		if (level == 1) {
			e = slots_runs(slots, per_block, first, out);
			break;
		}
		span /= per_block;
		slot = (logical - first) / span;
		first += slot * span;
	}
	cache_put(inode->fs->cache, block);
	return e;
}

enum err ext4_indirect_load(struct ext4_inode *inode, lblk_t logical, struct ext4_runs *out)
{
	uint64_t per_block = inode->fs->block_bytes / sizeof(le32);
	const uint8_t *slots = ext4_inode_disk(inode)->i_block;
	uint64_t first = EXT4_DIRECT_SLOTS, span = per_block;
	struct ext4_runs runs = {0};
	enum err e;

	if (logical < EXT4_DIRECT_SLOTS) {
		e = slots_verify(inode, slots, EXT4_DIRECT_SLOTS);
		if (!e)
			e = slots_runs(slots, EXT4_DIRECT_SLOTS, 0, &runs);
	} else {
		unsigned level = 1;
		while (level < 3 && logical - first >= span) {
			first += span;
			span *= per_block;
			level++;
		}
		if (logical - first >= span)
			e = hole_runs(first + span, EXT4_LBLK_END, &runs);
		else
			e = tree_runs(inode, level, first, span, logical, &runs);
	}
	if (e) {
		free(runs.run);
		return e;
	}
	*out = runs;
	return OK;
}
