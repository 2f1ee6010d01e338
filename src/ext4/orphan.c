/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * orphan: the list of inodes whose deletion or truncation a crash would leave undone.
 *
 *   superblock            inode 30             inode 12
 *   s_last_orphan: 30 --> i_dtime: 12 -------> i_dtime: 0        newest first
 *
 * The list in memory has the same order, and each inode on it a reference, so that the inode
 * before one that leaves is at hand. Joining and leaving are parts of the caller's transaction.
 *
 * What a crash left on it is finished at mount, by orphan_recover.c.
 *
 * Locks: super_lock guards the list and the superblock's block. Of the inode before the one that
 * leaves only i_dtime is changed, in the bytes as they were last logged, under its map_lock.
 *
 * Source: the kernel's Documentation/filesystems/ext4 (super.rst, inodes.rst) and its orphan.c,
 * read for the rules. The feature orphan_file has another place for them, which is not
 * used here: the list is allowed beside it.
 */
#include "write_int.h"

static bool orphan_listed(const struct ext4_inode *inode) REQUIRES(super_token);
static bool orphan_listed(const struct ext4_inode *inode)
{
	return !list_empty(&inode->orphan_link);
}

/* The inode's neighbour on the list, or NULL at its end. */
static struct ext4_inode *orphan_neighbour(struct ext4 *fs, struct list *link)
	REQUIRES(super_token);
static struct ext4_inode *orphan_neighbour(struct ext4 *fs, struct list *link)
{
	return link == &fs->orphans ? NULL : list_entry(link, struct ext4_inode, orphan_link);
}

/* --- the list on disk ------------------------------------------------------------------------ */

static enum err orphan_set_head(struct journal_handle *h, struct ext4 *fs, inum_t inum)
	REQUIRES(super_token);
static enum err orphan_set_head(struct journal_handle *h, struct ext4 *fs, inum_t inum)
{
	struct cache_block *b;
	struct ext4_super *super;
	enum err e = cache_get(fs->cache, EXT4_SUPER_OFFSET_BYTES >> fs->block_bits, &b);

	if (e)
		return e;
	e = journal_write(h, b);
	if (!e) {
		super = (void *)(b->data + (EXT4_SUPER_OFFSET_BYTES & (fs->block_bytes - 1)));
		super->s_last_orphan = le32_make(inum);
		if (fs->csum)
			super->s_checksum = le32_make(ext4_csum_super(super));
		fs->super.s_last_orphan = super->s_last_orphan;
	}
	cache_put(fs->cache, b);
	return e;
}

/* i_dtime, in the inode's bytes as they were last logged. */
static enum err orphan_set_next(struct journal_handle *h, struct ext4_inode *inode, inum_t next)
{
	struct ext4 *fs = inode->fs;
	struct cache_block *b;
	uint32_t offset;
	enum err e = cache_get(fs->cache, ext4_inode_table_block(fs, inode->inum, &offset), &b);

	if (e)
		return e;
	e = journal_write(h, b);
	if (!e) {
		extent_lock(&inode->map_lock);
		((struct ext4_disk_inode *)(void *)inode->raw)->i_dtime = le32_make(next);
		ext4_csum_inode_set(inode);
		ext4_inode_table_put(fs, inode->inum, b, inode->raw);
		extent_unlock(&inode->map_lock);
	}
	cache_put(fs->cache, b);
	return e;
}

static void orphan_fail(struct journal_handle *h, enum err e)
{
	journal_fail(h->journal, e, "the orphan list is half changed");
}

/* --- joining and leaving --------------------------------------------------------------------- */

void ext4_orphan_open(struct ext4 *fs)
{
	mutex_init(&fs->super_lock);
	super_lock(&fs->super_lock);
	list_init(&fs->orphans);
	super_unlock(&fs->super_lock);
}

void ext4_orphan_close(struct ext4 *fs)
{
	for (;;) {
		struct ext4_inode *inode;

		super_lock(&fs->super_lock);
		inode = orphan_neighbour(fs, fs->orphans.next);
		if (inode)
			list_remove(&inode->orphan_link);
		super_unlock(&fs->super_lock);
		if (!inode)
			break;
		ext4_inode_put(inode);
	}
	mutex_destroy(&fs->super_lock);
}

enum err ext4_orphan_add(struct journal_handle *h, struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	enum err e = OK;

	super_lock(&fs->super_lock);
	if (!orphan_listed(inode)) {
		struct ext4_inode *head = orphan_neighbour(fs, fs->orphans.next);
		e = orphan_set_next(h, inode, head ? head->inum : 0);
		if (!e) {
			e = orphan_set_head(h, fs, inode->inum);
			if (e)
				orphan_fail(h, e);
		}
		if (!e) {
			ext4_inode_ref(inode);
			list_push_front(&fs->orphans, &inode->orphan_link);
		}
	}
	super_unlock(&fs->super_lock);
	return e;
}

/* Leaves the chain. */
static enum err orphan_unlink(struct journal_handle *h, struct ext4_inode *inode)
	REQUIRES(super_token);
static enum err orphan_unlink(struct journal_handle *h, struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	struct ext4_inode *before = orphan_neighbour(fs, inode->orphan_link.prev);
	struct ext4_inode *after = orphan_neighbour(fs, inode->orphan_link.next);
	inum_t next = after ? after->inum : 0;
	enum err e = before ? orphan_set_next(h, before, next) : orphan_set_head(h, fs, next);

	if (e)
		return e;
	/* Nobody has touched the list meanwhile: super_lock is held. */
	ensure(inode->orphan_link.prev && inode->orphan_link.next);
	list_remove(&inode->orphan_link);
	return OK;
}

enum err ext4_orphan_remove(struct journal_handle *h, struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	bool listed;
	enum err e = OK;

	super_lock(&fs->super_lock);
	listed = orphan_listed(inode);
	if (listed)
		e = orphan_set_next(h, inode, 0);
	if (listed && !e) {
		e = orphan_unlink(h, inode);
		if (e)
			orphan_fail(h, e);
	}
	super_unlock(&fs->super_lock);
	if (listed && !e)
		ext4_inode_put(inode);
	return e;
}

bool ext4_orphan_is_listed(struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	bool listed;

	super_lock(&fs->super_lock);
	listed = orphan_listed(inode);
	super_unlock(&fs->super_lock);
	return listed;
}

void ext4_orphan_give_up(struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;

	super_lock(&fs->super_lock);
	inode->orphan_stuck = true;
	super_unlock(&fs->super_lock);
}

struct ext4_inode *ext4_orphan_next(struct ext4 *fs)
{
	struct ext4_inode *found = NULL;

	super_lock(&fs->super_lock);
	list_for_each (n, &fs->orphans) {
		struct ext4_inode *inode = list_entry(n, struct ext4_inode, orphan_link);
		if (inode->orphan_stuck)
			continue;
		ext4_inode_ref(inode);
		found = inode;
		break;
	}
	super_unlock(&fs->super_lock);
	return found;
}

bool ext4_orphan_append(struct ext4_inode *inode)
{
	struct ext4 *fs = inode->fs;
	bool fresh;

	super_lock(&fs->super_lock);
	fresh = !orphan_listed(inode);
	if (fresh) {
		ext4_inode_ref(inode);
		list_push_back(&fs->orphans, &inode->orphan_link);
	}
	super_unlock(&fs->super_lock);
	return fresh;
}
