/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Damaged directories, one kind of damage a test: blocks of names must be refused, damaged indexes
 * must be done without, and nothing may hang, repeat for ever or be read out of bounds.
 *
 * Where checksums would hide the damage the image has none; damage to checksums has an image that
 * has them.
 */
#include "dir_rig.h"

enum { NAMES = 4500, BLOCK = 1024, ROOT_ENTRIES = 32, NODE_ENTRIES = 8 };
static const char name_format[] = "name%u-padded-to-be-longer";

static void make_image(const char *image, const char *options, bool index)
{
	rig_shell("mke2fs -t ext4 -q -F -N 64 -b 1024 -E "
		  "hash_seed=5ec4e7c0-ffee-4d15-a5ed-0fba11ad0ddd %s "
		  "%s 8M",
		options, image);
	rig_fill(image, name_format, NAMES, BLOCK);
	if (index)
		rig_index(image);
}

static void make_images(void)
{
	make_image("linear", "-O ^metadata_csum,^dir_index", false);
	make_image("index", "-O ^metadata_csum", true);
	make_image("csum-linear", "-O ^dir_index", false);
	make_image("csum-index", "", true);
}

/* --- what is done to a directory -------------------------------------------------------------- */

static struct ext4_disk_dirent *dirent(uint8_t *block, int n)
{
	size_t at = 0;

	while (n-- > 0)
		at += le16_get(((struct ext4_disk_dirent *)(void *)(block + at))->rec_len);
	return (void *)(block + at);
}
static struct ext4_dx_entry *entries(uint8_t *block, size_t offset)
{
	return (void *)(block + offset);
}
static unsigned count_of(uint8_t *block, size_t offset)
{
	return le16_get(((struct ext4_dx_countlimit *)(void *)(block + offset))->count);
}
static void set_count(uint8_t *block, size_t offset, unsigned count)
{
	((struct ext4_dx_countlimit *)(void *)(block + offset))->count = le16_make((uint16_t)count);
}
/* The root, and the directory's block number of its second node. */
static lblk_t second_node(uint8_t *root)
{
	return le32_get(entries(root, ROOT_ENTRIES)[1].block);
}

struct target {
	struct rig *r;
	struct ext4_inode *dir;
	uint8_t *root;  /* block 0 */
	uint8_t *block; /* block 1 of a linear directory, else the second index node */
};

static void hurt_rec_len_zero(struct target *t)
{
	dirent(t->block, 2)->rec_len = le16_make(0);
}
static void hurt_rec_len_short(struct target *t)
{
	dirent(t->block, 2)->rec_len = le16_make(8);
}
static void hurt_rec_len_odd(struct target *t)
{
	dirent(t->block, 2)->rec_len = le16_make(18);
}
static void hurt_rec_len_long(struct target *t)
{
	dirent(t->block, 2)->rec_len = le16_make(BLOCK);
}
static void hurt_rec_len_leaves_crumb(struct target *t)
{
	size_t at = (size_t)((uint8_t *)dirent(t->block, 2) - t->block);

	dirent(t->block, 2)->rec_len = le16_make((uint16_t)(BLOCK - 8 - at));
}
static void hurt_name_len(struct target *t)
{
	dirent(t->block, 2)->name_len = 200;
}
static void hurt_name_len_zero(struct target *t)
{
	dirent(t->block, 2)->name_len = 0;
}
static void hurt_inum(struct target *t)
{
	dirent(t->block, 2)->inode = le32_make(1000000);
}
static void hurt_slash(struct target *t)
{
	dirent(t->block, 2)->name[1] = '/';
}
static void hurt_nul(struct target *t)
{
	dirent(t->block, 2)->name[1] = 0;
}
static void hurt_size_past_map(struct target *t)
{
	struct ext4_disk_inode *d = (void *)rig_inode_bytes(t->r, t->dir->inum);

	d->i_size_lo = le32_make(le32_get(d->i_size_lo) + 64 * BLOCK);
}
static void hurt_size_zero(struct target *t)
{
	struct ext4_disk_inode *d = (void *)rig_inode_bytes(t->r, t->dir->inum);

	d->i_size_lo = le32_make(0);
}
static void hurt_noise(struct target *t)
{
	scratch_fill(t->block, BLOCK);
}
static void hurt_leaf_tail_type(struct target *t)
{
	t->block[BLOCK - 12 + 7] = 0;
}
static void hurt_last_byte(struct target *t)
{
	t->block[BLOCK - 1] ^= 1;
}
static void hurt_root_csum(struct target *t)
{
	entries(t->root, ROOT_ENTRIES)[1].hash.b[1] ^= 1;
}
static void hurt_node_csum(struct target *t)
{
	entries(t->block, NODE_ENTRIES)[1].hash.b[1] ^= 1;
}
static void hurt_csum_limit(struct target *t)
{
	((struct ext4_dx_countlimit *)(void *)(t->root + ROOT_ENTRIES))->limit = le16_make(60000);
}

