/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From an error to an exit status and a line: mount(8)'s convention and cryptsetup's.
 *
 * Threads: none of its own; getenv and setenv run before any thread is started.
 */
#include "cmd.h"
#include <stdlib.h>

int cmd_exit_mount(enum err e)
{
	switch (e) {
	case OK:
		return 0;
	case ERR_ACCESS:
	case ERR_PERM:
		return MOUNT_EXIT_USAGE;
	case ERR_NOENT:
	case ERR_NOTDIR:
	case ERR_NOMEM:
	case ERR_KEY_FILE:
		return MOUNT_EXIT_MISSING;
	case ERR_INTR:
		return MOUNT_EXIT_INTERRUPTED;
	default:
		return MOUNT_EXIT_FAILURE;
	}
}

int cmd_exit_cryptsetup(enum err e)
{
	switch (e) {
	case OK:
		return 0;
	case ERR_LUKS_KEY:
	case ERR_ACCESS:
	case ERR_PERM:
		return 2;
	case ERR_NOMEM:
		return 3;
	case ERR_NOENT:
	case ERR_NOTDIR:
	case ERR_DEV_TYPE:
	case ERR_DEV_SHORT:
		return 4;
	case ERR_BUSY:
	case ERR_EXIST:
		return 5;
	default:
		return 1;
	}
}

const char *cmd_error_text(enum err e)
{
	const char *detail = err_detail();

	return *detail ? detail : err_text(e);
}

void cmd_ensure_path(void)
{
	if (!getenv("PATH"))
		setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
}
