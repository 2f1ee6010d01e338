/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The threads that serve: each reads a request, handles it and answers, on its own clone of the
 * FUSE device, so that neither a queue of ours nor another thread stands between.
 *
 * Few are started, and the one that takes a request while no other is waiting for the next one
 * starts another first, up to the limit. So a request never waits for a slow one. When it has
 * answered and finds more waiting than a busy mount needs, it leaves with its page pool, since the
 * kernel wakes waiting threads in turn: after a burst of many they would all be kept in memory,
 * each with some 3 MiB of pages.
 *
 * Invariant: idle is the number of workers between "about to read" and "has read".
 *
 * Threads: front_workers_start() and front_workers_stop() are called by the serving thread.
 */
#include "front_int.h"
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
	WAKE_SIGNAL = SIGUSR1,
	WAKE_INTERVAL_NS = 5 * 1000 * 1000,
};

/* Exists so that the signal ends a read(2) with EINTR instead of the process. */
static void wake_handler(int signal_number)
{
	(void)signal_number;
}

/* The kernel offers clones since 4.2; without one the worker shares the session's descriptor. */
static int clone_device(int session_fd)
{
	uint32_t master = (uint32_t)session_fd;
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0 && ioctl(fd, FUSE_DEV_IOC_CLONE, &master)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void *worker_run(void *arg);

/* Adds a worker unless the limit is reached or all are to leave. */
static enum err worker_add(struct front *f)
{
	struct front_worker *w = calloc(1, sizeof(*w));
	enum err e = OK;

	if (!w)
		return ERR_NOMEM;
	w->front = f;
	nodes_lock(&f->workers_lock);
	if (f->worker_count >= f->options.workers_max || atomic_load(&f->stop)) {
		nodes_unlock(&f->workers_lock);
		free(w);
		return OK;
	}
	/* Counted before it runs, so that no second one is started for the same need. */
	atomic_fetch_add(&f->idle, 1);
	atomic_fetch_add(&f->running, 1);
	w->fd = clone_device(f->session_fd);
	e = thread_start(&w->thread, "fuse", worker_run, w);
	if (e == OK) {
		list_push_back(&f->workers, &w->link);
		f->worker_count++;
	} else {
		atomic_fetch_sub(&f->idle, 1);
		atomic_fetch_sub(&f->running, 1);
	}
	nodes_unlock(&f->workers_lock);
	if (e) {
		if (w->fd >= 0)
			close(w->fd);
		free(w);
	}
	return e;
}

static void worker_grow(struct front *f)
{
	enum err e = worker_add(f);

	/* The others serve on; the next request that finds nobody waiting tries again. */
	if (e)
		front_log_error(f, e, "starting another worker for a request", FRONT_ROOT_NODE);
}

/* Whether this worker, idle, is one too many; it is taken off the list then, and nobody joins it.
 */
static bool worker_retire(struct front *f, struct front_worker *w)
{
	bool retire;

	nodes_lock(&f->workers_lock);
	retire = !atomic_load(&f->stop) && atomic_load(&f->idle) > FRONT_WORKERS_IDLE_MAX;
	if (retire) {
		list_remove(&w->link);
		f->worker_count--;
		atomic_fetch_sub(&f->idle, 1);
	}
	nodes_unlock(&f->workers_lock);
	if (!retire)
		return false;
	pthread_detach(pthread_self());
	if (w->fd >= 0)
		close(w->fd);
	free(w);
	if (f->options.pages)
		pages_trim(f->options.pages);
	return true;
}

/* The end of the mount, as the device tells it. */
static void worker_leave(struct front *f)
{
	const uint64_t one = 1;

	atomic_fetch_sub(&f->idle, 1);
	atomic_fetch_sub(&f->running, 1);
	if (write(f->over_fd, &one, sizeof(one)) != (ssize_t)sizeof(one))
		log_error("a worker could not report its end: %s", strerror(errno));
}

static void *worker_run(void *arg)
{
	struct front_worker *w = arg;
	struct front *f = w->front;
	struct fuse_buf buf = {0};
	bool retired = false;
	sigset_t wake;

	sigemptyset(&wake);
	sigaddset(&wake, WAKE_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &wake, NULL);
	front_thread_fd(w->fd);
	while (!retired && !atomic_load(&f->stop) && !fuse_session_exited(f->session)) {
		int n = fuse_session_receive_buf(f->session, &buf);

		if (n == -EINTR || n == -EAGAIN)
			continue;
		if (n <= 0)
			break;
		if (atomic_fetch_sub(&f->idle, 1) == 1)
			worker_grow(f);
		fuse_session_process_buf(f->session, &buf);
		if (atomic_fetch_add(&f->idle, 1) >= FRONT_WORKERS_IDLE_MAX)
			retired = worker_retire(f, w);
	}
	free(buf.mem);
	if (retired)
		atomic_fetch_sub(&f->running, 1); /* the last touch: the session may be freed now */
	else
		worker_leave(f);
	return NULL;
}

enum err front_workers_start(struct front *f)
{
	struct sigaction wake = {.sa_handler = wake_handler};
	enum err e = OK;

	sigemptyset(&wake.sa_mask);
	if (sigaction(WAKE_SIGNAL, &wake, NULL))
		return err_from_errno(errno);
	for (int i = 0; i < FRONT_WORKERS_FIRST && !e; i++)
		e = worker_add(f);
	return e;
}

void front_workers_refuse(struct front *f)
{
	nodes_lock(&f->workers_lock);
	atomic_store(&f->stop, true);
	f->session_fd = -1;
	nodes_unlock(&f->workers_lock);
}

void front_workers_stop(struct front *f)
{
	const struct timespec pause = {.tv_nsec = WAKE_INTERVAL_NS};
	struct list leaving;

	/*
	 * Most have left with ENODEV. One that is still in read(2), because the mount is detached
	 * but busy, is woken by a signal; it may just have been on its way into the read, so the
	 * signal is repeated until all have left.
	 */
	while (atomic_load(&f->running)) {
		nodes_lock(&f->workers_lock);
		list_for_each (n, &f->workers)
			pthread_kill(list_entry(n, struct front_worker, link)->thread, WAKE_SIGNAL);
		nodes_unlock(&f->workers_lock);
		nanosleep(&pause, NULL);
	}
	list_init(&leaving);
	nodes_lock(&f->workers_lock);
	list_for_each_safe (n, &f->workers) {
		list_remove(n);
		list_push_back(&leaving, n);
	}
	f->worker_count = 0;
	nodes_unlock(&f->workers_lock);
	list_for_each_safe (n, &leaving) {
		struct front_worker *w = list_entry(n, struct front_worker, link);

		pthread_join(w->thread, NULL);
		if (w->fd >= 0)
			close(w->fd);
		free(w);
	}
}
