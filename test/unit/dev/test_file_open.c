/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of dev/file_open.c: what is refused and in which words, the claims, and the choice of
 * alignment.
 */
#include "dev.h"

#include "base.h"
#include "scratch.h"

#include <grp.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

static const struct dev_open_options plain_rw = {.readonly = false};
static const struct dev_open_options plain_ro = {.readonly = true};
static const struct dev_open_options claim_rw = {.claim = true};
static const struct dev_open_options claim_ro = {.claim = true, .readonly = true};

static char loop_device[256], loop_ro_device[256];
static bool loop_there, loop_ro_there;

static void refuse(const char *path, const struct dev_open_options *o, enum err e, const char *part)
{
	struct dev *d = NULL;

	err_clear_detail();
	ck_err(dev_open(path, o, &d), e);
	ck_assert_ptr_null(d);
	ck_detail(part);
	ck_assert_ptr_null(strchr(err_detail(), '\n'));
}

START_TEST(test_kinds)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	refuse(scratch_path("missing"), &plain_rw, ERR_NOENT, "no such file");
	refuse(scratch_dir, &plain_rw, ERR_DEV_TYPE, "is a directory");
	refuse(scratch_dir, &plain_ro, ERR_DEV_TYPE, "is a directory");
	refuse("/dev/null", &plain_rw, ERR_DEV_TYPE, "is a character device");
	ensure(mkfifo(scratch_path("fifo"), 0600) == 0);
	refuse(scratch_path("fifo"), &plain_rw, ERR_DEV_TYPE, "is a FIFO");
	refuse(scratch_path("fifo"), &plain_ro, ERR_DEV_TYPE, "is a FIFO");
	snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/s", scratch_dir);
	ensure(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	refuse(address.sun_path, &plain_ro, ERR_DEV_TYPE, "is a socket");
	close(fd);
	ensure(symlink("loop", scratch_path("loop")) == 0);
	refuse(scratch_path("loop"), &plain_ro, ERR_SYSTEM, "cannot look it up");
	refuse(scratch_path("fifo/x"), &plain_ro, ERR_NOTDIR, "cannot look it up");
}
END_TEST

START_TEST(test_size_and_mode)
{
	struct dev *d;
	uint8_t bytes[10];

	ck_ok(dev_open(scratch_file("size", 12345), &plain_ro, &d));
	ck_assert_int_eq(d->kind, DEV_FILE);
	ck_assert_uint_eq(d->size_bytes, 12345);
	ck_assert(d->readonly);
	/* O_DIRECT could not reach the last bytes. */
	ck_assert(!d->direct);
	ck_ok(dev_read(d, bytes, sizeof(bytes), 12335));
	ck_err(dev_read(d, bytes, sizeof(bytes), 12336), ERR_DEV_BOUNDS);
	ck_err(dev_write(d, bytes, sizeof(bytes), 0), ERR_ROFS);
	ck_err(dev_discard(d, 0, 4096), ERR_ROFS);
	dev_close(d);
	ck_ok(dev_open(scratch_file("empty", 0), &plain_rw, &d));
	ck_assert_uint_eq(d->size_bytes, 0);
	ck_ok(dev_read(d, bytes, 0, 0));
	ck_err(dev_read(d, bytes, 1, 0), ERR_DEV_BOUNDS);
	dev_close(d);
}
END_TEST

START_TEST(test_alignment)
{
	struct dev *d;

	ck_ok(dev_open(scratch_file("align", 1 << 20), &plain_rw, &d));
	if (d->direct) {
		ck_assert_uint_ge(d->align_bytes, 512);
		ck_assert_uint_eq(d->align_bytes & (d->align_bytes - 1), 0);
	} else {
		printf("SKIP: test_alignment: the folder for temporary files has no O_DIRECT\n");
		ck_assert_uint_eq(d->align_bytes, 1);
	}
	dev_close(d);
}
END_TEST

/* The effective user loses what root may; check runs each test in a process of its own. */
static bool become_nobody(void)
{
	return geteuid() == 0 && setgroups(0, NULL) == 0 && setegid(65534) == 0 &&
	       seteuid(65534) == 0;
}

START_TEST(test_permission)
{
	const char *file = scratch_file("private", 4096);
	const char *for_group = scratch_file("group", 4096);
	const char *hidden = scratch_path("hidden/file");

	ensure(chmod(file, 0444) == 0);
	ensure(chmod(for_group, 0660) == 0);
	ensure(mkdir(scratch_path("hidden"), 0700) == 0);
	if (geteuid() != 0 || chown(for_group, 0, 6) != 0 || !become_nobody()) {
		printf("SKIP: test_permission: needs root, to become somebody else\n");
		return;
	}
	refuse(file, &plain_rw, ERR_ACCESS, "no permission to read and write; its owner is uid 0");
	refuse(for_group, &plain_ro, ERR_ACCESS, "no permission to read;");
	refuse(for_group, &plain_rw, ERR_ACCESS, "members of group");
	refuse(hidden, &plain_ro, ERR_ACCESS, "no permission to search a folder");
	/* The leak checker, which runs at the end, needs to be root again. */
	ensure(seteuid(0) == 0);
}
END_TEST

START_TEST(test_read_only_file_system)
{
	struct dev *d;
	const char *file = scratch_file("onro", 4096);

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount(scratch_dir, scratch_dir, NULL, MS_BIND, NULL) < 0 ||
		mount(NULL, scratch_dir, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0) {
		printf("SKIP: test_read_only_file_system: no mount namespace of our own\n");
		return;
	}
	refuse(file, &plain_rw, ERR_ROFS, "on a read-only file system");
	ck_ok(dev_open(file, &claim_ro, &d));
	dev_close(d);
}
END_TEST

