/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Directories inside their inode, made and given a second part by debugfs, and damaged ones. What
 * the kernel made is in test_kernel.c.
 */
#include "dir_rig.h"

#include <dirent.h>

enum { TAIL_BYTES = 52, DIR_INUM = 12, FILE_INUM = 13 };

/* "d" holds "a" and "b"; with a second part also "second" and "last". */
static void make_image(const char *image, bool tail)
{
	FILE *f = fopen(scratch_path("tail"), "w");
	uint8_t bytes[TAIL_BYTES] = {0};

	rig_put_dirent(bytes, 0, 16, FILE_INUM, "second", 6, 1);
	rig_put_dirent(bytes, 16, TAIL_BYTES - 16, FILE_INUM, "last", 4, 1);
	ensure(f != NULL && fwrite(bytes, sizeof(bytes), 1, f) == 1 && fclose(f) == 0);
	rig_shell("rm -f %s; mke2fs -t ext4 -q -F -N 64 -b 1024 -O inline_data,^metadata_csum %s "
		  "4M",
		image, image);
	rig_shell("printf '%%s\\n' 'mkdir d' 'cd d' 'write /dev/null a' 'ln a b' >cmd; "
		  "debugfs -w -f cmd %s",
		image);
	if (tail)
		rig_shell("debugfs -w -R 'ea_set -f tail d system.data' %s; "
			  "debugfs -w -R 'sif d size %d' %s",
			image, 60 + TAIL_BYTES, image);
	rig_shell("e2fsck -fy %s || [ $? -le 1 ]; e2fsck -fn %s", image, image);
}

START_TEST(test_parts)
{
	static const char *const names[] = {"a", "b", "second", "last"};
	size_t count = _i ? 4 : 2;
	struct ext4_inode *dir;
	struct listing l;
	struct rig r;
	inum_t inum = 0;

	make_image("img", _i);
	rig_load(&r, "img");
	rig_mount(&r);
	dir = rig_get(&r, "d");
	ck_assert(dir->attr.flags & EXT4_INLINE_DATA_FL);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		enum err e = ext4_lookup(dir, names[i], strlen(names[i]), &inum);

		ck_assert_int_eq(e, i < count ? OK : ERR_NOENT);
	}
	ck_assert_uint_eq(inum, FILE_INUM);
	ck_ok(ext4_lookup(dir, ".", 1, &inum));
	ck_assert_uint_eq(inum, DIR_INUM);
	ck_ok(ext4_lookup(dir, "..", 2, &inum));
	ck_assert_uint_eq(inum, EXT4_ROOT_INUM);
	for (size_t step = 1; step < 7; step++) {
		ck_ok(listing_read(dir, step, &l));
		ck_assert_uint_eq(l.count, count + 2);
		ck_assert_str_eq(l.entry[0].name, ".");
		ck_assert_uint_eq(l.entry[0].inum, DIR_INUM);
		ck_assert_str_eq(l.entry[1].name, "..");
		ck_assert_uint_eq(l.entry[1].inum, EXT4_ROOT_INUM);
		ck_assert_uint_eq(l.entry[1].type, DT_DIR);
		listing_sort(&l);
		for (size_t i = 1; i < l.count; i++)
			ck_assert_int_ne(listed_compare(&l.entry[i - 1], &l.entry[i]), 0);
		listing_free(&l);
	}
	ext4_inode_put(dir);
	rig_close(&r);
}
END_TEST

static uint8_t *ibody(uint8_t *inode)
{
	return inode + 128 + le16_get(((struct ext4_disk_inode *)(void *)inode)->i_extra_isize);
}
static struct ext4_xattr_entry *first_entry(uint8_t *inode)
{
	return (void *)(ibody(inode) + 4);
}
static uint8_t *tail_of(uint8_t *inode)
{
	return (uint8_t *)first_entry(inode) + le16_get(first_entry(inode)->e_value_offs);
}

