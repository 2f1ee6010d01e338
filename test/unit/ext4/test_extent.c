/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Extent trees: deep ones, and every way for one to be damaged. */
#include "image.h"

enum { FILE_INUM = IMAGE_FIRST_INUM, BLOCK = 1024, FREE_BLOCK = 6000, NODE_ENTRIES = 84 };

/* A file of one extent, "whole", in a file system without checksums unless asked. */
static void start(struct image *im, bool csum)
{
	image_run("rm -f whole");
	pattern_write("whole", FILE_INUM, 0, 40 * BLOCK);
	image_make("image", csum ? "-t ext4 -b 1024" : "-t ext4 -b 1024 -O ^metadata_csum", "8M");
	image_debugfs("image", "write whole whole\n");
	image_load(im, "image");
}

static struct ext4_extent_header *root_of(struct image *im)
{
	return (void *)image_inode(im, FILE_INUM)->i_block;
}
static struct ext4_extent *extents_of(struct ext4_extent_header *h)
{
	return (void *)(h + 1);
}
static struct ext4_extent_index *indexes_of(struct ext4_extent_header *h)
{
	return (void *)(h + 1);
}

static void set_header(struct ext4_extent_header *h, unsigned entries, unsigned max, unsigned depth)
{
	*h = (struct ext4_extent_header){.eh_magic = le16_make(EXT4_EXTENT_MAGIC),
		.eh_entries = le16_make((uint16_t)entries),
		.eh_max = le16_make((uint16_t)max),
		.eh_depth = le16_make((uint16_t)depth)};
}
static void set_index(struct ext4_extent_index *x, uint32_t logical, uint32_t leaf)
{
	*x = (struct ext4_extent_index){
		.ei_block = le32_make(logical), .ei_leaf_lo = le32_make(leaf)};
}

/* Moves the file's extent under `depth` levels of nodes at FREE_BLOCK and after. */
static void deepen(struct image *im, unsigned depth)
{
	struct ext4_extent_header *h = root_of(im);
	struct ext4_extent leaf = extents_of(h)[0];

	set_header(h, 1, 4, depth);
	for (unsigned d = depth; d > 0; d--) {
		set_index(&indexes_of(h)[0], 0, FREE_BLOCK + d);
		h = (void *)image_block(im, FREE_BLOCK + d);
		set_header(h, 1, NODE_ENTRIES, d - 1);
	}
	extents_of(h)[0] = leaf;
}

static enum err read_file(struct image *im)
{
	struct ext4_inode *inode;
	uint8_t buf[40 * BLOCK];
	size_t got;
	enum err e = image_mount(im);

	if (e)
		return e;
	e = ext4_inode_get(im->fs, FILE_INUM, &inode);
	if (!e) {
		e = image_read(inode, 0, sizeof(buf), buf, &got);
		ext4_inode_put(inode);
	}
	image_unmount(im);
	return e;
}

START_TEST(every_depth_reads)
{
	struct image im;

	start(&im, false);
	if (_i)
		deepen(&im, (unsigned)_i);
	ck_ok(image_mount(&im));
	image_check_file(&im, FILE_INUM, FILE_INUM, 10000, image_all_data);
	image_close(&im);
}
END_TEST

START_TEST(a_sixth_level_is_corrupt)
{
	struct image im;

	start(&im, false);
	deepen(&im, 6);
	ck_err(read_file(&im), ERR_CORRUPT);
	ck_detail("inode 12");
	image_close(&im);
}
END_TEST

/* --- damage: each function spoils one thing ----------------------------------------------------
 */

