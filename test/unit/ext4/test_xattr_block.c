/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Attribute blocks given back: shared ones by count, the last user frees, damage changes nothing.
 */
#include "image.h"
#include "orphan_rig.h"
#include "rig_run.h"
#include "xattr_int.h"

enum { USERS = 4 };

static fsblk_t acl_block(struct image *im, inum_t inum)
{
	return le32_get(image_inode(im, inum)->i_file_acl_lo);
}
static struct ext4_xattr_header *header_of(struct image *im, fsblk_t nr)
{
	return (void *)image_block(im, nr);
}

/*
 * USERS files, and an attribute that does not fit into an inode; `sharing` of them refer to the
 * first one's block, the others have none.
 */
static fsblk_t start(struct image *im, const char *options, unsigned sharing)
{
	char commands[1024] = "";
	uint8_t value[600];
	fsblk_t nr;

	for (size_t i = 0; i < sizeof(value); i++)
		value[i] = (uint8_t)(1 + i % 250);
	image_run(": > empty");
	crash_write_image(value, sizeof(value), "value");
	image_make("image", options, "16M");
	for (unsigned i = 0; i < USERS; i++)
		snprintf(commands + strlen(commands), 64, "write empty f%u\n", i);
	image_debugfs("image", commands);
	image_debugfs("image", "ea_set -f value f0 user.long\n");
	image_load(im, "image");
	nr = acl_block(im, IMAGE_FIRST_INUM);
	ck_assert_uint_ne(nr, 0);
	image_close(im);

	commands[0] = '\0';
	for (unsigned i = 1; i < sharing; i++)
		snprintf(commands + strlen(commands), 256,
			"set_inode_field <%u> file_acl %llu\nset_inode_field <%u> blocks %u\n",
			IMAGE_FIRST_INUM + i, (unsigned long long)nr, IMAGE_FIRST_INUM + i, 2);
	image_debugfs("image", commands);
	image_load(im, "image");
	header_of(im, nr)->h_refcount = le32_make(sharing);
	if (le32_get(image_super(im)->s_feature_ro_compat) & EXT4_RO_COMPAT_METADATA_CSUM) {
		struct cache_block b = {.data = image_block(im, nr), .nr = nr};
		ck_ok(image_mount(im));
		xattr_block_seal(im->fs, &b);
		image_unmount(im);
	}
	write_open(im);
	return nr;
}

static enum err release(struct image *im, inum_t inum)
{
	struct journal_handle h = write_start(im, EXT4_CREDITS_XATTR_RELEASE);
	struct ext4_inode *inode;
	enum err e;

	ck_ok(ext4_inode_get(im->fs, inum, &inode));
	inode_lock(&inode->lock);
	e = ext4_xattr_release(&h, inode);
	inode_unlock(&inode->lock);
	ext4_inode_put(inode);
	ck_ok(journal_stop(&h));
	return e;
}

static const char *const layouts[] = {"-t ext4 -b 1024 -J size=1",
	"-t ext4 -b 1024 -J size=1 -O ^metadata_csum", "-t ext4 -b 1024 -J size=1 -I 128"};

START_TEST(one_user_after_another)
{
	struct image im;
	fsblk_t nr = start(&im, layouts[_i], 3);
	uint64_t blocks, after, inodes;

	ext4_alloc_counts(im.fs, &blocks, &inodes);
	for (unsigned left = 3; left-- > 0;) {
		struct ext4_inode *inode;
		inum_t inum = IMAGE_FIRST_INUM + (left + 1) % 3;

		ck_ok(release(&im, inum));
		/* A second time there is nothing to give back, as in a file that never had one. */
		ck_ok(release(&im, inum));
		ck_ok(ext4_inode_get(im.fs, inum, &inode));
		ck_assert_uint_eq(inode->attr.blocks_512, 0);
		ext4_inode_put(inode);
		write_commit(&im);
		ck_ok(journal_checkpoint(im.fs->journal));
		ext4_alloc_counts(im.fs, &after, &inodes);
		ck_assert_uint_eq(after, blocks + (left == 0));
		if (left)
			ck_assert_uint_eq(le32_get(header_of(&im, nr)->h_refcount), left);
	}
	ck_ok(release(&im, IMAGE_FIRST_INUM + 3));
	write_close_and_judge(&im);
}
END_TEST

/* The others still read it, after it was read from the device again. */
START_TEST(the_rest_still_read_it)
{
	struct image im;
	struct ext4_inode *inode;
	uint8_t value[700];
	size_t len;

	start(&im, layouts[_i], 2);
	ck_ok(release(&im, IMAGE_FIRST_INUM));
	write_close(&im);
	write_open(&im);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM + 1, &inode));
	ck_ok(ext4_xattr_get(inode, "user.long", value, sizeof(value), &len));
	ck_assert_uint_eq(len, 600);
	ext4_inode_put(inode);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM, &inode));
	ck_err(ext4_xattr_get(inode, "user.long", value, sizeof(value), &len), ERR_NODATA);
	ext4_inode_put(inode);
	write_close_and_judge(&im);
}
END_TEST

START_TEST(a_damaged_block_changes_nothing)
{
	struct image im;
	fsblk_t nr = start(&im, layouts[0], 2);

	header_of(&im, nr)->h_hash = le32_make(77);
	ck_err(release(&im, IMAGE_FIRST_INUM), ERR_CHECKSUM);
	ck_assert(!journal_failed(im.fs->journal));
	ck_ok(journal_checkpoint(im.fs->journal));
	ck_assert_uint_eq(acl_block(&im, IMAGE_FIRST_INUM), nr);
	ck_assert_uint_eq(le32_get(header_of(&im, nr)->h_refcount), 2);
	write_close(&im);
	image_close(&im);
}
END_TEST

static void share_run(unsigned index, void *arg)
{
	struct image *im = arg;
	struct ext4_inode *inode;
	uint8_t value[700];
	size_t len;

	for (int i = 0; i < 50; i++) {
		ck_ok(ext4_inode_get(im->fs, IMAGE_FIRST_INUM + index, &inode));
		ck_ok(ext4_xattr_get(inode, "user.long", value, sizeof(value), &len));
		ext4_inode_put(inode);
	}
	ck_ok(release(im, IMAGE_FIRST_INUM + index));
}

START_TEST(many_threads_share)
{
	struct image im;

	start(&im, layouts[_i], USERS);
	rig_run_threads(USERS, share_run, &im);
	write_close_and_judge(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/xattr_block");
	TCase *tcase = tcase_create("xattr_block");
	const int kinds = (int)ARRAY_SIZE(layouts);

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, one_user_after_another, 0, kinds);
	tcase_add_loop_test(tcase, the_rest_still_read_it, 0, kinds);
	tcase_add_test(tcase, a_damaged_block_changes_nothing);
	tcase_add_loop_test(tcase, many_threads_share, 0, kinds);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