START_TEST(test_claim_file)
{
	const char *file = scratch_file("claim", 4096);
	struct dev *a, *b;

	ck_ok(dev_open(file, &claim_rw, &a));
	refuse(file, &claim_rw, ERR_BUSY, "already in use");
	refuse(file, &claim_ro, ERR_BUSY, "may write to it");
	ck_ok(dev_open(file, &plain_rw, &b));
	dev_close(b);
	/* Closing another descriptor of the file keeps the claim, unlike with a POSIX lock. */
	refuse(file, &claim_rw, ERR_BUSY, "already in use");
	dev_close(a);
	ck_ok(dev_open(file, &claim_ro, &a));
	ck_ok(dev_open(file, &claim_ro, &b));
	refuse(file, &claim_rw, ERR_BUSY, "already in use");
	dev_close(a);
	refuse(file, &claim_rw, ERR_BUSY, "already in use");
	dev_close(b);
	ck_ok(dev_open(file, &claim_rw, &a));
	ck_ok(dev_drop_claim(a));
	ck_ok(dev_open(file, &claim_rw, &b));
	dev_close(a);
	dev_close(b);
}
END_TEST

START_TEST(test_claim_other_process)
{
	const char *file = scratch_file("claim2", 4096);
	struct dev *a, *b;
	pid_t child;
	int status;

	ck_ok(dev_open(file, &claim_rw, &a));
	child = fork();
	if (child == 0) {
		dev_close(a);
		_exit(dev_open(file, &claim_ro, &b) == ERR_BUSY ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	dev_close(a);
	ck_ok(dev_open(file, &claim_rw, &a));
	dev_close(a);
}
END_TEST

/* libcryptsetup takes flock on files and waits for it: the claim must not be one. */
START_TEST(test_claim_is_no_flock)
{
	const char *file = scratch_file("claim3", 4096);
	struct dev *a;
	int fd = open(file, O_RDWR | O_CLOEXEC);

	ck_ok(dev_open(file, &claim_rw, &a));
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	close(fd);
	dev_close(a);
}
END_TEST

START_TEST(test_claim_block)
{
	struct dev *a, *b;
	int fd;

	if (!loop_there) {
		printf("SKIP: test_claim_block: %s\n", loop_device);
		return;
	}
	ck_ok(dev_open(loop_device, &claim_rw, &a));
	refuse(loop_device, &claim_rw, ERR_BUSY, "already in use: mounted");
	refuse(loop_device, &claim_ro, ERR_BUSY, "already in use: mounted");
	ck_assert_int_eq(open(loop_device, O_RDONLY | O_EXCL | O_CLOEXEC), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_ok(dev_open(loop_device, &plain_ro, &b));
	dev_close(b);
	ck_ok(dev_drop_claim(a));
	fd = open(loop_device, O_RDONLY | O_EXCL | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	refuse(loop_device, &claim_rw, ERR_BUSY, "already in use: mounted");
	close(fd);
	dev_close(a);
	ck_ok(dev_open(loop_device, &claim_ro, &a));
	ck_assert_int_eq(a->kind, DEV_BLOCK);
	dev_close(a);
}
END_TEST

START_TEST(test_write_protected_block)
{
	struct dev *a;

	if (!loop_ro_there) {
		printf("SKIP: test_write_protected_block: %s\n", loop_ro_device);
		return;
	}
	refuse(loop_ro_device, &claim_rw, ERR_ROFS, "write-protected");
	ck_ok(dev_open(loop_ro_device, &claim_ro, &a));
	dev_close(a);
}
END_TEST

START_TEST(test_empty_block)
{
	const char *node = scratch_path("node");
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	/* A loop device with no file attached, and a node that no driver answers. */
	if (control < 0 || ioctl(control, LOOP_CTL_ADD, 977) < 0) {
		printf("SKIP: test_empty_block: needs root, to make a loop device\n");
		return;
	}
	ensure(mknod(node, S_IFBLK | 0600, makedev(7, 977)) == 0);
	refuse(node, &plain_ro, ERR_NXIO, "nothing behind the device");
	ensure(ioctl(control, LOOP_CTL_REMOVE, 977) >= 0);
	close(control);
	ensure(unlink(node) == 0);
	ensure(mknod(node, S_IFBLK | 0600, makedev(254, 250)) == 0);
	refuse(node, &plain_ro, ERR_NXIO, "no device behind this node");
}
END_TEST

static void loop_setup(void)
{
	loop_there = scratch_loop_attach("", scratch_file("loop.img", 1 << 20), loop_device);
	loop_ro_there =
		scratch_loop_attach("-r", scratch_file("loopro.img", 1 << 20), loop_ro_device);
}

static void loop_teardown(void)
{
	if (loop_there)
		scratch_loop_detach(loop_device);
	if (loop_ro_there)
		scratch_loop_detach(loop_ro_device);
}

int main(void)
{
	Suite *s = suite_create("dev/file_open");
	TCase *t = tcase_create("file");
	TCase *b = tcase_create("block");

	tcase_add_test(t, test_kinds);
	tcase_add_test(t, test_size_and_mode);
	tcase_add_test(t, test_alignment);
	tcase_add_test(t, test_permission);
	tcase_add_test(t, test_read_only_file_system);
	tcase_add_test(t, test_claim_file);
	tcase_add_test(t, test_claim_other_process);
	tcase_add_test(t, test_claim_is_no_flock);
	suite_add_tcase(s, t);
	tcase_add_unchecked_fixture(b, loop_setup, loop_teardown);
	tcase_add_test(b, test_claim_block);
	tcase_add_test(b, test_write_protected_block);
	tcase_add_test(b, test_empty_block);
	suite_add_tcase(s, b);
	return scratch_main(s);
}
