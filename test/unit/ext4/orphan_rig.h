/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inodes that lose their last link: files in an image, unlinked the way the layer above does it,
 * and the list on the device as anyone would read it. Included by tests only, after crash_rig.h.
 */
#ifndef CRYPTFS_TEST_EXT4_ORPHAN_RIG_H
#define CRYPTFS_TEST_EXT4_ORPHAN_RIG_H

#include "crash_rig.h"

enum { ORPHANS = 24 };

/* ORPHANS files "f0" and so on; every third one empty, every third deep. */
__attribute__((unused)) static void orphan_make(const char *layout, const char *size)
{
	char commands[64 * ORPHANS] = "";

	image_run("rm -f deep small empty value && : > empty");
	for (uint64_t at = 0; at < 400; at += 2)
		pattern_write("deep", 1, at * 4096, at * 4096 + 1024);
	pattern_write("small", 2, 0, 30000);
	for (unsigned i = 0; i < ORPHANS; i++) {
		static const char *const kinds[] = {"small", "deep", "empty"};
		snprintf(commands + strlen(commands), 64, "write %s f%u\n", kinds[i % 3], i);
	}
	image_make("image", layout, size);
	image_debugfs("image", commands);
	/* Attributes that need a block of their own. */
	pattern_write("value", 3, 0, 600);
	image_debugfs("image", "ea_set -f value f3 user.long\nea_set -f value f4 user.long\n"
			       "ea_set -f value f5 user.long\n");
}

/* The names go by debugfs; what is left has one link and no name, as after a rename over it. */
__attribute__((unused)) static void orphan_unlink_names(void)
{
	char commands[64 * ORPHANS] = "";

	for (unsigned i = 0; i < ORPHANS; i++)
		snprintf(commands + strlen(commands), 64, "unlink f%u\n", i);
	image_debugfs("image", commands);
}

/* In one handle: no link any more, and on the list. */
__attribute__((unused)) static void orphan_drop_link(struct image *im, struct ext4_inode *inode)
{
	struct journal_handle h = write_start(im, EXT4_CREDITS_ORPHAN + EXT4_CREDITS_INODE);

	inode_lock(&inode->lock);
	inode->attr.nlink = 0;
	ck_ok(ext4_orphan_add(&h, inode));
	extent_lock(&inode->map_lock);
	ck_ok(ext4_inode_log(&h, inode));
	extent_unlock(&inode->map_lock);
	inode_unlock(&inode->lock);
	ck_ok(journal_stop(&h));
}

/* An inode's bytes on the device. */
__attribute__((unused)) static const struct ext4_disk_inode *orphan_on_device(
	struct image *im, inum_t inum)
{
	uint32_t offset;
	fsblk_t nr = ext4_inode_table_block(im->fs, inum, &offset);

	return (const void *)(image_block(im, nr) + offset);
}

/* The list as it lies on the device, after a checkpoint; returns its length. */
__attribute__((unused)) static unsigned orphan_read_list(
	struct image *im, inum_t *list, unsigned room)
{
	inum_t inum;
	unsigned n = 0;

	ck_ok(journal_checkpoint(im->fs->journal));
	for (inum = le32_get(image_super(im)->s_last_orphan); inum; n++) {
		ck_assert_uint_lt(n, room);
		list[n] = inum;
		inum = le32_get(orphan_on_device(im, inum)->i_dtime);
	}
	return n;
}

#endif
