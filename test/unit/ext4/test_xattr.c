/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Extended attributes in the inode, in a block and in an inode of their own, set by debugfs; each
 * kind of damage to them; failing reads. What the kernel made is in test_kernel.c.
 */
#include "dir_rig.h"
#include "xattr_int.h"

/* debugfs makes them in this order. "file" has both places, "value" a large value. */
enum {
	FILE_INUM = 12,
	VALUE_INUM = 13,
	SMALL = 40,
	MEDIUM = 300,
	LARGE = 1024
}; /* debugfs sets no larger one */

static void put_value(const char *name, size_t len)
{
	FILE *f = fopen(scratch_path(name), "w");

	ensure(f != NULL);
	for (size_t i = 0; i < len; i++)
		fputc('a' + (int)(i * 7 % 26), f);
	ensure(fclose(f) == 0);
}
static void check_value(const char *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		ck_assert_int_eq(buf[i], 'a' + (int)(i * 7 % 26));
}

static void make_image(const char *image, const char *features, bool large)
{
	put_value("small", SMALL);
	put_value("medium", MEDIUM);
	put_value("large", LARGE);
	rig_shell("mke2fs -t ext4 -q -F -N 64 -b 1024 -O %s %s 4M", features, image);
	rig_shell("printf '%%s\\n' 'write /dev/null file' 'write /dev/null value' "
		  "'ea_set -f small file user.small' 'ea_set -f medium file user.medium' "
		  "'ea_set file trusted.t secret' 'ea_set file security.s label' %s >cmd; "
		  "debugfs -w -f cmd %s",
		large ? "'ea_set -f large value user.large'" : "", image);
	rig_shell("e2fsck -fy %s || [ $? -le 1 ]; e2fsck -fn %s", image, image);
}

static void make_images(void)
{
	make_image("plain", "^metadata_csum", false);
	make_image("csum", "metadata_csum", false);
	make_image("remote", "ea_inode,^metadata_csum", true);
	make_image("remote-csum", "ea_inode,metadata_csum", true);
}

static enum err get(struct rig *r, inum_t inum, const char *name, size_t *len)
{
	struct ext4_inode *inode = NULL;
	char buf[8192];
	enum err e = ext4_inode_get(r->fs, inum, &inode);

	if (!e)
		e = ext4_xattr_get(inode, name, buf, sizeof(buf), len);
	if (!e && strncmp(name, "user.", 5) == 0)
		check_value(buf, *len);
	ext4_inode_put(inode);
	return e;
}

START_TEST(test_get)
{
	static const char *const images[] = {"plain", "csum", "remote", "remote-csum"};
	struct rig r;
	size_t len = 0;

	rig_load(&r, images[_i]);
	rig_mount(&r);
	ck_ok(get(&r, FILE_INUM, "user.small", &len));
	ck_assert_uint_eq(len, SMALL);
	ck_ok(get(&r, FILE_INUM, "user.medium", &len));
	ck_assert_uint_eq(len, MEDIUM);
	ck_ok(get(&r, FILE_INUM, "trusted.t", &len));
	ck_assert_uint_eq(len, 6);
	ck_err(get(&r, FILE_INUM, "user.smal", &len), ERR_NODATA);
	ck_err(get(&r, FILE_INUM, "user.smalls", &len), ERR_NODATA);
	ck_err(get(&r, FILE_INUM, "trusted.small", &len), ERR_NODATA);
	ck_err(get(&r, FILE_INUM, "system.posix_acl_access", &len), ERR_NODATA);
	ck_err(get(&r, FILE_INUM, "system.data", &len), ERR_OPNOTSUPP);
	ck_err(get(&r, FILE_INUM, "user.", &len), ERR_OPNOTSUPP);
	ck_err(get(&r, FILE_INUM, "", &len), ERR_OPNOTSUPP);
	ck_err(get(&r, EXT4_ROOT_INUM, "user.small", &len), ERR_NODATA);
	if (_i >= 2) {
		ck_ok(get(&r, VALUE_INUM, "user.large", &len));
		ck_assert_uint_eq(len, LARGE);
	}
	rig_close(&r);
}
END_TEST

