/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of cmd/key_source.c and cmd/key_prompt.c: key files byte for byte, standard input, the
 * programs that ask, and the prompt on a pseudo-terminal: no echo, end of file, too long a line,
 * and signals, after which the terminal is as it was.
 *
 * A case on a terminal runs the door in a child of its own session, which reports through a pipe.
 */
#include "key_source.h"
#include "scratch.h"
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>

/* --- key files ---------------------------------------------------------------------------------
 */

static const char *file_of(const char *name, const void *bytes, size_t len)
{
	const char *path = scratch_path(name);
	FILE *f = fopen(path, "wb");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
	fclose(f);
	return path;
}

static void expect_file(
	const char *path, uint64_t offset, uint64_t size, const void *want, size_t len)
{
	struct secret got = {0};

	ck_ok(key_source_read_file(path, offset, size, &got));
	ck_assert_uint_eq(got.len, len);
	ck_assert_mem_eq(got.bytes, want, len);
	secret_free(&got);
}

START_TEST(test_key_file)
{
	static const char bytes[] = "pw\n\0binary\377 \n";
	const char *path = file_of("k", bytes, sizeof(bytes) - 1);
	struct secret got = {0};

	expect_file(path, 0, 0, bytes, sizeof(bytes) - 1);
	expect_file(path, 3, 0, bytes + 3, sizeof(bytes) - 4);
	expect_file(path, 0, 2, "pw", 2);
	expect_file(path, 4, 6, "binary", 6);
	ck_err(key_source_read_file(path, 4, 100, &got), ERR_KEY_FILE);
	ck_detail("shorter");
	ck_err(key_source_read_file(path, 100, 0, &got), ERR_KEY_EMPTY);
	ck_err(key_source_read_file(path, UINT64_MAX, 0, &got), ERR_KEY_FILE);
	ck_err(key_source_read_file(scratch_path("none"), 0, 0, &got), ERR_KEY_FILE);
	ck_detail("none: No such file");
	ck_err(key_source_read_file(scratch_dir, 0, 0, &got), ERR_KEY_FILE);
	ck_detail("directory");
	path = file_of("empty", "", 0);
	ck_err(key_source_read_file(path, 0, 0, &got), ERR_KEY_EMPTY);
	ck_assert_ptr_null(got.bytes);
}
END_TEST

START_TEST(test_key_file_limits)
{
	const uint64_t limit = 8 << 20;
	struct secret got = {0};

	ck_ok(key_source_read_file(scratch_file("just", limit), 0, 0, &got));
	ck_assert_uint_eq(got.len, limit);
	secret_free(&got);
	ck_err(key_source_read_file(scratch_file("more", limit + 1), 0, 0, &got), ERR_KEY_FILE);
	ck_detail("8 MiB");
	/* An explicit size may be larger, as with cryptsetup. */
	ck_ok(key_source_read_file(scratch_path("more"), 0, limit + 1, &got));
	ck_assert_uint_eq(got.len, limit + 1);
	secret_free(&got);
	/* An endless one ends. */
	ck_err(key_source_read_file("/dev/zero", 0, 0, &got), ERR_KEY_FILE);
	ck_ok(key_source_read_file("/dev/zero", 0, 32, &got));
	ck_assert_uint_eq(got.len, 32);
	secret_free(&got);
}
END_TEST

/* A descriptor of the caller's, which cannot seek: the offset is read and thrown away. */
START_TEST(test_key_pipe)
{
	char path[40];
	int ends[2];
	struct secret got = {0};

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(write(ends[1], "0123456789secret\n", 17), 17);
	close(ends[1]);
	snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
	expect_file(path, 10, 0, "secret\n", 7);
	close(ends[0]);
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(write(ends[1], "0123", 4), 4);
	close(ends[1]);
	snprintf(path, sizeof(path), "/dev/fd/%d", ends[0]);
	ck_err(key_source_read_file(path, 10, 0, &got), ERR_KEY_FILE);
	ck_detail("before the offset");
	close(ends[0]);
}
END_TEST

/* --- without a terminal ------------------------------------------------------------------------
 */

/* Puts these bytes on standard input as a pipe; the test process has no terminal then. */
static void stdin_pipe(const char *bytes, size_t len)
{
	int ends[2];

	(void)setsid();
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert(write(ends[1], bytes, len) == (ssize_t)len);
	close(ends[1]);
	ck_assert_int_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
	close(ends[0]);
	unsetenv("CRYPTFS_ASKPASS");
}