static struct ext4_dx_root_info *info(struct target *t)
{
	return (void *)(t->root + EXT4_DX_ROOT_INFO_OFFSET);
}
static void hurt_hash_version(struct target *t)
{
	info(t)->hash_version = 9;
}
static void hurt_hash_version_unsigned(struct target *t)
{
	info(t)->hash_version = EXT4_HASH_TEA_UNSIGNED;
}
static void hurt_info_length(struct target *t)
{
	info(t)->info_length = 12;
}
static void hurt_levels(struct target *t)
{
	info(t)->indirect_levels = 2;
}
static void hurt_levels_many(struct target *t)
{
	info(t)->indirect_levels = 255;
}
static void hurt_flags(struct target *t)
{
	info(t)->unused_flags = 1;
}
static void hurt_reserved(struct target *t)
{
	info(t)->reserved_zero = le32_make(7);
}
static void hurt_limit(struct target *t)
{
	((struct ext4_dx_countlimit *)(void *)(t->root + ROOT_ENTRIES))->limit = le16_make(0xffff);
}
static void hurt_count_zero(struct target *t)
{
	set_count(t->root, ROOT_ENTRIES, 0);
}
static void hurt_count_many(struct target *t)
{
	set_count(t->root, ROOT_ENTRIES, 0xffff);
}
static void hurt_root_order(struct target *t)
{
	struct ext4_dx_entry *e = entries(t->root, ROOT_ENTRIES), swap = e[1];

	e[1] = e[2];
	e[2] = swap;
}
static void hurt_root_equal(struct target *t)
{
	struct ext4_dx_entry *e = entries(t->root, ROOT_ENTRIES);

	e[2].hash = e[1].hash;
}
static void hurt_child_past_end(struct target *t)
{
	entries(t->root, ROOT_ENTRIES)[1].block = le32_make(0x0ffffff0);
}
static void hurt_child_is_root(struct target *t)
{
	entries(t->root, ROOT_ENTRIES)[1].block = le32_make(0);
}
static void hurt_child_is_leaf(struct target *t)
{
	entries(t->root, ROOT_ENTRIES)[1].block = entries(t->block, NODE_ENTRIES)[1].block;
}
static void hurt_same_node(struct target *t)
{
	struct ext4_dx_entry *e = entries(t->root, ROOT_ENTRIES);

	for (unsigned i = 0; i < count_of(t->root, ROOT_ENTRIES); i++)
		e[i].block = e[0].block;
}
static void hurt_node_count_zero(struct target *t)
{
	set_count(t->block, NODE_ENTRIES, 0);
}
static void hurt_node_limit(struct target *t)
{
	((struct ext4_dx_countlimit *)(void *)(t->block + NODE_ENTRIES))->limit = le16_make(3);
}
static void hurt_node_order(struct target *t)
{
	struct ext4_dx_entry *e = entries(t->block, NODE_ENTRIES), swap = e[1];

	e[1] = e[2];
	e[2] = swap;
}
static void hurt_node_outside(struct target *t)
{
	struct ext4_dx_entry *e = entries(t->block, NODE_ENTRIES);

	e[1].hash = le32_make(2);
}
static void hurt_node_leaf_is_root(struct target *t)
{
	entries(t->block, NODE_ENTRIES)[1].block = le32_make(0);
}
static void hurt_node_leaf_past_end(struct target *t)
{
	entries(t->block, NODE_ENTRIES)[1].block = le32_make(0x0ffffff0);
}
static void hurt_same_leaf(struct target *t)
{
	struct ext4_dx_entry *e = entries(t->block, NODE_ENTRIES);

	for (unsigned i = 0; i < count_of(t->block, NODE_ENTRIES); i++)
		e[i].block = e[0].block;
}
static void hurt_swap_leaves(struct target *t)
{
	struct ext4_dx_entry *e = entries(t->block, NODE_ENTRIES);
	le32 swap = e[1].block;

	e[1].block = e[4].block;
	e[4].block = swap;
}
static void hurt_all_continue(struct target *t)
{
	struct ext4_dx_entry *e = entries(t->block, NODE_ENTRIES);

	for (unsigned i = 1; i < count_of(t->block, NODE_ENTRIES); i++)
		e[i].hash.b[0] |= 1;
}
static void hurt_seed(struct target *t)
{
	struct ext4_super *s = (void *)(t->r->disk.bytes + EXT4_SUPER_OFFSET_BYTES);

	s->s_hash_seed[1] = le32_make(1234);
}
static void hurt_dot(struct target *t)
{
	dirent(t->root, 0)->rec_len = le16_make(16);
}
static void hurt_leaf_entry(struct target *t)
{
	lblk_t leaf = le32_get(entries(t->block, NODE_ENTRIES)[1].block);

	dirent(rig_block(t->r, t->dir, leaf), 1)->rec_len = le16_make(6);
}
static void hurt_duplicates(struct target *t)
{
	lblk_t leaf = le32_get(entries(t->block, NODE_ENTRIES)[1].block);
	uint8_t *block = rig_block(t->r, t->dir, leaf);
	struct ext4_disk_dirent first = *dirent(block, 0);
	char name[16];

	memcpy(name, dirent(block, 0)->name, 8);
	for (int i = 0; i < 20; i++) {
		struct ext4_disk_dirent *d = dirent(block, i);

		d->name_len = MIN(first.name_len, (uint8_t)7);
		memcpy(d->name, name, d->name_len);
	}
}

