/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Orphans after a crash: the kernel's by us, ours by the kernel, and lists that make no sense. */
#include "image.h"
#include "orphan_rig.h"

#include <sys/ioctl.h>
#include <sys/mount.h>

static const char layout[] = "-t ext4 -b 1024 -J size=1";

/* --- a kernel's crash ------------------------------------------------------------------------- */

/* Mounts the image in the scratch folder by loop; false, having said so, where that cannot be. */
static bool kernel_mount(const char *name, char device[256])
{
	if (!scratch_loop_attach("", scratch_path(name), device)) {
		printf("SKIP: the kernel's ext4: %s\n", device);
		return false;
	}
	ensure(mkdir(scratch_path("mount"), 0755) == 0 || errno == EEXIST);
	if (mount(device, scratch_path("mount"), "ext4", 0, "") == 0)
		return true;
	printf("SKIP: the kernel's ext4: mount: %s\n", strerror(errno));
	scratch_loop_detach(device);
	return false;
}

static void kernel_unmount(const char *device)
{
	ensure(umount(scratch_path("mount")) == 0);
	scratch_loop_detach(device);
}

/* Files that are open when their last name goes, one large and one with attributes; then a crash.
 */
static void kernel_crash(void)
{
	const int shutdown_log_flush = 1;
	int fd[3], top;

	for (int i = 0; i < 3; i++) {
		char path[320];
		snprintf(path, sizeof(path), "%s/mount/open%d", scratch_dir, i);
		fd[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		ensure(fd[i] >= 0);
		for (int b = 0; b < (i ? 300 : 0); b++)
			ensure(pwrite(fd[i], path, 100, b * 8192) == 100);
		ensure(fsync(fd[i]) == 0 && unlink(path) == 0);
	}
	top = open(scratch_path("mount"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ensure(top >= 0 && fsync(top) == 0);
	ensure(ioctl(top, _IOR('X', 125, uint32_t), &shutdown_log_flush) == 0);
	close(top);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
}

START_TEST(the_kernels_orphans)
{
	char device[256];
	struct image im;

	image_make("image", layout, "16M");
	if (!kernel_mount("image", device))
		return;
	kernel_crash();
	kernel_unmount(device);
	image_load(&im, "image");
	ck_assert(le32_get(image_super(&im)->s_feature_incompat) & EXT4_INCOMPAT_RECOVER);
	crash_replay(&im);
	ck_assert_uint_ne(le32_get(image_super(&im)->s_last_orphan), 0);
	write_open(&im);
	ck_ok(ext4_orphan_recover(im.fs));
	write_close(&im);
	ck_assert_uint_eq(le32_get(image_super(&im)->s_last_orphan), 0);
	write_dump(&im, "written");
	image_close(&im);
	write_judge("written");
}
END_TEST

/* The log holds our orphans; the kernel deletes them. */
START_TEST(our_orphans_by_the_kernel)
{
	char device[256];
	struct image im;

	orphan_make(layout, "16M");
	orphan_unlink_names();
	image_load(&im, "image");
	write_open(&im);
	for (inum_t i = 0; i < ORPHANS; i++) {
		struct ext4_inode *inode;
		ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM + i, &inode));
		orphan_drop_link(&im, inode);
		if (i == ORPHANS / 2)
			ext4_evict(im.fs, IMAGE_FIRST_INUM);
		ext4_inode_put(inode);
	}
	ck_ok(journal_commit(im.fs->journal, journal_running(im.fs->journal)));
	write_dump(&im, "crashed");
	write_close(&im);
	image_close(&im);
	image_run("cp crashed kernel");
	crash_judge("crashed");
	if (!kernel_mount("kernel", device))
		return;
	kernel_unmount(device);
	write_judge("kernel");
	image_run("test $(dumpe2fs -h kernel 2>/dev/null | "
		  "awk '/^Inode count/{a=$3} /^Free inodes/{b=$3} END{print a-b}') = 11");
}
END_TEST

/* --- truncation ------------------------------------------------------------------------------- */

/* A size in the middle of a block, blocks beyond, and stale bytes behind the size in its block. */
START_TEST(a_truncation_that_was_cut_short)
{
	enum { SIZE = 4 * 1024 + 100 };
	struct image im;
	struct ext4_inode *inode;
	struct journal_handle h;
	struct ext4_run run;

	orphan_make(layout, "16M");
	image_load(&im, "image");
	write_open(&im);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM, &inode));
	ck_ok(ext4_map(inode, SIZE / 1024, 1, &run));
	inode_lock(&inode->lock);
	h = write_start(&im, EXT4_CREDITS_ORPHAN + 1);
	ck_ok(ext4_orphan_add(&h, inode));
	extent_lock(&inode->map_lock);
	inode->disk_size_bytes = inode->attr.size_bytes = SIZE;
	ck_ok(ext4_inode_log(&h, inode));
	extent_unlock(&inode->map_lock);
	ck_ok(journal_stop(&h));
	inode_unlock(&inode->lock);
	ext4_inode_put(inode);
	ck_ok(journal_commit(im.fs->journal, journal_running(im.fs->journal)));
	write_dump(&im, "crashed");
	write_close(&im);
	image_close(&im);

	image_load(&im, "crashed");
	ck_assert_uint_ne(image_block(&im, run.physical)[100], 0);
	crash_recover(&im);
	for (int i = 0; i < 1024; i++)
		ck_assert_int_eq(image_block(&im, run.physical)[i] != 0, i < 100);
	ck_ok(ext4_inode_get(im.fs, IMAGE_FIRST_INUM, &inode));
	ck_assert_uint_eq(inode->attr.blocks_512, 5 * 2);
	ck_assert(!ext4_orphan_is_listed(inode));
	ext4_inode_put(inode);
	write_close_and_judge(&im);
}
END_TEST

