/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon.c: the parent's status follows the child's fate, and the child keeps nothing of the
 * caller's. The "caller" is a fork of the test, so that the test itself stays what it is.
 */
#include "cmd.h"
#include "daemon.h"
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs daemon_fork() and, in the child, `child`; returns the exit status of the parent. */
static int status_of(void (*child)(struct daemon *d), pid_t *caller)
{
	pid_t pid = fork();
	int state;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct daemon d;

		/* check's own handlers would end the whole test. */
		signal(SIGINT, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		if (daemon_start(&d) || daemon_fork(&d))
			_exit(99);
		if (d.child)
			_exit(daemon_wait(&d));
		child(&d);
		_exit(0);
	}
	if (caller) {
		*caller = pid;
		return 0;
	}
	ck_assert_int_eq(waitpid(pid, &state, 0), pid);
	ck_assert(WIFEXITED(state));
	return WEXITSTATUS(state);
}

static void says_mounted(struct daemon *d)
{
	daemon_detach(d);
	daemon_report_mounted(d);
}
static void says_32(struct daemon *d)
{
	daemon_report(d, 32);
}
static void says_nothing(struct daemon *d)
{
	(void)d;
}
static void dies_of_int(struct daemon *d)
{
	(void)d;
	raise(SIGINT);
}
static void is_killed(struct daemon *d)
{
	(void)d;
	raise(SIGKILL);
}

START_TEST(the_parent_takes_the_status_on)
{
	ck_assert_int_eq(status_of(says_mounted, NULL), 0);
	ck_assert_int_eq(status_of(says_32, NULL), 32);
	ck_assert_int_eq(status_of(says_nothing, NULL), MOUNT_EXIT_FAILURE);
	ck_assert_int_eq(status_of(dies_of_int, NULL), MOUNT_EXIT_INTERRUPTED);
	ck_assert_int_eq(status_of(is_killed, NULL), MOUNT_EXIT_FAILURE);
}
END_TEST

static int ready_pipe[2];

static void waits_for_a_signal(struct daemon *d)
{
	(void)d;
	if (write(ready_pipe[1], "r", 1) != 1)
		_exit(98);
	for (;;)
		pause();
}

START_TEST(a_signal_for_the_caller_ends_both)
{
	pid_t caller;
	char byte;
	int state;

	ck_assert_int_eq(pipe(ready_pipe), 0);
	status_of(waits_for_a_signal, &caller);
	ck_assert_int_eq(read(ready_pipe[0], &byte, 1), 1);
	close(ready_pipe[1]);
	/* The handler may not be there yet; then the caller dies at once and takes the child along.
	 */
	usleep(100000);
	kill(caller, SIGTERM);
	ck_assert_int_eq(waitpid(caller, &state, 0), caller);
	if (WIFEXITED(state))
		ck_assert_int_eq(WEXITSTATUS(state), MOUNT_EXIT_INTERRUPTED);
	/* The end of the pipe comes when the child, its last writer, has gone. */
	ck_assert_int_eq(read(ready_pipe[0], &byte, 1), 0);
	close(ready_pipe[0]);
}
END_TEST

START_TEST(a_killed_caller_takes_the_child_along)
{
	pid_t caller;
	char byte;

	ck_assert_int_eq(pipe(ready_pipe), 0);
	status_of(waits_for_a_signal, &caller);
	ck_assert_int_eq(read(ready_pipe[0], &byte, 1), 1);
	close(ready_pipe[1]);
	kill(caller, SIGKILL);
	waitpid(caller, NULL, 0);
	ck_assert_int_eq(read(ready_pipe[0], &byte, 1), 0);
	close(ready_pipe[0]);
}
END_TEST

static int inherited_fd, answer_pipe[2];

static void looks_around(struct daemon *d)
{
	struct {
		bool inherited_closed, own_session, in_root, quiet;
	} seen = {0};
	char cwd[16];
	int fd = dup(answer_pipe[1]);
	struct stat null_st, st;

	daemon_detach(d);
	daemon_report_mounted(d);
	seen.inherited_closed = fcntl(inherited_fd, F_GETFD) < 0;
	seen.own_session = getsid(0) == getpid();
	seen.in_root = getcwd(cwd, sizeof(cwd)) && strcmp(cwd, "/") == 0;
	seen.quiet =
		!stat("/dev/null", &null_st) && !fstat(1, &st) && st.st_rdev == null_st.st_rdev;
	if (write(fd, &seen, sizeof(seen)) != sizeof(seen))
		_exit(98);
}

START_TEST(the_child_lets_go_of_the_caller)
{
	bool seen[4];

	inherited_fd = open("/dev/zero", O_RDONLY);
	ck_assert_int_ge(inherited_fd, 3);
	ck_assert_int_eq(pipe(answer_pipe), 0);
	ck_assert_int_eq(status_of(looks_around, NULL), 0);
	ck_assert_int_eq(read(answer_pipe[0], seen, sizeof(seen)), (ssize_t)sizeof(seen));
	for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
		ck_assert_msg(seen[i], "fact %zu", i);
	close(inherited_fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cmd/daemon");
	TCase *tests = tcase_create("daemon");
	SRunner *runner;
	int failed;

	tcase_add_test(tests, the_parent_takes_the_status_on);
	tcase_add_test(tests, a_signal_for_the_caller_ends_both);
	tcase_add_test(tests, a_killed_caller_takes_the_child_along);
	tcase_add_test(tests, the_child_lets_go_of_the_caller);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
