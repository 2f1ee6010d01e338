/* SPDX-License-Identifier: GPL-2.0-or-later */
/* File data: every kind of map, every offset and length, holes, the end of the file, seeking. */
#include "image.h"

enum { KIB = 1024, MIB = 1024 * 1024 };

/* Inodes of the image that make_files fills, in the order of its commands. */
enum { SMALL = IMAGE_FIRST_INUM, PLAIN, COMB, FAR, FALLOCATED, EMPTY };

static uint32_t comb_bytes; /* the step of the comb: data and hole take turns */

static bool comb_is_data(uint64_t offset)
{
	return offset / comb_bytes % 2 == 0;
}
static bool far_is_data(uint64_t offset)
{
	return offset >= 70 * MIB;
}

static void make_files(const char *image, const char *options, const char *size, uint32_t block)
{
	image_run("rm -f small plain comb far fallocated empty");
	comb_bytes = block;
	pattern_write("small", SMALL, 0, 777);
	pattern_write("plain", PLAIN, 0, 3 * MIB + 12345);
	for (uint64_t at = 0; at < 2000ull * block; at += 2ull * block)
		pattern_write("comb", COMB, at, at + block);
	pattern_write("far", FAR, 70 * MIB, 70 * MIB + 5000);
	pattern_write("fallocated", FALLOCATED, 0, 64 * KIB);
	pattern_write("empty", EMPTY, 0, 0);
	image_make(image, options, size);
	image_debugfs(image, "write small small\nwrite plain plain\nwrite comb comb\n"
			     "write far far\nwrite fallocated fallocated\nwrite empty empty\n");
}

static void check_files(struct image *im, size_t step)
{
	image_check_file(im, SMALL, SMALL, step, image_all_data);
	image_check_file(im, PLAIN, PLAIN, step, image_all_data);
	image_check_file(im, COMB, COMB, step, comb_is_data);
	if (step == EXT4_READ_BYTES_MAX)
		image_check_file(im, FAR, FAR, step, far_is_data);
	image_check_file(im, FALLOCATED, FALLOCATED, step, image_all_data);
	image_check_file(im, EMPTY, EMPTY, step, image_all_data);
}

/* Random offsets and lengths, past the end too. */
static void check_random_reads(struct image *im, inum_t inum, image_is_data *is_data, int rounds)
{
	struct ext4_inode *inode;
	struct ext4_attr attr;
	uint8_t *buf = malloc(EXT4_READ_BYTES_MAX);

	ensure(buf != NULL);
	ck_ok(ext4_inode_get(im->fs, inum, &inode));
	ck_ok(ext4_getattr(inode, &attr));
	for (int i = 0; i < rounds; i++) {
		uint64_t offset = scratch_random(attr.size_bytes + 10000);
		size_t len = (size_t)scratch_random(i % 8 ? 20000 : EXT4_READ_BYTES_MAX + 1);
		size_t want = offset < attr.size_bytes
				      ? (size_t)MIN((uint64_t)len, attr.size_bytes - offset)
				      : 0;
		size_t got;
		ck_ok(image_read(inode, offset, len, buf, &got));
		ck_assert_uint_eq(got, want);
		image_check_range(buf, inum, offset, got, is_data);
	}
	ext4_inode_put(inode);
	free(buf);
}

static const struct {
	const char *options;
	const char *size;
	uint32_t block;
} rows[] = {
	{"-t ext4 -b 1024", "32M", 1024},
	{"-t ext4 -b 2048", "32M", 2048},
	{"-t ext4 -b 4096", "48M", 4096},
	{"-t ext4 -b 8192", "64M", 8192},
	{"-t ext4 -b 65536", "192M", 65536},
	{"-t ext2 -b 1024 -I 128", "32M", 1024},
	{"-t ext3 -b 1024", "32M", 1024},
	{"-t ext3 -b 4096", "48M", 4096},
	{"-t ext2 -r 0 -b 1024", "32M", 1024},
	{"-t ext4 -b 4096 -O bigalloc -C 65536", "128M", 4096},
	{"-t ext4 -b 4096 -O ^metadata_csum,uninit_bg", "48M", 4096},
	{"-t ext4 -b 1024 -O ^has_journal,meta_bg,^resize_inode -g 1024", "32M", 1024},
	{"-t ext4 -b 1024 -O metadata_csum_seed,sparse_super2,^64bit -I 512", "32M", 1024},
	{"-t ext4 -b 4096 -O inline_data,verity,project", "48M", 4096},
};

START_TEST(every_row_reads_back)
{
	struct image im;

	make_files("image", rows[_i].options, rows[_i].size, rows[_i].block);
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	check_files(&im, 64 * KIB);
	check_files(&im, EXT4_READ_BYTES_MAX);
	check_files(&im, 50001);
	check_random_reads(&im, SMALL, image_all_data, 50);
	check_random_reads(&im, PLAIN, image_all_data, 100);
	check_random_reads(&im, COMB, comb_is_data, 100);
	check_random_reads(&im, FAR, far_is_data, 20);
	image_close(&im);
}
END_TEST

