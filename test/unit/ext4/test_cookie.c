/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listings that are taken up again: after every entry, with equal hashes, and in a directory that
 * was changed and rebuilt in between. A name that stays must be listed exactly once.
 */
#include "dir_rig.h"

#define SEED "-E hash_seed=5ec4e7c0-ffee-4d15-a5ed-0fba11ad0ddd"

/* --- names with equal legacy hashes ------------------------------------------------------------
 */

enum { EQUAL_NAMES = 12, EQUAL_LEN = 250 };
struct legacy_state {
	uint32_t now, before;
};

static struct legacy_state legacy_step(struct legacy_state s, unsigned char c)
{
	uint32_t next = s.before + (s.now ^ (c * 7152373u));

	if (next & 0x80000000)
		next -= 0x7fffffff;
	return (struct legacy_state){next, s.now};
}
static uint32_t inverse(uint32_t odd)
{
	uint32_t x = odd;

	for (int i = 0; i < 5; i++)
		x *= 2 - odd * x;
	return x;
}

/*
 * A last byte that takes the hash to `want`, or 0. next = before + (now ^ c * k) is solved for c;
 * want is below 2^31, so next is want or want + 0x7fffffff.
 */
static unsigned char legacy_last(struct legacy_state s, uint32_t want)
{
	static uint32_t inv;

	if (!inv)
		inv = inverse(7152373u);
	for (int i = 0; i < 2; i++) {
		uint32_t next = i ? want + 0x7fffffff : want;
		uint32_t c = ((next - s.before) ^ s.now) * inv;

		if ((next & 0x80000000) == (i ? 0x80000000 : 0) && c > ' ' && c < 127 && c != '/' &&
			c != '"')
			return (unsigned char)c;
	}
	return 0;
}

