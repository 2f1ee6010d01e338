/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Key files, standard input, and programs that ask for a passphrase; key_source.h has the order.
 *
 * Key material is read straight into struct secret, never into a buffer of stdio. A line is read
 * byte by byte, so that what stands behind it stays for whoever reads next. A program that asks is
 * a child with a pipe; it inherits the terminal and the environment, and nothing secret.
 *
 * Threads: see key_source.h.
 */
#include "key_source.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	KEY_FILE_BYTES_MAX = 8 << 20,
	KEY_FIRST_BYTES = 4096,
};

/* What was asked so far, so that a cache or a spent pipe is not asked twice. */
static unsigned key_asked;
static bool key_stdin_spent;

/* --- reading -----------------------------------------------------------------------------------
 */

static enum err key_wait(int fd, uint64_t deadline_ns)
{
	struct pollfd waiting = {.fd = fd, .events = POLLIN};
	const uint64_t now = clock_ns();
	int ms = -1;
	int n;

	if (deadline_ns == 0)
		return OK;
	if (deadline_ns > now)
		ms = (int)MIN((deadline_ns - now + 999999) / 1000000, (uint64_t)INT32_MAX);
	n = poll(&waiting, 1, deadline_ns > now ? ms : 0);
	if (n == 0)
		return err_set_detail(ERR_KEY_EMPTY, "no passphrase was given in time");
	return n < 0 && errno != EINTR ? err_from_errno(errno) : OK;
}

static enum err key_grow(struct secret *buffer, size_t used)
{
	struct secret larger = {0};
	enum err e = secret_alloc(&larger, MAX(buffer->len * 2, (size_t)KEY_FIRST_BYTES));

	if (e != OK)
		return e;
	if (used > 0)
		memcpy(larger.bytes, buffer->bytes, used);
	secret_free(buffer);
	*buffer = larger;
	return OK;
}

/*
 * Reads up to `most` bytes, or to the end, or to a newline that is dropped. *ended_by_newline
 * tells an empty line from nothing at all. An empty result leaves *out empty.
 */
static enum err key_read(int fd, uint64_t most, bool first_line, uint64_t deadline_ns,
	bool *ended_by_newline, struct secret *out)
{
	struct secret buffer = {0};
	size_t used = 0;
	enum err e = OK;

	*ended_by_newline = false;
	while (e == OK && used < most) {
		size_t room;
		ssize_t n;

		if (used == buffer.len)
			e = key_grow(&buffer, used);
		if (e == OK)
			e = key_wait(fd, deadline_ns);
		if (e != OK)
			break;
		room = (size_t)MIN(most - used, (uint64_t)(buffer.len - used));
		n = read(fd, buffer.bytes + used, first_line ? 1 : room);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			e = err_from_errno(errno);
		if (n <= 0)
			break;
		if (first_line && buffer.bytes[used] == '\n') {
			*ended_by_newline = true;
			break;
		}
		used += (size_t)n;
	}
	if (e == OK && used > 0) {
		secret_shrink(&buffer, used);
		*out = buffer;
		return OK;
	}
	secret_free(&buffer);
	if (e == OK)
		*out = (struct secret){0};
	return e;
}

/* --- key files ---------------------------------------------------------------------------------
 */

static enum err key_file_fails(const char *path, const char *why)
{
	if (strcmp(path, "-") == 0)
		path = "standard input";
	return err_set_detail(ERR_KEY_FILE, "key file %s: %s", path, why);
}

/* A pipe cannot seek: what stands before the offset is read and thrown away. */
static enum err key_file_skip(int fd, const char *path, uint64_t offset_bytes)
{
	struct secret waste = {0};
	struct stat st;
	enum err e;

	if (offset_bytes == 0)
		return OK;
	if (fstat(fd, &st) != 0)
		return key_file_fails(path, strerror(errno));
	if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode)) {
		if (offset_bytes > INT64_MAX || lseek(fd, (off_t)offset_bytes, SEEK_CUR) < 0)
			return key_file_fails(path, "cannot seek to the offset");
		return OK;
	}
	e = secret_alloc(&waste, KEY_FIRST_BYTES);
	while (e == OK && offset_bytes > 0) {
		ssize_t n = read(fd, waste.bytes, (size_t)MIN(offset_bytes, (uint64_t)waste.len));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			e = key_file_fails(
				path, n < 0 ? strerror(errno) : "ends before the offset");
		else
			offset_bytes -= (uint64_t)n;
	}
	secret_free(&waste);
	return e;
}