static void root_magic(struct image *im)
{
	root_of(im)->eh_magic = le16_make(0xf30b);
}
static void root_entries(struct image *im)
{
	root_of(im)->eh_entries = le16_make(5);
}
static void root_max(struct image *im)
{
	root_of(im)->eh_max = le16_make(340);
}
static void root_max_zero(struct image *im)
{
	root_of(im)->eh_max = root_of(im)->eh_entries = le16_make(0);
}
static void root_depth(struct image *im)
{
	root_of(im)->eh_depth = le16_make(1);
}
static void root_deep_and_empty(struct image *im)
{
	set_header(root_of(im), 0, 4, 1);
}
static void extent_len_zero(struct image *im)
{
	extents_of(root_of(im))[0].ee_len = le16_make(0);
}
static void extent_outside(struct image *im)
{
	extents_of(root_of(im))[0].ee_start_hi = le16_make(1);
}
static void extent_at_zero(struct image *im)
{
	extents_of(root_of(im))[0].ee_start_lo = le32_make(0);
}
static void extent_past_the_end(struct image *im)
{
	extents_of(root_of(im))[0].ee_start_lo = le32_make(8191);
}
static void extent_logical_wraps(struct image *im)
{
	extents_of(root_of(im))[0].ee_block = le32_make(UINT32_MAX - 10);
}
static void extents_out_of_order(struct image *im)
{
	struct ext4_extent_header *h = root_of(im);

	extents_of(h)[1] = extents_of(h)[0];
	extents_of(h)[0].ee_block = le32_make(100);
	h->eh_entries = le16_make(2);
}
static void extents_overlap(struct image *im)
{
	struct ext4_extent_header *h = root_of(im);

	extents_of(h)[1] = extents_of(h)[0];
	extents_of(h)[1].ee_block = le32_make(39);
	h->eh_entries = le16_make(2);
}
static void node_depth_stays(struct image *im)
{
	deepen(im, 2);
	((struct ext4_extent_header *)(void *)image_block(im, FREE_BLOCK + 2))->eh_depth =
		le16_make(2);
}
static void node_names_itself(struct image *im)
{
	deepen(im, 3);
	set_index(&indexes_of((void *)image_block(im, FREE_BLOCK + 2))[0], 0, FREE_BLOCK + 2);
}
static void node_outside_its_range(struct image *im)
{
	struct ext4_extent_header *h = root_of(im);

	deepen(im, 1);
	/* The leaf holds 0 to 39 but its parent gives it only 0 to 9. */
	set_index(&indexes_of(h)[1], 10, FREE_BLOCK + 9);
	h->eh_entries = le16_make(2);
}
static void node_before_its_range(struct image *im)
{
	deepen(im, 1);
	indexes_of(root_of(im))[0].ei_block = le32_make(5);
	/* Blocks before it are a hole; the leaf starts too early. */
}
static void node_of_zeros(struct image *im)
{
	deepen(im, 1);
	memset(image_block(im, FREE_BLOCK + 1), 0, BLOCK);
}
static void node_too_full(struct image *im)
{
	deepen(im, 1);
	((struct ext4_extent_header *)(void *)image_block(im, FREE_BLOCK + 1))->eh_max =
		le16_make(NODE_ENTRIES + 1);
}
static void index_outside(struct image *im)
{
	deepen(im, 1);
	indexes_of(root_of(im))[0].ei_leaf_lo = le32_make(8192);
}
static void index_at_zero(struct image *im)
{
	deepen(im, 1);
	indexes_of(root_of(im))[0].ei_leaf_lo = le32_make(0);
}
static void indexes_equal(struct image *im)
{
	deepen(im, 1);
	indexes_of(root_of(im))[1] = indexes_of(root_of(im))[0];
	root_of(im)->eh_entries = le16_make(2);
}

static void (*const damages[])(struct image *im) = {root_magic, root_entries, root_max,
	root_max_zero, root_depth, root_deep_and_empty, extent_len_zero, extent_outside,
	extent_at_zero, extent_past_the_end, extent_logical_wraps, extents_out_of_order,
	extents_overlap, node_depth_stays, node_names_itself, node_outside_its_range,
	node_before_its_range, node_of_zeros, node_too_full, index_outside, index_at_zero,
	indexes_equal};

START_TEST(damage_is_an_error)
{
	struct image im;

	start(&im, false);
	ck_ok(read_file(&im));
	damages[_i](&im);
	ck_err(read_file(&im), ERR_CORRUPT);
	ck_detail("inode 12");
	image_close(&im);
}
END_TEST