static void expect_ask(const char *want)
{
	struct secret got = {0};

	ck_ok(key_source_ask("src", 0, &got));
	ck_assert_uint_eq(got.len, strlen(want));
	if (*want)
		ck_assert_mem_eq(got.bytes, want, strlen(want));
	else
		ck_assert_ptr_null(got.bytes);
	secret_free(&got);
}

START_TEST(test_stdin_line)
{
	struct secret got = {0};
	char rest[8];

	stdin_pipe("a pass \nrest", 12);
	ck_assert(key_source_can_ask_again());
	expect_ask("a pass ");
	ck_assert(!key_source_can_ask_again());
	ck_err(key_source_ask("src", 0, &got), ERR_KEY_EMPTY);
	/* What stands behind the line is still there for whoever comes next. */
	ck_assert_int_eq(read(STDIN_FILENO, rest, sizeof(rest)), 4);
	ck_assert_mem_eq(rest, "rest", 4);
}
END_TEST

START_TEST(test_stdin_ends)
{
	stdin_pipe("no newline", 10);
	expect_ask("no newline");
}
END_TEST

START_TEST(test_stdin_empty_line)
{
	stdin_pipe("\n", 1);
	expect_ask("");
}
END_TEST

START_TEST(test_stdin_nothing)
{
	struct secret got = {0};

	stdin_pipe("", 0);
	ck_err(key_source_ask("src", 0, &got), ERR_KEY_EMPTY);
}
END_TEST

START_TEST(test_stdin_as_key_file)
{
	struct secret got = {0};

	stdin_pipe("two\nlines\n", 10);
	expect_file("-", 0, 0, "two\nlines\n", 10);
	ck_err(key_source_read_file("-", 0, 0, &got), ERR_KEY_EMPTY);
	ck_detail("standard input");
}
END_TEST

/* A pipe that nobody writes to: the time that was given ends it. */
START_TEST(test_stdin_silent)
{
	struct secret got = {0};
	int ends[2];

	(void)setsid();
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
	ck_err(key_source_ask("src", 1, &got), ERR_KEY_EMPTY);
	ck_detail("in time");
}
END_TEST

static void stdin_null(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)setsid();
	ck_assert_int_eq(dup2(fd, STDIN_FILENO), STDIN_FILENO);
	close(fd);
	unsetenv("CRYPTFS_ASKPASS");
}

START_TEST(test_nobody)
{
	struct secret got = {0};

	if (access("/run/systemd/system", F_OK) == 0) {
		printf("SKIP: test_nobody: systemd runs and would be asked\n");
		return;
	}
	stdin_null();
	ck_err(key_source_ask("src", 0, &got), ERR_KEY_NO_PROMPT);
}
END_TEST

START_TEST(test_askpass)
{
	static const struct {
		const char *script;
		enum err want;
	} rows[] = {
		{"#!/bin/sh\necho \"$1\"\necho more\n", OK},
		{"#!/bin/sh\nexit 1\n", ERR_KEY_EMPTY},
		{"#!/bin/sh\necho half\nexit 1\n", ERR_KEY_EMPTY},
		{"#!/bin/sh\nexit 0\n", ERR_KEY_EMPTY},
	};
	struct secret got = {0};

	stdin_null();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *path = file_of("ask", rows[i].script, strlen(rows[i].script));

		ck_assert_int_eq(chmod(path, 0755), 0);
		setenv("CRYPTFS_ASKPASS", path, 1);
		if (rows[i].want == OK)
			expect_ask("Enter passphrase for src:");
		else
			ck_err(key_source_ask("src", 0, &got), rows[i].want);
		ck_assert(key_source_can_ask_again());
	}
	setenv("CRYPTFS_ASKPASS", scratch_path("none"), 1);
	ck_err(key_source_ask("src", 0, &got), ERR_KEY_NO_PROMPT);
	ck_detail("none");
	ck_assert_ptr_null(got.bytes);
}
END_TEST

/* --- on a terminal -----------------------------------------------------------------------------
 */

struct report {
	enum err error;
	size_t len;
	bool echo; /* of the terminal, afterwards */
	char bytes[600];
};

static volatile sig_atomic_t child_signals;

static void child_note(int signal)
{
	(void)signal;
	child_signals++;
}

