/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Group descriptors in all their places, beside what dumpe2fs says of them, and checksums. */
#include "image.h"

static const char *const layouts[] = {
	"-t ext4 -b 1024 -g 256 -O ^has_journal,meta_bg,^resize_inode",
	"-t ext4 -b 1024 -g 256 -O ^has_journal,meta_bg,^resize_inode,^64bit,^metadata_csum",
	"-t ext4 -b 1024 -g 256 -O ^has_journal,^flex_bg",
	"-t ext4 -b 1024 -g 256 -O ^has_journal,sparse_super2",
	"-t ext2 -b 1024 -g 256 -O ^sparse_super,^resize_inode",
	"-t ext4 -b 4096 -g 256 -O ^has_journal,meta_bg,^resize_inode,metadata_csum_seed",
	"-t ext4 -b 4096 -O ^has_journal,bigalloc",
};

START_TEST(tables_are_where_dumpe2fs_says)
{
	struct image im;
	unsigned group = 0;
	unsigned long long table;
	FILE *f;

	image_make("image", layouts[_i], "24M");
	image_run("dumpe2fs image 2>/dev/null | sed -n 's/^ *Inode table at \\([0-9]*\\)-.*/\\1/p' "
		  "> tables");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	f = fopen(scratch_path("tables"), "r");
	ensure(f != NULL);
	for (; fscanf(f, "%llu", &table) == 1; group++)
		ck_assert_uint_eq(im.fs->group[group].inode_table, table);
	fclose(f);
	ck_assert_uint_gt(group, 0);
	ck_assert_uint_eq(group, im.fs->groups);
	image_close(&im);
}
END_TEST

/* The sums that statfs gives are those of the superblock on a clean file system. */
START_TEST(free_counts_add_up)
{
	struct image im;
	const struct ext4_super *s;

	image_make("image", layouts[_i], "24M");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	s = &im.fs->super;
	ck_assert_uint_eq(im.fs->free_inodes, le32_get(s->s_free_inodes_count));
	ck_assert_uint_eq(
		im.fs->free_clusters << im.fs->cluster_bits, le32_get(s->s_free_blocks_count_lo));
	image_close(&im);
}
END_TEST

/* mke2fs computed the checksum that has to come out. */
START_TEST(checksums_belong_to_their_group)
{
	struct image im;
	const struct ext4_disk_group *d;
	size_t bytes;

	image_make("image",
		_i == 0   ? "-t ext4 -b 1024"
		: _i == 1 ? "-t ext4 -b 1024 -O ^64bit"
			  : "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg",
		"40M");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	bytes = im.fs->desc_bytes;
	d = image_group0(&im);
	ck_assert(ext4_csum_group_valid(im.fs, 0, d));
	ck_assert(!ext4_csum_group_valid(im.fs, 1, d));
	d = (const void *)((const uint8_t *)d + bytes);
	ck_assert(ext4_csum_group_valid(im.fs, 1, d));
	ck_assert(!ext4_csum_group_valid(im.fs, 0, d));
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/group");
	TCase *tcase = tcase_create("group");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, tables_are_where_dumpe2fs_says, 0, (int)ARRAY_SIZE(layouts));
	tcase_add_loop_test(tcase, free_counts_add_up, 0, (int)ARRAY_SIZE(layouts));
	tcase_add_loop_test(tcase, checksums_belong_to_their_group, 0, 3);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