/* Nodes that debugfs wrote, with checksums: any flipped bit is seen. */
START_TEST(a_flipped_bit_in_a_node)
{
	struct image im;
	struct ext4_extent_index *x;
	uint8_t *node;
	struct ext4_inode *inode;
	uint8_t buf[BLOCK];
	size_t got;

	image_run("rm -f whole");
	for (uint64_t at = 0; at < 200 * BLOCK; at += 2 * BLOCK)
		pattern_write("whole", FILE_INUM, at, at + BLOCK);
	image_make("image", "-t ext4 -b 1024", "8M");
	image_debugfs("image", "write whole whole\n");
	image_load(&im, "image");
	ck_assert_uint_ge(le16_get(root_of(&im)->eh_depth), 1);
	x = indexes_of(root_of(&im));
	node = image_block(&im, le32_get(x->ei_leaf_lo));
	for (int i = 0; i < 40; i++) {
		/* Spare bytes behind the checksum are covered by nothing. */
		size_t at = (size_t)scratch_random(1024);
		uint8_t bit = (uint8_t)(1 << scratch_random(8));
		enum err e;
		node[at] ^= bit;
		ck_ok(image_mount(&im));
		ck_ok(ext4_inode_get(im.fs, FILE_INUM, &inode));
		e = image_read(inode, 0, BLOCK, buf, &got);
		ck_assert_msg(
			e == ERR_CHECKSUM || e == ERR_CORRUPT, "byte %zu: %s", at, err_name(e));
		ext4_inode_put(inode);
		image_unmount(&im);
		node[at] ^= bit;
	}
	ck_ok(read_file(&im));
	image_close(&im);
}
END_TEST

/* A tree of another inode has the right structure but the wrong seed. */
START_TEST(a_node_of_another_inode)
{
	struct image im;
	struct ext4_inode *inode;
	uint8_t buf[BLOCK];
	size_t got;

	image_run("rm -f whole");
	for (uint64_t at = 0; at < 200 * BLOCK; at += 2 * BLOCK)
		pattern_write("whole", FILE_INUM, at, at + BLOCK);
	image_make("image", "-t ext4 -b 1024", "8M");
	image_debugfs("image", "write whole one\nwrite whole two\n");
	/* The second file's first index is made to name the first file's node. */
	image_debugfs("image", "copy_inode <12> <13>\nset_inode_field <13> generation 77\n");
	image_load(&im, "image");
	ck_ok(image_mount(&im));
	ck_ok(ext4_inode_get(im.fs, FILE_INUM + 1, &inode));
	ck_err(image_read(inode, 0, BLOCK, buf, &got), ERR_CHECKSUM);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

/* Random damage to tree and inode: an error or data, never anything else. */
START_TEST(random_trees_do_no_harm)
{
	struct image im;
	struct ext4_disk_inode good;
	uint8_t nodes[6][BLOCK];

	start(&im, false);
	deepen(&im, 3);
	good = *image_inode(&im, FILE_INUM);
	for (int i = 0; i < 6; i++)
		memcpy(nodes[i], image_block(&im, (fsblk_t)FREE_BLOCK + (fsblk_t)i), BLOCK);
	for (int round = 0; round < 3000; round++) {
		*image_inode(&im, FILE_INUM) = good;
		for (int i = 0; i < 6; i++)
			memcpy(image_block(&im, (fsblk_t)FREE_BLOCK + (fsblk_t)i), nodes[i], BLOCK);
		for (uint64_t n = scratch_random(3) + 1; n > 0; n--) {
			fsblk_t nr = FREE_BLOCK + 1 + scratch_random(3);
			uint8_t *at = scratch_random(2) ? image_inode(&im, FILE_INUM)->i_block +
								  scratch_random(28)
							: image_block(&im, nr) + scratch_random(28);
			image_spoil(at);
		}
		if (read_file(&im) != OK)
			continue;
	}
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/extent");
	TCase *tcase = tcase_create("extent");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, every_depth_reads, 0, EXT4_EXTENT_DEPTH_MAX + 1);
	tcase_add_test(tcase, a_sixth_level_is_corrupt);
	tcase_add_loop_test(tcase, damage_is_an_error, 0, (int)ARRAY_SIZE(damages));
	tcase_add_test(tcase, a_flipped_bit_in_a_node);
	tcase_add_test(tcase, a_node_of_another_inode);
	tcase_add_test(tcase, random_trees_do_no_harm);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
