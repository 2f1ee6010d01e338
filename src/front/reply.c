/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * From ext4's answers to FUSE's: node ids, attributes, entries, errors.
 *
 * Invariant: a node id is an inode number, except that the root is 1 there and 2 here, so inode 1
 * has no node id and node 2 names nothing. The root's generation is always 0, because the kernel
 * made its root inode with that before it asked us.
 *
 * Threads: everything runs in the worker that has the request; the rate limit is two atomics.
 */
#include "front_int.h"
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
	LOG_WINDOW_SECONDS = 10,
	LOG_WINDOW_MESSAGES = 10,
};

enum err front_node_get(struct front *f, fuse_ino_t node, struct ext4_inode **out)
{
	if (node == FRONT_ROOT_NODE)
		return ext4_inode_get(f->options.fs, EXT4_ROOT_INUM, out);
	if (node <= EXT4_ROOT_INUM || node > UINT32_MAX)
		return err_set_detail(ERR_STALE, "node %ju does not exist", (uintmax_t)node);
	return ext4_inode_get(f->options.fs, (inum_t)node, out);
}

void front_stat(const struct front *f, const struct ext4_attr *attr, struct stat *out)
{
	memset(out, 0, sizeof(*out));
	out->st_ino = attr->inum;
	out->st_mode = attr->mode;
	out->st_nlink = attr->nlink;
	out->st_uid = f->options.override_uid ? f->options.uid : attr->uid;
	out->st_gid = f->options.override_gid ? f->options.gid : attr->gid;
	out->st_rdev = makedev(attr->rdev_major, attr->rdev_minor);
	out->st_size = (off_t)attr->size_bytes;
	out->st_blksize = PAGE_BYTES;
	out->st_blocks = (blkcnt_t)attr->blocks_512;
	out->st_atim.tv_sec = attr->atime.sec;
	out->st_atim.tv_nsec = attr->atime.nsec;
	out->st_mtim.tv_sec = attr->mtime.sec;
	out->st_mtim.tv_nsec = attr->mtime.nsec;
	out->st_ctim.tv_sec = attr->ctime.sec;
	out->st_ctim.tv_nsec = attr->ctime.nsec;
}

enum err front_entry(struct front *f, inum_t inum, struct fuse_entry_param *out)
{
	struct ext4_inode *inode = NULL;
	struct ext4_attr attr;
	enum err e;

	/* Inode 1 would become the root's node id, a loop in the kernel's tree. */
	if (inum < EXT4_ROOT_INUM)
		return err_set_detail(ERR_CORRUPT, "a directory entry names inode %u", inum);
	e = ext4_inode_get(f->options.fs, inum, &inode);
	if (e == ERR_STALE)
		return err_set_detail(
			ERR_CORRUPT, "a directory entry names inode %u, which is not in use", inum);
	if (e)
		return e;
	e = ext4_getattr(inode, &attr);
	ext4_inode_put(inode);
	if (e)
		return e;

	memset(out, 0, sizeof(*out));
	out->ino = inum == EXT4_ROOT_INUM ? FRONT_ROOT_NODE : inum;
	out->generation = inum == EXT4_ROOT_INUM ? 0 : attr.generation;
	front_stat(f, &attr, &out->attr);
	out->attr_timeout = FRONT_TIMEOUT_SECONDS;
	out->entry_timeout = FRONT_TIMEOUT_SECONDS;
	return OK;
}

/* What programs ask for and live with. */
static bool error_is_expected(enum err e)
{
	switch (e) {
	case ERR_NOENT:
	case ERR_NODATA:
	case ERR_RANGE:
	case ERR_NXIO:
	case ERR_NOTDIR:
	case ERR_ISDIR:
	case ERR_INVAL:
	case ERR_NAMETOOLONG:
	case ERR_STALE:
	case ERR_ROFS:
	case ERR_NOSYS:
	case ERR_OPNOTSUPP:
		return true;
	default:
		return false;
	}
}

/* Says whether a message may be written now; *dropped is how many the last window swallowed. */
static bool log_allowed(struct front *f, uint32_t *dropped)
{
	uint64_t window = clock_ns() / (UINT64_C(1000000000) * LOG_WINDOW_SECONDS);
	uint64_t seen = atomic_load(&f->log_window);
	uint32_t count;

	*dropped = 0;
	if (seen != window && atomic_compare_exchange_strong(&f->log_window, &seen, window)) {
		count = atomic_exchange(&f->log_count, 0);
		if (count > LOG_WINDOW_MESSAGES)
			*dropped = count - LOG_WINDOW_MESSAGES;
	}
	return atomic_fetch_add(&f->log_count, 1) < LOG_WINDOW_MESSAGES;
}

void front_log_error(struct front *f, enum err e, const char *what, fuse_ino_t node)
{
	const char *detail = err_detail();
	uint32_t dropped;

	if (error_is_expected(e) || !log_allowed(f, &dropped))
		return;
	if (dropped)
		log_error("%u more errors were not logged", dropped);
	log_error("%s of inode %ju failed: %s", what,
		(uintmax_t)(node == FRONT_ROOT_NODE ? EXT4_ROOT_INUM : node),
		*detail ? detail : err_text(e));
}

void front_reply_error(fuse_req_t req, enum err e, const char *what, fuse_ino_t node)
{
	front_log_error(front_of(req), e, what, node);
	err_clear_detail();
	fuse_reply_err(req, err_errno(e));
}
