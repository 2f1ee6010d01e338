/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rig: what unit tests of several layers share: a scratch folder, files in it, loop devices,
 * random numbers with a printed seed, and the main() of a check suite.
 *
 * Does not hide failures: whatever the rig itself cannot do aborts the test.
 */
#ifndef CRYPTFS_RIG_SCRATCH_H
#define CRYPTFS_RIG_SCRATCH_H

#include "base.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ck_ok(call)                                                                            \
	do {                                                                                   \
		enum err ck_e = (call);                                                        \
		ck_assert_msg(ck_e == OK, "%s: %s (%s)", #call, err_name(ck_e), err_detail()); \
	} while (0)

#define ck_err(call, want)                                                                  \
	do {                                                                                \
		enum err ck_e = (call);                                                     \
		ck_assert_msg(ck_e == (want), "%s: %s, not %s (%s)", #call, err_name(ck_e), \
			err_name(want), err_detail());                                      \
	} while (0)

#define ck_detail(part) \
	ck_assert_msg(strstr(err_detail(), (part)) != NULL, "'%s' lacks '%s'", err_detail(), (part))

static char scratch_dir[256];

__attribute__((unused)) static void scratch_make(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(scratch_dir, sizeof(scratch_dir), "%s/cryptfs-unit-XXXXXX", tmp ? tmp : "/tmp");
	ensure(mkdtemp(scratch_dir) != NULL);
	ensure(chmod(scratch_dir, 0755) == 0);
}

__attribute__((unused)) static void scratch_remove(void)
{
	char command[300];

	snprintf(command, sizeof(command), "rm -rf '%s'", scratch_dir);
	ensure(system(command) == 0);
}

/* The path of a file in the scratch folder; the buffer is one of eight that take turns. */
__attribute__((unused)) static const char *scratch_path(const char *name)
{
	static char paths[8][320];
	static unsigned turn;
	char *path = paths[turn++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", scratch_dir, name);
	return path;
}

__attribute__((unused)) static const char *scratch_file(const char *name, uint64_t size_bytes)
{
	const char *path = scratch_path(name);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ensure(fd >= 0);
	ensure(ftruncate(fd, (off_t)size_bytes) == 0);
	close(fd);
	return path;
}

/* Runs a shell command; its first line of output goes to `line` when that is not NULL. */
__attribute__((unused)) static bool scratch_run(const char *command, char line[256])
{
	FILE *p = popen(command, "r");
	char rest[256];

	ensure(p != NULL);
	if (!line)
		line = rest;
	line[0] = '\0';
	if (fgets(line, 256, p))
		line[strcspn(line, "\n")] = '\0';
	while (fgets(rest, sizeof(rest), p))
		;
	return pclose(p) == 0;
}

/* Attaches a loop device; false where that is not possible, with `device` saying why. */
__attribute__((unused)) static bool scratch_loop_attach(
	const char *options, const char *path, char device[256])
{
	char command[512];

	if (geteuid() != 0) {
		snprintf(device, 256, "attaching a loop device needs root");
		return false;
	}
	snprintf(command, sizeof(command), "losetup -f --show %s '%s' 2>&1", options, path);
	for (int i = 0; i < 20; i++) {
		if (scratch_run(command, device))
			return true;
		usleep(50000);
	}
	return false;
}

__attribute__((unused)) static void scratch_loop_detach(const char *device)
{
	char command[300];

	snprintf(command, sizeof(command), "losetup -d '%s'", device);
	ensure(scratch_run(command, NULL));
}

/* xorshift64*: small, and the same on every machine for a seed. */
static uint64_t scratch_random_state = 88172645463325252ULL;

__attribute__((unused)) static void scratch_seed(void)
{
	const char *given = getenv("CRYPTFS_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : clock_ns();

	scratch_random_state = seed | 1;
	printf("seed: CRYPTFS_TEST_SEED=%llu\n", (unsigned long long)(seed | 1));
	fflush(stdout);
}

__attribute__((unused)) static uint64_t scratch_random(uint64_t below)
{
	scratch_random_state ^= scratch_random_state >> 12;
	scratch_random_state ^= scratch_random_state << 25;
	scratch_random_state ^= scratch_random_state >> 27;
	return (scratch_random_state * 2685821657736338717ULL >> 11) % below;
}

__attribute__((unused)) static void scratch_fill(uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)scratch_random(256);
}

__attribute__((unused)) static int scratch_main(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	log_open_stderr("test", LOG_WARN_);
	scratch_make();
	scratch_seed();
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	scratch_remove();
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
