/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two processes: the one that was called, and the one that will serve.
 *
 * The child is made before any secret, since locked memory is not inherited, and keeps the terminal
 * until the volume is unlocked. The parent waits for the child's exit status and takes it on;
 * status 0 comes when the mount is there. In the foreground there is one process and nothing to
 * report.
 */
#ifndef CRYPTFS_CMD_DAEMON_H
#define CRYPTFS_CMD_DAEMON_H

#include "base.h"
#include <sys/types.h>

struct daemon {
	pid_t child;   /* in the parent; 0 otherwise */
	int report_fd; /* in the child; -1 otherwise, and after the report */
	int *inherited;
	size_t inherited_count;
};

/* Remembers which descriptors came from the caller. Call before anything is opened. */
enum err daemon_start(struct daemon *d) must_check;
/* Forks; the child dies with the parent until it has reported. */
enum err daemon_fork(struct daemon *d) must_check;
/* In the parent: waits, passing signals on; returns the exit status to take on. */
int daemon_wait(struct daemon *d);
/* In the child, unlocked: leaves session and folder, closes what the caller had open. */
void daemon_detach(struct daemon *d);
/* In the child, mounted: gives the standard descriptors back and lets the parent end with 0. */
void daemon_report_mounted(struct daemon *d);
/* In the child, when it will not serve: the status for the parent. */
void daemon_report(struct daemon *d, int status);
void daemon_end(struct daemon *d); /* frees */

#endif