START_TEST(unwritten_extents_are_zeros_and_holes)
{
	struct image im;
	struct ext4_inode *inode;
	uint8_t buf[16384];
	uint64_t at;
	size_t got;

	make_files("image", "-t ext4 -b 1024", "32M", 1024);
	image_debugfs(
		"image", "fallocate fallocated 64 127\nset_inode_field fallocated size 131072\n");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ck_ok(ext4_inode_get(im.fs, FALLOCATED, &inode));
	ck_ok(image_read(inode, 60 * KIB, 16 * KIB, buf, &got));
	ck_assert_uint_eq(got, 16 * KIB);
	image_check_range(buf, FALLOCATED, 60 * KIB, 4 * KIB, image_all_data);
	for (int i = 4 * KIB; i < 16 * KIB; i++)
		ck_assert_uint_eq(buf[i], 0);
	ck_ok(ext4_seek(inode, 100, SEEK_HOLE, &at));
	ck_assert_uint_eq(at, 64 * KIB);
	ck_err(ext4_seek(inode, 64 * KIB, SEEK_DATA, &at), ERR_NXIO);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

/* In the inode, in the inode and its attribute, and too long for both. */
START_TEST(inline_data_is_read)
{
	static const uint64_t sizes[] = {1, 59, 60, 61, 100, 150, 160, 5000};
	struct image im;
	char commands[512] = "";

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char name[16];
		size_t at = strlen(commands);
		snprintf(name, sizeof(name), "inline%zu", i);
		image_run("rm -f %s", name);
		pattern_write(name, IMAGE_FIRST_INUM + (unsigned)i, 0, sizes[i]);
		snprintf(commands + at, sizeof(commands) - at, "write %s %s\n", name, name);
	}
	image_make("image", "-t ext4 -b 1024 -O inline_data", "8M");
	image_debugfs("image", commands);
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		inum_t inum = IMAGE_FIRST_INUM + (inum_t)i;
		struct ext4_inode *inode;
		uint64_t at;
		image_check_file(&im, inum, inum, 4096, image_all_data);
		image_check_file(&im, inum, inum, 7, image_all_data);
		ck_ok(ext4_inode_get(im.fs, inum, &inode));
		if (sizes[i] <= 100)
			ck_assert(inode->attr.flags & EXT4_INLINE_DATA_FL);
		ck_ok(ext4_seek(inode, 0, SEEK_DATA, &at));
		ck_assert_uint_eq(at, 0);
		ck_ok(ext4_seek(inode, 0, SEEK_HOLE, &at));
		ck_assert_uint_eq(at, sizes[i]);
		ext4_inode_put(inode);
	}
	image_close(&im);
}
END_TEST

