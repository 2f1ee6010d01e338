/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Attributes to bytes and back: times to 2446, large numbers; debugfs reads what was written. */
#include "inode_rig.h"

static const char with_256[] = "-t ext4 -b 1024 -J size=1";
static const char with_128[] = "-t ext4 -b 1024 -J size=1 -I 128";

static void open_image(struct image *im, const char *options)
{
	image_make("image", options, "8M");
	image_load(im, "image");
	write_open(im);
}

/* Sets attributes, logs, and reads the inode from the disk by a new mount. */
static struct ext4_attr round_trip(
	struct image *im, struct ext4_inode *inode, const struct ext4_attr *attr)
{
	struct journal_handle h = write_start(im, 1);
	struct ext4_inode *again;
	struct ext4_attr got;
	inum_t inum = inode->inum;

	inode_lock(&inode->lock);
	extent_lock(&inode->map_lock);
	inode->attr = *attr;
	inode->disk_size_bytes = attr->size_bytes;
	ck_ok(ext4_inode_log(&h, inode));
	extent_unlock(&inode->map_lock);
	inode_unlock(&inode->lock);
	ck_ok(journal_stop(&h));
	ext4_inode_put(inode);
	write_close(im);
	write_open(im);
	ck_ok(ext4_inode_get(im->fs, inum, &again));
	ck_ok(ext4_getattr(again, &got));
	ext4_inode_put(again);
	return got;
}

static struct ext4_inode *new_file(struct image *im)
{
	struct ext4_inode *root = inode_root(im), *inode;

	ck_ok(inode_make(root, S_IFREG | 0644, &inode));
	ext4_inode_put(root);
	return inode;
}

#define FIRST_SECOND INT64_C(-2147483648)
#define LAST_OLD     INT64_C(2147483647)
#define LAST_SECOND  INT64_C(15032385535)
static const int64_t seconds[] = {FIRST_SECOND, -1, 0, 1, 1700000000, LAST_OLD, LAST_OLD + 1,
	INT64_C(4294967295), INT64_C(4294967296), INT64_C(6442450943), INT64_C(6442450944),
	INT64_C(10737418239), INT64_C(10737418240), LAST_SECOND};

START_TEST(times)
{
	struct ext4_inode *inode;
	struct ext4_attr attr, got;
	struct image im;
	int64_t sec = seconds[_i], old = MIN(sec, LAST_OLD);

	open_image(&im, with_256);
	inode = new_file(&im);
	attr = inode->attr;
	attr.nlink = 1;
	attr.atime = (struct ext4_time){sec, 999999999};
	attr.mtime = (struct ext4_time){sec, 1};
	attr.ctime = (struct ext4_time){sec, 0};
	attr.crtime = (struct ext4_time){sec, 123456789};
	got = round_trip(&im, inode, &attr);
	ck_assert_int_eq(memcmp(&attr, &got, sizeof(attr)), 0);
	write_close(&im);
	image_close(&im);

	/* Without extra fields: seconds to 2038. */
	open_image(&im, with_128);
	inode = new_file(&im);
	attr.inum = inode->inum;
	attr.generation = inode->attr.generation;
	got = round_trip(&im, inode, &attr);
	ck_assert_int_eq(got.atime.sec, old);
	ck_assert_int_eq(got.mtime.sec, old);
	ck_assert_int_eq(got.ctime.sec, old);
	ck_assert_uint_eq(got.atime.nsec, 0);
	write_close(&im);
	image_close(&im);
}
END_TEST