/* --- what is to become of it ------------------------------------------------------------------ */

enum outcome {
	ALL,     /* every name is found and listed */
	LISTED,  /* every name is listed once; lookups may miss some */
	SOME,    /* an end is all that is asked: what is listed was there, no error */
	REFUSED, /* lookups or listings end in ERR_CORRUPT or ERR_CHECKSUM, no other error */
	NOTHING, /* an empty listing */
};
struct damage {
	const char *image;
	void (*hurt)(struct target *t);
	enum outcome outcome;
};
static const struct damage damages[] = {
	{"linear", hurt_rec_len_zero, REFUSED},
	{"linear", hurt_rec_len_short, REFUSED},
	{"linear", hurt_rec_len_odd, REFUSED},
	{"linear", hurt_rec_len_long, REFUSED},
	{"linear", hurt_rec_len_leaves_crumb, REFUSED},
	{"linear", hurt_name_len, REFUSED},
	{"linear", hurt_name_len_zero, REFUSED},
	{"linear", hurt_inum, REFUSED},
	{"linear", hurt_slash, REFUSED},
	{"linear", hurt_nul, REFUSED},
	{"linear", hurt_noise, REFUSED},
	{"linear", hurt_size_past_map, REFUSED},
	{"linear", hurt_size_zero, NOTHING},
	{"csum-linear", hurt_leaf_tail_type, REFUSED},
	{"csum-linear", hurt_last_byte, REFUSED},
	{"csum-linear", hurt_noise, REFUSED},
	{"csum-index", hurt_root_csum, REFUSED},
	{"csum-index", hurt_node_csum, REFUSED},
	{"csum-index", hurt_csum_limit, REFUSED},
	{"csum-index", hurt_info_length, REFUSED},
	{"csum-index", hurt_noise, REFUSED},
	{"index", hurt_hash_version, ALL},
	{"index", hurt_hash_version_unsigned, ALL},
	{"index", hurt_info_length, ALL},
	{"index", hurt_levels, ALL},
	{"index", hurt_levels_many, ALL},
	{"index", hurt_flags, ALL},
	{"index", hurt_reserved, ALL},
	{"index", hurt_limit, ALL},
	{"index", hurt_count_zero, ALL},
	{"index", hurt_count_many, ALL},
	{"index", hurt_root_order, ALL},
	{"index", hurt_root_equal, ALL},
	{"index", hurt_child_past_end, ALL},
	{"index", hurt_child_is_root, ALL},
	{"index", hurt_child_is_leaf, ALL},
	{"index", hurt_same_node, ALL},
	{"index", hurt_node_count_zero, ALL},
	{"index", hurt_node_limit, ALL},
	{"index", hurt_node_order, ALL},
	{"index", hurt_node_outside, ALL},
	{"index", hurt_node_leaf_is_root, ALL},
	{"index", hurt_node_leaf_past_end, ALL},
	{"index", hurt_same_leaf, LISTED},
	{"index", hurt_swap_leaves, LISTED},
	{"index", hurt_all_continue, ALL},
	{"index", hurt_seed, LISTED},
	{"index", hurt_dot, REFUSED},
	{"index", hurt_leaf_entry, REFUSED},
	{"index", hurt_duplicates, SOME},
	{"index", hurt_noise, REFUSED},
	{"index", hurt_size_past_map, SOME},
};