static enum err key_file_read(
	int fd, const char *path, uint64_t offset_bytes, uint64_t size_bytes, struct secret *out)
{
	/* One byte more than is allowed, to see that there is more. */
	const uint64_t most = size_bytes ? size_bytes : (uint64_t)KEY_FILE_BYTES_MAX + 1;
	struct secret got = {0};
	bool newline;
	enum err e = key_file_skip(fd, path, offset_bytes);

	if (e != OK)
		return e;
	e = key_read(fd, most, false, 0, &newline, &got);
	if (e == ERR_NOMEM)
		return e;
	if (e != OK)
		return key_file_fails(path, err_text(e));
	if (got.len == 0)
		e = err_set_detail(ERR_KEY_EMPTY, "key file %s: there is nothing in it",
			strcmp(path, "-") == 0 ? "standard input" : path);
	else if (size_bytes != 0 && got.len < size_bytes)
		e = key_file_fails(path, "is shorter than the size that was asked for");
	else if (size_bytes == 0 && got.len > KEY_FILE_BYTES_MAX)
		e = key_file_fails(path, "is larger than 8 MiB");
	if (e != OK)
		secret_free(&got);
	else
		*out = got;
	return e;
}

enum err key_source_read_file(
	const char *path, uint64_t offset_bytes, uint64_t size_bytes, struct secret *out)
{
	struct stat st;
	enum err e;
	int fd;

	if (strcmp(path, "-") == 0) {
		if (isatty(STDIN_FILENO))
			return key_source_ask(NULL, 0, out);
		key_stdin_spent = true;
		return key_file_read(STDIN_FILENO, path, offset_bytes, size_bytes, out);
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return key_file_fails(path, strerror(errno));
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		e = key_file_fails(path, strerror(EISDIR));
	else
		e = key_file_read(fd, path, offset_bytes, size_bytes, out);
	close(fd);
	return e;
}

/* --- programs that ask -------------------------------------------------------------------------
 */

static noreturn_fn void key_program_exec(char *const argv[], int to)
{
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(to, STDOUT_FILENO) >= 0)
		execvp(argv[0], argv);
	_exit(127);
}

/* Runs the program; its first line is the passphrase. */
static enum err key_program(char *const argv[], uint64_t deadline_ns, struct secret *out)
{
	struct secret got = {0}, rest = {0};
	bool newline = false, more = false;
	int ends[2], status = 0;
	pid_t child;
	enum err e;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return err_from_errno(errno);
	child = fork();
	if (child == 0)
		key_program_exec(argv, ends[1]);
	close(ends[1]);
	if (child < 0) {
		close(ends[0]);
		return err_set_detail(ERR_SYSTEM, "cannot start %s", argv[0]);
	}
	e = key_read(ends[0], KEY_FILE_BYTES_MAX, true, deadline_ns, &newline, &got);
	/* A program that says more must not fail for it: its status counts. */
	if (e == OK)
		e = key_read(ends[0], KEY_FILE_BYTES_MAX, false, deadline_ns, &more, &rest);
	secret_free(&rest);
	close(ends[0]);
	if (e != OK)
		(void)kill(child, SIGTERM);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (e == OK && WIFEXITED(status) && WEXITSTATUS(status) == 127)
		e = err_set_detail(
			ERR_KEY_NO_PROMPT, "cannot run %s to ask for a passphrase", argv[0]);
	else if (e == OK && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		e = err_set_detail(ERR_KEY_EMPTY, "%s gave no passphrase", argv[0]);
	else if (e == OK && got.len == 0 && !newline)
		e = ERR_KEY_EMPTY;
	if (e == OK)
		*out = got;
	else
		secret_free(&got);
	return e;
}

static enum err key_systemd(
	const char *source, const char *prompt, uint32_t timeout_seconds, struct secret *out)
{
	char program[] = "systemd-ask-password", key_name[] = "--keyname=cryptsetup";
	char cached[] = "--accept-cached";
	char timeout[40], id[512], text[600];
	char *argv[8];
	size_t n = 0;

	snprintf(timeout, sizeof(timeout), "--timeout=%u", timeout_seconds);
	snprintf(id, sizeof(id), "--id=cryptsetup:%s", source ? source : "");
	snprintf(text, sizeof(text), "%s", prompt);
	argv[n++] = program;
	argv[n++] = id;
	argv[n++] = key_name;
	argv[n++] = timeout;
	if (key_asked == 0)
		argv[n++] = cached;
	argv[n++] = text;
	argv[n] = NULL;
	/* Its own timeout ends it. */
	return key_program(argv, 0, out);
}

/* --- the order ---------------------------------------------------------------------------------
 */

enum key_way { KEY_TTY, KEY_ASKPASS, KEY_STDIN, KEY_SYSTEMD, KEY_NOBODY };

static enum key_way key_choose(int *tty)
{
	const char *askpass = getenv("CRYPTFS_ASKPASS");
	struct stat st;

