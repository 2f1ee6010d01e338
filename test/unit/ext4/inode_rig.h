/* SPDX-License-Identifier: GPL-2.0-or-later */
/* New inodes for the suites that write: made, logged, linked by debugfs afterwards, deleted. */
#ifndef CRYPTFS_TEST_EXT4_INODE_RIG_H
#define CRYPTFS_TEST_EXT4_INODE_RIG_H

#include "write_rig.h"

/* Any thread; the inode is referenced, not locked, has nlink 0 and is not logged. */
__attribute__((unused)) static enum err inode_make(
	struct ext4_inode *parent, uint32_t mode, struct ext4_inode **out)
{
	const struct ext4_new_inode want = {.mode = mode, .uid = 70000, .gid = 5};
	struct journal_handle h;
	enum err e = journal_start(parent->fs->journal, EXT4_CREDITS_INODE_ALLOC, &h), stop;

	if (e)
		return e;
	e = ext4_inode_alloc(&h, parent, &want, out);
	if (!e)
		inode_unlock_second(&(*out)->lock);
	stop = journal_stop(&h);
	return e ? e : stop;
}

/* One link, and on disk. */
__attribute__((unused)) static enum err inode_link(struct ext4_inode *inode)
{
	struct journal_handle h;
	enum err e = journal_start(inode->fs->journal, EXT4_CREDITS_INODE, &h), stop;

	if (e)
		return e;
	inode_lock(&inode->lock);
	extent_lock(&inode->map_lock);
	inode->attr.nlink = 1;
	e = ext4_inode_log(&h, inode);
	extent_unlock(&inode->map_lock);
	inode_unlock(&inode->lock);
	stop = journal_stop(&h);
	return e ? e : stop;
}

/* Deleted; the reference stays. */
__attribute__((unused)) static enum err inode_delete(struct ext4_inode *inode)
{
	struct journal_handle h;
	enum err e = journal_start(inode->fs->journal, EXT4_CREDITS_INODE_FREE, &h), stop;

	if (e)
		return e;
	inode_lock(&inode->lock);
	inode->attr.nlink = 0;
	e = ext4_inode_free(&h, inode);
	inode_unlock(&inode->lock);
	stop = journal_stop(&h);
	return e ? e : stop;
}

__attribute__((unused)) static struct ext4_inode *inode_root(struct image *im)
{
	struct ext4_inode *root;

	ck_ok(ext4_inode_get(im->fs, EXT4_ROOT_INUM, &root));
	return root;
}

/* What a disk holds before it is written: the unused parts of the inode tables read as noise. */
__attribute__((unused)) static void inode_noise(struct image *im)
{
	for (group_t n = 0; n < im->fs->groups; n++) {
		const struct ext4_group *g = &im->fs->group[n];
		size_t used =
			(size_t)(im->fs->inodes_per_group - g->inodes_unused) * im->fs->inode_bytes;
		size_t end = (size_t)im->fs->inode_table_blocks * im->fs->block_bytes;

		if (group_has_flags(im->fs) && !(g->flags & EXT4_BG_INODE_ZEROED))
			scratch_fill(image_block(im, g->inode_table) + used, end - used);
	}
}

/* The noise is there before anything is read that will be written. */
__attribute__((unused)) static void inode_open_noisy(struct image *im, const char *options)
{
	image_make("image", options, "24M");
	image_load(im, "image");
	ck_ok(image_mount(im));
	inode_noise(im);
	image_unmount(im);
	write_open(im);
}

#endif
