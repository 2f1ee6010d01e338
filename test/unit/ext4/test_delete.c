/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Inodes without links: deleted with all that they hold, cut anywhere, by many threads. */
#include "image.h"
#include "orphan_rig.h"
#include "rig_run.h"

static const char *const layouts[] = {"-t ext4 -b 1024 -J size=1",
	"-t ext4 -b 4096 -g 1024 -J size=4", "-t ext4 -b 1024 -J size=1 -O ^metadata_csum -I 128"};

static void free_counts(struct image *im, uint64_t *blocks, uint64_t *inodes)
{
	write_commit(im);
	ext4_alloc_counts(im->fs, blocks, inodes);
}

/* What is free when none of the files was ever there. */
static void empty_counts(const char *layout, uint64_t *blocks, uint64_t *inodes)
{
	struct image im;

	image_make("image", layout, "16M");
	image_load(&im, "image");
	write_open(&im);
	free_counts(&im, blocks, inodes);
	write_close(&im);
	image_close(&im);
}

static void start(struct image *im, const char *layout)
{
	orphan_make(layout, "16M");
	orphan_unlink_names();
	image_load(im, "image");
	write_open(im);
}

static void drop_all(struct image *im)
{
	for (inum_t i = 0; i < ORPHANS; i++) {
		struct ext4_inode *inode;
		ck_ok(ext4_inode_get(im->fs, IMAGE_FIRST_INUM + i, &inode));
		orphan_drop_link(im, inode);
		ext4_inode_put(inode);
	}
}

START_TEST(all_that_they_hold)
{
	struct image im;
	struct ext4_inode *inode;
	uint64_t blocks, inodes, blocks_empty, inodes_empty;
	inum_t list[ORPHANS];

	empty_counts(layouts[_i], &blocks_empty, &inodes_empty);
	start(&im, layouts[_i]);
	drop_all(&im);
	ck_assert_uint_eq(orphan_read_list(&im, list, ORPHANS), ORPHANS);
	/* From the middle outwards, one that has links, and one that is not in memory. */
	for (inum_t i = 0; i < ORPHANS; i++)
		ext4_evict(im.fs, IMAGE_FIRST_INUM + (i * 7 + 11) % ORPHANS);
	ext4_evict(im.fs, EXT4_ROOT_INUM);
	ext4_evict(im.fs, im.fs->inodes);
	free_counts(&im, &blocks, &inodes);
	ck_assert_uint_eq(blocks, blocks_empty);
	ck_assert_uint_eq(inodes, inodes_empty);
	ck_assert_uint_eq(orphan_read_list(&im, list, ORPHANS), 0);
	for (inum_t i = 0; i < ORPHANS; i++)
		ck_err(ext4_inode_get(im.fs, IMAGE_FIRST_INUM + i, &inode), ERR_STALE);
	write_close_and_judge(&im);
}
END_TEST

/* Somebody still holds the memory of it; the number is free all the same. */
START_TEST(a_reference_outlives_it)
{
	struct image im;
	struct ext4_inode *inode, *other;

	start(&im, layouts[0]);
	drop_all(&im);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM + 1, &inode));
	ck_assert_uint_eq(inode->attr.nlink, 0);
	ck_ok(ext4_orphan_finish(im.fs));
	ck_err(ext4_inode_get(im.fs, IMAGE_FIRST_INUM + 1, &other), ERR_STALE);
	ck_assert(!ext4_orphan_is_listed(inode));
	ext4_inode_put(inode);
	write_close_and_judge(&im);
}
END_TEST