static noreturn_fn void child_ask(int to, bool twice, uint32_t timeout_seconds, bool handle)
{
	struct sigaction note = {.sa_handler = child_note};
	struct secret got = {0};
	struct report r = {0};
	struct termios t;

	/* check's own handlers, which end the whole test, came with the fork. */
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	if (handle)
		ensure(sigaction(SIGINT, &note, NULL) == 0);
	r.error = twice ? key_source_ask_new("src", &got)
			: key_source_ask("src", timeout_seconds, &got);
	r.len = got.len;
	if (got.len > 0)
		memcpy(r.bytes, got.bytes, MIN(got.len, sizeof(r.bytes)));
	ensure(tcgetattr(STDIN_FILENO, &t) == 0);
	r.echo = t.c_lflag & ECHO;
	if (handle)
		r.len = (size_t)child_signals;
	ensure(write(to, &r, sizeof(r)) == sizeof(r));
	_exit(0);
}

struct terminal {
	pid_t child;
	int master, report;
	char screen[4096];
	size_t shown;
};

static struct terminal terminal_start(bool twice, uint32_t timeout_seconds, bool handle)
{
	struct terminal t = {0};
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	t.child = forkpty(&t.master, NULL, NULL, NULL);
	ck_assert_int_ge(t.child, 0);
	if (t.child == 0)
		child_ask(ends[1], twice, timeout_seconds, handle);
	close(ends[1]);
	t.report = ends[0];
	return t;
}

/* Collects what is shown until `text` has been shown for the nth time. */
static void terminal_expect(struct terminal *t, const char *text, unsigned nth)
{
	for (;;) {
		struct pollfd p = {.fd = t->master, .events = POLLIN};
		unsigned found = 0;
		ssize_t n;

		for (const char *at = t->screen; (at = strstr(at, text)) != NULL; at++)
			found++;
		if (found >= nth)
			return;
		ck_assert_msg(poll(&p, 1, 10000) == 1, "'%s' is not in '%s'", text, t->screen);
		n = read(t->master, t->screen + t->shown, sizeof(t->screen) - 1 - t->shown);
		ck_assert_msg(n > 0, "'%s' is not in '%s'", text, t->screen);
		t->shown += (size_t)n;
	}
}

/* The child turns the echo off before it shows the prompt, so what follows is not echoed. */
static void terminal_type(struct terminal *t, const char *text)
{
	ck_assert(write(t->master, text, strlen(text)) == (ssize_t)strlen(text));
}

static struct report terminal_end(struct terminal *t)
{
	struct report r = {0};
	int status;

	ck_assert_int_eq(read(t->report, &r, sizeof(r)), sizeof(r));
	ck_assert_int_eq(waitpid(t->child, &status, 0), t->child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(t->report);
	close(t->master);
	ck_assert_msg(r.echo, "the terminal is left without echo");
	return r;
}

START_TEST(test_prompt)
{
	struct terminal t = terminal_start(false, 0, false);
	struct report r;

	terminal_expect(&t, "Enter passphrase for src: ", 1);
	terminal_type(&t, " s\303\274cret !! \n");
	r = terminal_end(&t);
	ck_assert_int_eq(r.error, OK);
	ck_assert_uint_eq(r.len, 12);
	ck_assert_mem_eq(r.bytes, " s\303\274cret !! ", 12);
	ck_assert_ptr_null(strstr(t.screen, "cret"));
}
END_TEST

START_TEST(test_prompt_empty)
{
	struct terminal t = terminal_start(false, 0, false);
	struct report r;

	terminal_expect(&t, "src: ", 1);
	terminal_type(&t, "\n");
	r = terminal_end(&t);
	ck_assert_int_eq(r.error, OK);
	ck_assert_uint_eq(r.len, 0);
}
END_TEST

START_TEST(test_prompt_end_of_file)
{
	struct terminal t = terminal_start(false, 0, false);

	terminal_expect(&t, "src: ", 1);
	terminal_type(&t, "\4");
	ck_assert_int_eq(terminal_end(&t).error, ERR_KEY_EMPTY);
}
END_TEST

START_TEST(test_prompt_length)
{
	char line[600];
	struct report r;
	struct terminal t = terminal_start(false, 0, false);

	memset(line, 'x', sizeof(line));
	line[512] = '\n';
	line[513] = '\0';
	terminal_expect(&t, "src: ", 1);
	terminal_type(&t, line);
	r = terminal_end(&t);
	ck_assert_int_eq(r.error, OK);
	ck_assert_uint_eq(r.len, 512);
	t = terminal_start(false, 0, false);
	line[512] = 'x';
	line[513] = '\n';
	line[514] = '\0';
	terminal_expect(&t, "src: ", 1);
	terminal_type(&t, line);
	ck_assert_int_eq(terminal_end(&t).error, ERR_INVAL);
}
END_TEST

START_TEST(test_prompt_timeout)
{
	struct terminal t = terminal_start(false, 1, false);

	terminal_expect(&t, "src: ", 1);
	ck_assert_int_eq(terminal_end(&t).error, ERR_KEY_EMPTY);
}
END_TEST

START_TEST(test_prompt_twice)
{
	struct terminal t = terminal_start(true, 0, false);
	struct report r;

	terminal_expect(&t, "Enter new passphrase for src: ", 1);
	terminal_type(&t, "one\n");
	terminal_expect(&t, "Verify passphrase: ", 1);
	terminal_type(&t, "one\n");
	r = terminal_end(&t);
	ck_assert_int_eq(r.error, OK);
	ck_assert_uint_eq(r.len, 3);
	t = terminal_start(true, 0, false);
	terminal_expect(&t, "src: ", 1);
	terminal_type(&t, "one\n");
	terminal_expect(&t, "Verify passphrase: ", 1);
	terminal_type(&t, "two\n");
	ck_assert_int_eq(terminal_end(&t).error, ERR_INVAL);
}
END_TEST

/* Ctrl-C: a program that handles it goes on and is told; the terminal is as it was. */
START_TEST(test_prompt_interrupt)
{
	struct terminal t = terminal_start(false, 0, true);
	struct report r;

	terminal_expect(&t, "src: ", 1);
	terminal_type(&t, "half\3");
	r = terminal_end(&t);
	ck_assert_int_eq(r.error, ERR_INTR);
	ck_assert_uint_eq(r.len, 1);
}
END_TEST

static bool terminal_echoes(const struct terminal *t)
{
	struct termios now;

	ck_assert_int_eq(tcgetattr(t->master, &now), 0);
	return now.c_lflag & ECHO;
}

/* One that does not handle it dies of it, and not before the terminal is as it was. */
START_TEST(test_prompt_killed)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct terminal t = terminal_start(false, 0, false);
	int status;

