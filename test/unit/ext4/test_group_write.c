/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Bitmaps and descriptors on disk: used and free again, by every layout, judged by e2fsck. */
#include "write_rig.h"

/*
 * Blocks without an owner cannot be judged, so an inode gets them: its root has four extents. The
 * name comes from debugfs.
 */
static void own(struct image *im, struct ext4_inode *inode, const struct ext4_take *take, int count)
{
	struct ext4_extent_header *root =
		(void *)(inode->raw + offsetof(struct ext4_disk_inode, i_block));
	struct ext4_extent *x = (void *)(root + 1);
	struct journal_handle h = write_start(im, 1);
	uint32_t logical = 0;

	ck_assert_int_le(count, 4);
	inode_lock(&inode->lock);
	extent_lock(&inode->map_lock);
	for (int i = 0; i < count; i++) {
		x[i] = (struct ext4_extent){.ee_block = le32_make(logical),
			.ee_len = le16_make((uint16_t)take[i].count),
			.ee_start_hi = le16_make((uint16_t)(take[i].first >> 32)),
			.ee_start_lo = le32_make((uint32_t)take[i].first)};
		logical += take[i].count;
	}
	root->eh_entries = le16_make((uint16_t)count);
	inode->attr.nlink = 1;
	inode->attr.blocks_512 = (uint64_t)logical << (im->fs->block_bits - 9);
	inode->attr.size_bytes = (uint64_t)logical << im->fs->block_bits;
	inode->disk_size_bytes = inode->attr.size_bytes;
	ck_ok(ext4_inode_log(&h, inode));
	extent_unlock(&inode->map_lock);
	inode_unlock(&inode->lock);
	ck_ok(journal_stop(&h));
}

static struct ext4_inode *new_file(struct image *im)
{
	const struct ext4_new_inode want = {.mode = S_IFREG | 0644, .uid = 70000, .gid = 70001};
	struct journal_handle h = write_start(im, EXT4_CREDITS_INODE_ALLOC);
	struct ext4_inode *root, *inode;

	ck_ok(ext4_inode_get(im->fs, EXT4_ROOT_INUM, &root));
	ck_ok(ext4_inode_alloc(&h, root, &want, &inode));
	inode_unlock_second(&inode->lock);
	ck_ok(journal_stop(&h));
	ext4_inode_put(root);
	return inode;
}

/* Files of four runs in all groups; bitmaps that did not exist come into being on the way. */
START_TEST(owned_blocks)
{
	enum { FILES = 12 };
	struct ext4_take take[4];
	struct image im;
	char links[FILES * 32] = "";

	image_make("image", write_layouts[_i], "24M");
	image_load(&im, "image");
	write_open(&im);
	for (int i = 0; i < FILES; i++) {
		struct ext4_inode *inode = new_file(&im);
		size_t n = strlen(links);

		for (int j = 0; j < 4; j++)
			take[j] = write_take(&im,
				ext4_group_first_block(im.fs, (group_t)(i * 4 + j) % im.fs->groups),
				1 + (uint32_t)scratch_random(90));
		own(&im, inode, take, 4);
		snprintf(links + n, sizeof(links) - n, "ln <%u> f%d\n", inode->inum, i);
		ext4_inode_put(inode);
	}
	write_commit(&im);
	write_compare_views(&im);
	write_close(&im);
	write_dump(&im, "written");
	image_close(&im);
	image_debugfs("written", links);
	write_judge("written");
	write_kernel_judges("written");
}
END_TEST

/* Everything that is free, taken and freed again in pieces. */
START_TEST(all_blocks_and_back)
{
	struct image im;
	struct ext4_take *takes;
	size_t count = 0;
	uint64_t blocks, inodes, before;

	image_make("image", write_layouts[_i], "24M");
	image_load(&im, "image");
	write_open(&im);
	takes = calloc(im.fs->blocks, sizeof(*takes));
	ensure(takes != NULL);
	ext4_alloc_counts(im.fs, &before, &inodes);
	while (ext4_reserve(im.fs, 300, true) == OK) {
		ext4_unreserve(im.fs, 300);
		takes[count++] = write_take(&im, 0, 300);
	}
	while (ext4_reserve(im.fs, 1, true) == OK) {
		ck_ok(ext4_alloc_take(im.fs, im.fs->blocks - 1, 1, &takes[count]));
		struct journal_handle h = write_start(&im, 2);
		ck_ok(ext4_alloc_commit(&h, im.fs, &takes[count++]));
		ck_ok(journal_stop(&h));
	}
	ext4_alloc_counts(im.fs, &blocks, &inodes);
	ck_assert_uint_eq(blocks, 0);
	write_compare_views(&im);
	for (group_t n = 0; n < im.fs->groups; n++)
		ck_assert(!(im.fs->group[n].flags & EXT4_BG_BLOCK_UNINIT) ||
			  im.fs->group[n].free_blocks == 0);
	for (size_t i = 0; i < count; i++)
		ck_ok(write_free(&im, takes[i].first, takes[i].count, i % 2));
	ext4_alloc_counts(im.fs, &blocks, &inodes);
	ck_assert_uint_eq(blocks, before);
	write_commit(&im);
	write_compare_views(&im);
	free(takes);
	write_close_and_judge(&im);
}
END_TEST

