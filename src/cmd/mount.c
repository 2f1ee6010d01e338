/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mount.cryptfs SOURCE DIR [-sfnv] [-o OPTIONS]: unlocks a volume and serves the ext4 in it.
 *
 * Order: options; what must be there (source, mount point, FUSE), before anybody is asked for a
 * passphrase; the claim on the source; the fork; in the child header, key, file system, mount,
 * service. The caller gets status 0 only when the mount is there, and after a failure nothing is
 * left: no mount, no process, not a byte written.
 *
 * Threads: the main thread only; the workers belong to front.
 */
#include "cmd.h"
#include "daemon.h"
#include "front.h"
#include "mount_options.h"
#include "source.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

struct mount {
	struct mount_options options;
	struct daemon daemon;
	char *path, *name; /* of the source: to open it, and for the mount table */
	char *dir;         /* the mount point, absolute */
	struct stack stack;
	struct pages *pages;
	struct ext4 *fs;
	struct front *front;
};

static void print_help(void)
{
	fputs("usage: mount.cryptfs SOURCE DIR [-sfnv] [-o OPTION,...]\n"
	      "\n"
	      "SOURCE is a LUKS volume: a device, a file, UUID=... or LABEL=... It is mounted\n"
	      "read-only.\n"
	      "\n"
	      "  -f  do everything but the mount      -v  say more\n"
	      "  -s  let unknown options pass         -n  for mount(8); nothing to do\n"
	      "\n"
	      "key:      key-file=FILE keyfile-offset=BYTES keyfile-size=BYTES key-slot=N\n"
	      "          header=FILE tries=N timeout=SECONDS\n"
	      "          token-id=N token-type=NAME token-timeout=SECONDS\n"
	      "mount:    ro noload uid=N gid=N allow_other noexec nosuid nodev nosymfollow\n"
	      "          pages=SIZE|N% context=...\n"
	      "process:  foreground debug\n"
	      "\n"
	      "exit status: 0 mounted, 1 usage or permission, 2 something is missing,\n"
	      "8 interrupted, 32 everything else\n",
		stdout);
}

/* --- after the mount, in the serving process ------------------------------------------------- */

static void on_ready(void *context)
{
	struct mount *m = context;

	log_info("%s: mounted on %s", m->options.source, m->dir);
	if (m->options.foreground)
		return;
	log_open_syslog(m->dir, LOG_INFO_);
	log_info("%s is mounted", m->options.source);
	daemon_report_mounted(&m->daemon);
}

/* The options for the kernel; `list` has room for all of them. */
static void kernel_options(const struct mount_options *o, const char **list)
{
	size_t n = 0;
	bool root = geteuid() == 0;

	/* libfuse says nosuid and nodev by itself; for root the rule is mount(8)'s. */
	if (o->nosuid || root)
		list[n++] = o->nosuid ? "nosuid" : "suid";
	if (o->nodev || root)
		list[n++] = o->nodev ? "nodev" : "dev";
	if (o->noexec)
		list[n++] = "noexec";
	for (size_t i = 0; o->contexts[i]; i++)
		list[n++] = o->contexts[i];
	list[n] = NULL;
}

static enum err serve(struct mount *m)
{
	const struct mount_options *o = &m->options;
	const char *list[3 + MOUNT_CONTEXTS_MAX + 1];
	struct front_options options = {
		.fs = m->fs,
		.pages = m->pages,
		.source = m->name,
		.dir = m->dir,
		.kernel_options = list,
		.allow_other = o->allow_other || geteuid() == 0,
		.nosymfollow = o->nosymfollow,
		.override_uid = o->override_uid,
		.override_gid = o->override_gid,
		.debug = o->debug,
		.uid = o->uid,
		.gid = o->gid,
	};
	sigset_t ending;
	enum err e;

	kernel_options(o, list);
	/* From here on they are front_serve()'s way to end. */
	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGINT);
	sigprocmask(SIG_BLOCK, &ending, NULL);
	daemon_detach(&m->daemon);
	e = front_create(&options, &m->front);
	if (!e)
		e = front_mount(m->front);
	if (!e)
		e = front_serve(m->front, on_ready, m);
	return e;
}

/* --- before the mount ------------------------------------------------------------------------ */

