/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The commands, one file each; main.c picks one by the name the program was called by, or by the
 * first argument of `cryptfs`.
 *
 * A command gets argv with its own name in argv[0], prints what the user must know to stderr as
 * "NAME: SUBJECT: what" and returns the exit status. Layer: everything may be called from here.
 */
#ifndef CRYPTFS_CMD_H
#define CRYPTFS_CMD_H

#include "base.h"

#define CRYPTFS_VERSION "0.1"

int cmd_mount(int argc, char **argv);
int cmd_mkfs(int argc, char **argv);
int cmd_info(int argc, char **argv);

/* mount(8)'s exit statuses. */
enum {
	MOUNT_EXIT_USAGE = 1,
	MOUNT_EXIT_MISSING = 2, /* mount(8)'s "system error": what is needed is not there */
	MOUNT_EXIT_INTERRUPTED = 8,
	MOUNT_EXIT_FAILURE = 32,
};
int cmd_exit_mount(enum err e);

/* cryptsetup's: 1 wrong parameters, 2 no permission, 3 no memory, 4 wrong device, 5 busy. */
int cmd_exit_cryptsetup(enum err e);

/* The one line for an error: its detail where one was set, else its text. */
const char *cmd_error_text(enum err e);

/* mount(8) calls helpers without PATH; what we start (fusermount3, systemd-ask-password) needs it.
 */
void cmd_ensure_path(void);

#endif
