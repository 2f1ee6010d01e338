/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Symlinks of every length in every place, made by debugfs, and damaged ones. What the kernel made
 * is in test_kernel.c.
 */
#include "dir_rig.h"

static const char *const options[] = {"-t ext4 -O ^metadata_csum",
	"-t ext4 -O inline_data,^metadata_csum", "-t ext2",
	"-t ext4 -O ea_inode,inline_data,metadata_csum", "-t ext4"};
static const unsigned lengths[] = {1, 2, 58, 59, 60, 61, 100, 140, 160, 161, 300, 1000, 1023};

static void make_image(const char *image, const char *opts)
{
	FILE *f = fopen(scratch_path("links"), "w");

	ensure(f != NULL);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		fprintf(f, "symlink link%u ", lengths[i]);
		for (unsigned n = 0; n < lengths[i]; n++)
			fputc('a' + (int)(n % 26), f);
		fputc('\n', f);
	}
	ensure(fclose(f) == 0);
	rig_shell("rm -f %s; mke2fs -q -F -N 64 -b 1024 %s %s 8M", image, opts, image);
	rig_shell("debugfs -w -f links %s", image);
}

static struct ext4_inode *get_link(struct rig *r, unsigned len)
{
	char name[32];

	snprintf(name, sizeof(name), "link%u", len);
	return rig_get(r, name);
}

START_TEST(test_lengths)
{
	unsigned inlined = 0, made = 0;
	struct rig r;

	make_image("img", options[_i]);
	rig_load(&r, "img");
	rig_mount(&r);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		char name[32], buf[2000];
		struct ext4_inode *inode = NULL;
		size_t len = 0;

		snprintf(name, sizeof(name), "link%u", lengths[i]);
		/* debugfs takes no command of more than some 256 bytes with the link's name. */
		if (rig_find(&r, name, &inode) == ERR_NOENT || !inode)
			continue;
		made++;
		inlined += (inode->attr.flags & EXT4_INLINE_DATA_FL) != 0;
		ck_ok(ext4_readlink(inode, buf, sizeof(buf), &len));
		ck_assert_uint_eq(len, inode->attr.size_bytes);
		for (size_t n = 0; n < len; n++)
			ck_assert_int_eq(buf[n], 'a' + (int)(n % 26));
		ck_err(ext4_readlink(inode, buf, len - 1, &len), ERR_RANGE);
		ck_ok(ext4_readlink(inode, buf, len, &len));
		ext4_inode_put(inode);
	}
	ck_assert_uint_ge(made, 9);
	if (strstr(options[_i], "inline_data"))
		ck_assert_uint_ge(inlined, 2);
	rig_close(&r);
}
END_TEST

enum link_place { FAST, SLOW, INLINED };
struct damage {
	enum link_place place;
	void (*hurt)(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk);
	enum err want;
};

static void hurt_size_zero(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)r, (void)inode;
	disk->i_size_lo = le32_make(0);
}
static void hurt_size_path_max(
	struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)r, (void)inode;
	disk->i_size_lo = le32_make(4096);
}
static void hurt_size_block(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)r, (void)inode;
	disk->i_size_lo = le32_make(1024);
}
static void hurt_nul(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)r, (void)inode;
	disk->i_block[5] = 0;
}
static void hurt_block_nul(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)disk;
	rig_block(r, inode, 0)[100] = 0;
}
static void hurt_hole(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)r, (void)inode;
	/* No entries in the extent tree's root. */
	disk->i_block[2] = disk->i_block[3] = 0;
}
static void hurt_magic(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)r, (void)inode;
	disk->i_block[0] ^= 0xff;
}
static void hurt_no_tail(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)disk;
	memset(rig_inode_bytes(r, inode->inum) + 128 + inode->extra_bytes, 0, 20);
}
static void hurt_short_tail(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)r, (void)inode;
	disk->i_size_lo = le32_make(le32_get(disk->i_size_lo) + 1);
}
static void hurt_not_link(struct rig *r, struct ext4_inode *inode, struct ext4_disk_inode *disk)
{
	(void)r, (void)inode;
	disk->i_mode = le16_make(S_IFREG | 0644);
}

static const struct damage damages[] = {
	{FAST, hurt_size_zero, ERR_CORRUPT},
	{FAST, hurt_nul, ERR_CORRUPT},
	{FAST, hurt_not_link, ERR_INVAL},
	{SLOW, hurt_size_zero, ERR_CORRUPT},
	{SLOW, hurt_size_path_max, ERR_CORRUPT},
	{SLOW, hurt_size_block, ERR_CORRUPT},
	{SLOW, hurt_block_nul, ERR_CORRUPT},
	{SLOW, hurt_hole, ERR_CORRUPT},
	{SLOW, hurt_magic, ERR_CORRUPT},
	{INLINED, hurt_size_zero, ERR_CORRUPT},
	{INLINED, hurt_nul, ERR_CORRUPT},
	{INLINED, hurt_no_tail, ERR_CORRUPT},
	{INLINED, hurt_short_tail, ERR_CORRUPT},
};

START_TEST(test_damage)
{
	const struct damage *d = &damages[_i];
	unsigned length = d->place == FAST ? 59 : d->place == SLOW ? 140 : 100;
	struct ext4_inode *inode = NULL;
	struct rig r;
	size_t len = 0;
	char buf[2000], name[32];
	enum err e;

	make_image("img", options[d->place == INLINED]);
	rig_load(&r, "img");
	rig_mount(&r);
	inode = get_link(&r, length);
	ck_ok(ext4_readlink(inode, buf, sizeof(buf), &len));
	ck_assert_int_eq((inode->attr.flags & EXT4_INLINE_DATA_FL) != 0, d->place == INLINED);
	d->hurt(&r, inode, (void *)rig_inode_bytes(&r, inode->inum));
	ext4_inode_put(inode);
	rig_unmount(&r);
	rig_mount(&r);
	snprintf(name, sizeof(name), "link%u", length);
	inode = NULL;
	/* What the inode alone tells is refused when it is read. */
	e = rig_find(&r, name, &inode);
	if (!e)
		e = ext4_readlink(inode, buf, sizeof(buf), &len);
	ck_assert_msg(e == d->want, "%s (%s)", err_name(e), err_detail());
	ext4_inode_put(inode);
	rig_close(&r);
}
END_TEST

START_TEST(test_read_error)
{
	struct ext4_inode *inode;
	char buf[2000];
	struct rig r;
	size_t len;

	make_image("img", options[0]);
	rig_load(&r, "img");
	rig_mount(&r);
	inode = get_link(&r, 140);
	dev_fault_arm(r.disk.fault, DEV_FAULT_READ, 1, false, ERR_IO);
	ck_err(ext4_readlink(inode, buf, sizeof(buf), &len), ERR_IO);
	ck_ok(ext4_readlink(inode, buf, sizeof(buf), &len));
	ext4_inode_put(inode);
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("symlink");
	TCase *c = tcase_create("symlink");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_lengths, 0, (int)ARRAY_SIZE(options));
	tcase_add_loop_test(c, test_damage, 0, (int)ARRAY_SIZE(damages));
	tcase_add_test(c, test_read_error);
	suite_add_tcase(s, c);
	return scratch_main(s);
}