/* One line on why the mount is not what was asked for. */
static void say_read_only(const struct mount *m)
{
	struct ext4_info info;

	if (m->options.readonly)
		return;
	ext4_info(m->fs, &info);
	if (info.must_be_readonly && info.reason_count)
		log_warn("%s: mounted read-only: %s", m->options.source, info.reasons[0]);
	else
		log_warn("%s: mounted read-only: this version does not write", m->options.source);
}

static enum err unlock_and_serve(struct mount *m)
{
	const struct mount_options *o = &m->options;
	const struct pages_config pages = {
		.cap_bytes = o->pages_bytes,
		.lock_memory = geteuid() == 0,
	};
	struct ext4_options fs_options = {.noload = o->noload};
	enum err e;

	prctl(PR_SET_DUMPABLE, 0); /* keys will be in this memory */
	e = stack_load(&m->stack, &o->unlock);
	if (!e)
		e = stack_check(&m->stack);
	if (!e)
		e = stack_unlock(&m->stack, &o->unlock, o->source);
	if (!e)
		e = pages_create(&pages, &m->pages);
	if (e)
		return e;
	fs_options.volume = m->stack.volume;
	fs_options.pages = m->pages;
	e = ext4_mount(&fs_options, &m->fs);
	if (e)
		return e;
	say_read_only(m);
	return o->fake ? OK : serve(m);
}

static void close_all(struct mount *m)
{
	front_destroy(m->front);
	if (m->fs)
		ext4_unmount(m->fs);
	if (m->pages)
		pages_destroy(m->pages);
	stack_close(&m->stack);
	daemon_end(&m->daemon);
	mount_options_free(&m->options);
	free(m->path);
	free(m->name);
	free(m->dir);
}

static enum err check_file(const char *what, const char *path, enum err missing)
{
	if (!path || strcmp(path, "-") == 0 || access(path, R_OK) == 0)
		return OK;
	return err_set_detail(
		errno == EACCES ? ERR_ACCESS : missing, "%s %s: %s", what, path, strerror(errno));
}

/* What a user can put right without a passphrase. */
static enum err check_needs(struct mount *m)
{
	const struct mount_options *o = &m->options;
	enum err e;

	if (geteuid() != 0 && (o->nosymfollow || o->contexts[0]))
		return err_set_detail(ERR_PERM, "option '%s' is for root only",
			o->nosymfollow ? "nosymfollow" : o->contexts[0]);
	e = source_resolve(o->source, &m->path);
	if (!e)
		e = source_name(m->path, &m->name);
	if (!e)
		e = source_check_not_mounted(m->name, o->dir);
	if (!e)
		e = source_check_mount_point(o->dir, &m->dir);
	if (!e)
		e = source_check_fuse(o->allow_other);
	if (!e)
		e = check_file("key file", o->unlock.key_file, ERR_KEY_FILE);
	if (!e)
		e = check_file("header", o->unlock.header, ERR_NOENT);
	if (!e)
		e = source_open(m->name, m->path, &m->stack.dev);
	return e;
}

static int report_error(const struct mount *m, enum err e)
{
	log_error("%s: %s", m->options.source, cmd_error_text(e));
	return cmd_exit_mount(e);
}

static int run(struct mount *m)
{
	enum err e = check_needs(m);
	int status;

	if (!e && !m->options.foreground)
		e = daemon_fork(&m->daemon);
	if (e)
		return report_error(m, e);
	if (m->daemon.child)
		return daemon_wait(&m->daemon);

	e = unlock_and_serve(m);
	status = e ? report_error(m, e) : 0;
	if (e || m->options.fake)
		daemon_report(&m->daemon, status);
	return status;
}

int cmd_mount(int argc, char **argv)
{
	struct mount m = {0};
	enum err e;
	int status = 0;

	log_open_stderr("mount.cryptfs", LOG_WARN_);
	cmd_ensure_path();
	e = daemon_start(&m.daemon);
	if (!e)
		e = mount_options_parse(argc, argv, &m.options);
	if (e) {
		log_error("%s", cmd_error_text(e));
		status = e == ERR_NOMEM ? MOUNT_EXIT_MISSING : MOUNT_EXIT_USAGE;
	} else if (m.options.help) {
		print_help();
	} else if (m.options.version) {
		printf("mount.cryptfs %s\n", CRYPTFS_VERSION);
	} else {
		if (m.options.debug || m.options.verbose)
			log_open_stderr("mount.cryptfs", m.options.debug ? LOG_DEBUG_ : LOG_INFO_);
		status = run(&m);
	}
	close_all(&m);
	return status;
}