	*tty = -1;
	if (isatty(STDIN_FILENO)) {
		*tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
		return KEY_TTY;
	}
	if (askpass && *askpass)
		return KEY_ASKPASS;
	if (fstat(STDIN_FILENO, &st) == 0 &&
		(S_ISFIFO(st.st_mode) || S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode)))
		return KEY_STDIN;
	*tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (*tty >= 0)
		return KEY_TTY;
	return access("/run/systemd/system", F_OK) == 0 ? KEY_SYSTEMD : KEY_NOBODY;
}

static enum err key_ask_stdin(uint64_t deadline_ns, struct secret *out)
{
	bool newline = false;
	enum err e;

	if (key_stdin_spent)
		return ERR_KEY_EMPTY;
	key_stdin_spent = true;
	e = key_read(
		STDIN_FILENO, (uint64_t)KEY_FILE_BYTES_MAX + 1, true, deadline_ns, &newline, out);
	if (e == OK && out->len == 0 && !newline)
		return err_set_detail(ERR_KEY_EMPTY, "no passphrase given on standard input");
	if (e == OK && out->len > KEY_FILE_BYTES_MAX) {
		secret_free(out);
		return err_set_detail(ERR_INVAL, "the passphrase on standard input is too long");
	}
	return e;
}

static enum err key_ask_tty(
	int tty, const char *prompt, const char *again, uint64_t deadline_ns, struct secret *out)
{
	const int in = tty >= 0 ? tty : STDIN_FILENO, to = tty >= 0 ? tty : STDERR_FILENO;
	struct secret first = {0}, second = {0};
	enum err e = key_prompt(in, to, prompt, deadline_ns, &first);

	if (e == OK && again)
		e = key_prompt(in, to, again, deadline_ns, &second);
	if (e == OK && again &&
		(first.len != second.len ||
			(first.len > 0 && memcmp(first.bytes, second.bytes, first.len) != 0)))
		e = err_set_detail(ERR_INVAL, "the two passphrases are not the same");
	secret_free(&second);
	if (e == OK)
		*out = first;
	else
		secret_free(&first);
	return e;
}

static enum err key_ask(const char *source, uint32_t timeout_seconds, const char *prompt,
	const char *again, struct secret *out)
{
	const uint64_t deadline_ns =
		timeout_seconds ? clock_ns() + (uint64_t)timeout_seconds * 1000000000 : 0;
	char text[512];
	struct secret got = {0};
	enum err e = ERR_KEY_NO_PROMPT;
	int tty;
	const enum key_way way = key_choose(&tty);

	snprintf(text, sizeof(text), "%s%s%s%s", prompt, source ? " for " : "",
		source ? source : "", way == KEY_SYSTEMD || way == KEY_ASKPASS ? ":" : ": ");
	if (way == KEY_TTY) {
		e = key_ask_tty(tty, text, again, deadline_ns, &got);
	} else if (way == KEY_ASKPASS) {
		char *argv[] = {getenv("CRYPTFS_ASKPASS"), text, NULL};

		ensure(argv[0]); /* or the way would be another */
		e = key_program(argv, deadline_ns, &got);
	} else if (way == KEY_STDIN) {
		e = key_ask_stdin(deadline_ns, &got);
	} else if (way == KEY_SYSTEMD) {
		e = key_systemd(source, text, timeout_seconds, &got);
	}
	if (tty >= 0)
		close(tty);
	key_asked++;
	if (e == OK)
		*out = got;
	return e;
}

enum err key_source_ask(const char *source, uint32_t timeout_seconds, struct secret *out)
{
	return key_ask(source, timeout_seconds, "Enter passphrase", NULL, out);
}

bool key_source_can_ask_again(void)
{
	return !key_stdin_spent;
}

enum err key_source_ask_new(const char *target, struct secret *out)
{
	return key_ask(target, 0, "Enter new passphrase", "Verify passphrase: ", out);
}
