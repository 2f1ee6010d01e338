/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fork, terminal, session and signals of mount.cryptfs.
 *
 *   called --daemon_fork--> parent: daemon_wait ------------------------> exits with the status
 *                      \--> child: terminal --detach--> no terminal --report--> serves
 *
 * Threads: runs before the workers are started, in the main thread.
 */
#include "daemon.h"
#include "cmd.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

/* For the handler, which has no argument of ours. */
static volatile pid_t waited_child;

enum err daemon_start(struct daemon *d)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	size_t room = 0;
	enum err e = OK;

	memset(d, 0, sizeof(*d));
	d->report_fd = -1;
	if (!dir)
		return OK; /* without /proc nothing can be told apart; nothing is closed then */
	while (!e && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (fd <= 2 || fd == dirfd(dir))
			continue;
		if (d->inherited_count == room) {
			int *larger = realloc(d->inherited, (room * 2 + 16) * sizeof(int));

			if (!larger) {
				e = ERR_NOMEM;
				break;
			}
			d->inherited = larger;
			room = room * 2 + 16;
		}
		d->inherited[d->inherited_count++] = fd;
	}
	closedir(dir);
	return e;
}

enum err daemon_fork(struct daemon *d)
{
	int ends[2];
	pid_t parent = getpid(), child;

	if (pipe2(ends, O_CLOEXEC))
		return err_set_detail(ERR_NOMEM, "cannot make a pipe: %s", strerror(errno));
	child = fork();
	if (child < 0) {
		int error = errno;

		close(ends[0]);
		close(ends[1]);
		return err_set_detail(ERR_NOMEM, "cannot fork: %s", strerror(error));
	}
	if (child > 0) {
		close(ends[1]);
		d->report_fd = ends[0];
		d->child = child;
		return OK;
	}
	close(ends[0]);
	d->report_fd = ends[1];
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) /* it died before it could tell us */
		_exit(MOUNT_EXIT_INTERRUPTED);
	return OK;
}

static void pass_on(int signal_number)
{
	if (waited_child > 0)
		kill(waited_child, signal_number);
}

int daemon_wait(struct daemon *d)
{
	static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct sigaction action = {.sa_handler = pass_on};
	unsigned char status;
	int state = 0;
	ssize_t n;

	waited_child = d->child;
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(passed); i++)
		sigaction(passed[i], &action, NULL);
	do {
		n = read(d->report_fd, &status, 1);
	} while (n < 0 && errno == EINTR);
	close(d->report_fd);
	d->report_fd = -1;
	if (n == 1 && status == 0)
		return 0;
	/* Nothing stays behind a failure: the status is given when the child is gone. */
	while (waitpid(d->child, &state, 0) < 0 && errno == EINTR)
		;
	if (n == 1)
		return status;
	if (WIFSIGNALED(state)) {
		int by = WTERMSIG(state);

		if (by == SIGINT || by == SIGTERM || by == SIGHUP || by == SIGQUIT)
			return MOUNT_EXIT_INTERRUPTED;
		log_error("the serving process was ended by signal %d", by);
	}
	return MOUNT_EXIT_FAILURE;
}

void daemon_detach(struct daemon *d)
{
	umask(0);
	signal(SIGPIPE, SIG_IGN);
	if (d->report_fd < 0)
		return; /* the foreground belongs to the caller */
	setsid();
	signal(SIGHUP, SIG_IGN);
	if (chdir("/"))
		log_debug("chdir to /: %s", strerror(errno));
	for (size_t i = 0; i < d->inherited_count; i++)
		close(d->inherited[i]);
	d->inherited_count = 0;
	/*
	 * Root's mounts outlive memory pressure: reclaim that waits for us must not make us wait,
	 * and the file system is a bad choice for the killer. Best effort.
	 */
	if (geteuid() == 0) {
		int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

		prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
		if (fd >= 0) {
			if (write(fd, "-900", 4) != 4)
				log_debug("oom_score_adj: %s", strerror(errno));
			close(fd);
		}
	}
}

void daemon_report(struct daemon *d, int status)
{
	unsigned char byte = (unsigned char)status;

	if (d->report_fd < 0)
		return;
	if (write(d->report_fd, &byte, 1) != 1)
		log_warn("the calling process has gone: %s", strerror(errno));
	close(d->report_fd);
	d->report_fd = -1;
}

void daemon_report_mounted(struct daemon *d)
{
	int fd;

	if (d->report_fd < 0)
		return;
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; fd >= 0 && i <= 2; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
	prctl(PR_SET_PDEATHSIG, 0);
	daemon_report(d, 0);
}

void daemon_end(struct daemon *d)
{
	if (d->report_fd >= 0)
		close(d->report_fd);
	free(d->inherited);
	memset(d, 0, sizeof(*d));
	d->report_fd = -1;
}
