/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Inodes: their attributes beside the kernel's, what is no inode, and the cache's counts. */
#include "image.h"

#include <sys/sysmacros.h>

enum { FIRST = IMAGE_FIRST_INUM };

/* debugfs writes raw fields; want is what comes out. */
static void check_time(struct ext4_time t, int64_t sec, uint32_t nsec)
{
	ck_assert_int_eq(t.sec, sec);
	ck_assert_uint_eq(t.nsec, nsec);
}

static void get_attr(struct image *im, inum_t inum, struct ext4_attr *attr)
{
	struct ext4_inode *inode;

	ck_ok(ext4_inode_get(im->fs, inum, &inode));
	ck_ok(ext4_getattr(inode, attr));
	ext4_inode_put(inode);
}

START_TEST(fields_one_by_one)
{
	struct image im;
	struct ext4_attr a;

	pattern_write("file", FIRST, 0, 5000);
	image_make("image", "-t ext4 -b 1024 -O project", "8M");
	image_debugfs("image",
		"write file file\nmknod null c 1 3\nmknod disk b 259 30000\nmknod pipe p\n"
		"sif <12> uid 0x12345\nsif <12> gid 0x1abcd\nsif <12> generation 99\n"
		"sif <12> projid 4711\nsif <12> mode 0104755\n"
		"sif <12> atime @0xffffffff\nsif <12> atime_extra 0\n"
		"sif <12> mtime @0x80000000\nsif <12> mtime_extra 0x1\n"
		"sif <12> ctime @0x7fffffff\nsif <12> ctime_extra 0xee6b27fb\n"
		"sif <12> crtime @5\nsif <12> crtime_extra 0x00000004\n");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	get_attr(&im, FIRST, &a);
	ck_assert_uint_eq(a.inum, FIRST);
	ck_assert_uint_eq(a.mode, S_IFREG | 04755);
	ck_assert_uint_eq(a.uid, 0x12345);
	ck_assert_uint_eq(a.gid, 0x1abcd);
	ck_assert_uint_eq(a.generation, 99);
	ck_assert_uint_eq(a.project, 4711);
	ck_assert_uint_eq(a.nlink, 1);
	ck_assert_uint_eq(a.size_bytes, 5000);
	ck_assert_uint_eq(a.blocks_512, 10);
	ck_assert(a.flags & EXT4_EXTENTS_FL);
	check_time(a.atime, -1, 0);
	check_time(a.mtime, -2147483648LL + (1LL << 32), 0);
	check_time(a.ctime, 0x7fffffff + (3LL << 32), 999999998);
	check_time(a.crtime, 5, 1);
	get_attr(&im, FIRST + 1, &a);
	ck_assert(S_ISCHR(a.mode));
	ck_assert_uint_eq(a.rdev_major, 1);
	ck_assert_uint_eq(a.rdev_minor, 3);
	get_attr(&im, FIRST + 2, &a);
	ck_assert(S_ISBLK(a.mode));
	ck_assert_uint_eq(a.rdev_major, 259);
	ck_assert_uint_eq(a.rdev_minor, 30000);
	get_attr(&im, FIRST + 3, &a);
	ck_assert(S_ISFIFO(a.mode));
	ck_assert_uint_eq(a.rdev_major, 0);
	image_close(&im);
}
END_TEST

START_TEST(an_inode_of_128_bytes)
{
	struct image im;
	struct ext4_attr a;

	pattern_write("file", FIRST, 0, 5000);
	image_make("image", "-t ext4 -b 1024 -I 128", "8M");
	image_debugfs("image", "write file file\nsif <12> mtime @0x80000000\n");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	get_attr(&im, FIRST, &a);
	check_time(a.mtime, -2147483648LL, 0);
	check_time(a.crtime, 0, 0);
	/* 16 bits of checksum. */
	image_unmount(&im);
	image_inode(&im, FIRST)->i_uid_lo.b[0] ^= 1;
	ck_ok(image_mount(&im));
	{
		struct ext4_inode *inode;
		ck_err(ext4_inode_get(im.fs, FIRST, &inode), ERR_CHECKSUM);
		ck_detail("inode 12");
	}
	image_close(&im);
}
END_TEST