START_TEST(test_long_name)
{
	char name[400];
	struct rig r;
	size_t len;

	rig_load(&r, "plain");
	rig_mount(&r);
	memset(name, 'n', sizeof(name));
	memcpy(name, "user.", 5);
	name[5 + 255] = 0;
	ck_err(get(&r, FILE_INUM, name, &len), ERR_NODATA);
	name[5 + 255] = 'n';
	name[5 + 256] = 0;
	ck_err(get(&r, FILE_INUM, name, &len), ERR_RANGE);
	rig_close(&r);
}
END_TEST

static bool list_has(const char *list, size_t len, const char *name)
{
	for (const char *at = list; at < list + len; at += strlen(at) + 1)
		if (strcmp(at, name) == 0)
			return true;
	return false;
}

START_TEST(test_list)
{
	struct ext4_inode *inode;
	char buf[1024];
	size_t len = 0, all, some;
	struct rig r;

	rig_load(&r, "csum");
	rig_mount(&r);
	inode = rig_get(&r, "file");
	ck_ok(ext4_xattr_list(inode, true, NULL, 0, &all));
	ck_ok(ext4_xattr_list(inode, false, NULL, 0, &some));
	ck_assert_uint_eq(all, some + sizeof("trusted.t"));
	ck_ok(ext4_xattr_list(inode, false, buf, some, &len));
	ck_assert(!list_has(buf, len, "trusted.t"));
	ck_ok(ext4_xattr_list(inode, true, buf, all, &len));
	ck_assert_uint_eq(len, all);
	ck_assert(list_has(buf, len, "trusted.t") && list_has(buf, len, "user.small") &&
		  list_has(buf, len, "user.medium") && list_has(buf, len, "security.s"));
	for (size_t room = 1; room < all; room++)
		ck_err(ext4_xattr_list(inode, true, buf, room, &len), ERR_RANGE);
	ext4_inode_put(inode);
	rig_close(&r);
}
END_TEST

/* --- damage ---------------------------------------------------------------------------------- */

struct target {
	struct rig *r;
	struct ext4_disk_inode *inode; /* FILE_INUM, or VALUE_INUM where there is a large value */
	struct ext4_xattr_header *block;
	struct ext4_xattr_entry *entry;    /* the block's first, or the large value's */
	struct ext4_disk_inode *remote;    /* the inode of the large value */
	uint8_t *remote_block;             /* its first block */
	struct ext4_xattr_entry *in_inode; /* the inode's first */
};