	terminal_expect(&t, "src: ", 1);
	ck_assert(!terminal_echoes(&t));
	ck_assert_int_eq(kill(t.child, signals[_i]), 0);
	ck_assert_int_eq(waitpid(t.child, &status, 0), t.child);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == signals[_i]);
	ck_assert(terminal_echoes(&t));
	close(t.report);
	close(t.master);
}
END_TEST

/* Ctrl-Z stops with the echo on; after SIGCONT the prompt starts over. */
START_TEST(test_prompt_stopped)
{
	struct terminal t = terminal_start(false, 0, false);
	struct report r;
	int status;

	terminal_expect(&t, "src: ", 1);
	terminal_type(&t, "lost");
	/* The session's leader is an orphaned group, where only SIGSTOP stops; SIGTSTP is dropped.
	 */
	ck_assert_int_eq(kill(t.child, SIGTSTP), 0);
	terminal_expect(&t, "src: ", 2);
	ck_assert(!terminal_echoes(&t));
	ck_assert_int_eq(waitpid(t.child, &status, WNOHANG), 0);
	terminal_type(&t, "kept\n");
	r = terminal_end(&t);
	ck_assert_int_eq(r.error, OK);
	ck_assert_uint_eq(r.len, 4);
	ck_assert_mem_eq(r.bytes, "kept", 4);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cmd/key_source");
	TCase *tc = tcase_create("key_source");

	/* A caller in the background, or under nohup, has these ignored, and a child inherits it.
	 */
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	signal(SIGTSTP, SIG_DFL);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, test_key_file);
	tcase_add_test(tc, test_key_file_limits);
	tcase_add_test(tc, test_key_pipe);
	tcase_add_test(tc, test_stdin_line);
	tcase_add_test(tc, test_stdin_ends);
	tcase_add_test(tc, test_stdin_empty_line);
	tcase_add_test(tc, test_stdin_nothing);
	tcase_add_test(tc, test_stdin_as_key_file);
	tcase_add_test(tc, test_stdin_silent);
	tcase_add_test(tc, test_nobody);
	tcase_add_test(tc, test_askpass);
	tcase_add_test(tc, test_prompt);
	tcase_add_test(tc, test_prompt_empty);
	tcase_add_test(tc, test_prompt_end_of_file);
	tcase_add_test(tc, test_prompt_length);
	tcase_add_test(tc, test_prompt_timeout);
	tcase_add_test(tc, test_prompt_twice);
	tcase_add_test(tc, test_prompt_interrupt);
	tcase_add_loop_test(tc, test_prompt_killed, 0, 4);
	tcase_add_test(tc, test_prompt_stopped);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
