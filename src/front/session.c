/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The session's life: create, mount, INIT, serve, unmount.
 *
 *   created --front_mount--> mounted, INIT answered --front_serve--> serving --> over
 *
 * The seam: after the mount every read and reply goes through our two functions instead of
 * libfuse's, so that each thread uses its own clone of the device. The kernel wants a reply on the
 * descriptor that brought the request (another gets ENOENT and the caller hangs), and a request is
 * handled in the thread that read it, so one thread-local number is all the bookkeeping there is.
 *
 * Threads: one thread runs everything here but the seam and front_init().
 */
#include "front_int.h"
#include <fcntl.h>
#include <fuse_opt.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
	READ_AHEAD_KIB = 2048, /* two of the largest requests: one is decrypted, one is consumed */
	FUSERMOUNT_TEXT_BYTES = 300,
};

static _Thread_local int thread_fd = -1;
/* What libfuse said last in this thread: the detail of a failure that it reports as -1. */
static _Thread_local char libfuse_text[FUSERMOUNT_TEXT_BYTES];

void front_thread_fd(int fd)
{
	thread_fd = fd;
}

static ssize_t seam_read(int fd, void *buf, size_t len, void *userdata)
{
	ssize_t n;

	(void)userdata;
	n = read(thread_fd >= 0 ? thread_fd : fd, buf, len);
	if (n == 0) { /* the device never does this; a test's socket does when it is closed */
		errno = ENODEV;
		n = -1;
	}
	return n;
}

/*
 * libfuse 3.14 takes FUSE_CAP_PARALLEL_DIROPS as wanted and leaves it out of its reply, so the
 * kernel would let one LOOKUP or READDIR at a time into a directory. The flag is added here.
 */
static void complete_init_reply(const struct front *f, struct iovec *iov, int count)
{
	const struct fuse_out_header *header = iov[0].iov_base;
	struct fuse_init_out *reply;

	if (count != 2 || header->error || iov[1].iov_len < FUSE_COMPAT_22_INIT_OUT_SIZE)
		return;
	reply = iov[1].iov_base;
	if (f->parallel_dirops)
		reply->flags |= FUSE_PARALLEL_DIROPS;
}

static ssize_t seam_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct front *f = userdata;

	if (f->in_handshake)
		complete_init_reply(f, iov, count);
	return writev(thread_fd >= 0 ? thread_fd : fd, iov, count);
}

static void seam_log(enum fuse_log_level level, const char *fmt, va_list args)
	__attribute__((format(printf, 2, 0)));
static void seam_log(enum fuse_log_level level, const char *fmt, va_list args)
{
	char text[FUSERMOUNT_TEXT_BYTES];
	size_t len;

	vsnprintf(text, sizeof(text), fmt, args);
	len = strlen(text);
	while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
		text[--len] = 0;
	if (level == FUSE_LOG_DEBUG) {
		log_debug("%s", text);
		return;
	}
	memcpy(libfuse_text, text, sizeof(text));
	log_debug("libfuse: %s", text);
}

/* --- INIT ------------------------------------------------------------------------------------ */

static void want(struct fuse_conn_info *conn, unsigned capability)
{
	if (conn->capable & capability)
		conn->want |= capability;
}

void front_init(void *userdata, struct fuse_conn_info *conn)
{
	struct front *f = userdata;

	want(conn, FUSE_CAP_ASYNC_READ);
	want(conn, FUSE_CAP_ASYNC_DIO);
	want(conn, FUSE_CAP_PARALLEL_DIROPS);
	want(conn, FUSE_CAP_READDIRPLUS);
	want(conn, FUSE_CAP_READDIRPLUS_AUTO);
	want(conn, FUSE_CAP_EXPORT_SUPPORT);
	want(conn, FUSE_CAP_POSIX_ACL);
	/* Nobody changes the disk behind us: no page is thrown away for a changed mtime. */
	conn->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
#ifdef FUSE_CAP_CACHE_SYMLINKS
	want(conn, FUSE_CAP_CACHE_SYMLINKS);
#endif
#ifdef FUSE_CAP_EXPLICIT_INVAL_DATA
	want(conn, FUSE_CAP_EXPLICIT_INVAL_DATA);
#endif
	/* With no OPEN to carry it, the kernel would lose O_TRUNC. */
	conn->want &= ~(unsigned)FUSE_CAP_ATOMIC_O_TRUNC;
#ifdef FUSE_CAP_NO_OPEN_SUPPORT
	f->no_open = conn->capable & FUSE_CAP_NO_OPEN_SUPPORT;
#endif
#ifdef FUSE_CAP_NO_OPENDIR_SUPPORT
	f->no_opendir = conn->capable & FUSE_CAP_NO_OPENDIR_SUPPORT;
#endif
	f->parallel_dirops = conn->want & FUSE_CAP_PARALLEL_DIROPS;
	conn->max_background = FRONT_BACKGROUND_MAX;
	conn->congestion_threshold = FRONT_BACKGROUND_MAX * 3 / 4;
}

