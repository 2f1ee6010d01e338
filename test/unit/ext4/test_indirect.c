/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Indirect maps: all levels, their borders, and damaged block numbers. */
#include "image.h"

enum { FILE_INUM = IMAGE_FIRST_INUM, BLOCK = 1024, PER_BLOCK = BLOCK / 4 };

/* A block of data at each of these, holes between: the borders of the levels. */
static const uint32_t borders[] = {
	0, 11, 12, 13, 267, 268, 523, 524, 65803, 65804, 66059, 66060, 131339, 131340};

static void start(struct image *im)
{
	image_run("rm -f file");
	for (size_t i = 0; i < ARRAY_SIZE(borders); i++)
		pattern_write("file", FILE_INUM, (uint64_t)borders[i] * BLOCK,
			((uint64_t)borders[i] + 1) * BLOCK);
	image_make("image", "-t ext2 -b 1024", "8M");
	image_debugfs("image", "write file file\n");
	image_load(im, "image");
}

static le32 *slots_of(struct image *im)
{
	return (void *)image_inode(im, FILE_INUM)->i_block;
}

static enum err read_at(struct image *im, uint32_t logical, uint8_t buf[BLOCK])
{
	struct ext4_inode *inode;
	size_t got;
	enum err e = image_mount(im);

	if (e)
		return e;
	e = ext4_inode_get(im->fs, FILE_INUM, &inode);
	if (!e) {
		e = image_read(inode, (uint64_t)logical * BLOCK, BLOCK, buf, &got);
		ext4_inode_put(inode);
	}
	image_unmount(im);
	return e;
}

START_TEST(borders_of_the_levels)
{
	struct image im;
	struct ext4_inode *inode;
	uint64_t at;

	start(&im);
	ck_assert_uint_ne(le32_get(slots_of(&im)[14]), 0);
	ck_ok(image_mount(&im));
	ck_ok(ext4_inode_get(im.fs, FILE_INUM, &inode));
	for (size_t i = 0; i < ARRAY_SIZE(borders); i++)
		for (uint32_t b = borders[i] ? borders[i] - 1 : 0; b <= borders[i] + 1; b++) {
			uint8_t buf[BLOCK] = {0};
			bool data = false;
			size_t got;
			for (size_t j = 0; j < ARRAY_SIZE(borders); j++)
				data |= borders[j] == b;
			ck_ok(image_read(inode, (uint64_t)b * BLOCK, BLOCK, buf, &got));
			for (size_t k = 0; k < got; k++)
				ck_assert_uint_eq(buf[k],
					data ? pattern_byte(FILE_INUM, (uint64_t)b * BLOCK + k)
					     : 0);
		}
	/* Holes of a whole tree are found without walking them. */
	ck_ok(ext4_seek(inode, 600 * BLOCK, SEEK_DATA, &at));
	ck_assert_uint_eq(at, 65803ull * BLOCK);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

START_TEST(numbers_outside)
{
	/* The slot that is spoilt and the block that is asked for. */
	static const uint32_t cases[][2] = {{0, 0}, {5, 0}, {12, 12}, {13, 268}, {14, 65804}};
	struct image im;
	uint8_t buf[BLOCK];

	start(&im);
	slots_of(&im)[cases[_i][0]] = le32_make(_i % 2 ? 8192 : UINT32_MAX);
	ck_err(read_at(&im, cases[_i][1], buf), ERR_CORRUPT);
	ck_detail("inode 12");
	image_close(&im);
}
END_TEST

START_TEST(numbers_outside_in_a_block)
{
	static const uint32_t cases[][2] = {{12, 12}, {13, 268}, {14, 65804}};
	struct image im;
	uint8_t buf[BLOCK];
	le32 *block;

	start(&im);
	block = (void *)image_block(&im, le32_get(slots_of(&im)[cases[_i][0]]));
	block[PER_BLOCK - 1] = le32_make(8192);
	ck_err(read_at(&im, cases[_i][1], buf), ERR_CORRUPT);
	image_close(&im);
}
END_TEST

/* A tree that names itself has only as many levels as its slot gives it. */
START_TEST(a_tree_that_names_itself)
{
	struct image im;
	uint8_t buf[BLOCK];
	uint32_t top;
	le32 *block;

	start(&im);
	top = le32_get(slots_of(&im)[14]);
	block = (void *)image_block(&im, top);
	for (int i = 0; i < PER_BLOCK; i++)
		block[i] = le32_make(top);
	ck_ok(read_at(&im, 65804, buf));
	ck_assert(memcmp(buf, block, BLOCK) == 0);
	image_close(&im);
}
END_TEST

START_TEST(random_maps_do_no_harm)
{
	struct image im;
	struct ext4_disk_inode good;

	start(&im);
	good = *image_inode(&im, FILE_INUM);
	for (int round = 0; round < 2000; round++) {
		uint8_t buf[BLOCK];
		for (uint64_t n = scratch_random(4) + 1; n > 0; n--)
			slots_of(&im)[scratch_random(15)] = le32_make(
				(uint32_t)scratch_random(scratch_random(2) ? 8300 : UINT32_MAX));
		(void)!read_at(&im, borders[scratch_random(ARRAY_SIZE(borders))], buf);
		*image_inode(&im, FILE_INUM) = good;
	}
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/indirect");
	TCase *tcase = tcase_create("indirect");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, borders_of_the_levels);
	tcase_add_loop_test(tcase, numbers_outside, 0, 5);
	tcase_add_loop_test(tcase, numbers_outside_in_a_block, 0, 3);
	tcase_add_test(tcase, a_tree_that_names_itself);
	tcase_add_test(tcase, random_maps_do_no_harm);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