START_TEST(times_out_of_range)
{
	struct ext4_inode *inode;
	struct ext4_attr attr, got;
	struct image im;

	open_image(&im, with_256);
	inode = new_file(&im);
	attr = inode->attr;
	attr.nlink = 1;
	attr.atime.sec = FIRST_SECOND - 1;
	attr.mtime.sec = LAST_SECOND + 1;
	attr.ctime.sec = INT64_MAX;
	attr.crtime.sec = INT64_MIN;
	got = round_trip(&im, inode, &attr);
	ck_assert_int_eq(got.atime.sec, FIRST_SECOND);
	ck_assert_int_eq(got.mtime.sec, LAST_SECOND);
	ck_assert_int_eq(got.ctime.sec, LAST_SECOND);
	ck_assert_int_eq(got.crtime.sec, FIRST_SECOND);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* Sizes and counts at the borders of their forms on disk. */
START_TEST(large_numbers)
{
	static const struct {
		uint64_t blocks_512, size_bytes;
	} rows[] = {{0, 0}, {8, 1}, {UINT32_MAX, INT32_MAX}, {1ull << 32, 1ull << 31},
		{(1ull << 48) - 2, 1ull << 32}, {1ull << 48, (1ull << 42) - 1024}};
	struct ext4_inode *inode;
	struct ext4_attr attr, got;
	struct image im;

	open_image(&im, with_256);
	inode = new_file(&im);
	attr = inode->attr;
	attr.nlink = 60000;
	attr.uid = 4000000000u;
	attr.gid = 65536;
	attr.mode = S_IFREG | 07777;
	attr.blocks_512 = rows[_i].blocks_512;
	attr.size_bytes = rows[_i].size_bytes;
	got = round_trip(&im, inode, &attr);
	if (rows[_i].blocks_512 >> 48)
		attr.flags |= EXT4_HUGE_FILE_FL;
	ck_assert_int_eq(memcmp(&attr, &got, sizeof(attr)), 0);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* Features that a large file needs and that the volume has not. */
START_TEST(too_large_for_the_volume)
{
	struct ext4_inode *inode;
	struct journal_handle h;
	struct image im;

	open_image(&im, "-t ext4 -b 1024 -J size=1 -O ^large_file,^huge_file");
	inode = new_file(&im);
	h = write_start(&im, 1);
	inode_lock(&inode->lock);
	extent_lock(&inode->map_lock);
	inode->attr.nlink = 1;
	inode->disk_size_bytes = 1ull << 31;
	ck_err(ext4_inode_log(&h, inode), ERR_FBIG);
	ck_detail("large_file");
	inode->disk_size_bytes = 0;
	inode->attr.blocks_512 = 1ull << 32;
	ck_err(ext4_inode_log(&h, inode), ERR_FBIG);
	ck_detail("huge_file");
	extent_unlock(&inode->map_lock);
	inode_unlock(&inode->lock);
	ck_ok(journal_stop(&h));
	ext4_inode_put(inode);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* What programs see of a file that grows is not what the disk shows before the data is there. */
START_TEST(the_disk_has_its_own_size)
{
	struct ext4_inode *inode;
	struct journal_handle h;
	struct image im;
	inum_t inum;

	open_image(&im, with_256);
	inode = new_file(&im);
	inum = inode->inum;
	h = write_start(&im, 1);
	inode_lock(&inode->lock);
	extent_lock(&inode->map_lock);
	inode->attr.nlink = 1;
	inode->attr.size_bytes = 5000;
	inode->disk_size_bytes = 1000;
	ck_ok(ext4_inode_log(&h, inode));
	extent_unlock(&inode->map_lock);
	inode_unlock(&inode->lock);
	ck_ok(journal_stop(&h));
	ext4_inode_put(inode);
	write_close(&im);
	write_open(&im);
	ck_ok(ext4_inode_get(im.fs, inum, &inode));
	ck_assert_uint_eq(inode->attr.size_bytes, 1000);
	ck_assert_uint_eq(inode->disk_size_bytes, 1000);
	ext4_inode_put(inode);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* debugfs' stat of an inode that was written here. */
START_TEST(debugfs_reads_it)
{
	static const char *const want[] = {"Type: regular", "Mode:  0751", "Flags: 0x80080",
		"User: 100000", "Group: 70000", "Links: 3", "Size: 1000", "Blockcount: 0",
		" ctime: 0x00000000:00000001", " atime: 0x7fffffff:ee6b27fc",
		" mtime: 0x80000000:075bcd16", "crtime: 0x65000000:00000000",
		"Size of extra inode fields: 32"};
	struct ext4_inode *inode;
	struct ext4_attr attr;
	struct image im;
	char *said;
	FILE *f;

	open_image(&im, with_256);
	inode = new_file(&im);
	attr = inode->attr;
	attr.mode = S_IFREG | 0751;
	attr.uid = 100000;
	attr.gid = 70000;
	attr.nlink = 3;
	attr.size_bytes = 1000;
	attr.flags |= EXT4_NOATIME_FL;
	attr.ctime = (struct ext4_time){INT64_C(1) << 32, 0};
	attr.atime = (struct ext4_time){INT32_MAX, 999999999};
	attr.mtime = (struct ext4_time){INT64_C(0x180000000), 30864197};
	attr.crtime = (struct ext4_time){0x65000000, 0};
	(void)round_trip(&im, inode, &attr);
	write_close(&im);
	write_dump(&im, "written");
	image_close(&im);
	image_run("debugfs -R 'stat <12>' written > stat 2>/dev/null");
	said = calloc(1, 8192);
	f = fopen(scratch_path("stat"), "r");
	ensure(said && f);
	ensure(fread(said, 1, 8191, f) > 0);
	fclose(f);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		ck_assert_msg(strstr(said, want[i]), "no '%s' in %s", want[i], said);
	free(said);
}
END_TEST

START_TEST(now)
{
	struct ext4 fs = {.inode_bytes = 128};
	struct ext4_time t = ext4_now(&fs);

	ck_assert_uint_eq(t.nsec, 0);
	ck_assert_int_gt(t.sec, 1600000000);
	fs.inode_bytes = 256;
	for (int i = 0; i < 100 && t.nsec == 0; i++)
		t = ext4_now(&fs);
	ck_assert_uint_gt(t.nsec, 0);
}
END_TEST

START_TEST(a_failed_journal_changes_nothing)
{
	struct ext4_inode *root;
	struct journal_handle h;
	struct image im;
	uint8_t *before;
	uint32_t offset;
	struct cache_block *b;

	open_image(&im, with_256);
	root = inode_root(&im);
	before = malloc(im.fs->block_bytes);
	ensure(before != NULL);
	ck_ok(cache_get(im.fs->cache, ext4_inode_table_block(im.fs, root->inum, &offset), &b));
	memcpy(before, b->data, im.fs->block_bytes);
	h = write_start(&im, 1);
	journal_fail(im.fs->journal, ERR_IO, "the test says so");
	extent_lock(&root->map_lock);
	root->attr.uid = 1;
	ck_err(ext4_inode_log(&h, root), ERR_ROFS);
	extent_unlock(&root->map_lock);
	ck_err(journal_stop(&h), ERR_ROFS);
	ck_assert_int_eq(memcmp(before, b->data, im.fs->block_bytes), 0);
	cache_put(im.fs->cache, b);
	free(before);
	ext4_inode_put(root);
	ext4_alloc_close(im.fs);
	ck_assert_int_ne(journal_close(im.fs->journal), OK);
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("inode_write");
	TCase *tc = tcase_create("inode_write");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, times, 0, (int)ARRAY_SIZE(seconds));
	tcase_add_test(tc, times_out_of_range);
	tcase_add_loop_test(tc, large_numbers, 0, 6);
	tcase_add_test(tc, too_large_for_the_volume);
	tcase_add_test(tc, the_disk_has_its_own_size);
	tcase_add_test(tc, debugfs_reads_it);
	tcase_add_test(tc, now);
	tcase_add_test(tc, a_failed_journal_changes_nothing);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
