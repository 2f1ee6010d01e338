/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of base/log.c: stderr caught by a pipe, syslog(3) by definitions of its own here, which
 * the linker prefers to libc's.
 */
#include "base.h"
#include "rig_run.h"

#include <syslog.h>
#include <unistd.h>

/* With fortification this may be a macro. */
#undef syslog
#undef __syslog_chk

static char syslog_ident[64], syslog_line[2048];
static int syslog_option, syslog_priority;

void openlog(const char *ident, int option, int facility)
{
	(void)facility;
	(void)snprintf(syslog_ident, sizeof(syslog_ident), "%s", ident);
	syslog_option = option;
}

static void syslog_catch(int priority, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));
static void syslog_catch(int priority, const char *fmt, va_list args)
{
	syslog_priority = priority;
	(void)vsnprintf(syslog_line, sizeof(syslog_line), fmt, args);
}

void syslog(int priority, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	syslog_catch(priority, fmt, args);
	va_end(args);
}

/* What a build with _FORTIFY_SOURCE calls. */
void __syslog_chk(int priority, int flag, const char *fmt, ...) printf_like(3, 4);
void __syslog_chk(int priority, int flag, const char *fmt, ...)
{
	(void)flag;
	va_list args;
	va_start(args, fmt);
	syslog_catch(priority, fmt, args);
	va_end(args);
}

static int pipe_fd[2];

static void stderr_catch(void)
{
	ck_assert_int_eq(pipe(pipe_fd), 0);
	ck_assert_int_eq(dup2(pipe_fd[1], STDERR_FILENO), STDERR_FILENO);
	ck_assert_int_eq(close(pipe_fd[1]), 0);
}

/* Everything written up to now; stderr is closed. */
static const char *stderr_caught(void)
{
	static char text[1 << 16];
	ck_assert_int_eq(close(STDERR_FILENO), 0);
	size_t len = 0;
	ssize_t n;
	while ((n = read(pipe_fd[0], text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	ck_assert_int_eq(n, 0);
	text[len] = '\0';
	return text;
}

START_TEST(stderr_has_program_and_level)
{
	stderr_catch();
	log_open_stderr("mount.cryptfs", LOG_INFO_);
	log_error("%s: no LUKS", "/dev/sdb");
	log_info("informed");
	log_debug("not shown");
	ck_assert_str_eq(stderr_caught(), "mount.cryptfs: /dev/sdb: no LUKS\n"
					  "mount.cryptfs: informed\n");
}
END_TEST

START_TEST(a_long_line_is_cut_and_ends)
{
	char big[5000];
	memset(big, 'y', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	stderr_catch();
	log_open_stderr("p", LOG_DEBUG_);
	log_debug("%s", big);
	const char *text = stderr_caught();
	ck_assert_uint_eq(strlen(text), strlen("p: ") + 1023 + 1);
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
}
END_TEST

START_TEST(syslog_is_connected_at_once_and_names_the_mount_point)
{
	log_open_syslog("/mnt/stick", LOG_WARN_);
	ck_assert_str_eq(syslog_ident, "cryptfs");
	ck_assert_int_ne(syslog_option & LOG_NDELAY, 0);
	log_warn("slow by %d ms", 7);
	ck_assert_str_eq(syslog_line, "/mnt/stick: slow by 7 ms");
	ck_assert_int_eq(syslog_priority, LOG_WARNING);
	log_error("%%s stays %s", "%s");
	ck_assert_str_eq(syslog_line, "/mnt/stick: %s stays %s");
	ck_assert_int_eq(syslog_priority, LOG_ERR);
	log_info("not shown");
	ck_assert_str_eq(syslog_line, "/mnt/stick: %s stays %s");
}
END_TEST

static void log_many(unsigned index, void *arg)
{
	(void)arg;
	for (int i = 0; i < 50; i++)
		log_error("%c%c%c%c", 'a' + (int)index, 'a' + (int)index, 'a' + (int)index,
			'a' + (int)index);
}

START_TEST(lines_of_threads_do_not_mix)
{
	stderr_catch();
	log_open_stderr("t", LOG_ERROR_);
	rig_run_threads(8, log_many, NULL);
	const char *text = stderr_caught();
	ck_assert_uint_eq(strlen(text), 8 * 50 * strlen("t: aaaa\n"));
	for (; *text != '\0'; text += strlen("t: aaaa\n")) {
		ck_assert_int_eq(strncmp(text, "t: ", 3), 0);
		ck_assert(text[3] == text[4] && text[4] == text[5] && text[5] == text[6]);
		ck_assert_int_eq(text[7], '\n');
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base/log");
	TCase *tc = rig_case(s, "log");
	tcase_add_test(tc, stderr_has_program_and_level);
	tcase_add_test(tc, a_long_line_is_cut_and_ends);
	tcase_add_test(tc, syslog_is_connected_at_once_and_names_the_mount_point);
	tcase_add_test(tc, lines_of_threads_do_not_mix);
	return rig_run_suite(s);
}
