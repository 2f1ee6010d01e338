/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The feature policy: what mounts, what mounts read-only with which reason, what is refused. */
#include "image.h"

static bool has_reason(const struct ext4_info *info, const char *part)
{
	for (size_t i = 0; i < info->reason_count; i++)
		if (strstr(info->reasons[i], part))
			return true;
	return false;
}

/* Rows that mke2fs can make. reason: NULL means that nothing speaks against writing. */
static const struct {
	const char *options;
	const char *size;
	const char *reason;
} made[] = {
	{"-t ext2", "4M", NULL},
	{"-t ext3", "8M", NULL},
	{"-t ext4", "8M", NULL},
	{"-t ext4 -b 2048", "16M", NULL},
	{"-t ext4 -b 4096", "32M", NULL},
	{"-t ext4 -b 8192", "64M", "block size of 8192"},
	{"-t ext4 -b 65536", "192M", "block size of 65536"},
	{"-t ext4 -O bigalloc", "32M", "'bigalloc'"},
	{"-t ext4 -O quota", "16M", "'quota'"},
	{"-t ext4 -O project", "16M", NULL},
	{"-t ext4 -O verity", "16M", NULL},
	{"-t ext4 -O inline_data,ea_inode,large_dir", "16M", NULL},
	{"-t ext4 -O mmp", "16M", NULL},
	{"-t ext4 -O meta_bg,^resize_inode", "16M", NULL},
	{"-t ext4 -O sparse_super2", "16M", NULL},
	{"-t ext4 -O metadata_csum_seed,orphan_file", "16M", NULL},
	{"-t ext4 -O ^metadata_csum,uninit_bg,^64bit", "16M", NULL},
	{"-t ext4 -O fast_commit", "16M", NULL},
	{"-t ext4 -O stable_inodes,^has_journal", "16M", NULL},
	{"-t ext4 -O ^flex_bg,^extent,^64bit", "16M", NULL},
	{"-t ext4 -I 128 -O ^extra_isize", "16M", NULL},
	{"-t ext4 -I 1024", "16M", NULL},
	{"-t ext2 -r 0", "4M", NULL},
};

START_TEST(what_mke2fs_makes)
{
	struct image im;
	struct ext4_info info;

	image_make("image", made[_i].options, made[_i].size);
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ext4_info(im.fs, &info);
	if (made[_i].reason)
		ck_assert_msg(has_reason(&info, made[_i].reason), "%s", made[_i].options);
	else
		ck_assert_msg(!info.reason_count, "%s: %s", made[_i].options, info.reasons[0]);
	ck_assert_int_eq(info.must_be_readonly, made[_i].reason != NULL);
	ck_assert(info.clean);
	ck_assert_str_eq(info.uuid, "6c1d5a50-92c8-4c4f-8a30-1f2e3d4c5b6a");
	image_close(&im);
}
END_TEST

/* Bits set by hand. `refused` is part of the message, `reason` part of the line. */
static const struct {
	uint32_t incompat, ro_compat;
	const char *refused, *reason;
} bits[] = {
	{EXT4_INCOMPAT_ENCRYPT, 0, "'encrypt'", NULL},
	{EXT4_INCOMPAT_CASEFOLD, 0, "'casefold'", NULL},
	{EXT4_INCOMPAT_JOURNAL_DEV, 0, "journal_dev", NULL},
	{EXT4_INCOMPAT_COMPRESSION, 0, "'compression'", NULL},
	{EXT4_INCOMPAT_DIRDATA, 0, "'dirdata'", NULL},
	{0x20, 0, "'FEATURE_I5'", NULL},
	{0x40000, 0, "'FEATURE_I18'", NULL},
	{0x80000000u, 0, "'FEATURE_I31'", NULL},
	{0, EXT4_RO_COMPAT_SHARED_BLOCKS, NULL, "'shared_blocks'"},
	{0, EXT4_RO_COMPAT_READONLY, NULL, "'read-only'"},
	{0, EXT4_RO_COMPAT_REPLICA, NULL, "'replica'"},
	{0, EXT4_RO_COMPAT_HAS_SNAPSHOT, NULL, "'FEATURE_R7'"},
	{0, 0x20000, NULL, "'FEATURE_R17'"},
	{0, EXT4_RO_COMPAT_BTREE_DIR, NULL, NULL},
	{0, EXT4_RO_COMPAT_ORPHAN_PRESENT, NULL, NULL},
};

