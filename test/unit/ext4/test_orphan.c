/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The orphan list on disk: order, joining and leaving anywhere, by many threads. */
#include "image.h"
#include "orphan_rig.h"
#include "rig_run.h"

static const char *const layouts[] = {"-t ext4 -b 1024 -J size=1",
	"-t ext4 -b 4096 -g 1024 -J size=4", "-t ext4 -b 1024 -J size=1 -O ^metadata_csum -I 128"};

static void start(struct image *im, const char *layout)
{
	orphan_make(layout, "16M");
	image_load(im, "image");
	write_open(im);
}

static void change(struct image *im, struct ext4_inode *inode, bool add)
{
	struct journal_handle h = write_start(im, EXT4_CREDITS_ORPHAN);

	inode_lock(&inode->lock);
	if (add)
		ck_ok(ext4_orphan_add(&h, inode));
	else
		ck_ok(ext4_orphan_remove(&h, inode));
	ck_assert_int_eq(ext4_orphan_is_listed(inode), add);
	inode_unlock(&inode->lock);
	ck_ok(journal_stop(&h));
}

START_TEST(any_order)
{
	struct image im;
	struct ext4_inode *inode[ORPHANS];
	inum_t truth[ORPHANS], list[ORPHANS + 1];
	unsigned count = 0;

	start(&im, layouts[_i]);
	for (inum_t i = 0; i < ORPHANS; i++)
		ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM + i, &inode[i]));
	for (int round = 0; round < 400; round++) {
		struct ext4_inode *one = inode[scratch_random(ORPHANS)];
		bool add = scratch_random(2);
		unsigned at = 0;

		while (at < count && truth[at] != one->inum)
			at++;
		change(&im, one, add);
		if (add && at == count) {
			memmove(&truth[1], &truth[0], count++ * sizeof(truth[0]));
			truth[0] = one->inum;
		} else if (!add && at < count) {
			memmove(&truth[at], &truth[at + 1], (--count - at) * sizeof(truth[0]));
		}
		if (round % 7)
			continue;
		ck_assert_uint_eq(orphan_read_list(&im, list, ORPHANS), count);
		ck_assert_mem_eq(list, truth, count * sizeof(list[0]));
	}
	for (int i = 0; i < ORPHANS; i++) {
		change(&im, inode[i], false);
		ext4_inode_put(inode[i]);
	}
	ck_assert_uint_eq(orphan_read_list(&im, list, ORPHANS), 0);
	write_close_and_judge(&im);
}
END_TEST

/* A listed inode stays in memory without any other reference, and is put back at the end. */
START_TEST(a_listed_inode_is_held)
{
	struct image im;
	struct ext4_inode *inode, *found;

	start(&im, layouts[0]);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM, &inode));
	orphan_drop_link(&im, inode);
	ext4_inode_put(inode);
	found = ext4_inode_find(im.fs, IMAGE_FIRST_INUM);
	ck_assert_ptr_eq(found, inode);
	ck_assert_uint_eq(found->attr.nlink, 0);
	ext4_inode_put(found);
	ck_assert_ptr_null(ext4_inode_find(im.fs, IMAGE_FIRST_INUM + 1));
	write_close(&im);
	image_close(&im);
}
END_TEST

struct crowd {
	struct image *im;
	struct ext4_inode *inode[ORPHANS];
};

static void crowd_run(unsigned index, void *arg)
{
	struct crowd *c = arg;

	for (unsigned round = 0; round < 100; round++)
		for (unsigned i = index; i < ORPHANS; i += 4)
			change(c->im, c->inode[i], (round + i) % 2);
}

START_TEST(many_threads)
{
	struct image im;
	struct crowd c = {.im = &im};
	inum_t list[ORPHANS + 1];
	unsigned count;

	start(&im, layouts[0]);
	for (inum_t i = 0; i < ORPHANS; i++)
		ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM + i, &c.inode[i]));
	rig_run_threads(4, crowd_run, &c);
	count = orphan_read_list(&im, list, ORPHANS);
	ck_assert_uint_eq(count, ORPHANS / 2);
	for (unsigned i = 0; i < count; i++)
		ck_assert_uint_eq((99 + list[i] - IMAGE_FIRST_INUM) % 2, 1);
	for (int i = 0; i < ORPHANS; i++) {
		change(&im, c.inode[i], false);
		ext4_inode_put(c.inode[i]);
	}
	write_close_and_judge(&im);
}
END_TEST

/* The inode before the one that leaves is written as it was logged, not as it is in memory. */
START_TEST(a_neighbour_keeps_what_it_logged)
{
	struct image im;
	struct ext4_inode *a, *b;
	inum_t list[ORPHANS];

	start(&im, layouts[0]);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM, &a));
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM + 1, &b));
	change(&im, b, true);
	change(&im, a, true);
	inode_lock(&a->lock);
	a->attr.uid = 4711; /* somebody is about to log it */
	inode_unlock(&a->lock);
	change(&im, b, false);
	ck_assert_uint_eq(orphan_read_list(&im, list, ORPHANS), 1);
	ck_assert_uint_eq(le16_get(orphan_on_device(&im, a->inum)->i_uid_lo), 0);
	change(&im, a, false);
	a->attr.uid = 0;
	ext4_inode_put(a);
	ext4_inode_put(b);
	write_close_and_judge(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/orphan");
	TCase *tcase = tcase_create("orphan");

	tcase_set_timeout(tcase, 100);
	tcase_add_loop_test(tcase, any_order, 0, (int)ARRAY_SIZE(layouts));
	tcase_add_test(tcase, a_listed_inode_is_held);
	tcase_add_test(tcase, many_threads);
	tcase_add_test(tcase, a_neighbour_keeps_what_it_logged);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