/* --- create, mount --------------------------------------------------------------------------- */

/* Adds "-oNAME[TEXT]", with what libfuse's option parser would split at escaped. */
static enum err add_option(struct fuse_args *args, const char *name, const char *text)
{
	size_t at = 2;
	char *arg = malloc(2 + 2 * (strlen(name) + strlen(text)) + 1);
	int rc;

	if (!arg)
		return ERR_NOMEM;
	memcpy(arg, "-o", 2);
	for (const char *part = name; part; part = part == name ? text : NULL)
		for (const char *p = part; *p; p++) {
			if (*p == ',' || *p == '\\')
				arg[at++] = '\\';
			arg[at++] = *p;
		}
	arg[at] = 0;
	rc = fuse_opt_add_arg(args, arg);
	free(arg);
	return rc ? ERR_NOMEM : OK;
}

static enum err build_arguments(const struct front_options *options, struct fuse_args *args)
{
	static const char *const always[] = {"ro", "default_permissions", "subtype=cryptfs", NULL};
	enum err e = fuse_opt_add_arg(args, "cryptfs") ? ERR_NOMEM : OK;

	for (size_t i = 0; !e && always[i]; i++)
		e = add_option(args, always[i], "");
	if (!e)
		e = add_option(args, "fsname=", options->source);
	if (!e && options->allow_other)
		e = add_option(args, "allow_other", "");
	for (size_t i = 0; !e && options->kernel_options && options->kernel_options[i]; i++)
		e = add_option(args, options->kernel_options[i], "");
	if (!e && options->debug && fuse_opt_add_arg(args, "-d"))
		e = ERR_NOMEM;
	return e;
}

enum err front_create(const struct front_options *options, struct front **out)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	struct front *f = calloc(1, sizeof(*f));
	enum err e = ERR_NOMEM;

	if (!f)
		return ERR_NOMEM;
	f->options = *options;
	f->session_fd = -1;
	f->over_fd = -1;
	mutex_init(&f->workers_lock);
	list_init(&f->workers);
	if (!f->options.workers_max)
		f->options.workers_max = FRONT_WORKERS_MAX;
	f->source = strdup(options->source);
	f->dir = strdup(options->dir);
	f->over_fd = eventfd(0, EFD_CLOEXEC);
	if (!f->source || !f->dir || f->over_fd < 0)
		goto out;
	f->options.source = f->source;
	f->options.dir = f->dir;
	e = build_arguments(options, &args);
	if (e)
		goto out;
	f->options.kernel_options = NULL;

	fuse_set_log_func(seam_log);
	libfuse_text[0] = 0;
	f->session = fuse_session_new(&args, &front_ops, sizeof(front_ops), f);
	if (!f->session) {
		e = err_set_detail(
			ERR_FUSE, "%s", *libfuse_text ? libfuse_text : err_text(ERR_FUSE));
		goto out;
	}
	*out = f;
	f = NULL;
	e = OK;
out:
	fuse_opt_free_args(&args);
	front_destroy(f);
	return e;
}

enum err front_attach(struct front *f, int fd)
{
	static const struct fuse_custom_io seam = {.writev = seam_writev, .read = seam_read};
	int rc = fuse_session_custom_io(f->session, &seam, fd);

	if (rc)
		return err_set_detail(
			ERR_FUSE, "cannot take over the FUSE device: %s", strerror(-rc));
	f->session_fd = fd;
	return OK;
}

enum err front_handshake(struct front *f)
{
	struct fuse_buf buf = {0};
	enum err e = OK;
	int n;

	do {
		n = fuse_session_receive_buf(f->session, &buf);
	} while (n == -EINTR);
	f->in_handshake = true;
	if (n > 0)
		fuse_session_process_buf(f->session, &buf);
	f->in_handshake = false;
	if (n <= 0 || fuse_session_exited(f->session))
		e = err_set_detail(ERR_FUSE, "the kernel and libfuse do not agree: %s",
			*libfuse_text ? libfuse_text : "no INIT request came");
	free(buf.mem);
	return e;
}

