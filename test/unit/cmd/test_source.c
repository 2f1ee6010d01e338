/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * source.c: sources by path and tag, the mount point, the claim.
 */
#include "source.h"
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[PATH_MAX];

static void make_folder(void)
{
	const char *top = getenv("TMPDIR");

	snprintf(folder, sizeof(folder), "%s/cryptfs-source.XXXXXX", top ? top : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
}

static void remove_folder(void)
{
	unlink("file");
	unlink("link");
	rmdir("sub");
	ck_assert_int_eq(chdir("/"), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}

START_TEST(a_path_is_itself)
{
	char *path = NULL;

	ck_assert_int_eq(source_resolve("/dev/sd=b", &path), OK);
	ck_assert_str_eq(path, "/dev/sd=b");
	free(path);
	ck_assert_int_eq(source_resolve("UUIDS=1", &path), OK); /* a file may be called so */
	ck_assert_str_eq(path, "UUIDS=1");
	free(path);
}
END_TEST

/* The mount table is read from everywhere, so a name in it must not depend on a folder. */
START_TEST(a_name_for_the_mount_table)
{
	static const char *const kept[] = {"/dev/sdb", "/a/../b", "absent"};
	char expected[PATH_MAX + 8], by_number[32], *name = NULL;
	int fd;

	fd = open("file", O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(symlink("file", "link"), 0);
	snprintf(expected, sizeof(expected), "%s/file", folder);
	snprintf(by_number, sizeof(by_number), "/dev/fd/%d", fd);
	ck_assert_int_eq(source_name("file", &name), OK);
	ck_assert_str_eq(name, expected);
	free(name);
	ck_assert_int_eq(source_name("link", &name), OK);
	ck_assert_str_eq(name, expected);
	free(name);
	ck_assert_int_eq(source_name(by_number, &name), OK);
	ck_assert_str_eq(name, expected);
	free(name);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		ck_assert_int_eq(source_name(kept[i], &name), OK);
		ck_assert_str_eq(name, kept[i]);
		free(name);
	}
	close(fd);
}
END_TEST

START_TEST(a_tag_that_is_not_there)
{
	static const char *const tags[] = {"UUID=ffffffff-0000-0000-0000-00000000ffff",
		"LABEL=no such label", "PARTUUID=0-0", "PARTLABEL=none", "UUID="};
	char *path = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(tags); i++) {
		err_clear_detail();
		ck_assert_int_eq(source_resolve(tags[i], &path), ERR_NOENT);
		ck_assert_ptr_nonnull(strstr(err_detail(), "no device"));
	}
}
END_TEST

START_TEST(mount_points)
{
	char *absolute = NULL, expected[PATH_MAX + 8];

	ck_assert_int_eq(source_check_mount_point("sub", &absolute), ERR_NOENT);
	ck_assert_ptr_nonnull(strstr(err_detail(), "sub does not exist"));
	ck_assert_int_eq(close(open("file", O_CREAT | O_WRONLY, 0600)), 0);
	ck_assert_int_eq(source_check_mount_point("file", &absolute), ERR_NOTDIR);
	ck_assert_int_eq(mkdir("sub", 0700), 0);
	ck_assert_int_eq(symlink("sub", "link"), 0);
	ck_assert_int_eq(source_check_mount_point("link", &absolute), OK);
	ck_assert_ptr_nonnull(realpath("sub", expected));
	ck_assert_str_eq(absolute, expected);
	free(absolute);
}
END_TEST

/* An OFD lock of another open file, as another cryptfs holds it. */
START_TEST(a_busy_file_is_refused)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	struct dev *dev = NULL;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	ck_assert_int_eq(source_open("file", "file", &dev), ERR_BUSY);
	ck_assert_ptr_null(dev);
	close(fd);
	ck_assert_int_eq(source_open("file", "file", &dev), OK);
	ck_assert(dev->readonly);
	dev_close(dev);
}
END_TEST

/* A daemon that is about to end gives the claim back a moment later. */
START_TEST(a_claim_that_ends_is_waited_for)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	struct dev *dev = NULL;
	pid_t child;

	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	child = fork();
	if (child == 0) {
		usleep(200000);
		_exit(0); /* the last descriptor of the lock's open file */
	}
	close(fd);
	ck_assert_int_eq(source_open("file", "file", &dev), OK);
	dev_close(dev);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

START_TEST(sources_that_are_none)
{
	struct dev *dev = NULL;

	ck_assert_int_eq(source_open("absent", "absent", &dev), ERR_NOENT);
	ck_assert_int_eq(mkdir("sub", 0700), 0);
	ck_assert_int_eq(source_open("sub", "sub", &dev), ERR_DEV_TYPE);
	ck_assert_int_eq(source_open("/dev/null", "/dev/null", &dev), ERR_DEV_TYPE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cmd/source");
	TCase *tests = tcase_create("source");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(tests, make_folder, remove_folder);
	tcase_add_test(tests, a_path_is_itself);
	tcase_add_test(tests, a_name_for_the_mount_table);
	tcase_add_test(tests, a_tag_that_is_not_there);
	tcase_add_test(tests, mount_points);
	tcase_add_test(tests, a_busy_file_is_refused);
	tcase_add_test(tests, a_claim_that_ends_is_waited_for);
	tcase_add_test(tests, sources_that_are_none);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