static void hurt_magic(struct target *t)
{
	t->block->h_magic = le32_make(0xea010000);
}
static void hurt_blocks(struct target *t)
{
	t->block->h_blocks = le32_make(2);
}
static void hurt_block_number(struct target *t)
{
	t->inode->i_file_acl_lo = le32_make(0x7fffffff);
}
static void hurt_block_number_super(struct target *t)
{
	t->inode->i_file_acl_lo = le32_make(0xffffffff);
	t->inode->i_file_acl_high = le16_make(0xffff);
}
static void hurt_name_len(struct target *t)
{
	t->entry->e_name_len = 255;
	t->entry = (void *)((uint8_t *)t->entry + xattr_entry_bytes(t->entry));
	/* The chain goes on through the block without an end. */
	memset((uint8_t *)t->block + 200, 0xff, 1024 - 200);
}
static void hurt_no_end(struct target *t)
{
	memset((uint8_t *)t->block + 32, 0x01, 1024 - 32);
}
static void hurt_offset(struct target *t)
{
	t->entry->e_value_offs = le16_make(1020);
}
static void hurt_offset_past(struct target *t)
{
	t->entry->e_value_offs = le16_make(60000);
}
static void hurt_overlap(struct target *t)
{
	t->entry->e_value_offs = le16_make(32);
}
static void hurt_size(struct target *t)
{
	t->entry->e_value_size = le32_make(2000);
}
static void hurt_size_huge(struct target *t)
{
	t->entry->e_value_size = le32_make(0xfffffffd);
}
static void hurt_hash(struct target *t)
{
	t->entry->e_hash.b[2] ^= 1;
}
static void hurt_value(struct target *t)
{
	((uint8_t *)t->block)[1023 - 20] ^= 1;
}
static void hurt_nul(struct target *t)
{
	t->entry->e_name[1] = 0;
}
static void hurt_inum(struct target *t)
{
	t->entry->e_value_inum = le32_make(14);
}
static void hurt_ibody_name_len(struct target *t)
{
	t->in_inode->e_name_len = 255;
}
static void hurt_ibody_offset(struct target *t)
{
	t->in_inode->e_value_offs = le16_make(0xfffc);
}
static void hurt_ibody_size(struct target *t)
{
	t->in_inode->e_value_size = le32_make(200);
}
static void hurt_remote_flag(struct target *t)
{
	t->remote->i_flags = le32_make(le32_get(t->remote->i_flags) & ~(uint32_t)EXT4_EA_INODE_FL);
}
static void hurt_remote_size(struct target *t)
{
	t->remote->i_size_lo = le32_make(LARGE - 1);
}
static void hurt_remote_mode(struct target *t)
{
	t->remote->i_mode = le16_make(S_IFDIR | 0755);
}
static void hurt_remote_hash(struct target *t)
{
	t->remote->i_atime.b[1] ^= 1;
}
static void hurt_remote_value(struct target *t)
{
	t->remote_block[99] ^= 1;
}
static void hurt_remote_hole(struct target *t)
{
	/* No entries in the extent tree's root. */
	t->remote->i_block[2] = t->remote->i_block[3] = 0;
}
static void hurt_remote_gone(struct target *t)
{
	memset(t->remote, 0, 128);
}
static void hurt_remote_self(struct target *t)
{
	t->entry->e_value_inum = le32_make(VALUE_INUM);
}
static void hurt_remote_other(struct target *t)
{
	t->entry->e_value_inum = le32_make(FILE_INUM);
}
static void hurt_remote_reserved(struct target *t)
{
	t->entry->e_value_inum = le32_make(EXT4_ROOT_INUM);
}
static void hurt_remote_inum(struct target *t)
{
	t->entry->e_value_inum = le32_make(0xfffffff0);
}
/* Lustre's: no hashes, but the number and the generation of the inode that it belongs to. */
static void make_lustre(struct target *t)
{
	t->remote->i_atime = le32_make(0);
	t->remote->i_mtime = le32_make(VALUE_INUM);
	t->remote->i_mtime_extra = le32_make(0);
	t->remote->i_generation = t->inode->i_generation;
	t->entry->e_hash = le32_make(77);
}
static void make_half_lustre(struct target *t)
{
	make_lustre(t);
	t->remote->i_generation = le32_make(le32_get(t->inode->i_generation) + 1);
}