START_TEST(blocks_of_a_huge_file)
{
	struct image im;
	struct ext4_attr a;

	image_make("image", "-t ext4 -b 4096 -O ^metadata_csum", "8M");
	image_load(&im, "image");
	for (inum_t inum = FIRST; inum < FIRST + 3; inum++) {
		struct ext4_disk_inode *d = image_inode(&im, inum);
		struct ext4_extent_header *h = (void *)d->i_block;
		d->i_mode = le16_make(S_IFREG | 0644);
		d->i_links_count = le16_make(1);
		d->i_blocks_lo = le32_make(0x80000001);
		d->i_blocks_high = le16_make(7);
		h->eh_magic = le16_make(EXT4_EXTENT_MAGIC);
		h->eh_max = le16_make(4);
		d->i_flags = le32_make(EXT4_EXTENTS_FL);
	}
	image_inode(&im, FIRST + 1)->i_flags = le32_make(EXT4_EXTENTS_FL | EXT4_HUGE_FILE_FL);
	image_group0(&im)->bg_itable_unused_lo = le16_make(0);
	ck_ok(image_mount(&im));
	get_attr(&im, FIRST, &a);
	ck_assert_uint_eq(a.blocks_512, 0x780000001);
	get_attr(&im, FIRST + 1, &a);
	ck_assert_uint_eq(a.blocks_512, 0x780000001ull << 3);
	image_close(&im);
}
END_TEST

START_TEST(what_is_no_inode)
{
	struct image im;
	struct ext4_inode *inode = NULL;

	pattern_write("file", FIRST, 0, 5000);
	image_make("image", _i ? "-t ext4 -b 1024" : "-t ext2 -b 1024", "16M");
	image_debugfs("image", "write file file\nwrite file gone\nrm gone\n");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ck_err(ext4_inode_get(im.fs, 0, &inode), ERR_STALE);
	ck_err(ext4_inode_get(im.fs, FIRST + 1, &inode), ERR_STALE); /* deleted */
	ck_err(ext4_inode_get(im.fs, FIRST + 2, &inode), ERR_STALE); /* never used */
	ck_err(ext4_inode_get(im.fs, im.fs->inodes + 1, &inode), ERR_STALE);
	ck_err(ext4_inode_get(im.fs, UINT32_MAX, &inode), ERR_STALE);
	ck_err(ext4_inode_get(im.fs, EXT4_INUM_JOURNAL, &inode), ERR_CORRUPT);
	ck_assert_ptr_null(inode);
	image_close(&im);
}
END_TEST

/* --- damage ---------------------------------------------------------------------------------- */

static void mode_nothing(struct ext4_disk_inode *d)
{
	d->i_mode = le16_make(0);
}
static void mode_unknown(struct ext4_disk_inode *d)
{
	d->i_mode = le16_make(0xf000 | 0644);
}
static void extra_too_long(struct ext4_disk_inode *d)
{
	d->i_extra_isize = le16_make(132);
}
static void extra_odd(struct ext4_disk_inode *d)
{
	d->i_extra_isize = le16_make(30);
}
static void extra_huge(struct ext4_disk_inode *d)
{
	d->i_extra_isize = le16_make(0xfffc);
}
static void flag_inline(struct ext4_disk_inode *d)
{
	d->i_flags = le32_make(EXT4_INLINE_DATA_FL);
}
static void flag_encrypted(struct ext4_disk_inode *d)
{
	d->i_flags = le32_make(EXT4_EXTENTS_FL | EXT4_ENCRYPT_FL);
}
static void flag_casefolded(struct ext4_disk_inode *d)
{
	d->i_flags = le32_make(EXT4_EXTENTS_FL | EXT4_CASEFOLD_FL);
}
static void size_negative(struct ext4_disk_inode *d)
{
	d->i_size_high = le32_make(UINT32_MAX);
}
static void size_past_the_map(struct ext4_disk_inode *d)
{
	d->i_flags = le32_make(0);
	d->i_size_high = le32_make(5); /* 20 GiB and more of 1 KiB blocks: past three levels */
}
static void extents_gone(struct ext4_disk_inode *d)
{
	memset(d->i_block, 0, sizeof(d->i_block));
}
static void (*const damages[])(struct ext4_disk_inode *d) = {mode_nothing, mode_unknown,
	extra_too_long, extra_odd, extra_huge, flag_inline, flag_encrypted, flag_casefolded,
	size_negative, size_past_the_map, extents_gone};