START_TEST(seeking_follows_the_map)
{
	struct image im;
	struct ext4_inode *inode;
	uint64_t at;

	make_files("image", _i ? "-t ext3 -b 1024" : "-t ext4 -b 1024", "32M", 1024);
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ck_ok(ext4_inode_get(im.fs, COMB, &inode));
	for (uint64_t b = 0; b < 1998; b++) {
		uint64_t in = b * 1024 + scratch_random(1024), next = (b + 1) * 1024;
		ck_ok(ext4_seek(inode, in, SEEK_DATA, &at));
		ck_assert_uint_eq(at, b % 2 ? next : in);
		ck_ok(ext4_seek(inode, in, SEEK_HOLE, &at));
		ck_assert_uint_eq(at, b % 2 ? in : next);
	}
	/* The last block is data, so the hole behind it is the end. */
	ck_ok(ext4_seek(inode, 1998 * 1024, SEEK_HOLE, &at));
	ck_assert_uint_eq(at, 1999 * 1024);
	ck_err(ext4_seek(inode, 1999 * 1024, SEEK_HOLE, &at), ERR_NXIO);
	ck_err(ext4_seek(inode, 1999 * 1024, SEEK_DATA, &at), ERR_NXIO);
	ck_err(ext4_seek(inode, 0, SEEK_SET, &at), ERR_INVAL);
	ext4_inode_put(inode);
	ck_ok(ext4_inode_get(im.fs, FAR, &inode));
	ck_ok(ext4_seek(inode, 0, SEEK_DATA, &at));
	ck_assert_uint_eq(at, 70 * MIB);
	ck_ok(ext4_seek(inode, 0, SEEK_HOLE, &at));
	ck_assert_uint_eq(at, 0);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

START_TEST(only_files_are_read)
{
	struct image im;
	struct ext4_inode *inode;
	struct ext4_read r;

	make_files("image", "-t ext4 -b 1024", "32M", 1024);
	image_debugfs("image", "mknod pipe p\n");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ck_ok(ext4_inode_get(im.fs, EXT4_ROOT_INUM, &inode));
	ck_err(ext4_read(inode, 0, 100, &r), ERR_ISDIR);
	ext4_inode_put(inode);
	ck_ok(ext4_inode_get(im.fs, EMPTY + 1, &inode));
	ck_err(ext4_read(inode, 0, 100, &r), ERR_INVAL);
	ext4_inode_put(inode);
	ck_ok(ext4_inode_get(im.fs, PLAIN, &inode));
	ck_err(ext4_read(inode, 0, EXT4_READ_BYTES_MAX + 1, &r), ERR_INVAL);
	ck_ok(ext4_read(inode, UINT64_MAX, 100, &r));
	ck_assert_uint_eq(r.bytes, 0);
	ext4_read_done(&r);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

/* A read that covers nothing but a hole touches neither the device nor the pool. */
START_TEST(holes_cost_nothing)
{
	struct image im;
	struct ext4_inode *inode;
	struct ext4_read r;
	struct pages_stats stats;
	uint64_t calls;

	make_files("image", "-t ext4 -b 4096", "48M", 4096);
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ck_ok(ext4_inode_get(im.fs, FAR, &inode));
	ck_ok(ext4_read(inode, 0, 4096, &r));
	ext4_read_done(&r);
	calls = dev_fault_calls(im.device.fault, DEV_FAULT_READ);
	ck_ok(ext4_read(inode, 12 * MIB + 1, EXT4_READ_BYTES_MAX, &r));
	ck_assert_uint_eq(r.bytes, EXT4_READ_BYTES_MAX);
	pages_stats(im.pages, &stats);
	ck_assert_uint_eq(stats.out_pages, 0);
	ck_assert_uint_eq(dev_fault_calls(im.device.fault, DEV_FAULT_READ), calls);
	ext4_read_done(&r);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

/* A contiguous stretch is one request, whatever number of extents or slots describe it. */
START_TEST(a_contiguous_read_is_one_request)
{
	struct image im;
	struct ext4_inode *inode;
	struct ext4_read r;
	uint64_t calls;

	make_files("image", _i ? "-t ext3 -b 4096" : "-t ext4 -b 4096", "48M", 4096);
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ck_ok(ext4_inode_get(im.fs, PLAIN, &inode));
	/* Behind the block of pointers that an indirect file has at its block 12. */
	ck_ok(ext4_read(inode, 2 * MIB, 4096, &r));
	ext4_read_done(&r);
	calls = dev_fault_calls(im.device.fault, DEV_FAULT_READ);
	ck_ok(ext4_read(inode, 100 * KIB, EXT4_READ_BYTES_MAX, &r));
	ck_assert_uint_eq(dev_fault_calls(im.device.fault, DEV_FAULT_READ), calls + 1);
	ext4_read_done(&r);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

/* Every read that can fail fails once: an error comes out, nothing leaks, and a retry works. */
START_TEST(failing_reads_are_errors)
{
	struct image im;
	uint8_t *buf = malloc(EXT4_READ_BYTES_MAX);

	ensure(buf != NULL);
	make_files("image", _i ? "-t ext3 -b 1024" : "-t ext4 -b 1024", "32M", 1024);
	image_load(&im, "image");
	for (uint64_t nth = 1;; nth++) {
		struct ext4_inode *inode = NULL;
		size_t got;
		enum err e;

		dev_fault_arm(im.device.fault, DEV_FAULT_READ, nth, false, ERR_IO);
		e = image_mount(&im);
		if (!e)
			e = ext4_inode_get(im.fs, COMB, &inode);
		if (!e)
			e = image_read(inode, 1000000, 30000, buf, &got);
		ext4_inode_put(inode);
		image_unmount(&im);
		if (!e)
			break;
		/* Only ever the error that was put in: a prefetch that fails is read again. */
		ck_assert_int_eq(e, ERR_IO);
		ck_assert_uint_lt(nth, 10000);
	}
	dev_fault_arm(im.device.fault, 0, 1, false, ERR_IO); /* disarmed */
	ck_ok(image_mount(&im));
	image_check_file(&im, COMB, COMB, 64 * KIB, comb_is_data);
	image_close(&im);
	free(buf);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/file");
	TCase *data = tcase_create("data"), *rest = tcase_create("rest");

	tcase_set_timeout(data, 60);
	tcase_set_timeout(rest, 60);
	tcase_add_loop_test(data, every_row_reads_back, 0, (int)ARRAY_SIZE(rows));
	suite_add_tcase(suite, data);
	tcase_add_test(rest, unwritten_extents_are_zeros_and_holes);
	tcase_add_test(rest, inline_data_is_read);
	tcase_add_loop_test(rest, seeking_follows_the_map, 0, 2);
	tcase_add_test(rest, only_files_are_read);
	tcase_add_test(rest, holes_cost_nothing);
	tcase_add_loop_test(rest, a_contiguous_read_is_one_request, 0, 2);
	tcase_add_loop_test(rest, failing_reads_are_errors, 0, 2);
	suite_add_tcase(suite, rest);
	return scratch_main(suite);
}
