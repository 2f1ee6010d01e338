/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where inodes go: files near their directory, directories at the top apart, all groups tried. */
#include "inode_rig.h"

static void open_groups(struct image *im, const char *options)
{
	char all[200];

	snprintf(all, sizeof(all), "-t ext4 -b 1024 -g 512 -N 4096 -J size=1 %s", options);
	image_make("image", all, "32M");
	image_load(im, "image");
	write_open(im);
}

static group_t group_of(const struct ext4_inode *inode)
{
	return (inode->inum - 1) / inode->fs->inodes_per_group;
}

START_TEST(files_near_their_directory)
{
	struct ext4_inode *root, *dir, *file;
	struct image im;
	uint32_t flex;

	open_groups(&im, "-G 4");
	flex = inode_group_flex(im.fs);
	ck_assert_uint_eq(flex, 4);
	root = inode_root(&im);
	for (int i = 0; i < 8; i++) {
		ck_ok(inode_make(root, S_IFDIR | 0755, &dir));
		ck_ok(inode_link(dir));
		/* As long as its group has room, then in its flex group. */
		for (uint32_t n = 0; n < im.fs->inodes_per_group + 5; n++) {
			ck_ok(inode_make(dir, S_IFREG | 0644, &file));
			if (n + 15 < im.fs->inodes_per_group)
				ck_assert_uint_eq(group_of(file), group_of(dir));
			ck_assert_uint_eq(group_of(file) / flex, group_of(dir) / flex);
			ext4_inode_put(file);
		}
		ext4_inode_put(dir);
	}
	ext4_inode_put(root);
	write_close(&im);
	image_close(&im);
}
END_TEST

START_TEST(directories_at_the_top_spread)
{
	struct ext4_inode *root, *dir;
	unsigned dirs[64] = {0}, used = 0, most = 0;
	struct image im;
	uint32_t flex;

	open_groups(&im, _i ? "-G 4" : "-O ^flex_bg,^resize_inode");
	flex = inode_group_flex(im.fs);
	ck_assert_uint_eq(flex, _i ? 4 : 1);
	root = inode_root(&im);
	for (int i = 0; i < 64; i++) {
		ck_ok(inode_make(root, S_IFDIR | 0755, &dir));
		dirs[group_of(dir) / flex]++;
		ext4_inode_put(dir);
	}
	for (size_t n = 0; n < ARRAY_SIZE(dirs); n++) {
		used += dirs[n] > 0;
		most = MAX(most, dirs[n]);
	}
	/* Those that hold the journal or more inodes than others are passed over. */
	ck_assert_uint_ge(used, (im.fs->groups / flex) / 2);
	ck_assert_uint_le(most, 64 / used + 3);
	ext4_inode_put(root);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* Below the top they stay with their parent until its flex group has its share of them. */
START_TEST(directories_below_stay_near)
{
	struct ext4_inode *root, *top, *dir;
	struct image im;
	uint32_t flex, near = 0, far = 0;

	open_groups(&im, "-G 4");
	flex = inode_group_flex(im.fs);
	root = inode_root(&im);
	ck_ok(inode_make(root, S_IFDIR | 0755, &top));
	for (uint32_t i = 0; i < 200; i++) {
		ck_ok(inode_make(top, S_IFDIR | 0755, &dir));
		if (group_of(dir) / flex == group_of(top) / flex)
			near++;
		else
			far++;
		ck_assert(i > 5 || far == 0);
		ext4_inode_put(dir);
	}
	ck_assert_uint_ge(near, 6);
	ck_assert_uint_gt(far, 0);
	ext4_inode_put(top);
	ext4_inode_put(root);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* Every group with a free inode comes once, and those of the flex group come first. */
START_TEST(all_groups_are_tried)
{
	struct image im;
	uint32_t flex;

	open_groups(&im, _i ? "-G 4" : "-G 1");
	flex = inode_group_flex(im.fs);
	for (group_t first = 0; first < im.fs->groups; first++) {
		struct inode_group_search search = {.first = first};
		uint64_t seen[2] = {0};
		group_t group, n = 0;

		ck_assert_uint_le(im.fs->groups, 128);
		while ((group = inode_group_next(im.fs, &search)) != NO_GROUP) {
			ck_assert_uint_lt(group, im.fs->groups);
			ck_assert(!(seen[group / 64] >> group % 64 & 1));
			seen[group / 64] |= 1ull << group % 64;
			ck_assert(n > 0 || group == first);
			ck_assert(n >= MIN(flex, im.fs->groups - first / flex * flex) ||
				  group / flex == first / flex);
			n++;
		}
		ck_assert_uint_eq(n, im.fs->groups);
	}
	write_close(&im);
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("inode_group");
	TCase *tc = tcase_create("inode_group");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, files_near_their_directory);
	tcase_add_loop_test(tc, directories_at_the_top_spread, 0, 2);
	tcase_add_test(tc, directories_below_stay_near);
	tcase_add_loop_test(tc, all_groups_are_tried, 0, 2);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