START_TEST(bits_by_hand)
{
	struct image im;
	struct ext4_super *s;
	struct ext4_info info;

	image_make("image", "-t ext4", "8M");
	image_load(&im, "image");
	s = image_super(&im);
	s->s_feature_incompat = le32_make(le32_get(s->s_feature_incompat) | bits[_i].incompat);
	s->s_feature_ro_compat = le32_make(le32_get(s->s_feature_ro_compat) | bits[_i].ro_compat);
	image_seal_super(&im);
	if (bits[_i].refused) {
		ck_err(image_mount(&im), ERR_EXT4_FEATURE);
		ck_detail(bits[_i].refused);
	} else {
		ck_ok(image_mount(&im));
		ext4_info(im.fs, &info);
		ck_assert_int_eq(info.must_be_readonly, bits[_i].reason != NULL);
		if (bits[_i].reason)
			ck_assert(has_reason(&info, bits[_i].reason));
	}
	image_close(&im);
}
END_TEST

START_TEST(states_that_forbid_writing)
{
	struct image im;
	struct ext4_super *s;
	struct ext4_info info;

	image_make("image", "-t ext4", "8M");
	image_load(&im, "image");
	s = image_super(&im);
	s->s_state = le16_make(EXT4_STATE_CLEAN | EXT4_STATE_ERRORS);
	s->s_rev_level = le32_make(7);
	image_seal_super(&im);
	ck_ok(image_mount(&im));
	ext4_info(im.fs, &info);
	ck_assert(!info.clean);
	ck_assert(has_reason(&info, "marked with errors"));
	ck_assert(has_reason(&info, "revision level 7"));
	image_close(&im);
}
END_TEST

/* dumpe2fs reads the same words and prints their names. */
static void check_names(const char *name)
{
	struct image im;
	char line[1024], ours[768];
	const char *theirs;
	FILE *f;

	image_run("dumpe2fs -f -h %s 2>/dev/null | sed -n 's/^Filesystem features: *//p' > names",
		name);
	f = fopen(scratch_path("names"), "r");
	ensure(f && fgets(line, sizeof(line), f));
	fclose(f);
	line[strcspn(line, "\n")] = '\0';
	theirs = line;
	image_load(&im, name);
	ext4_feature_names(image_super(&im), ours, sizeof(ours));
	ck_assert_str_eq(ours, theirs);
	/* Too little room ends at a name's end. */
	for (size_t room = 1; room < strlen(theirs); room++) {
		ext4_feature_names(image_super(&im), ours, room);
		ck_assert_uint_lt(strlen(ours), room);
		ck_assert(strncmp(ours, theirs, strlen(ours)) == 0);
		ck_assert(!ours[0] || theirs[strlen(ours)] == ' ');
	}
	image_close(&im);
}

START_TEST(names_are_those_of_dumpe2fs)
{
	for (size_t i = 0; i < ARRAY_SIZE(made); i += 3) {
		image_make("image", made[i].options, made[i].size);
		check_names("image");
	}
	/* A word at a time with every bit set, without a checksum that would have to fit. */
	for (int word = 0; word < 3; word++) {
		le32 all = le32_make(word == 2   ? ~(uint32_t)EXT4_RO_COMPAT_METADATA_CSUM & 0xffff
				     : word == 1 ? 0x3d7ff & ~8u
						 : 0xfff);
		int fd;
		image_make("image", "-t ext4 -O ^metadata_csum", "8M");
		fd = open(scratch_path("image"), O_RDWR | O_CLOEXEC);
		ck_assert(pwrite(fd, &all, sizeof(all),
				  EXT4_SUPER_OFFSET_BYTES + 0x5c + 4 * word) == sizeof(all));
		close(fd);
		check_names("image");
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/feature");
	TCase *tcase = tcase_create("feature");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, what_mke2fs_makes, 0, (int)ARRAY_SIZE(made));
	tcase_add_loop_test(tcase, bits_by_hand, 0, (int)ARRAY_SIZE(bits));
	tcase_add_test(tcase, states_that_forbid_writing);
	tcase_add_test(tcase, names_are_those_of_dumpe2fs);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