static void hurt_parent_zero(uint8_t *inode)
{
	memset(inode + 40, 0, 4);
}
static void hurt_parent_large(uint8_t *inode)
{
	memset(inode + 40, 0xff, 4);
}
static void hurt_first_rec_len(uint8_t *inode)
{
	inode[40 + 4 + 4] = 0;
}
static void hurt_first_crosses(uint8_t *inode)
{
	inode[40 + 4 + 4] = 64;
}
static void hurt_first_name_len(uint8_t *inode)
{
	inode[40 + 4 + 6] = 100;
}
static void hurt_tail_rec_len(uint8_t *inode)
{
	tail_of(inode)[4] = 0xf0;
}
static void hurt_tail_inum(uint8_t *inode)
{
	tail_of(inode)[3] = 0x7f;
}
static void hurt_tail_size(uint8_t *inode)
{
	first_entry(inode)->e_value_size = le32_make(5);
}
static void hurt_tail_offset(uint8_t *inode)
{
	first_entry(inode)->e_value_offs = le16_make(250);
}
static void hurt_tail_huge(uint8_t *inode)
{
	first_entry(inode)->e_value_size = le32_make(0xfffffff0);
}
static void hurt_tail_elsewhere(uint8_t *inode)
{
	first_entry(inode)->e_value_inum = le32_make(14);
}
static void hurt_names_end(uint8_t *inode)
{
	first_entry(inode)->e_name_len = 255;
}
static void hurt_extra(uint8_t *inode)
{
	((struct ext4_disk_inode *)(void *)inode)->i_extra_isize = le16_make(500);
}

static void (*const damages[])(uint8_t *inode) = {hurt_parent_zero, hurt_parent_large,
	hurt_first_rec_len, hurt_first_crosses, hurt_first_name_len, hurt_tail_rec_len,
	hurt_tail_inum, hurt_tail_size, hurt_tail_offset, hurt_tail_huge, hurt_tail_elsewhere,
	hurt_names_end, hurt_extra};

START_TEST(test_damage)
{
	struct ext4_inode *dir = NULL;
	struct listing l = {0};
	struct rig r;
	inum_t inum;
	enum err e;

	make_image("img", true);
	rig_load(&r, "img");
	rig_mount(&r);
	damages[_i](rig_inode_bytes(&r, DIR_INUM));
	rig_unmount(&r);
	rig_mount(&r);
	e = ext4_inode_get(r.fs, DIR_INUM, &dir);
	if (e) {
		ck_assert_int_eq(e, ERR_CORRUPT);
	} else {
		ck_err(listing_read(dir, SIZE_MAX, &l), ERR_CORRUPT);
		ck_detail("inode 12");
		ck_err(ext4_lookup(dir, "last", 4, &inum), ERR_CORRUPT);
	}
	listing_free(&l);
	ext4_inode_put(dir);
	rig_close(&r);
}
END_TEST

/* Without the header there are no attributes: the first part is all there is. */
START_TEST(test_no_tail)
{
	struct ext4_inode *dir;
	struct listing l;
	struct rig r;

	make_image("img", true);
	rig_load(&r, "img");
	rig_mount(&r);
	memset(ibody(rig_inode_bytes(&r, DIR_INUM)), 0, 4);
	rig_unmount(&r);
	rig_mount(&r);
	dir = rig_get(&r, "d");
	ck_ok(listing_read(dir, SIZE_MAX, &l));
	ck_assert_uint_eq(l.count, 4);
	listing_free(&l);
	ext4_inode_put(dir);
	rig_close(&r);
}
END_TEST

/* Any bytes in the inode: no crash, and an end. */
START_TEST(test_random_bytes)
{
	struct rig r;

	make_image("img", true);
	rig_load(&r, "img");
	for (int round = 0; round < 300; round++) {
		struct ext4_inode *dir = NULL;
		uint8_t saved[256], *bytes;
		struct listing l = {0};
		inum_t inum;
		size_t len;

		rig_mount(&r);
		bytes = rig_inode_bytes(&r, DIR_INUM);
		memcpy(saved, bytes, sizeof(saved));
		for (int i = 0; i < 3; i++)
			bytes[40 + scratch_random(256 - 40)] = (uint8_t)scratch_random(256);
		rig_unmount(&r);
		rig_mount(&r);
		if (ext4_inode_get(r.fs, DIR_INUM, &dir) == OK) {
			(void)!listing_read(dir, 2, &l);
			(void)!ext4_lookup(dir, "last", 4, &inum);
			(void)!ext4_xattr_list(dir, true, NULL, 0, &len);
			ck_assert_uint_le(l.count, 12);
		}
		listing_free(&l);
		ext4_inode_put(dir);
		rig_unmount(&r);
		memcpy(bytes, saved, sizeof(saved));
	}
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("inline");
	TCase *c = tcase_create("inline");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_parts, 0, 2);
	tcase_add_loop_test(c, test_damage, 0, (int)ARRAY_SIZE(damages));
	tcase_add_test(c, test_no_tail);
	tcase_add_test(c, test_random_bytes);
	suite_add_tcase(s, c);
	return scratch_main(s);
}