/*
 * libfuse's mount; what it and fusermount3 write to stderr is caught in `text`, so that the user
 * sees one line. fusermount3 is a program of its own, which inherits descriptor 2.
 */
static int mount_with_text_caught(struct front *f, char *text, size_t room)
{
	int saved = fcntl(2, F_DUPFD_CLOEXEC, 3), rc;
	int catcher = memfd_create("fusermount3", MFD_CLOEXEC);
	ssize_t n = 0;

	if (saved >= 0 && catcher >= 0)
		dup2(catcher, 2);
	rc = fuse_session_mount(f->session, f->dir);
	if (saved >= 0) {
		dup2(saved, 2);
		close(saved);
	}
	if (catcher >= 0) {
		n = pread(catcher, text, room - 1, 0);
		close(catcher);
	}
	text[n > 0 ? n : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	return rc;
}

/* libfuse's option parser does not know nosymfollow, and mount(2)'s fuse data neither. */
static enum err set_nosymfollow(const struct front *f)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSYMFOLLOW};

	if (mount_setattr(AT_FDCWD, f->dir, 0, &attr, sizeof(attr)))
		return err_set_detail(
			ERR_FUSE, "cannot set nosymfollow on the mount: %s", strerror(errno));
	return OK;
}

enum err front_mount(struct front *f)
{
	char text[FUSERMOUNT_TEXT_BYTES] = "";
	const char *said = text;
	enum err e;

	libfuse_text[0] = 0;
	if (mount_with_text_caught(f, text, sizeof(text))) {
		if (strncmp(said, "fusermount3: ", 13) == 0)
			said += 13;
		if (!*said)
			said = libfuse_text;
		if (strncmp(said, "fuse: ", 6) == 0)
			said += 6;
		return err_set_detail(ERR_FUSE, "cannot mount on %s: %s", f->dir,
			*said ? said : "the mount was refused");
	}
	f->mounted = true;
	e = front_attach(f, fuse_session_fd(f->session));
	if (!e)
		e = front_handshake(f);
	if (!e && f->options.nosymfollow)
		e = set_nosymfollow(f);
	if (e) {
		fuse_session_unmount(f->session);
		f->mounted = false;
		f->session_fd = -1;
	}
	return e;
}

/* --- serve ----------------------------------------------------------------------------------- */

/*
 * The kernel reads ahead 128 KiB by default, a quarter of what hides the latency of decrypting;
 * only root may say more, so this is best effort.
 */
static void raise_read_ahead(const struct front *f)
{
	char path[80], value[16];
	struct stat st;
	int fd, n;

	if (!f->mounted || geteuid() != 0 || stat(f->dir, &st))
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", major(st.st_dev),
		minor(st.st_dev));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = snprintf(value, sizeof(value), "%d", READ_AHEAD_KIB);
	if (write(fd, value, (size_t)n) != n)
		log_debug("%s could not be set", path);
	close(fd);
}

static void wait_until_over(struct front *f, int signal_fd)
{
	struct pollfd fds[2] = {
		{.fd = f->over_fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[0].revents)
			return;
		if (fds[1].revents) {
			log_info("a signal ends the mount");
			return;
		}
	}
}

enum err front_serve(struct front *f, void (*ready)(void *context), void *context)
{
	sigset_t ending;
	int signal_fd;
	enum err e;

	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGINT);
	signal_fd = signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
	e = signal_fd < 0 ? err_from_errno(errno) : front_workers_start(f);
	if (!e) {
		raise_read_ahead(f);
		if (ready)
			ready(context);
		wait_until_over(f, signal_fd);
	}
	/* libfuse closes the device when it unmounts: no worker may clone the number after that. */
	front_workers_refuse(f);
	if (f->mounted)
		fuse_session_unmount(f->session);
	f->mounted = false;
	front_workers_stop(f);
	if (signal_fd >= 0)
		close(signal_fd);
	return e;
}

void front_destroy(struct front *f)
{
	if (!f)
		return;
	if (f->session && f->mounted)
		fuse_session_unmount(f->session);
	if (f->session)
		fuse_session_destroy(f->session);
	if (f->over_fd >= 0)
		close(f->over_fd);
	mutex_destroy(&f->workers_lock);
	free(f->source);
	free(f->dir);
	free(f);
}