struct damage {
	const char *image;
	void (*hurt)(struct target *t);
	const char *name; /* what is asked for */
	enum err want;
};
static const struct damage damages[] = {
	{"plain", hurt_magic, "user.medium", ERR_CORRUPT},
	{"plain", hurt_blocks, "user.medium", ERR_CORRUPT},
	{"plain", hurt_block_number, "user.medium", ERR_CORRUPT},
	{"plain", hurt_block_number_super, "user.medium", ERR_CORRUPT},
	{"plain", hurt_name_len, "user.medium", ERR_CORRUPT},
	{"plain", hurt_no_end, "user.medium", ERR_CORRUPT},
	{"plain", hurt_offset, "user.medium", ERR_CORRUPT},
	{"plain", hurt_offset_past, "user.medium", ERR_CORRUPT},
	{"plain", hurt_overlap, "user.medium", ERR_CORRUPT},
	{"plain", hurt_size, "user.medium", ERR_CORRUPT},
	{"plain", hurt_size_huge, "user.medium", ERR_CORRUPT},
	{"plain", hurt_hash, "user.medium", ERR_CHECKSUM},
	{"plain", hurt_value, "user.medium", ERR_CHECKSUM},
	{"plain", hurt_nul, "user.medium", ERR_CORRUPT},
	{"plain", hurt_inum, "user.medium", ERR_CORRUPT},
	{"plain", hurt_ibody_name_len, "user.small", ERR_CORRUPT},
	{"plain", hurt_ibody_offset, "user.small", ERR_CORRUPT},
	{"plain", hurt_ibody_size, "user.small", ERR_CORRUPT},
	{"csum", hurt_value, "user.medium", ERR_CHECKSUM},
	{"csum", hurt_hash, "user.medium", ERR_CHECKSUM},
	{"csum", hurt_magic, "user.medium", ERR_CORRUPT},
	{"remote", hurt_remote_flag, "user.large", ERR_CORRUPT},
	{"remote", hurt_remote_size, "user.large", ERR_CORRUPT},
	{"remote", hurt_remote_mode, "user.large", ERR_CORRUPT},
	{"remote", hurt_remote_hash, "user.large", ERR_CHECKSUM},
	{"remote", hurt_remote_value, "user.large", ERR_CHECKSUM},
	{"remote", hurt_remote_hole, "user.large", ERR_CORRUPT},
	{"remote", hurt_remote_gone, "user.large", ERR_CORRUPT},
	{"remote", hurt_remote_self, "user.large", ERR_CORRUPT},
	{"remote", hurt_remote_other, "user.large", ERR_CORRUPT},
	{"remote", hurt_remote_reserved, "user.large", ERR_CORRUPT},
	{"remote", hurt_remote_inum, "user.large", ERR_CORRUPT},
	{"remote", hurt_hash, "user.large", ERR_CHECKSUM},
	{"remote", make_lustre, "user.large", OK},
	{"remote", make_half_lustre, "user.large", ERR_CHECKSUM},
};

/* Finds everything on the mounted, undamaged volume. */
static void find_target(struct rig *r, inum_t inum, struct target *t)
{
	struct xattr_area area = {0};
	struct ext4_inode *inode = NULL, *remote = NULL;

	t->r = r;
	ck_ok(ext4_inode_get(r->fs, inum, &inode));
	t->inode = (void *)rig_inode_bytes(r, inum);
	t->in_inode = (void *)(rig_inode_bytes(r, inum) + 128 + inode->extra_bytes + 4);
	if (inum == FILE_INUM) {
		ck_ok(xattr_open_block(inode, &area));
		t->block = (void *)(r->disk.bytes + area.block->nr * r->fs->block_bytes);
		t->entry = (void *)((uint8_t *)t->block + area.first);
	} else {
		ck_ok(xattr_open_ibody(inode, &area));
		t->entry = t->in_inode;
		ck_ok(ext4_inode_get(r->fs, le32_get(t->entry->e_value_inum), &remote));
		t->remote = (void *)rig_inode_bytes(r, remote->inum);
		t->remote_block = rig_block(r, remote, 0);
		ext4_inode_put(remote);
	}
	xattr_close(inode, &area);
	ext4_inode_put(inode);
}