/* Long names, all different, that the legacy hash takes for one. */
static void make_equal_names(char names[EQUAL_NAMES][EQUAL_LEN + 1])
{
	static const char set[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	struct legacy_state start = {0x12a3fe2d, 0x37abe8f9};
	uint32_t want = 0x1234567;
	uint64_t n = 0;

	for (int i = 0; i < EQUAL_LEN - 7; i++)
		start = legacy_step(start, 'x');
	for (int found = 0; found < EQUAL_NAMES; n++) {
		struct legacy_state s = start;
		char tail[7] = {0};
		uint64_t digits = n;

		for (int i = 0; i < 5; i++, digits /= 62) {
			tail[i] = set[digits % 62];
			s = legacy_step(s, (unsigned char)tail[i]);
		}
		for (int i = 0; i < 62 && found < EQUAL_NAMES; i++) {
			unsigned char c = legacy_last(legacy_step(s, (unsigned char)set[i]), want);

			if (!c)
				continue;
			tail[5] = set[i];
			tail[6] = (char)c;
			memset(names[found], 'x', EQUAL_LEN - 7);
			memcpy(names[found] + EQUAL_LEN - 7, tail, 7);
			names[found++][EQUAL_LEN] = 0;
			break;
		}
	}
}

static void write_names(const char *image, char names[EQUAL_NAMES][EQUAL_LEN + 1], unsigned others)
{
	FILE *f = fopen(scratch_path("names"), "w");

	ensure(f != NULL);
	fprintf(f, "mkdir dir\nwrite /dev/null target\ncd dir\n");
	/* Links do not make a directory grow. */
	for (unsigned i = 0; i < others / 2 + EQUAL_NAMES; i++)
		fprintf(f, "expand .\n");
	for (unsigned i = 0; i < others; i++)
		fprintf(f, "ln /target %0250u\n", i);
	for (int i = 0; i < EQUAL_NAMES; i++)
		fprintf(f, "ln /target \"%s\"\n", names[i]);
	fprintf(f, "sif /target links_count %u\n", others + EQUAL_NAMES + 1);
	ensure(fclose(f) == 0);
	rig_shell("debugfs -w -f names %s", image);
}

START_TEST(test_equal_hashes)
{
	static char names[EQUAL_NAMES][EQUAL_LEN + 1];
	const uint32_t no_seed[4] = {0};
	const unsigned others = 30;
	struct htree_path path;
	struct ext4_inode *dir;
	bool end = false;
	unsigned continued = 0;
	struct listing l;
	struct rig r;
	inum_t inum;

	make_equal_names(names);
	for (int i = 1; i < EQUAL_NAMES; i++)
		ck_assert_uint_eq(
			ext4_hash_name(EXT4_HASH_LEGACY, no_seed, names[i], EQUAL_LEN).major,
			ext4_hash_name(EXT4_HASH_LEGACY, no_seed, names[0], EQUAL_LEN).major);
	rig_shell("rm -f img; mke2fs -t ext4 -q -F -N 64 -b 1024 img 8M");
	rig_shell("debugfs -w -R 'ssv def_hash_version legacy' img");
	write_names("img", names, others);
	rig_index("img");
	rig_load(&r, "img");
	rig_mount(&r);
	dir = rig_get(&r, "dir");
	ck_assert(ext4_dir_is_indexed(dir));

	/* The names with one hash do not fit into a leaf. */
	ck_ok(htree_open(dir, &path));
	ck_assert_int_le(path.version, EXT4_HASH_LEGACY_UNSIGNED);
	ck_ok(htree_seek(&path, 0));
	while (!end) {
		continued += htree_leaf(&path).continues;
		ck_ok(htree_next(&path, &end));
	}
	htree_close(&path);
	ck_assert_uint_ge(continued, 3);

	for (int i = 0; i < EQUAL_NAMES; i++)
		ck_ok(ext4_lookup(dir, names[i], EQUAL_LEN, &inum));
	names[0][0] = '!';
	ck_err(ext4_lookup(dir, names[0], EQUAL_LEN, &inum), ERR_NOENT);
	for (size_t step = 1; step <= 16; step++) {
		ck_ok(listing_read(dir, step, &l));
		ck_assert_uint_eq(l.count, others + EQUAL_NAMES + 2);
		listing_sort(&l);
		for (size_t i = 1; i < l.count; i++)
			ck_assert_int_ne(listed_compare(&l.entry[i - 1], &l.entry[i]), 0);
		listing_free(&l);
	}
	ext4_inode_put(dir);
	rig_close(&r);
}
END_TEST

/* --- one hash for all: the ordinals ------------------------------------------------------------
 */

/* A block with one name many times, which no file system makes: still each entry once. */
START_TEST(test_equal_places)
{
	struct ext4_inode *dir;
	struct listing l;
	struct rig r;
	uint8_t *block;

	rig_shell("rm -f img; mke2fs -q -F -N 64 -b 1024 -O dir_index img 1M");
	rig_fill("img", "n%03u", 60, 1024);
	rig_load(&r, "img");
	rig_mount(&r);
	dir = rig_get(&r, "dir");
	ck_assert_uint_eq(ext4_dir_blocks(dir), 1);
	block = rig_block(&r, dir, 0);
	for (int i = 0; i < 60; i++)
		memcpy(block + 24 + 12 * i + 8, "nnnn", 4);
	ext4_inode_put(dir);
	rig_unmount(&r);
	rig_mount(&r);
	dir = rig_get(&r, "dir");
	for (size_t step = 1; step < 5; step++) {
		ck_ok(listing_read(dir, step, &l));
		ck_assert_uint_eq(l.count, 62);
		listing_free(&l);
	}
	ext4_inode_put(dir);
	rig_close(&r);
}
END_TEST

/* --- changes between two calls -----------------------------------------------------------------
 */

struct change {
	unsigned before, after;
	const char *hash;
};
/* Names come or go, and every leaf is filled anew; from 40 names on an index grows. */
static const struct change changes[] = {
	{3000, 6000, "half_md4"},
	{6000, 2500, "half_md4"},
	{40, 3000, "half_md4"},
	{3000, 6000, "tea"},
	{3000, 6000, "legacy"},
	{40, 3000, "legacy"},
};

static void make_change(const char *image, unsigned count, const struct change *c)
{
	rig_shell("rm -f %s; mke2fs -t ext4 -q -F -N 64 -b 1024 " SEED " %s 8M", image, image);
	rig_shell("debugfs -w -R 'ssv def_hash_version %s' %s", c->hash, image);
	rig_fill(image, "name%u", count, 1024);
	if (count > 60)
		rig_index(image);
}

START_TEST(test_change)
{
	const struct change *c = &changes[_i];
	unsigned stay = MIN(c->before, c->after);
	struct ext4_inode *dir[2];
	struct rig r[2];

	make_change("before", c->before, c);
	make_change("after", c->after, c);
	for (int i = 0; i < 2; i++) {
		rig_load(&r[i], i ? "after" : "before");
		rig_mount(&r[i]);
		dir[i] = rig_get(&r[i], "dir");
	}
	for (int round = 0; round < 12; round++) {
		size_t cut = scratch_random(c->before + 3);
		struct listing l = {.stop = cut};
		unsigned seen = 0;

		ck_ok(ext4_readdir(dir[0], 0, listing_take, &l));
		cut = l.count;
		l.stop = SIZE_MAX;
		ck_ok(ext4_readdir(dir[1], cut ? l.entry[cut - 1].cookie : 0, listing_take, &l));
		listing_sort(&l);
		for (size_t i = 0; i < l.count; i++) {
			unsigned n;

			if (i)
				ck_assert_int_ne(listed_compare(&l.entry[i - 1], &l.entry[i]), 0);
			if (sscanf(l.entry[i].name, "name%u", &n) == 1)
				seen += n < stay;
		}
		ck_assert_msg(seen == stay, "%u of %u after %zu", seen, stay, cut);
		listing_free(&l);
	}
	for (int i = 0; i < 2; i++) {
		ext4_inode_put(dir[i]);
		rig_close(&r[i]);
	}
}
END_TEST

/* Of a linear directory the entry behind the cookie may have been merged into the one before. */
START_TEST(test_linear_merge)
{
	struct listing l = {.stop = 10};
	struct ext4_inode *dir;
	struct rig r;
	uint8_t *block;
	size_t at = 0;

	rig_shell("rm -f img; mke2fs -q -F -N 64 -b 1024 -O ^dir_index img 1M");
	rig_fill("img", "n%03u", 100, 1024);
	rig_load(&r, "img");
	rig_mount(&r);
	dir = rig_get(&r, "dir");
	ck_ok(ext4_readdir(dir, 0, listing_take, &l));
	ck_assert_uint_eq(l.count, 10);
	/* "." and ".." and eight names were seen: the eighth swallows the two that follow. */
	block = rig_block(&r, dir, 0);
	at = 24 + 7 * 12;
	((struct ext4_disk_dirent *)(void *)(block + at))->rec_len = le16_make(36);
	ext4_inode_put(dir);
	rig_unmount(&r);
	rig_mount(&r);
	dir = rig_get(&r, "dir");
	l.stop = SIZE_MAX;
	ck_ok(ext4_readdir(dir, l.entry[9].cookie, listing_take, &l));
	ck_assert_uint_eq(l.count, 102 - 2);
	ck_assert_str_eq(l.entry[10].name, "n010");
	listing_free(&l);
	ext4_inode_put(dir);
	rig_close(&r);
}
END_TEST

/* Cookies that nobody was given: an end or an error, and no more entries than there are. */
START_TEST(test_foreign_cookies)
{
	static const uint64_t cookies[] = {3, 4, 1 << 20, HASHDIR_COOKIE_END - 1,
		HASHDIR_COOKIE_END, HASHDIR_COOKIE_END + 9, INT64_MAX, UINT64_MAX};
	static const char *const options[] = {"-O dir_index", "-O ^dir_index"};

	for (size_t o = 0; o < ARRAY_SIZE(options); o++) {
		for (unsigned count = 30; count < 6000; count += 2000) {
			struct ext4_inode *dir;
			struct rig r;

			rig_shell("rm -f img; mke2fs -q -F -N 64 -b 1024 %s img 4M", options[o]);
			rig_fill("img", "n%03u", count, 1024);
			rig_load(&r, "img");
			rig_mount(&r);
			dir = rig_get(&r, "dir");
			for (size_t i = 0; i < ARRAY_SIZE(cookies); i++) {
				struct listing l = {.stop = SIZE_MAX};
				enum err e = ext4_readdir(dir, cookies[i], listing_take, &l);

				ck_assert(e == OK || e == ERR_INVAL);
				ck_assert_uint_le(l.count, count + 2);
				listing_free(&l);
			}
			ext4_inode_put(dir);
			rig_close(&r);
		}
	}
}
END_TEST

START_TEST(test_not_a_directory)
{
	struct listing l = {.stop = SIZE_MAX};
	struct ext4_inode *file;
	struct rig r;
	inum_t inum;

	rig_shell("rm -f img; mke2fs -q -F img 1M; debugfs -w -R 'write /dev/null file' img");
	rig_load(&r, "img");
	rig_mount(&r);
	file = rig_get(&r, "file");
	ck_err(ext4_readdir(file, 0, listing_take, &l), ERR_NOTDIR);
	ck_err(ext4_lookup(file, "a", 1, &inum), ERR_NOTDIR);
	ext4_inode_put(file);
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cookie");
	TCase *c = tcase_create("cookie");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, test_equal_hashes);
	tcase_add_test(c, test_equal_places);
	tcase_add_loop_test(c, test_change, 0, (int)ARRAY_SIZE(changes));
	tcase_add_test(c, test_linear_merge);
	tcase_add_test(c, test_foreign_cookies);
	tcase_add_test(c, test_not_a_directory);
	suite_add_tcase(s, c);
	return scratch_main(s);
}
