/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The superblock: what is refused, with which words, and the geometry that is believed. */
#include "image.h"

#include <sys/statfs.h>

static void start(struct image *im, const char *options)
{
	image_make("image", options, "8M");
	image_load(im, "image");
}

START_TEST(nothing_there)
{
	struct image im;

	image_run("truncate -s 8M image");
	image_load(&im, "image");
	ck_err(image_mount(&im), ERR_EXT4_NONE);
	image_close(&im);
	image_run("truncate -s 1536 image");
	image_load(&im, "image");
	ck_err(image_mount(&im), ERR_EXT4_NONE);
	image_close(&im);
}
END_TEST

START_TEST(a_damaged_primary_names_the_backup)
{
	static const char *options[] = {"-t ext4 -b 1024", "-t ext4 -b 2048", "-t ext4 -b 4096"};
	static const char *sizes[] = {"12M", "48M", "160M"};
	static const char *names[] = {"-b 8193 -B 1024", "-b 16384 -B 2048", "-b 32768 -B 4096"};
	struct image im;

	image_make("image", options[_i], sizes[_i]);
	image_load(&im, "image");
	memset(image_super(&im), 0, sizeof(struct ext4_super));
	ck_err(image_mount(&im), ERR_CORRUPT);
	ck_detail(names[_i]);
	image_close(&im);
}
END_TEST

START_TEST(a_wrong_checksum)
{
	struct image im;

	start(&im, "-t ext4 -b 4096"); /* one group: no backup */
	image_super(&im)->s_mnt_count.b[0] ^= 1;
	ck_err(image_mount(&im), ERR_CHECKSUM);
	image_seal_super(&im);
	ck_ok(image_mount(&im));
	image_unmount(&im);
	image_super(&im)->s_checksum_type = 2;
	image_seal_super(&im);
	ck_err(image_mount(&im), ERR_CHECKSUM);
	image_close(&im);
}
END_TEST

/* A field of the superblock, what is put there, and the error. */
#define FIELD(name) offsetof(struct ext4_super, name), sizeof(((struct ext4_super *)0)->name)
static const struct {
	size_t at, bytes;
	uint64_t value;
	enum err want;
} wrong[] = {
	{FIELD(s_log_block_size), 7, ERR_EXT4_BLOCK_SIZE},
	{FIELD(s_log_block_size), UINT32_MAX, ERR_EXT4_BLOCK_SIZE},
	{FIELD(s_log_cluster_size), 1, ERR_EXT4_GEOMETRY},
	{FIELD(s_log_cluster_size), UINT32_MAX, ERR_EXT4_GEOMETRY},
	{FIELD(s_blocks_count_lo), 0, ERR_EXT4_GEOMETRY},
	{FIELD(s_blocks_count_lo), 8193, ERR_DEV_SHORT},
	{FIELD(s_blocks_count_lo), UINT32_MAX, ERR_DEV_SHORT},
	{FIELD(s_blocks_count_hi), UINT32_MAX, ERR_EXT4_GEOMETRY},
	{FIELD(s_blocks_count_hi), 1, ERR_DEV_SHORT},
	{FIELD(s_first_data_block), 0, ERR_EXT4_GEOMETRY},
	{FIELD(s_first_data_block), 2, ERR_EXT4_GEOMETRY},
	{FIELD(s_first_data_block), UINT32_MAX, ERR_EXT4_GEOMETRY},
	{FIELD(s_inode_size), 0, ERR_EXT4_GEOMETRY},
	{FIELD(s_inode_size), 64, ERR_EXT4_GEOMETRY},
	{FIELD(s_inode_size), 192, ERR_EXT4_GEOMETRY},
	{FIELD(s_inode_size), 2048, ERR_EXT4_GEOMETRY},
	{FIELD(s_first_ino), 0, ERR_EXT4_GEOMETRY},
	{FIELD(s_first_ino), UINT32_MAX, ERR_EXT4_GEOMETRY},
	{FIELD(s_inodes_per_group), 0, ERR_EXT4_GEOMETRY},
	{FIELD(s_inodes_per_group), 1, ERR_EXT4_GEOMETRY},
	{FIELD(s_inodes_per_group), UINT32_MAX, ERR_EXT4_GEOMETRY},
	{FIELD(s_inodes_count), 0, ERR_EXT4_GEOMETRY},
	{FIELD(s_inodes_count), UINT32_MAX, ERR_EXT4_GEOMETRY},
	{FIELD(s_blocks_per_group), 0, ERR_EXT4_GEOMETRY},
	{FIELD(s_blocks_per_group), 1, ERR_EXT4_GEOMETRY},
	{FIELD(s_blocks_per_group), 8, ERR_EXT4_GEOMETRY},
	{FIELD(s_blocks_per_group), UINT32_MAX, ERR_EXT4_GEOMETRY},
	{FIELD(s_desc_size), 0, ERR_EXT4_GEOMETRY},
	{FIELD(s_desc_size), 32, ERR_EXT4_GEOMETRY},
	{FIELD(s_desc_size), 96, ERR_EXT4_GEOMETRY},
	{FIELD(s_desc_size), 2048, ERR_EXT4_GEOMETRY},
	{FIELD(s_magic), 0xef52, ERR_EXT4_NONE},
};

