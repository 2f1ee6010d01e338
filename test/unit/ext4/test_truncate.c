/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Truncation in many transactions: bounded, safe to cut at any moment, and with failing I/O. */
#include "image.h"
#include "map_rig.h"
#include "crash_rig.h"

enum { WINDOW = 1600 };
static const char layout[] = "-t ext4 -b 1024 -J size=1";

static void fill(struct map_file *f)
{
	map_set_size_to(f, EXT4_LBLK_END);
	for (uint32_t at = 0; at < map_blocks(f); at += 2)
		ck_ok(map_do_insert(f, at, 1, at % 5 == 0));
}

/* The size becomes 0, as the layer above does it: with the inode on the list first. */
static void shrink_size(struct image *im, struct ext4_inode *inode)
{
	struct journal_handle h = write_start(im, EXT4_CREDITS_ORPHAN + 1);

	ck_ok(ext4_orphan_add(&h, inode));
	extent_lock(&inode->map_lock);
	inode->disk_size_bytes = inode->attr.size_bytes = 0;
	ck_ok(ext4_inode_log(&h, inode));
	extent_unlock(&inode->map_lock);
	ck_ok(journal_stop(&h));
}

static enum err truncate_all(struct image *im, struct ext4_inode *inode)
{
	struct journal_handle h;
	enum err e;

	inode_lock(&inode->lock);
	shrink_size(im, inode);
	e = ext4_truncate_blocks(inode, 0);
	if (!e)
		e = journal_start(im->fs->journal, EXT4_CREDITS_ORPHAN, &h);
	if (!e) {
		e = ext4_orphan_remove(&h, inode);
		ck_ok(journal_stop(&h));
	}
	inode_unlock(&inode->lock);
	return e;
}

/* The log has 1024 blocks, and a whole file's nodes and groups would not fit into one handle. */
START_TEST(a_deep_file_goes_in_many_handles)
{
	struct image im;
	struct map_file f;

	map_make(&im, layout, "32M", 1);
	write_open(&im);
	map_open(&f, &im, 0, WINDOW);
	fill(&f);
	ck_assert_uint_ge(map_depth(&f), 2);
	ck_ok(truncate_all(&im, f.inode));
	ck_assert_uint_eq(map_depth(&f), 0);
	ck_assert_uint_eq(f.inode->attr.blocks_512, 0);
	memset(f.block, 0, map_blocks(&f) * sizeof(*f.block));
	map_check(&f);
	ext4_inode_put(f.inode);
	write_close_and_judge(&im);
	free(f.block);
}
END_TEST

/* A block in the middle stays the last; the one at the cut goes. */
START_TEST(the_cut_is_exact)
{
	struct image im;
	struct map_file f;

	map_make(&im, layout, "32M", 1);
	write_open(&im);
	map_open(&f, &im, 0, WINDOW);
	for (uint32_t at = 0; at < 100; at += 10)
		ck_ok(map_do_insert(&f, at, 10, false));
	inode_lock(&f.inode->lock);
	for (uint32_t first = 100; first-- > 0;) {
		ck_ok(ext4_truncate_blocks(f.inode, first));
		f.block[first] = (struct map_block){0};
		map_check(&f);
	}
	inode_unlock(&f.inode->lock);
	map_close(&f);
	write_close_and_judge(&im);
	free(f.block);
}
END_TEST

START_TEST(a_block_map_of_ext2_is_refused)
{
	struct image im;
	struct ext4_inode *inode;

	image_run("rm -f plain");
	pattern_write("plain", 1, 0, 20000);
	image_make("image", "-t ext4 -b 1024 -J size=1 -O ^extents,^64bit", "16M");
	image_debugfs("image", "write plain plain\n");
	image_load(&im, "image");
	write_open(&im);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM, &inode));
	inode_lock(&inode->lock);
	ck_err(ext4_truncate_blocks(inode, 0), ERR_OPNOTSUPP);
	ck_detail("inode 12");
	inode_unlock(&inode->lock);
	ext4_inode_put(inode);
	write_close_and_judge(&im);
}
END_TEST

START_TEST(a_cut_between_any_two_writes)
{
	struct image im;
	struct map_file f;
	struct crash_committer commits;
	struct dev *recorder;

	map_make(&im, layout, "16M", 1);
	recorder = crash_record(&im);
	crash_open(&im);
	map_open(&f, &im, 0, 700);
	crash_commit_start(&commits, &im);
	fill(&f);
	ck_ok(truncate_all(&im, f.inode));
	crash_commit_stop(&commits);
	ext4_inode_put(f.inode);
	write_close(&im);
	crash_cuts(&im, recorder, 40);
	image_close(&im);
	free(f.block);
}
END_TEST

/*
 * The nth operation of the device fails, once or for ever, in a file that grows and goes: what is
 * on the device can be repaired by e2fsck's automatic run. False: there were fewer operations.
 */
static bool faulty_run(struct image *im, uint64_t nth, bool for_ever)
{
	const unsigned mask = DEV_FAULT_READ | DEV_FAULT_WRITE | DEV_FAULT_FLUSH;
	struct map_file f;
	uint64_t calls;
	enum err e = OK;

	map_make(im, layout, "16M", 1);
	write_open(im);
	map_open(&f, im, 0, 300);
	map_set_size_to(&f, EXT4_LBLK_END);
	calls = dev_fault_calls(im->device.fault, mask);
	dev_fault_arm(im->device.fault, mask, nth, for_ever, ERR_IO);
	for (uint32_t at = 0; at < map_blocks(&f) && !e; at += 2) {
		e = map_do_insert(&f, at, 1, false);
		if (!e && at % 100 == 0)
			e = journal_commit(im->fs->journal, journal_running(im->fs->journal));
	}
	if (!e)
		e = map_do_remove(&f, 0, 300, 0);
	if (!e)
		e = journal_commit(im->fs->journal, journal_running(im->fs->journal));
	if (!e)
		e = map_do_remove(&f, 300, 300, 0);
	if (!e)
		e = journal_checkpoint(im->fs->journal);
	ext4_inode_put(f.inode);
	free(f.block);
	/* Also where the error was met before anything was changed: stop here, as after a crash. */
	journal_fail(im->fs->journal, ERR_IO, "the test ends");
	return dev_fault_calls(im->device.fault, mask) - calls >= nth;
}

static void faulty_close(struct image *im)
{
	ext4_alloc_close(im->fs);
	ck_assert_int_ne(journal_close(im->fs->journal), OK);
	im->fs->journal = NULL;
	image_unmount(im);
}

START_TEST(an_operation_of_the_device_fails)
{
	bool met = true;
	int runs = 0;

	log_open_stderr("test", LOG_ERROR_);
	for (uint64_t nth = 1; met; nth += 1 + nth / 8) {
		struct image im;

		met = faulty_run(&im, nth, _i);
		faulty_close(&im);
		write_dump(&im, "faulty");
		image_close(&im);
		crash_judge("faulty");
		runs++;
	}
	ck_assert_int_gt(runs, 5);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/truncate");
	TCase *tcase = tcase_create("truncate");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, a_deep_file_goes_in_many_handles);
	tcase_add_test(tcase, the_cut_is_exact);
	tcase_add_test(tcase, a_block_map_of_ext2_is_refused);
	tcase_add_test(tcase, a_cut_between_any_two_writes);
	tcase_add_loop_test(tcase, an_operation_of_the_device_fails, 0, 2);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
