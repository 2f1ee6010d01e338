/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the rooms of front share: the session, its workers, the replies.
 */
#ifndef CRYPTFS_FRONT_INT_H
#define CRYPTFS_FRONT_INT_H

#include "front.h"
#include <fuse_lowlevel.h>

enum {
	FRONT_WORKERS_FIRST = 4,     /* few threads keep their page pools and handles hot */
	FRONT_WORKERS_IDLE_MAX = 32, /* more that wait for a request are let go */
	FRONT_WORKERS_MAX = 256,     /* a blocked worker must never starve reads */
	FRONT_BACKGROUND_MAX = 4096, /* the kernel's own FIFO of reads and writes must not form */
	FRONT_ROOT_NODE = FUSE_ROOT_ID,
	FRONT_XATTR_BYTES_MAX = 65536, /* the kernel's XATTR_SIZE_MAX and XATTR_LIST_MAX */
};

/* We are the only owner of the disk, so what the kernel knows stays true. */
#define FRONT_TIMEOUT_SECONDS (365.0 * 86400.0)

struct front_worker {
	struct front *front;
	pthread_t thread;
	int fd; /* its clone of the FUSE device, or -1: it shares the session's */
	struct list link;
};

struct front {
	struct front_options options;
	char *source, *dir;
	struct fuse_session *session;
	int session_fd;           /* belongs to libfuse; -1 when no worker may be added */
	bool mounted;             /* through libfuse, so that it must unmount */
	bool no_open, no_opendir; /* the kernel takes ENOSYS for "no need to ask" */
	bool parallel_dirops;     /* agreed on in INIT */
	bool in_handshake;        /* the reply that is written is INIT's; no worker runs yet */

	/* Workers. The idle count is all that a request touches on a shared line. */
	_Atomic int idle;          /* workers in read(2) on the device, or about to be */
	_Atomic bool stop;         /* every worker leaves at its next look */
	_Atomic uint32_t running;  /* workers that have not left their loop */
	int over_fd;               /* eventfd: written when a worker leaves */
	struct mutex workers_lock; /* rank nodes */
	struct list workers GUARDED_BY(nodes_token);
	unsigned worker_count GUARDED_BY(nodes_token);

	/* Rate limit of error messages: reply.c. */
	_Atomic uint64_t log_window; /* number of the window the count is for */
	_Atomic uint32_t log_count;
};

extern const struct fuse_lowlevel_ops front_ops; /* ops.c */

/* --- session.c: the seam to the device ------------------------------------------------------- */
/* Makes `fd` the session's device; libfuse closes it. For front_mount() and for tests. */
enum err front_attach(struct front *f, int fd) must_check;
/* Answers requests in the calling thread until INIT has been answered. */
enum err front_handshake(struct front *f) must_check;
void front_init(void *userdata, struct fuse_conn_info *conn); /* the INIT operation */
/* Which descriptor the calling thread's reads and replies use; -1: the session's. */
void front_thread_fd(int fd);

/* --- worker.c -------------------------------------------------------------------------------- */
enum err front_workers_start(struct front *f) must_check;
void front_workers_refuse(struct front *f); /* from here on no worker is added */
void front_workers_stop(struct front *f);   /* wakes and joins every worker; after refuse */

/* --- reply.c --------------------------------------------------------------------------------- */
static inline struct front *front_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}
/* The inode behind a node id. ERR_STALE for what is never given out. */
enum err front_node_get(struct front *f, fuse_ino_t node, struct ext4_inode **out) must_check;
void front_stat(const struct front *f, const struct ext4_attr *attr, struct stat *out);
/* Fills what LOOKUP and READDIRPLUS answer for an inode number found in a directory. */
enum err front_entry(struct front *f, inum_t inum, struct fuse_entry_param *out) must_check;
/*
 * Answers with the error's errno. What a program may expect (no such name, no such attribute) is
 * silent; damage and I/O errors are logged, at most ten in ten seconds, with the error's detail.
 */
void front_reply_error(fuse_req_t req, enum err e, const char *what, fuse_ino_t node);
/* The logging part of the above, for an error that the request survives. */
void front_log_error(struct front *f, enum err e, const char *what, fuse_ino_t node);

/* --- dir.c ----------------------------------------------------------------------------------- */
void front_op_readdir(
	fuse_req_t req, fuse_ino_t node, size_t size, off_t off, struct fuse_file_info *fi);
void front_op_readdirplus(
	fuse_req_t req, fuse_ino_t node, size_t size, off_t off, struct fuse_file_info *fi);

#endif
