/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * base/log: one line a message, to stderr before the daemon serves and to syslog(3) afterwards.
 *
 * The two targets are static and the current one is an atomic pointer, so that a thread that logs
 * while the target changes sees either the old or the new one whole. Each target is opened before
 * threads that log to it exist. A line goes out in one write, so lines of several threads do not
 * mix. What it does not do: rotate, filter by topic, or count.
 */
#include "base.h"

#include <limits.h>
#include <stdio.h>
#include <syslog.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

struct log_target {
	bool to_syslog;
	enum log_level most;
	char prefix[PATH_MAX]; /* the program for stderr, the mount point for syslog */
};

static struct log_target target_default = {false, LOG_WARN_, "cryptfs"};
static struct log_target target_stderr;
static struct log_target target_syslog;
static struct log_target *_Atomic current = &target_default;

static void log_open(struct log_target *t, bool to_syslog, const char *prefix, enum log_level most)
{
	t->to_syslog = to_syslog;
	t->most = most;
	/* A prefix is at most a path; a longer one is cut rather than refused. */
	size_t len = strnlen(prefix, sizeof(t->prefix) - 1);
	memcpy(t->prefix, prefix, len);
	t->prefix[len] = '\0';
	atomic_store(&current, t);
}

void log_open_stderr(const char *program, enum log_level most)
{
	log_open(&target_stderr, false, program, most);
}

void log_open_syslog(const char *mount_point, enum log_level most)
{
	/* LOG_NDELAY: connect now, since a sandboxed daemon cannot connect later. */
	openlog("cryptfs", LOG_PID | LOG_NDELAY, LOG_DAEMON);
	log_open(&target_syslog, true, mount_point, most);
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	static const int priority[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
	const struct log_target *t = atomic_load(&current);
	if (level > t->most)
		return;
	char text[LINE_BYTES];
	va_list args;
	va_start(args, fmt);
	int n = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (n < 0)
		return;
	if (t->to_syslog)
		syslog(priority[level], "%s: %s", t->prefix, text);
	else
		dprintf(STDERR_FILENO, "%s: %s\n", t->prefix, text);
}