/* --- lists that make no sense ----------------------------------------------------------------- */

/* Inodes 12 and 13 without links, on the list, and more of it as the test says. */
static void make_list(const char *more)
{
	image_run(": > empty");
	image_make("image", "-t ext4 -b 1024 -J size=1 -O ^metadata_csum", "16M");
	image_debugfs("image", "write empty a\nwrite empty b\nunlink a\nunlink b\n"
			       "set_inode_field <12> links_count 0\n"
			       "set_inode_field <13> links_count 0\n"
			       "set_inode_field <12> dtime @13\n"
			       "set_super_value last_orphan 12\n");
	if (*more)
		image_debugfs("image", more);
}

static const struct list_case {
	const char *more, *detail; /* NULL: the list is good */
} lists[] = {
	{"", NULL},
	{"set_inode_field <13> dtime @12\n", "inode 12"},
	{"set_inode_field <13> dtime @13\n", "inode 13"},
	{"set_inode_field <13> dtime @2\n", "inode 2"},
	{"set_inode_field <13> dtime @8\n", "inode 8"},
	{"set_inode_field <13> dtime @99999\n", "inode 99999"},
	{"set_inode_field <13> dtime @20\n", "inode 20"},
	{"set_super_value last_orphan 4000000000\n", "inode 4000000000"},
	{"freei <13>\n", "the inode bitmap"},
	{"clri <13>\nseti <13>\n", "inode 13"},
};

START_TEST(a_list_from_the_disk)
{
	const struct list_case *c = &lists[_i];
	struct image im;

	log_open_stderr("test", LOG_ERROR_);
	make_list(c->more);
	image_load(&im, "image");
	write_open(&im);
	if (c->detail) {
		uint64_t blocks, inodes, blocks_after, inodes_after;
		ext4_alloc_counts(im.fs, &blocks, &inodes);
		ck_err(ext4_orphan_recover(im.fs), ERR_CORRUPT);
		ck_detail(c->detail);
		ext4_alloc_counts(im.fs, &blocks_after, &inodes_after);
		ck_assert_uint_eq(blocks, blocks_after);
		ck_assert_uint_eq(inodes, inodes_after);
		write_close(&im);
		image_close(&im);
		return;
	}
	ck_ok(ext4_orphan_recover(im.fs));
	write_close_and_judge(&im);
}
END_TEST

/* An inode with ext2's block map is only read yet: it stays listed, the other one goes. */
START_TEST(a_kind_that_is_only_read_stays)
{
	struct image im;
	inum_t list[3];

	log_open_stderr("test", LOG_ERROR_);
	image_run("rm -f plain && : > empty");
	pattern_write("plain", 1, 0, 20000);
	image_make("image", "-t ext4 -b 1024 -J size=1 -O ^extents,^64bit,^metadata_csum", "16M");
	image_debugfs("image", "write plain a\nwrite empty b\nunlink a\nunlink b\n"
			       "set_inode_field <12> links_count 0\n"
			       "set_inode_field <13> links_count 0\n"
			       "set_inode_field <13> flags 0x80000\n"
			       "set_inode_field <13> block[0] 0x0000f30a\n"
			       "set_inode_field <13> block[1] 0x00000004\n"
			       "set_inode_field <12> dtime @13\n"
			       "set_super_value last_orphan 12\n");
	image_load(&im, "image");
	write_open(&im);
	ck_ok(ext4_orphan_recover(im.fs));
	ck_assert_uint_eq(orphan_read_list(&im, list, 3), 1);
	ck_assert_uint_eq(list[0], 12);
	write_close(&im);
	write_dump(&im, "written");
	image_close(&im);
	crash_judge("written");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/orphan_recover");
	TCase *tcase = tcase_create("orphan_recover");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, the_kernels_orphans);
	tcase_add_test(tcase, our_orphans_by_the_kernel);
	tcase_add_test(tcase, a_truncation_that_was_cut_short);
	tcase_add_loop_test(tcase, a_list_from_the_disk, 0, (int)ARRAY_SIZE(lists));
	tcase_add_test(tcase, a_kind_that_is_only_read_stays);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