START_TEST(test_damage)
{
	const struct damage *d = &damages[_i];
	inum_t inum = strcmp(d->name, "user.large") ? FILE_INUM : VALUE_INUM;
	struct target t = {0};
	struct ext4_inode *inode;
	struct rig r;
	size_t len;
	enum err e;

	rig_load(&r, d->image);
	rig_mount(&r);
	ck_ok(get(&r, inum, d->name, &len));
	find_target(&r, inum, &t);
	rig_unmount(&r);
	d->hurt(&t);
	rig_mount(&r);
	e = get(&r, inum, d->name, &len);
	ck_assert_msg(e == d->want, "damage %d: %s (%s)", _i, err_name(e), err_detail());
	if (e)
		ck_detail("inode ");
	ck_ok(ext4_inode_get(r.fs, inum, &inode));
	(void)!ext4_xattr_list(inode, true, NULL, 0, &len);
	ext4_inode_put(inode);
	rig_close(&r);
}
END_TEST

/* Any bytes in the inode's and the block's attributes: no crash, and an end. */
START_TEST(test_random_bytes)
{
	struct target t = {0};
	struct rig r;

	rig_load(&r, _i ? "remote" : "plain");
	rig_mount(&r);
	find_target(&r, _i ? VALUE_INUM : FILE_INUM, &t);
	rig_unmount(&r);
	for (int round = 0; round < 200; round++) {
		uint8_t *area = _i || round & 1 ? (uint8_t *)t.in_inode : (uint8_t *)t.block;
		size_t room = _i || round & 1 ? 80 : 1024;
		uint8_t saved[1024];
		size_t len;

		memcpy(saved, area, room);
		for (int i = 0; i < 3; i++)
			area[scratch_random(round & 2 ? 60 : room)] = (uint8_t)scratch_random(256);
		rig_mount(&r);
		for (inum_t inum = FILE_INUM; inum <= VALUE_INUM; inum++) {
			struct ext4_inode *inode;
			char buf[8192];

			ck_ok(ext4_inode_get(r.fs, inum, &inode));
			(void)!ext4_xattr_list(inode, true, buf, sizeof(buf), &len);
			(void)!ext4_xattr_get(inode, "user.small", buf, sizeof(buf), &len);
			(void)!ext4_xattr_get(inode, "user.medium", buf, sizeof(buf), &len);
			(void)!ext4_xattr_get(inode, "user.large", buf, sizeof(buf), &len);
			(void)!ext4_xattr_get(
				inode, "system.posix_acl_access", buf, sizeof(buf), &len);
			ext4_inode_put(inode);
		}
		rig_unmount(&r);
		memcpy(area, saved, room);
	}
	rig_close(&r);
}
END_TEST

START_TEST(test_read_errors)
{
	bool remote = _i;
	struct rig r;
	size_t len = 0;

	rig_load(&r, remote ? "remote-csum" : "csum");
	for (uint64_t nth = 1;; nth++) {
		uint64_t before;
		enum err e;

		rig_mount(&r);
		before = dev_fault_calls(r.disk.fault, DEV_FAULT_READ);
		dev_fault_arm(r.disk.fault, DEV_FAULT_READ, nth, false, ERR_IO);
		e = get(&r, remote ? VALUE_INUM : FILE_INUM, remote ? "user.large" : "user.medium",
			&len);
		before = dev_fault_calls(r.disk.fault, DEV_FAULT_READ) - before;
		dev_fault_arm(r.disk.fault, DEV_FAULT_READ, UINT64_MAX, false, ERR_IO);
		ck_assert(e == OK || e == ERR_IO);
		rig_unmount(&r);
		if (before < nth) {
			ck_ok(e);
			ck_assert_uint_gt(nth, 1);
			break;
		}
	}
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("xattr");
	TCase *c = tcase_create("xattr");

	tcase_set_timeout(c, 60);
	tcase_add_unchecked_fixture(c, make_images, NULL);
	tcase_add_loop_test(c, test_get, 0, 4);
	tcase_add_test(c, test_long_name);
	tcase_add_test(c, test_list);
	tcase_add_loop_test(c, test_damage, 0, (int)ARRAY_SIZE(damages));
	tcase_add_loop_test(c, test_random_bytes, 0, 2);
	tcase_add_loop_test(c, test_read_errors, 0, 2);
	suite_add_tcase(s, c);
	return scratch_main(s);
}
