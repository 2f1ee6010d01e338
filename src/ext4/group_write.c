/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * group_write: the disk's side of a group: its bitmaps and its descriptor, changed under a handle.
 *
 *   group_blocks_get     pins them; reads what is not cached; no lock
 *   (the group's lock)
 *   group_blocks_verify  checksums, once per read from the device; the descriptor's each time
 *   group_blocks_join    they are in the transaction; UNINIT bitmaps are made and the flag cleared
 *   ... the change ...
 *   group_blocks_seal    checksums
 *   (unlock)
 *   group_blocks_put
 *
 * Groups that share a block of descriptors change different bytes of it under different locks;
 * the journal copies it when no handle is open.
 *
 * Source: the kernel's Documentation/filesystems/ext4/group_descr.rst, bitmaps.rst, checksums.rst.
 */
#include "alloc_int.h"

#include <stdlib.h>

/* --- fields of a descriptor ------------------------------------------------------------------ */

static bool desc_is_long(const struct ext4 *fs)
{
	return fs->desc_bytes >= EXT4_DESC_BYTES_64BIT;
}

static uint32_t desc_get(const struct ext4 *fs, le16 lo, const le16 *hi)
{
	return le16_get(lo) | (desc_is_long(fs) ? (uint32_t)le16_get(*hi) << 16 : 0);
}

static void desc_set(const struct ext4 *fs, le16 *lo, le16 *hi, uint32_t n)
{
	*lo = le16_make((uint16_t)n);
	if (desc_is_long(fs))
		*hi = le16_make((uint16_t)(n >> 16));
}

uint32_t group_desc_free_blocks(const struct ext4 *fs, const struct ext4_disk_group *d)
{
	return desc_get(fs, d->bg_free_blocks_count_lo, &d->bg_free_blocks_count_hi);
}

static void group_desc_set_free_blocks(const struct ext4 *fs, struct ext4_disk_group *d, uint32_t n)
{
	desc_set(fs, &d->bg_free_blocks_count_lo, &d->bg_free_blocks_count_hi, n);
}

uint32_t group_desc_free_inodes(const struct ext4 *fs, const struct ext4_disk_group *d)
{
	return desc_get(fs, d->bg_free_inodes_count_lo, &d->bg_free_inodes_count_hi);
}

void group_desc_set_free_inodes(const struct ext4 *fs, struct ext4_disk_group *d, uint32_t n)
{
	desc_set(fs, &d->bg_free_inodes_count_lo, &d->bg_free_inodes_count_hi, n);
}

void group_desc_set_used_dirs(const struct ext4 *fs, struct ext4_disk_group *d, uint32_t n)
{
	desc_set(fs, &d->bg_used_dirs_count_lo, &d->bg_used_dirs_count_hi, n);
}

void group_desc_set_unused(const struct ext4 *fs, struct ext4_disk_group *d, uint32_t n)
{
	desc_set(fs, &d->bg_itable_unused_lo, &d->bg_itable_unused_hi, n);
}

bool group_has_flags(const struct ext4 *fs)
{
	return fs->csum || ext4_has_ro_compat(fs, EXT4_RO_COMPAT_GDT_CSUM);
}

static uint32_t group_bits(const struct ext4 *fs, bool inodes)
{
	return inodes ? fs->inodes_per_group : fs->clusters_per_group;
}

bool group_desc_bitmap_valid(
	const struct ext4 *fs, const struct ext4_disk_group *d, bool inodes, const uint8_t *bytes)
{
	const le16 *lo = inodes ? &d->bg_inode_bitmap_csum_lo : &d->bg_block_bitmap_csum_lo;
	const le16 *hi = inodes ? &d->bg_inode_bitmap_csum_hi : &d->bg_block_bitmap_csum_hi;
	uint32_t crc;

	if (!fs->csum)
		return true;
	crc = ext4_csum_bitmap(fs, bytes, group_bits(fs, inodes));
	return desc_get(fs, *lo, hi) == (desc_is_long(fs) ? crc : crc & 0xffff);
}

static void group_desc_set_bitmap_csum(
	const struct ext4 *fs, struct ext4_disk_group *d, bool inodes, const uint8_t *bytes)
{
	le16 *lo = inodes ? &d->bg_inode_bitmap_csum_lo : &d->bg_block_bitmap_csum_lo;
	le16 *hi = inodes ? &d->bg_inode_bitmap_csum_hi : &d->bg_block_bitmap_csum_hi;

	if (fs->csum)
		desc_set(fs, lo, hi, ext4_csum_bitmap(fs, bytes, group_bits(fs, inodes)));
}

/* --- the blocks ------------------------------------------------------------------------------ */

static enum err bitmap_get(struct ext4 *fs, group_t group, bool inodes, struct cache_block **out)
{
	const struct ext4_group *g = &fs->group[group];
	uint32_t uninit = inodes ? EXT4_BG_INODE_UNINIT : EXT4_BG_BLOCK_UNINIT;
	fsblk_t nr = inodes ? g->inode_bitmap : g->block_bitmap;

	return atomic_load(&g->flags) & uninit ? cache_get_new(fs->cache, nr, out)
					       : cache_get(fs->cache, nr, out);
}

enum err group_blocks_get(struct ext4 *fs, group_t group, unsigned which, struct group_blocks *out)
{
	struct group_blocks b = {0};
	uint32_t offset;
	enum err e = OK;

	if (which & GROUP_BLOCK_BITMAP)
		e = bitmap_get(fs, group, false, &b.block_bitmap);
	if (!e && which & GROUP_INODE_BITMAP)
		e = bitmap_get(fs, group, true, &b.inode_bitmap);
	if (!e)
		e = cache_get(fs->cache, ext4_group_desc_block(fs, group, &offset), &b.desc_block);
	if (e) {
		group_blocks_put(fs, &b);
		return e;
	}
	b.desc = (void *)(b.desc_block->data + offset);
	*out = b;
	return OK;
}

void group_blocks_put(struct ext4 *fs, struct group_blocks *b)
{
	cache_put(fs->cache, b->desc_block);
	cache_put(fs->cache, b->block_bitmap);
	cache_put(fs->cache, b->inode_bitmap);
	*b = (struct group_blocks){0};
}

/*
 * Bits of inodes past the mark of those that were ever used, or another count than the
 * descriptor's, would let a living inode be taken for a free one.
 */
static enum err verify_inode_counts(
	const struct ext4 *fs, group_t group, const struct ext4_disk_group *d, const uint8_t *bytes)
{
	uint32_t total = fs->inodes_per_group;
	uint32_t used = total - atomic_load(&fs->group[group].inodes_unused);

	if (bitmap_count_clear(bytes, total) != group_desc_free_inodes(fs, d) ||
		!bitmap_is(bytes, used, total - used, false))
		return err_set_detail(ERR_CORRUPT,
			"group %u: the inode bitmap is at odds with the descriptor; run "
			"fsck.cryptfs",
			group);
	return OK;
}

static enum err verify_bitmap(struct ext4 *fs, group_t group, const struct ext4_disk_group *d,
	struct cache_block *b, bool inodes) REQUIRES(group_token);
static enum err verify_bitmap(struct ext4 *fs, group_t group, const struct ext4_disk_group *d,
	struct cache_block *b, bool inodes)
{
	uint32_t kind = inodes ? EXT4_KIND_INODE_BITMAP : EXT4_KIND_BLOCK_BITMAP;
	uint32_t uninit = inodes ? EXT4_BG_INODE_UNINIT : EXT4_BG_BLOCK_UNINIT;

	/* A bitmap that is not initialised is made by group_blocks_join. */
	if (!b || atomic_load(&b->verified) == kind ||
		atomic_load(&fs->group[group].flags) & uninit)
		return OK;
	if (!group_desc_bitmap_valid(fs, d, inodes, b->data))
		return err_set_detail(ERR_CHECKSUM,
			"group %u: the %s bitmap's checksum does not match; run fsck.cryptfs",
			group, inodes ? "inode" : "block");
	if (inodes) {
		enum err e = verify_inode_counts(fs, group, d, b->data);
		if (e)
			return e;
	}
	atomic_store(&b->verified, kind);
	return OK;
}

enum err group_blocks_verify(struct ext4 *fs, group_t group, const struct group_blocks *b)
{
	enum err e;

	if (!ext4_csum_group_valid(fs, group, b->desc))
		return err_set_detail(ERR_CHECKSUM,
			"group %u: the descriptor's checksum does not match; run fsck.cryptfs",
			group);
	e = verify_bitmap(fs, group, b->desc, b->block_bitmap, false);
	return e ? e : verify_bitmap(fs, group, b->desc, b->inode_bitmap, true);
}

static void group_flag_clear(struct ext4 *fs, group_t group, struct ext4_disk_group *d,
	uint16_t flag) REQUIRES(group_token);
static void group_flag_clear(
	struct ext4 *fs, group_t group, struct ext4_disk_group *d, uint16_t flag)
{
	d->bg_flags = le16_make((uint16_t)(le16_get(d->bg_flags) & ~flag));
	atomic_fetch_and(&fs->group[group].flags, ~(uint32_t)flag);
}

enum err group_blocks_join(
	struct journal_handle *h, struct ext4 *fs, group_t group, const struct group_blocks *b)
{
	uint32_t flags = atomic_load(&fs->group[group].flags);
	enum err e = journal_write(h, b->desc_block);

	if (!e && b->block_bitmap)
		e = journal_write(h, b->block_bitmap);
	if (!e && b->inode_bitmap)
		e = journal_write(h, b->inode_bitmap);
	if (e)
		return e;
	if (b->block_bitmap && flags & EXT4_BG_BLOCK_UNINIT) {
		alloc_group_init_bitmap(fs, group, b->block_bitmap->data);
		atomic_store(&b->block_bitmap->verified, EXT4_KIND_BLOCK_BITMAP);
		group_flag_clear(fs, group, b->desc, EXT4_BG_BLOCK_UNINIT);
	}
	if (b->inode_bitmap && flags & EXT4_BG_INODE_UNINIT) {
		uint32_t inodes = fs->inodes_per_group;

		memset(b->inode_bitmap->data, 0, fs->block_bytes);
		bitmap_fill(b->inode_bitmap->data, inodes, 8 * fs->block_bytes - inodes, true);
		atomic_store(&b->inode_bitmap->verified, EXT4_KIND_INODE_BITMAP);
		group_flag_clear(fs, group, b->desc, EXT4_BG_INODE_UNINIT);
	}
	return OK;
}

void group_blocks_seal(struct ext4 *fs, group_t group, const struct group_blocks *b)
{
	if (b->block_bitmap)
		group_desc_set_bitmap_csum(fs, b->desc, false, b->block_bitmap->data);
	if (b->inode_bitmap)
		group_desc_set_bitmap_csum(fs, b->desc, true, b->inode_bitmap->data);
	ext4_csum_group_set(fs, group, b->desc);
}

/* --- blocks become used and free on disk ----------------------------------------------------- */

/* Turns bits that must all be the other way; the caller has made sure they are in the group. */
static enum err group_turn(struct journal_handle *h, struct ext4 *fs, group_t group,
	const struct group_blocks *b, uint32_t first, uint32_t count, bool used)
	REQUIRES(group_token);
static enum err group_turn(struct journal_handle *h, struct ext4 *fs, group_t group,
	const struct group_blocks *b, uint32_t first, uint32_t count, bool used)
{
	bool uninit = atomic_load(&fs->group[group].flags) & EXT4_BG_BLOCK_UNINIT;
	uint32_t free_blocks;
	enum err e = group_blocks_verify(fs, group, b);

	if (e)
		return e;
	free_blocks = group_desc_free_blocks(fs, b->desc);
	if (uninit ? !used : !bitmap_is(b->block_bitmap->data, first, count, !used))
		return err_set_detail(ERR_CORRUPT,
			"group %u: blocks from %llu on are %s already; run fsck.cryptfs", group,
			(unsigned long long)ext4_group_first_block(fs, group) + first,
			used ? "in use" : "free");
	if (used ? free_blocks < count : free_blocks + count > ext4_group_blocks(fs, group))
		return err_set_detail(ERR_CORRUPT,
			"group %u: its count of free blocks (%u) is wrong; run fsck.cryptfs", group,
			free_blocks);
	e = group_blocks_join(h, fs, group, b);
	if (e)
		return e;
	bitmap_fill(b->block_bitmap->data, first, count, used);
	group_desc_set_free_blocks(fs, b->desc, used ? free_blocks - count : free_blocks + count);
	group_blocks_seal(fs, group, b);
	return OK;
}

/* The part of [first, first + *count) in its group. */
static enum err group_turn_part(
	struct journal_handle *h, struct ext4 *fs, fsblk_t first, uint32_t *count, bool used)
{
	group_t group = alloc_group_of(fs, first);
	uint32_t bit = (uint32_t)(first - ext4_group_first_block(fs, group));
	struct group_blocks b;
	enum err e;

	*count = MIN(*count, ext4_group_blocks(fs, group) - bit);
	e = alloc_group_load(fs, group);
	if (!e)
		e = group_blocks_get(fs, group, GROUP_BLOCK_BITMAP, &b);
	if (e)
		return e;
	group_lock(&fs->alloc->group[group].lock);
	e = group_turn(h, fs, group, &b, bit, *count, used);
	group_unlock(&fs->alloc->group[group].lock);
	group_blocks_put(fs, &b);
	return e;
}

static enum err group_check_range(const struct ext4 *fs, fsblk_t first, uint32_t count)
{
	if (!ext4_blocks_valid(fs, first, count) || alloc_system_overlaps(fs, first, count))
		return err_set_detail(ERR_CORRUPT,
			"%u blocks from %llu on are not a file's; run fsck.cryptfs", count,
			(unsigned long long)first);
	return OK;
}

enum err ext4_alloc_commit(struct journal_handle *h, struct ext4 *fs, const struct ext4_take *take)
{
	enum err e = group_check_range(fs, take->first, take->count);
	uint32_t part;

	for (uint32_t done = 0; done < take->count && !e; done += part) {
		part = take->count - done;
		e = group_turn_part(h, fs, take->first + done, &part, true);
	}
	return e;
}

enum err ext4_alloc_free(
	struct journal_handle *h, struct ext4 *fs, fsblk_t first, uint32_t count, bool metadata)
{
	enum err e = group_check_range(fs, first, count);

	while (count > 0 && !e) {
		struct alloc_freed *node = malloc(sizeof(*node));
		uint32_t part = count;

		if (!node)
			return ERR_NOMEM;
		e = group_turn_part(h, fs, first, &part, false);
		if (e) {
			free(node);
			return e;
		}
		*node = (struct alloc_freed){.seq = h->seq, .first = first, .count = part};
		alloc_freed_add(fs->alloc, node);
		if (metadata)
			e = journal_forget(h, first, part);
		first += part;
		count -= part;
	}
	return e;
}