START_TEST(a_damaged_one_stays_listed)
{
	struct image im;
	struct ext4_inode *inode;
	struct ext4_extent_header *root;
	inum_t list[ORPHANS];

	log_open_stderr("test", LOG_ERROR_);
	start(&im, layouts[2]);
	drop_all(&im);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM + 1, &inode));
	root = (void *)(inode->raw + offsetof(struct ext4_disk_inode, i_block));
	root->eh_magic = le16_make(1);
	ext4_inode_put(inode);
	for (inum_t i = 0; i < ORPHANS; i++)
		ext4_evict(im.fs, IMAGE_FIRST_INUM + i);
	ck_assert_uint_eq(orphan_read_list(&im, list, ORPHANS), 1);
	ck_assert_uint_eq(list[0], IMAGE_FIRST_INUM + 1);
	/* Not tried for ever. */
	ck_ok(ext4_orphan_finish(im.fs));
	ck_assert(!journal_failed(im.fs->journal));
	write_close(&im);
	image_close(&im);
}
END_TEST

static void evict_run(unsigned index, void *arg)
{
	struct image *im = arg;

	for (inum_t i = index; i < ORPHANS; i += 4)
		ext4_evict(im->fs, IMAGE_FIRST_INUM + i);
}

START_TEST(many_threads)
{
	struct image im;
	inum_t list[ORPHANS];

	start(&im, layouts[_i]);
	drop_all(&im);
	rig_run_threads(4, evict_run, &im);
	ck_assert_uint_eq(orphan_read_list(&im, list, ORPHANS), 0);
	write_close_and_judge(&im);
}
END_TEST

START_TEST(a_cut_between_any_two_writes)
{
	struct image im;
	struct crash_committer commits;
	struct dev *recorder;

	orphan_make(layouts[_i], "16M");
	orphan_unlink_names();
	image_load(&im, "image");
	/* All links go before the record starts: the names went without them. */
	write_open(&im);
	drop_all(&im);
	ck_ok(journal_checkpoint(im.fs->journal));
	write_close(&im);
	recorder = crash_record(&im);
	crash_open(&im);
	crash_commit_start(&commits, &im);
	ck_ok(ext4_orphan_recover(im.fs));
	crash_commit_stop(&commits);
	write_close(&im);
	crash_cuts(&im, recorder, 25);
	image_close(&im);
}
END_TEST

/* The nth operation fails for ever; what is on the device can be repaired. */
START_TEST(an_operation_of_the_device_fails)
{
	const unsigned mask = DEV_FAULT_READ | DEV_FAULT_WRITE | DEV_FAULT_FLUSH;
	bool met = true;

	log_open_stderr("test", LOG_ERROR_);
	for (uint64_t nth = 1; met; nth += 1 + nth / 4) {
		struct image im;
		uint64_t calls;

		start(&im, layouts[_i]);
		drop_all(&im);
		ck_ok(journal_checkpoint(im.fs->journal));
		calls = dev_fault_calls(im.device.fault, mask);
		dev_fault_arm(im.device.fault, mask, nth, true, ERR_IO);
		for (inum_t i = 0; i < ORPHANS; i++) {
			ext4_evict(im.fs, IMAGE_FIRST_INUM + i);
			if (journal_commit(im.fs->journal, journal_running(im.fs->journal)))
				break;
		}
		met = dev_fault_calls(im.device.fault, mask) - calls >= nth;
		journal_fail(im.fs->journal, ERR_IO, "the test ends");
		ext4_alloc_close(im.fs);
		ck_assert_int_ne(journal_close(im.fs->journal), OK);
		im.fs->journal = NULL;
		image_unmount(&im);
		write_dump(&im, "faulty");
		image_close(&im);
		crash_judge("faulty");
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/delete");
	TCase *tcase = tcase_create("delete");
	const int kinds = (int)ARRAY_SIZE(layouts);

	tcase_set_timeout(tcase, 200);
	tcase_add_loop_test(tcase, all_that_they_hold, 0, kinds);
	tcase_add_test(tcase, a_reference_outlives_it);
	tcase_add_test(tcase, a_damaged_one_stays_listed);
	tcase_add_loop_test(tcase, many_threads, 0, kinds);
	tcase_add_loop_test(tcase, a_cut_between_any_two_writes, 0, kinds);
	tcase_add_loop_test(tcase, an_operation_of_the_device_fails, 0, kinds);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