START_TEST(damage_is_an_error)
{
	struct image im;
	struct ext4_inode *inode = NULL;

	pattern_write("file", FIRST, 0, 5000);
	image_make("image", "-t ext4 -b 1024 -O ^metadata_csum", "8M");
	image_debugfs("image", "write file file\n");
	image_load(&im, "image");
	damages[_i](image_inode(&im, FIRST));
	ck_ok(image_mount(&im));
	ck_err(ext4_inode_get(im.fs, FIRST, &inode), ERR_CORRUPT);
	ck_detail("inode 12");
	ck_assert_ptr_null(inode);
	image_close(&im);
}
END_TEST

START_TEST(every_bit_is_covered_by_the_checksum)
{
	struct image im;

	pattern_write("file", FIRST, 0, 5000);
	image_make("image", _i ? "-t ext4 -b 1024 -I 512" : "-t ext4 -b 1024", "8M");
	image_debugfs("image", "write file file\n");
	image_load(&im, "image");
	for (int i = 0; i < 200; i++) {
		uint8_t *at = (uint8_t *)image_inode(&im, FIRST) + scratch_random(_i ? 512 : 256);
		uint8_t bit = (uint8_t)(1 << scratch_random(8));
		struct ext4_inode *inode;
		enum err e;
		*at ^= bit;
		ck_ok(image_mount(&im));
		e = ext4_inode_get(im.fs, FIRST, &inode);
		ck_assert_msg(e == ERR_CHECKSUM, "byte %zu: %s",
			(size_t)(at - (uint8_t *)image_inode(&im, FIRST)), err_name(e));
		image_unmount(&im);
		*at ^= bit;
	}
	image_close(&im);
}
END_TEST

/* --- the cache ------------------------------------------------------------------------------- */

START_TEST(one_inode_is_one_object)
{
	struct image im;
	struct ext4_inode *a, *b;

	image_make("image", "-t ext4 -b 1024", "8M");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ck_ok(ext4_inode_get(im.fs, EXT4_ROOT_INUM, &a));
	ck_ok(ext4_inode_get(im.fs, EXT4_ROOT_INUM, &b));
	ck_assert_ptr_eq(a, b);
	ext4_inode_put(a);
	ext4_inode_put(b);
	ext4_inode_put(NULL);
	ck_ok(ext4_inode_get(im.fs, EXT4_ROOT_INUM, &b));
	ck_assert_ptr_eq(a, b); /* kept while unreferenced */
	ext4_inode_put(b);
	image_close(&im);
}
END_TEST

/* More inodes than the cache keeps; each is read again when it comes back. */
START_TEST(many_inodes_come_and_go)
{
	struct image im;
	struct ext4_attr a;
	enum { MANY = 40000 };
	uint64_t calls;

	image_make("image", "-t ext4 -b 4096 -O ^metadata_csum -N 42000", "32M");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	image_unmount(&im);
	for (inum_t inum = FIRST; inum < FIRST + MANY; inum++) {
		struct ext4_disk_inode *d = image_inode(&im, inum);
		d->i_mode = le16_make(S_IFIFO | 0600);
		d->i_links_count = le16_make(1);
		d->i_size_lo = le32_make(inum);
	}
	image_group0(&im)->bg_itable_unused_lo = le16_make(0);
	image_group0(&im)->bg_flags = le16_make(0);
	image_super(&im)->s_feature_ro_compat = le32_make(0);
	ck_ok(image_mount_with(&im, true));
	for (int pass = 0; pass < 2; pass++)
		for (inum_t inum = FIRST; inum < FIRST + MANY && inum <= im.fs->inodes_per_group;
			inum++) {
			get_attr(&im, inum, &a);
			ck_assert_uint_eq(a.size_bytes, inum);
		}
	/* A walk over the table reads it in pieces of more than a block. */
	image_unmount(&im);
	ck_ok(image_mount_with(&im, true));
	calls = dev_fault_calls(im.device.fault, DEV_FAULT_READ);
	for (inum_t inum = FIRST; inum < FIRST + 4096; inum++)
		get_attr(&im, inum, &a);
	calls = dev_fault_calls(im.device.fault, DEV_FAULT_READ) - calls;
	ck_assert_uint_le(calls, 4096 * 256 / (32 << 10) + 2);
	image_close(&im);
}
END_TEST