static enum err look_up_all(struct ext4_inode *dir, unsigned *found)
{
	enum err e = OK;
	char name[512];
	inum_t inum;

	*found = 0;
	for (unsigned i = 0; i < NAMES && (e == OK || e == ERR_NOENT); i++) {
		e = ext4_lookup(dir, name, rig_name(name_format, i, name), &inum);
		*found += e == OK;
	}
	return e == ERR_NOENT ? OK : e;
}

static void check_refusal(enum err e)
{
	ck_assert_msg(e == OK || e == ERR_CORRUPT || e == ERR_CHECKSUM, "%s", err_name(e));
	if (e)
		ck_detail("inode 13");
}

static void check_outcome(enum outcome outcome, struct ext4_inode *dir)
{
	struct listing l, small;
	unsigned found;
	enum err looked = look_up_all(dir, &found), listed, listed_small;
	inum_t inum;

	if (outcome == REFUSED)
		check_refusal(looked);
	listed = listing_read(dir, SIZE_MAX, &l);
	if (outcome == REFUSED)
		check_refusal(listed);
	listed_small = listing_read(dir, 41, &small);
	ck_assert_int_eq(listed, listed_small);
	ck_assert_uint_eq(l.count, small.count);
	switch (outcome) {
	case ALL:
		ck_assert_uint_eq(found, NAMES);
		ck_err(ext4_lookup(dir, "missing", 7, &inum), ERR_NOENT);
		/* fall through */
	case LISTED:
		ck_ok(looked);
		ck_ok(listed);
		ck_assert_uint_eq(l.count, NAMES + 2);
		listing_sort(&l);
		for (size_t i = 1; i < l.count; i++)
			ck_assert_int_ne(listed_compare(&l.entry[i - 1], &l.entry[i]), 0);
		break;
	case SOME:
		ck_ok(listed);
		ck_assert_uint_ge(l.count, 2);
		break;
	case REFUSED:
		ck_assert(looked || listed);
		break;
	case NOTHING:
		ck_ok(listed);
		ck_assert_uint_eq(l.count, 0);
		break;
	}
	listing_free(&l);
	listing_free(&small);
}

