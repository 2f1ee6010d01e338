/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * base/err: error codes, their errno classes and texts, the detail line, and ensure().
 *
 * Everything is generated from ERR_TABLE, so a code cannot lack its errno or its text. The detail
 * is thread-local: it belongs to the error that this thread is carrying up. Any thread may call
 * anything here. What it does not do: print errors to the user; that is cmd/'s.
 */
#include "base.h"

#include <stdio.h>
#include <stdlib.h>

enum { DETAIL_BYTES = 512 };

static const struct {
	int errno_class;
	const char *name;
	const char *text;
} err_table[] = {{0, "OK", "no error"},
#define x(name, errno_class, text) {errno_class, "ERR_" #name, text},
	ERR_TABLE(x)
#undef x
};
static_assert(ARRAY_SIZE(err_table) == ERR_COUNT, "one row a code");

static _Thread_local char detail[DETAIL_BYTES];

int err_errno(enum err e)
{
	ensure((unsigned)e < ERR_COUNT);
	return err_table[e].errno_class;
}

const char *err_text(enum err e)
{
	ensure((unsigned)e < ERR_COUNT);
	return err_table[e].text;
}

const char *err_name(enum err e)
{
	ensure((unsigned)e < ERR_COUNT);
	return err_table[e].name;
}

enum err err_from_errno(int error)
{
	/* A full quota and a device that was unplugged have errnos that no code is named after. */
	if (error == EDQUOT)
		return ERR_NOSPC;
	if (error == ENODEV)
		return ERR_NXIO;
	/* Codes after ERR_SYSTEM say more than an errno can, so no errno becomes one of them. */
	for (enum err e = OK + 1; e < ERR_SYSTEM; e++) {
		if (err_table[e].errno_class == error)
			return e;
	}
	return ERR_SYSTEM;
}

void err_format_detail(const char *fmt, ...)
{
	/* Formatted aside, because the arguments may include err_detail() itself. */
	char text[DETAIL_BYTES];
	va_list args;
	va_start(args, fmt);
	int n = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (n < 0)
		text[0] = '\0';
	memcpy(detail, text, strlen(text) + 1);
}

const char *err_detail(void)
{
	return detail;
}

void err_clear_detail(void)
{
	detail[0] = '\0';
}

void ensure_failed(const char *cond, const char *file, int line)
{
	log_error("this is a bug in cryptfs: %s:%d: '%s' does not hold", file, line, cond);
	abort();
}