/* --- the kernel's view ------------------------------------------------------------------------ */

static void compare_with_kernel(struct image *im, const char *path)
{
	struct stat st;
	struct ext4_attr a;

	ck_assert_int_eq(lstat(path, &st), 0);
	get_attr(im, (inum_t)st.st_ino, &a);
	ck_assert_uint_eq(a.mode, st.st_mode);
	ck_assert_uint_eq(a.uid, st.st_uid);
	ck_assert_uint_eq(a.gid, st.st_gid);
	ck_assert_uint_eq(a.nlink, st.st_nlink);
	ck_assert_uint_eq(a.size_bytes, (uint64_t)st.st_size);
	ck_assert_uint_eq(a.blocks_512, (uint64_t)st.st_blocks);
	ck_assert_uint_eq(a.rdev_major, major(st.st_rdev));
	ck_assert_uint_eq(a.rdev_minor, minor(st.st_rdev));
	check_time(a.atime, st.st_atim.tv_sec, (uint32_t)st.st_atim.tv_nsec);
	check_time(a.mtime, st.st_mtim.tv_sec, (uint32_t)st.st_mtim.tv_nsec);
	check_time(a.ctime, st.st_ctim.tv_sec, (uint32_t)st.st_ctim.tv_nsec);
}

static const char *const kernel_rows[] = {
	"-t ext4 -b 4096", "-t ext3 -b 1024", "-t ext4 -b 1024 -I 128", "-t ext2 -b 4096"};

START_TEST(attributes_are_the_kernels)
{
	static const char *const names[] = {"", "file", "old", "far", "sparse", "dir", "null",
		"disk", "pipe", "link", "lost+found"};
	struct image im;
	char device[256], path[400];

	image_make("image", kernel_rows[_i], "32M");
	if (!scratch_loop_attach("", scratch_path("image"), device)) {
		printf("SKIP: attributes_are_the_kernels: %s\n", device);
		return;
	}
	image_run("mkdir -p mnt && mount %s mnt", device);
	image_run(
		"cd mnt && dd if=/dev/urandom of=file bs=1000 count=300 2>/dev/null && "
		"chmod 4711 file && chown 70000:80000 file && ln file hard && "
		"touch -d '1950-01-01 00:00:00.5' old && touch -d '2100-01-01 12:00:00.25' far && "
		"truncate -s 5G sparse && echo x >>sparse && mkdir dir dir/a dir/b dir/c && "
		"mknod null c 1 3 && mknod disk b 300 70000 && mkfifo pipe && "
		"ln -s /some/where link");
	image_run("umount mnt && mount -o ro %s mnt", device);
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", scratch_path("mnt"), names[i]);
		compare_with_kernel(&im, path);
	}
	image_close(&im);
	image_run("umount mnt");
	scratch_loop_detach(device);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/inode");
	TCase *tcase = tcase_create("inode");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, fields_one_by_one);
	tcase_add_test(tcase, an_inode_of_128_bytes);
	tcase_add_test(tcase, blocks_of_a_huge_file);
	tcase_add_loop_test(tcase, what_is_no_inode, 0, 2);
	tcase_add_loop_test(tcase, damage_is_an_error, 0, (int)ARRAY_SIZE(damages));
	tcase_add_loop_test(tcase, every_bit_is_covered_by_the_checksum, 0, 2);
	tcase_add_test(tcase, one_inode_is_one_object);
	tcase_add_test(tcase, many_inodes_come_and_go);
	tcase_add_loop_test(tcase, attributes_are_the_kernels, 0, (int)ARRAY_SIZE(kernel_rows));
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