START_TEST(test_damage)
{
	const struct damage *d = &damages[_i];
	struct target t = {0};
	struct rig r;
	bool index = strstr(d->image, "index") != NULL;

	printf("damage %d\n", _i);
	rig_load(&r, d->image);
	rig_mount(&r);
	t.r = &r;
	t.dir = rig_get(&r, "dir");
	ck_assert_uint_eq(t.dir->inum, RIG_DIR);
	ck_assert_int_eq(ext4_dir_is_indexed(t.dir), index);
	t.root = rig_block(&r, t.dir, 0);
	t.block = rig_block(&r, t.dir, index ? second_node(t.root) : 1);
	d->hurt(&t);
	ext4_inode_put(t.dir);
	rig_unmount(&r);
	rig_mount(&r);
	t.dir = rig_get(&r, "dir");
	check_outcome(d->outcome, t.dir);
	ext4_inode_put(t.dir);
	rig_close(&r);
}
END_TEST

/* Any byte of a directory's first blocks, without checksums: no crash, and an end. */
START_TEST(test_random_bytes)
{
	struct target t = {0};
	struct rig r;

	rig_load(&r, _i & 1 ? "index" : "linear");
	for (int round = 0; round < 12; round++) {
		uint8_t saved[BLOCK], *block;
		struct listing l;
		unsigned found;
		lblk_t nr;

		rig_mount(&r);
		t.dir = rig_get(&r, "dir");
		nr = (lblk_t)scratch_random(3);
		if (_i & 1 && nr == 2)
			nr = second_node(rig_block(&r, t.dir, 0));
		block = rig_block(&r, t.dir, nr);
		ext4_inode_put(t.dir);
		rig_unmount(&r);

		memcpy(saved, block, BLOCK);
		for (int i = 0; i < 4; i++)
			block[scratch_random(i & 1 ? 48 : BLOCK)] = (uint8_t)scratch_random(256);
		rig_mount(&r);
		t.dir = rig_get(&r, "dir");
		(void)!look_up_all(t.dir, &found);
		(void)!listing_read(t.dir, 500, &l);
		ck_assert_uint_le(l.count, 2 * NAMES);
		listing_free(&l);
		ext4_inode_put(t.dir);
		rig_unmount(&r);
		memcpy(block, saved, BLOCK);
	}
	rig_close(&r);
}
END_TEST

/* Every read of the device fails once, in turn. */
START_TEST(test_read_errors)
{
	struct listing l;
	struct rig r;
	inum_t inum;

	rig_load(&r, _i ? "csum-index" : "csum-linear");
	for (uint64_t nth = 1;; nth++) {
		struct ext4_inode *dir;
		enum err looked, listed;
		uint64_t before;

		rig_mount(&r);
		dir = rig_get(&r, "dir");
		before = dev_fault_calls(r.disk.fault, DEV_FAULT_READ);
		dev_fault_arm(r.disk.fault, DEV_FAULT_READ, nth, false, ERR_IO);
		looked = ext4_lookup(dir, "name77-padded-to-be-longer", 26, &inum);
		listed = listing_read(dir, 1000, &l);
		dev_fault_arm(r.disk.fault, DEV_FAULT_READ, UINT64_MAX, false, ERR_IO);
		ck_assert(looked == OK || looked == ERR_IO);
		ck_assert(listed == OK || listed == ERR_IO);
		if (listed == OK)
			ck_assert_uint_eq(l.count, NAMES + 2);
		listing_free(&l);
		before = dev_fault_calls(r.disk.fault, DEV_FAULT_READ) - before;
		ext4_inode_put(dir);
		rig_unmount(&r);
		if (before < nth)
			break;
	}
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("htree damage");
	TCase *c = tcase_create("damage");

	tcase_set_timeout(c, 60);
	tcase_add_unchecked_fixture(c, make_images, NULL);
	tcase_add_loop_test(c, test_damage, 0, (int)ARRAY_SIZE(damages));
	tcase_add_loop_test(c, test_random_bytes, 0, 6);
	tcase_add_loop_test(c, test_read_errors, 0, 2);
	suite_add_tcase(s, c);
	return scratch_main(s);
}