START_TEST(geometry_that_makes_no_sense)
{
	struct image im;
	le64 value = le64_make(wrong[_i].value);

	/* 8 MiB of 1 KiB blocks are 8192: one group, so there is no backup to be found. */
	start(&im, "-t ext4 -b 1024 -O 64bit");
	memcpy((uint8_t *)image_super(&im) + wrong[_i].at, &value, wrong[_i].bytes);
	image_seal_super(&im);
	ck_err(image_mount(&im), wrong[_i].want);
	image_close(&im);
}
END_TEST

/* Any value in any field: an error or a mount, never anything else. */
START_TEST(random_superblocks_do_no_harm)
{
	struct image im;
	struct ext4_super good;

	start(&im, _i ? "-t ext4 -b 1024 -O bigalloc" : "-t ext4 -b 1024 -O meta_bg,^resize_inode");
	good = *image_super(&im);
	for (int round = 0; round < 3000; round++) {
		uint8_t *bytes = (uint8_t *)image_super(&im);
		*image_super(&im) = good;
		for (uint64_t n = scratch_random(3) + 1; n > 0; n--) {
			size_t at = (size_t)scratch_random(round % 2 ? 0x68 : 0x284);
			image_spoil(&bytes[at]);
		}
		image_seal_super(&im);
		if (image_mount(&im) == OK)
			image_unmount(&im);
	}
	image_close(&im);
}
END_TEST

START_TEST(a_short_volume)
{
	struct image im;

	start(&im, "-t ext4 -b 1024");
	image_run("truncate -s 8191K image");
	image_close(&im);
	image_load(&im, "image");
	ck_err(image_mount(&im), ERR_DEV_SHORT);
	image_close(&im);
}
END_TEST

START_TEST(copies_of_the_superblock)
{
	struct ext4 fs = {.feature_ro_compat = EXT4_RO_COMPAT_SPARSE_SUPER};
	static const group_t with[] = {0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343, 390625};
	size_t n = 0;

	for (group_t g = 0; g < 400000; g++) {
		bool want = n < ARRAY_SIZE(with) && with[n] == g;
		n += want;
		/* Between the listed ones there are more of the larger powers; check small ones. */
		if (g <= 343)
			ck_assert_msg(ext4_group_has_super(&fs, g) == want, "group %u", g);
	}
	ck_assert(ext4_group_has_super(&fs, 390625));
	ck_assert(ext4_group_has_super(&fs, 3486784401u)); /* 3 to the 20th */
	ck_assert(!ext4_group_has_super(&fs, UINT32_MAX));
	fs.feature_ro_compat = 0;
	ck_assert(ext4_group_has_super(&fs, 2));
	fs.feature_compat = EXT4_COMPAT_SPARSE_SUPER2;
	fs.super.s_backup_bgs[0] = le32_make(6);
	ck_assert(ext4_group_has_super(&fs, 6));
	ck_assert(!ext4_group_has_super(&fs, 1));
}
END_TEST

/* The kernel's own answer to statfs, by a loop mount. */
static const char *const counted[] = {
	"-t ext4 -b 4096",
	"-t ext4 -b 1024",
	"-t ext3 -b 1024",
	"-t ext2 -b 1024",
	"-t ext4 -b 4096 -O bigalloc", /* an even row: counting clusters exactly is not done */
	"-t ext4 -b 1024 -O meta_bg,^resize_inode",
	"-t ext4 -b 4096 -O sparse_super2,^has_journal",
};

START_TEST(statfs_is_the_kernels)
{
	struct image im;
	struct ext4_statfs ours;
	struct statfs kernel;
	char device[256];
	uint64_t fsid;

	image_make("image", counted[_i], "64M");
	/* mke2fs notes the overhead; older ones did not, and it has to be counted. */
	if (_i % 2)
		image_run("debugfs -w -R 'ssv overhead_clusters 0' image 2>/dev/null");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ck_ok(ext4_statfs(im.fs, &ours));
	image_close(&im);
	if (!scratch_loop_attach("-r", scratch_path("image"), device)) {
		printf("SKIP: statfs_is_the_kernels: %s\n", device);
		return;
	}
	image_run("mkdir -p mnt && mount -o ro,noload -t ext4 %s mnt", device);
	ck_assert_int_eq(statfs(scratch_path("mnt"), &kernel), 0);
	image_run("umount mnt");
	scratch_loop_detach(device);
	memcpy(&fsid, &kernel.f_fsid, sizeof(fsid));
	ck_assert_uint_eq(ours.block_bytes, (uint64_t)kernel.f_bsize);
	ck_assert_uint_eq(ours.blocks, kernel.f_blocks);
	ck_assert_uint_eq(ours.free_blocks, kernel.f_bfree);
	ck_assert_uint_eq(ours.available_blocks, kernel.f_bavail);
	ck_assert_uint_eq(ours.inodes, kernel.f_files);
	ck_assert_uint_eq(ours.free_inodes, kernel.f_ffree);
	ck_assert_uint_eq(ours.fsid, fsid);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/super");
	TCase *tcase = tcase_create("super");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, nothing_there);
	tcase_add_loop_test(tcase, a_damaged_primary_names_the_backup, 0, 3);
	tcase_add_test(tcase, a_wrong_checksum);
	tcase_add_loop_test(tcase, geometry_that_makes_no_sense, 0, (int)ARRAY_SIZE(wrong));
	tcase_add_loop_test(tcase, random_superblocks_do_no_harm, 0, 2);
	tcase_add_test(tcase, a_short_volume);
	tcase_add_test(tcase, copies_of_the_superblock);
	tcase_add_loop_test(tcase, statfs_is_the_kernels, 0, (int)ARRAY_SIZE(counted));
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
