/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * front: the FUSE session: a mounted file system becomes a mount point.
 *
 * Node ids are inode numbers, except that FUSE's root 1 is ext4's root 2; ext4's inode 1 (bad
 * blocks) is never given out. A request is read, handled and answered by one worker thread, on
 * that thread's own clone of the FUSE device.
 *
 * Threads: one thread calls everything here, in the order create, mount, serve, destroy; the
 * workers are started and joined inside front_serve().
 */
#ifndef CRYPTFS_FRONT_H
#define CRYPTFS_FRONT_H

#include "base.h"
#include "ext4.h"
#include "page.h"
#include <sys/types.h>

struct front;

struct front_options {
	struct ext4 *fs;     /* borrowed until front_destroy() */
	struct pages *pages; /* borrowed, or NULL: a worker that leaves gives its pool back */
	const char *source;  /* shown as the mount's source, exactly as it was given */
	const char *dir;     /* the mount point, absolute */
	/*
	 * Mount flags and options for the kernel beside what front adds itself (ro, fsname,
	 * subtype, default_permissions): "nosuid", "context=..."; a comma inside one is escaped
	 * here.
	 */
	const char *const *kernel_options; /* NULL-terminated, or NULL */
	bool allow_other;
	bool nosymfollow;     /* needs the right to change mounts */
	bool override_uid;    /* every file shows as owned by uid */
	bool override_gid;    /* every file shows as of group gid */
	bool debug;           /* log every request */
	unsigned workers_max; /* 0: 256 */
	uid_t uid;
	gid_t gid;
};

/* Copies the options. ERR_NOMEM; ERR_FUSE when libfuse refuses an option (detail set). */
enum err front_create(const struct front_options *options, struct front **out) must_check;

/*
 * Mounts (mount(2), or fusermount3 for a plain user) and answers the kernel's INIT: on success the
 * mount point shows the file system and its requests wait for front_serve(). On failure nothing
 * stays mounted. ERR_FUSE, ERR_ACCESS, with a detail.
 */
enum err front_mount(struct front *f) must_check;

/*
 * Serves until the file system is unmounted or SIGTERM or SIGINT arrives, which detach it. Both
 * signals must be blocked in the calling thread since before front_mount(). `ready`, if not NULL,
 * is called once, when the workers are running. Returns OK however the mount came to its end, and
 * ERR_NOMEM or ERR_SYSTEM when no worker could be started; nothing is mounted then.
 */
enum err front_serve(struct front *f, void (*ready)(void *context), void *context) must_check;

/* Detaches what is still mounted and frees. No worker is left after front_serve(). NULL is fine. */
void front_destroy(struct front *f);

#endif
