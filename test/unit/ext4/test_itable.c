/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Inode tables zeroed in the background, on disks that hold noise, while inodes are made. */
#include "inode_rig.h"

static void zero_all(struct image *im)
{
	bool more = true;

	for (int i = 0; more; i++) {
		ck_ok(ext4_itable_zero_step(im->fs, &more));
		ck_assert_int_lt(i, 10000);
	}
}

/* Behind the mark there are zeros on disk in every group, and the descriptors say so. */
static void check_zeros(struct image *im)
{
	for (group_t n = 0; n < im->fs->groups; n++) {
		const struct ext4_group *g = &im->fs->group[n];
		size_t used =
			(size_t)(im->fs->inodes_per_group - g->inodes_unused) * im->fs->inode_bytes;
		size_t end = (size_t)im->fs->inode_table_blocks * im->fs->block_bytes;
		const uint8_t *table = image_block(im, g->inode_table);

		if (!group_has_flags(im->fs))
			continue;
		ck_assert(g->flags & EXT4_BG_INODE_ZEROED);
		while (used < end && table[used] == 0)
			used++;
		ck_assert_msg(used == end, "group %u, byte %zu", n, used);
	}
}

START_TEST(all_tables)
{
	struct ext4_inode *root, *inode;
	struct image im;

	inode_open_noisy(&im, write_layouts[_i]);
	/* The mark stands within a block. */
	root = inode_root(&im);
	for (int i = 0; i < 3; i++) {
		ck_ok(inode_make(root, S_IFREG | 0600, &inode));
		ck_ok(inode_delete(inode));
		ext4_inode_put(inode);
	}
	ext4_inode_put(root);
	zero_all(&im);
	zero_all(&im); /* nothing is left to do */
	write_close(&im);
	ck_ok(image_mount(&im));
	check_zeros(&im);
	image_unmount(&im);
	write_dump(&im, "written");
	image_close(&im);
	write_judge("written");
}
END_TEST

/* --- while inodes come into use -------------------------------------------------------------- */

enum { MAKERS = 3, MADE = 400 };
struct maker {
	pthread_t thread;
	struct ext4 *fs;
	struct ext4_inode *root;
	inum_t made[MADE];
	enum err error;
};

static void *maker_run(void *arg)
{
	struct maker *m = arg;

	for (int i = 0; i < MADE && !m->error; i++) {
		struct ext4_inode *inode;

		m->error = inode_make(m->root, S_IFREG | 0604, &inode);
		if (m->error)
			break;
		m->made[i] = inode->inum;
		m->error = inode_link(inode);
		ext4_inode_put(inode);
		if (!m->error && i % 20 == 0)
			m->error = journal_commit(m->fs->journal, journal_running(m->fs->journal));
		if (!m->error && i % 100 == 0)
			m->error = journal_checkpoint(m->fs->journal);
	}
	return NULL;
}

/* Zeros never land on an inode that came into use meanwhile. */
START_TEST(while_inodes_are_made)
{
	struct maker m[MAKERS] = {{0}};
	struct image im;
	bool more = true;

	inode_open_noisy(&im, write_layouts[_i]);
	for (int i = 0; i < MAKERS; i++) {
		m[i].fs = im.fs;
		m[i].root = inode_root(&im);
		ck_ok(thread_start(&m[i].thread, "maker", maker_run, &m[i]));
	}
	while (more)
		ck_ok(ext4_itable_zero_step(im.fs, &more));
	for (int i = 0; i < MAKERS; i++) {
		pthread_join(m[i].thread, NULL);
		ck_assert_msg(!m[i].error, "thread %d: %s", i, err_name(m[i].error));
		ext4_inode_put(m[i].root);
	}
	write_close(&im);
	write_open(&im);
	check_zeros(&im);
	for (int i = 0; i < MAKERS; i++)
		for (int j = 0; j < MADE; j++) {
			struct ext4_inode *inode;

			ck_ok(ext4_inode_get(im.fs, m[i].made[j], &inode));
			ck_assert_uint_eq(inode->attr.mode, S_IFREG | 0604);
			ck_ok(inode_delete(inode));
			ext4_inode_put(inode);
		}
	write_close_and_judge(&im);
}
END_TEST

/* A write that fails leaves the group unmarked; the next step tries again. */
START_TEST(a_write_that_fails)
{
	struct image im;
	bool more;

	inode_open_noisy(&im, write_layouts[0]);
	dev_fault_arm(im.device.fault, DEV_FAULT_WRITE, 1, false, ERR_IO);
	ck_err(ext4_itable_zero_step(im.fs, &more), ERR_IO);
	ck_assert(!(im.fs->group[0].flags & EXT4_BG_INODE_ZEROED));
	zero_all(&im);
	write_close(&im);
	ck_ok(image_mount(&im));
	check_zeros(&im);
	image_close(&im);
}
END_TEST

START_TEST(a_failed_journal)
{
	struct image im;
	bool more;

	image_make("image", write_layouts[0], "24M");
	image_load(&im, "image");
	write_open(&im);
	journal_fail(im.fs->journal, ERR_IO, "the test says so");
	ck_err(ext4_itable_zero_step(im.fs, &more), ERR_ROFS);
	ext4_alloc_close(im.fs);
	ck_assert_int_ne(journal_close(im.fs->journal), OK);
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("itable");
	TCase *tc = tcase_create("itable");

	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, all_tables, 0, (int)ARRAY_SIZE(write_layouts));
	tcase_add_loop_test(tc, while_inodes_are_made, 0, 4);
	tcase_add_test(tc, a_write_that_fails);
	tcase_add_test(tc, a_failed_journal);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