START_TEST(freed_twice)
{
	struct ext4_take take, other;
	struct journal_handle h;
	struct image im;

	image_make("image", write_layouts[_i], "24M");
	image_load(&im, "image");
	write_open(&im);
	take = write_take(&im, 0, 10);
	ck_assert_uint_eq(take.count, 10);
	ck_ok(write_free(&im, take.first + 2, 3, false));
	ck_err(write_free(&im, take.first + 2, 1, false), ERR_CORRUPT); /* in one transaction */
	ck_detail("free already");
	write_commit(&im);
	ck_err(write_free(&im, take.first, 5, false), ERR_CORRUPT); /* in another */
	ck_ok(write_free(&im, take.first, 2, false));
	ck_ok(write_free(&im, take.first + 5, 5, false));
	/* Taken, but not on disk yet. */
	ck_ok(ext4_reserve(im.fs, 4, false));
	ck_ok(ext4_alloc_take(im.fs, 0, 4, &take));
	ck_err(write_free(&im, take.first, 1, false), ERR_CORRUPT);
	h = write_start(&im, 2);
	ck_ok(ext4_alloc_commit(&h, im.fs, &take));
	ck_err(ext4_alloc_commit(&h, im.fs, &take), ERR_CORRUPT); /* committed twice */
	ck_detail("in use already");
	other = (struct ext4_take){.first = im.fs->group[0].inode_table, .count = 1};
	ck_err(ext4_alloc_commit(&h, im.fs, &other), ERR_CORRUPT);
	ck_ok(journal_stop(&h));
	ck_ok(write_free(&im, take.first, 4, true));
	write_close_and_judge(&im);
}
END_TEST

/* In a group whose bitmap was never made, nothing can be in use. */
START_TEST(freed_in_an_uninitialised_group)
{
	struct image im;
	group_t n;

	image_make("image", write_layouts[0], "24M");
	image_load(&im, "image");
	write_open(&im);
	for (n = 0; n < im.fs->groups; n++)
		if (im.fs->group[n].flags & EXT4_BG_BLOCK_UNINIT)
			break;
	ck_assert_uint_lt(n, im.fs->groups);
	ck_err(write_free(&im, ext4_group_first_block(im.fs, n) + 500, 1, false), ERR_CORRUPT);
	ck_assert(im.fs->group[n].flags & EXT4_BG_BLOCK_UNINIT);
	write_close_and_judge(&im);
}
END_TEST

/* A run over the border of groups is freed in both. */
START_TEST(a_run_over_two_groups)
{
	struct image im;
	struct ext4_take a, b;
	group_t n = 0;
	fsblk_t border;

	image_make("image", "-t ext4 -b 4096 -g 512 -J size=4 -E lazy_itable_init=1", "24M");
	image_load(&im, "image");
	write_open(&im);
	do
		border = ext4_group_first_block(im.fs, ++n);
	while (n + 1 < im.fs->groups && alloc_system_overlaps(im.fs, border - 5, 10));
	a = write_take(&im, border - 5, 5);
	b = write_take(&im, border, 5);
	ck_assert_uint_eq(a.first + a.count, b.first);
	ck_ok(write_free(&im, a.first, 10, true));
	write_commit(&im);
	write_compare_views(&im);
	write_close_and_judge(&im);
}
END_TEST

/* A bitmap that went bad while it was not in memory is not written to. */
START_TEST(damage_is_found_on_the_next_read)
{
	struct image im;
	struct ext4_take take;
	uint32_t offset;

	image_make("image", write_layouts[0], "24M");
	image_load(&im, "image");
	write_open(&im);
	take = write_take(&im, ext4_group_first_block(im.fs, 1), 10);
	ck_ok(journal_checkpoint(im.fs->journal));
	if (_i == 0) {
		cache_forget(im.fs->cache, im.fs->group[1].block_bitmap);
		image_block(&im, im.fs->group[1].block_bitmap)[5] ^= 4;
	} else {
		fsblk_t nr = ext4_group_desc_block(im.fs, 1, &offset);
		cache_forget(im.fs->cache, nr);
		image_block(&im, nr)[offset + 12] ^= 4;
	}
	ck_err(write_free(&im, take.first, 10, false), ERR_CHECKSUM);
	write_close(&im);
	image_close(&im);
}
END_TEST

START_TEST(a_failed_journal_changes_nothing)
{
	struct image im;
	struct ext4_take take;
	struct journal_handle h;

	image_make("image", write_layouts[0], "24M");
	image_load(&im, "image");
	write_open(&im);
	ck_ok(ext4_reserve(im.fs, 5, false));
	ck_ok(ext4_alloc_take(im.fs, 0, 5, &take));
	h = write_start(&im, 2);
	journal_fail(im.fs->journal, ERR_IO, "the test says so");
	ck_err(ext4_alloc_commit(&h, im.fs, &take), ERR_ROFS);
	ck_err(journal_stop(&h), ERR_ROFS);
	ext4_alloc_untake(im.fs, &take);
	write_compare_views(&im);
	ext4_alloc_close(im.fs);
	ck_assert_int_ne(journal_close(im.fs->journal), OK);
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("group_write");
	TCase *tc = tcase_create("group_write");
	int layouts = (int)ARRAY_SIZE(write_layouts);

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, owned_blocks, 0, layouts);
	tcase_add_loop_test(tc, all_blocks_and_back, 0, layouts);
	tcase_add_loop_test(tc, freed_twice, 0, layouts);
	tcase_add_test(tc, freed_in_an_uninitialised_group);
	tcase_add_test(tc, a_run_over_two_groups);
	tcase_add_loop_test(tc, damage_is_found_on_the_next_read, 0, 2);
	tcase_add_test(tc, a_failed_journal_changes_nothing);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
