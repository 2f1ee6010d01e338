/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * inode_alloc: inodes taken and given back.
 *
 * Within a group the lowest free number is taken. So the part of the table that was ever used grows
 * by one inode at a time: a new inode lies before the mark (the group's inodes_unused) or exactly
 * on it. Behind the mark the table may hold anything, as mke2fs leaves it unwritten (and on an
 * encrypted volume that reads as noise), and e2fsck looks at everything before it. So an inode on
 * the mark has its slot and all slots after it in its table block zeroed, in the same transaction
 * as the mark moves; a block that starts with it is not read at all.
 *
 * A freed number may be used again at once, even by the same transaction. That is safe for a crash:
 * bitmap, table and names travel through the journal together, so that either the old file is whole
 * or the new one is, and the old one's blocks are not reused before its deletion is durable
 * (reserve.c). The generation tells them apart for whoever kept the number.
 *
 * A damaged group of inodes is left alone: the first failure is logged, and others are used.
 *
 * Source: the kernel's Documentation/filesystems/ext4/ (bitmaps, group_descr, inodes).
 * Threads: any. No I/O under a group's lock: the block is read first, and the number looked at
 * again.
 */
#include "alloc_int.h"

#include <sys/stat.h>

/* A number that was chosen, and what its slot said. */
struct inode_slot {
	group_t group;
	uint32_t index; /* in the group */
	inum_t inum;
	bool unused; /* on the mark: it was never used */
	uint32_t generation;
};

/* --- new inodes in memory -------------------------------------------------------------------- */

/* What a directory hands down, and which of it makes sense for the type. */
static uint32_t inherited_flags(uint32_t parent_flags, uint32_t mode)
{
	uint32_t flags =
		parent_flags &
		(EXT4_SECRM_FL | EXT4_UNRM_FL | EXT4_COMPR_FL | EXT4_SYNC_FL | EXT4_NODUMP_FL |
			EXT4_NOATIME_FL | EXT4_JOURNAL_DATA_FL | EXT4_NOTAIL_FL | EXT4_DIRSYNC_FL |
			EXT4_PROJINHERIT_FL | EXT4_DAX_FL);

	if (S_ISDIR(mode))
		return flags;
	if (S_ISREG(mode))
		return flags & ~(uint32_t)(EXT4_DIRSYNC_FL | EXT4_PROJINHERIT_FL);
	return flags & (EXT4_NODUMP_FL | EXT4_NOATIME_FL);
}

static uint32_t new_extra_bytes(const struct ext4 *fs)
{
	uint32_t room = fs->inode_bytes - EXT4_INODE_BYTES_OLD;
	uint32_t ours = sizeof(struct ext4_disk_inode) - EXT4_INODE_BYTES_OLD, want = ours;

	if (ext4_has_ro_compat(fs, EXT4_RO_COMPAT_EXTRA_ISIZE)) {
		want = MAX(want, le16_get(fs->super.s_want_extra_isize));
		want = MAX(want, le16_get(fs->super.s_min_extra_isize));
	}
	if (want > room || want % 4)
		want = ours;
	return MIN(want, room);
}

/* The old form where both fit a byte, as decode.c reads it. */
static void new_set_rdev(struct ext4_inode *inode)
{
	uint32_t major = inode->attr.rdev_major, minor = inode->attr.rdev_minor;
	struct ext4_disk_inode *d = (void *)inode->raw;
	le32 slot[2] = {{{0}}};

	if (major < 256 && minor < 256)
		slot[0] = le32_make(major << 8 | minor);
	else
		slot[1] = le32_make((minor & 0xff) | major << 8 | (minor & ~0xffu) << 12);
	memcpy(d->i_block, slot, sizeof(slot));
}

static void new_fill(struct ext4_inode *inode, const struct ext4_inode *parent,
	const struct ext4_new_inode *want, const struct inode_slot *slot)
{
	const struct ext4 *fs = inode->fs;
	struct ext4_disk_inode *d = (void *)inode->raw;
	struct ext4_time now = ext4_now(fs);
	bool device = S_ISCHR(want->mode) || S_ISBLK(want->mode);

	inode->inum = slot->inum;
	inode->csum_seed = ext4_csum_inode_seed(fs, slot->inum, slot->generation);
	memset(inode->raw, 0, fs->inode_bytes);
	inode->extra_bytes = new_extra_bytes(fs);
	inode->disk_size_bytes = 0;
	inode->attr = (struct ext4_attr){
		.inum = slot->inum,
		.mode = want->mode,
		.uid = want->uid,
		.gid = want->gid,
		.flags = inherited_flags(parent->attr.flags, want->mode),
		.generation = slot->generation,
		.rdev_major = device ? want->rdev_major : 0,
		.rdev_minor = device ? want->rdev_minor : 0,
		.atime = now,
		.mtime = now,
		.ctime = now,
		.crtime = now,
	};
	if (parent->attr.flags & EXT4_PROJINHERIT_FL)
		inode->attr.project = parent->attr.project;
	if (device)
		new_set_rdev(inode);
	/* A short symlink takes the flag and the root away again for its target. */
	if (ext4_has_incompat(fs, EXT4_INCOMPAT_EXTENTS) &&
		(S_ISREG(want->mode) || S_ISDIR(want->mode) || S_ISLNK(want->mode))) {
		struct ext4_extent_header root = {
			.eh_magic = le16_make(EXT4_EXTENT_MAGIC),
			.eh_max = le16_make(
				(EXT4_I_BLOCK_BYTES - sizeof(root)) / sizeof(struct ext4_extent)),
		};
		memcpy(d->i_block, &root, sizeof(root));
		inode->attr.flags |= EXT4_EXTENTS_FL;
	}
}

/* --- choosing a number ----------------------------------------------------------------------- */

/* The lowest free number; index inodes_per_group when there is none. Verified before. */
static void slot_choose(struct ext4 *fs, group_t group, const struct group_blocks *b,
	struct inode_slot *out) REQUIRES(group_token);
static void slot_choose(
	struct ext4 *fs, group_t group, const struct group_blocks *b, struct inode_slot *out)
{
	const struct ext4_group *g = &fs->group[group];
	uint32_t used = fs->inodes_per_group - atomic_load(&g->inodes_unused);
	/* Reserved inodes have their bits set; where they have not, they are not for us either. */
	uint32_t from = group == 0 ? fs->first_inum - 1 : 0;

	*out = (struct inode_slot){.group = group, .index = from};
	if (!(atomic_load(&g->flags) & EXT4_BG_INODE_UNINIT))
		out->index = bitmap_next(b->inode_bitmap->data, from, fs->inodes_per_group, false);
	out->unused = out->index == used;
	if (out->index > used)
		out->index = fs->inodes_per_group;
	out->inum = group * fs->inodes_per_group + out->index + 1;
}

/* What the slot held must not be alive; its generation goes on. `inode` is used as scratch. */
static enum err slot_check(struct ext4 *fs, const struct cache_block *table,
	struct ext4_inode *inode, struct inode_slot *slot)
{
	const struct ext4_disk_inode *d = ext4_inode_disk(inode);
	uint32_t offset, old;
	bool alive;

	(void)ext4_inode_table_block(fs, slot->inum, &offset);
	if (ext4_inode_is_cached(fs, slot->inum))
		return ext4_corrupt(fs, slot->inum, "in use, but free in the bitmap");
	if (slot->unused) {
		slot->generation = fs->alloc->generation + slot->inum;
		return OK;
	}
	memcpy(inode->raw, table->data + offset, fs->inode_bytes);
	old = le32_get(d->i_generation);
	inode->csum_seed = ext4_csum_inode_seed(fs, slot->inum, old);
	alive = le16_get(d->i_links_count) && le16_get(d->i_mode) && !le32_get(d->i_dtime) &&
		ext4_csum_inode_valid(inode);
	if (alive)
		return ext4_corrupt(fs, slot->inum, "in use, but free in the bitmap");
	slot->generation = old + 1;
	return OK;
}

static void slot_count(struct ext4 *fs, const struct inode_slot *slot, struct ext4_disk_group *d,
	bool directory) REQUIRES(group_token);
static void slot_count(
	struct ext4 *fs, const struct inode_slot *slot, struct ext4_disk_group *d, bool directory)
{
	struct ext4_group *g = &fs->group[slot->group];

	group_desc_set_free_inodes(fs, d, group_desc_free_inodes(fs, d) - 1);
	atomic_fetch_sub(&g->free_inodes, 1);
	atomic_fetch_sub(&fs->alloc->inodes_free, 1);
	if (directory) {
		group_desc_set_used_dirs(fs, d, atomic_fetch_add(&g->used_dirs, 1) + 1);
		atomic_fetch_add(&fs->alloc->dirs, 1);
	}
	if (slot->unused && group_has_flags(fs)) {
		uint32_t unused = fs->inodes_per_group - slot->index - 1;
		group_desc_set_unused(fs, d, unused);
		atomic_store(&g->inodes_unused, unused);
	}
}

/* The number is free still: it becomes used on disk. Nothing was changed when this fails. */
static enum err slot_use(struct journal_handle *h, struct ext4 *fs, struct inode_slot *slot,
	const struct group_blocks *b, struct cache_block *table, bool directory)
	REQUIRES(group_token);
static enum err slot_use(struct journal_handle *h, struct ext4 *fs, struct inode_slot *slot,
	const struct group_blocks *b, struct cache_block *table, bool directory)
{
	uint32_t per_block = fs->block_bytes / fs->inode_bytes;
	uint32_t last = slot->unused ? per_block - 1 - slot->index % per_block : 0;
	enum err e;

	last = MIN(last, fs->inodes_per_group - 1 - slot->index);
	if (group_desc_free_inodes(fs, b->desc) == 0)
		return err_set_detail(ERR_CORRUPT,
			"group %u: its count of free inodes is wrong; run fsck.cryptfs",
			slot->group);
	e = group_blocks_join(h, fs, slot->group, b);
	if (!e)
		e = journal_write(h, table);
	if (e)
		return e;
	for (uint32_t i = 0; i <= last; i++)
		ext4_inode_table_put(fs, slot->inum + i, table, NULL);
	bitmap_fill(b->inode_bitmap->data, slot->index, 1, true);
	slot_count(fs, slot, b->desc, directory);
	group_blocks_seal(fs, slot->group, b);
	return OK;
}

/*
 * Looks for a number, reads its table block without the lock, and takes the number if it is still
 * the one to take. *again: it is not. ERR_NOSPC: the group has none.
 */
static enum err slot_try(struct journal_handle *h, struct ext4 *fs, const struct group_blocks *b,
	struct ext4_inode *scratch, bool directory, struct inode_slot *slot, bool *again)
{
	struct alloc_group *g = &fs->alloc->group[slot->group];
	uint32_t per_block = fs->block_bytes / fs->inode_bytes, offset;
	struct cache_block *table = NULL;
	struct inode_slot now;
	fsblk_t nr;
	enum err e;

	group_lock(&g->lock);
	e = group_blocks_verify(fs, slot->group, b);
	if (!e)
		slot_choose(fs, slot->group, b, slot);
	group_unlock(&g->lock);
	if (!e && slot->index == fs->inodes_per_group)
		e = ERR_NOSPC;
	if (e)
		return e;
	/* Our handle is open, so a block that others fill meanwhile stays dirty and unharmed. */
	nr = ext4_inode_table_block(fs, slot->inum, &offset);
	e = slot->unused && slot->index % per_block == 0 ? cache_get_new(fs->cache, nr, &table)
							 : cache_get(fs->cache, nr, &table);
	if (e)
		return e;
	group_lock(&g->lock);
	slot_choose(fs, slot->group, b, &now);
	*again = now.index != slot->index || now.unused != slot->unused;
	if (!*again)
		e = slot_check(fs, table, scratch, slot);
	if (!*again && !e)
		e = slot_use(h, fs, slot, b, table, directory);
	group_unlock(&g->lock);
	cache_put(fs->cache, table);
	return e;
}

static enum err slot_take(struct journal_handle *h, struct ext4 *fs, group_t group,
	struct ext4_inode *scratch, bool directory, struct inode_slot *out)
{
	unsigned which = GROUP_INODE_BITMAP;
	struct group_blocks b;
	bool again = true;
	enum err e = OK;

	/* A group with inodes in use has its block bitmap too, as the kernel does it. */
	if (atomic_load(&fs->group[group].flags) & EXT4_BG_BLOCK_UNINIT) {
		which |= GROUP_BLOCK_BITMAP;
		e = alloc_group_load(fs, group);
	}
	if (!e)
		e = group_blocks_get(fs, group, which, &b);
	if (e)
		return e;
	out->group = group;
	while (again && !e)
		e = slot_try(h, fs, &b, scratch, directory, out, &again);
	group_blocks_put(fs, &b);
	return e;
}

static bool is_damage(enum err e)
{
	return e == ERR_CORRUPT || e == ERR_CHECKSUM || e == ERR_IO;
}

static void group_give_up_inodes(struct ext4 *fs, group_t group, enum err e)
{
	uint32_t lost = atomic_exchange(&fs->group[group].free_inodes, 0);

	atomic_fetch_sub(&fs->alloc->inodes_free, lost);
	log_error("%s; %u free inodes in group %u are left alone",
		*err_detail() ? err_detail() : err_text(e), lost, group);
}

enum err ext4_inode_alloc(struct journal_handle *h, struct ext4_inode *parent,
	const struct ext4_new_inode *want, struct ext4_inode **out)
{
	struct ext4 *fs = parent->fs;
	struct inode_group_search search;
	struct inode_slot slot;
	struct ext4_inode *inode;
	enum err e = ext4_inode_create(fs, &inode), damage = OK;
	group_t group;

	if (e)
		return e;
	e = ERR_NOSPC;
	inode_group_start(parent, want->mode, &search);
	while (e == ERR_NOSPC && (group = inode_group_next(fs, &search)) != NO_GROUP) {
		e = slot_take(h, fs, group, inode, S_ISDIR(want->mode), &slot);
		if (is_damage(e)) {
			group_give_up_inodes(fs, group, e);
			damage = e;
			e = ERR_NOSPC;
		}
	}
	if (e == ERR_NOSPC && damage)
		e = damage;
	if (e) {
		ext4_inode_put(inode);
		return e;
	}
	new_fill(inode, parent, want, &slot);
	/* Nobody knows the number yet, so there is no order to keep with other inodes' locks. */
	inode_lock_second(&inode->lock);
	if (!ext4_inode_publish(inode)) {
		inode_unlock_second(&inode->lock);
		ext4_inode_put(inode);
		return ext4_corrupt(fs, slot.inum, "in use, but free in the bitmap");
	}
	*out = inode;
	return OK;
}

/* --- giving back ----------------------------------------------------------------------------- */

/* What a deleted inode keeps: that it is deleted, and which one it was. */
static void inode_bury(struct ext4_inode *inode)
{
	struct ext4_disk_inode *d = (void *)inode->raw;

	memset(inode->raw, 0, inode->fs->inode_bytes);
	d->i_dtime = le32_make((uint32_t)ext4_now(inode->fs).sec);
	d->i_generation = le32_make(inode->attr.generation);
	if (inode->fs->inode_bytes > EXT4_INODE_BYTES_OLD)
		d->i_extra_isize = le16_make((uint16_t)inode->extra_bytes);
	ext4_csum_inode_set(inode);
}

static enum err inode_release(struct journal_handle *h, struct ext4_inode *inode,
	const struct group_blocks *b, struct cache_block *table)
	REQUIRES(group_token, extent_token);
static enum err inode_release(struct journal_handle *h, struct ext4_inode *inode,
	const struct group_blocks *b, struct cache_block *table)
{
	struct ext4 *fs = inode->fs;
	group_t group = (inode->inum - 1) / fs->inodes_per_group;
	uint32_t index = (inode->inum - 1) % fs->inodes_per_group, free_inodes;
	struct ext4_group *g = &fs->group[group];
	enum err e = group_blocks_verify(fs, group, b);

	if (e)
		return e;
	free_inodes = group_desc_free_inodes(fs, b->desc);
	if (atomic_load(&g->flags) & EXT4_BG_INODE_UNINIT ||
		!bitmap_is(b->inode_bitmap->data, index, 1, true) ||
		free_inodes >= fs->inodes_per_group)
		return ext4_corrupt(fs, inode->inum, "deleted, but free in the bitmap already");
	e = group_blocks_join(h, fs, group, b);
	if (!e)
		e = journal_write(h, table);
	if (e)
		return e;
	/* In this order: a reader finds the inode in memory, or a dead one on disk. */
	inode_bury(inode);
	ext4_inode_table_put(fs, inode->inum, table, inode->raw);
	ext4_inode_unpublish(inode);
	bitmap_fill(b->inode_bitmap->data, index, 1, false);
	group_desc_set_free_inodes(fs, b->desc, free_inodes + 1);
	atomic_fetch_add(&g->free_inodes, 1);
	atomic_fetch_add(&fs->alloc->inodes_free, 1);
	if (S_ISDIR(inode->attr.mode) && atomic_load(&g->used_dirs) > 0) {
		group_desc_set_used_dirs(fs, b->desc, atomic_fetch_sub(&g->used_dirs, 1) - 1);
		atomic_fetch_sub(&fs->alloc->dirs, 1);
	}
	group_blocks_seal(fs, group, b);
	return OK;
}

enum err ext4_inode_free(struct journal_handle *h, struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	group_t group = (inode->inum - 1) / fs->inodes_per_group;
	struct cache_block *table = NULL;
	struct group_blocks b = {0};
	uint32_t offset;
	enum err e;

	if (inode->inum < fs->first_inum)
		return ext4_corrupt(fs, inode->inum, "deleted, but reserved");
	e = group_blocks_get(fs, group, GROUP_INODE_BITMAP, &b);
	if (!e)
		e = cache_get(fs->cache, ext4_inode_table_block(fs, inode->inum, &offset), &table);
	if (!e) {
		extent_lock(&inode->map_lock);
		group_lock(&fs->alloc->group[group].lock);
		e = inode_release(h, inode, &b, table);
		group_unlock(&fs->alloc->group[group].lock);
		extent_unlock(&inode->map_lock);
	}
	cache_put(fs->cache, table);
	group_blocks_put(fs, &b);
	return e;
}
