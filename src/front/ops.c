/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One FUSE operation each: node id and arguments in, an ext4 call, a reply.
 *
 * The mount is read-only, so the kernel refuses what would change something before it asks us; if
 * somebody has taken that flag off the mount, the answer is EROFS all the same. ACCESS, FLUSH,
 * locks and BMAP are left out on purpose: default_permissions decides access in the kernel, locks
 * are the kernel's, and BMAP would hand out block numbers of the ciphertext.
 *
 * Threads: each operation runs in the worker that read the request and has answered when it
 * returns.
 */
#include "front_int.h"
#include <stdlib.h>
#include <sys/statvfs.h>

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct front *f = front_of(req);
	struct ext4_inode *dir = NULL;
	struct fuse_entry_param entry;
	inum_t inum = 0;
	enum err e;

	/* NFS exports resolve a file handle by looking up "." in the node itself, file or not. */
	if (strcmp(name, ".") == 0) {
		if (parent != FRONT_ROOT_NODE && (parent <= EXT4_ROOT_INUM || parent > UINT32_MAX))
			e = ERR_STALE;
		else
			e = front_entry(f,
				parent == FRONT_ROOT_NODE ? EXT4_ROOT_INUM : (inum_t)parent,
				&entry);
		if (e)
			fuse_reply_err(req, ESTALE);
		else
			fuse_reply_entry(req, &entry);
		err_clear_detail();
		return;
	}

	e = front_node_get(f, parent, &dir);
	if (e == OK)
		e = ext4_lookup(dir, name, strlen(name), &inum);
	ext4_inode_put(dir);
	if (e == ERR_NOENT) {
		/* Node id 0 with a timeout: the kernel remembers that the name is not there. */
		memset(&entry, 0, sizeof(entry));
		entry.entry_timeout = FRONT_TIMEOUT_SECONDS;
		err_clear_detail();
		fuse_reply_entry(req, &entry);
		return;
	}
	if (e == OK)
		e = front_entry(f, inum, &entry);
	if (e)
		front_reply_error(req, e, "lookup in directory", parent);
	else
		fuse_reply_entry(req, &entry);
}

/* Nothing is kept per node here: ext4's inode cache decides what stays in memory. */
static void op_forget(fuse_req_t req, fuse_ino_t node, uint64_t lookups)
{
	(void)node;
	(void)lookups;
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	(void)count;
	(void)forgets;
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	struct front *f = front_of(req);
	struct ext4_inode *inode = NULL;
	struct ext4_attr attr;
	struct stat st;
	enum err e;

	(void)fi;
	e = front_node_get(f, node, &inode);
	if (e == OK)
		e = ext4_getattr(inode, &attr);
	ext4_inode_put(inode);
	if (e) {
		front_reply_error(req, e, "reading attributes", node);
		return;
	}
	front_stat(f, &attr, &st);
	fuse_reply_attr(req, &st, FRONT_TIMEOUT_SECONDS);
}

static void op_readlink(fuse_req_t req, fuse_ino_t node)
{
	struct ext4_inode *inode = NULL;
	char target[PAGE_BYTES];
	size_t len = 0;
	enum err e;

	e = front_node_get(front_of(req), node, &inode);
	if (e == OK)
		e = ext4_readlink(inode, target, sizeof(target) - 1, &len);
	ext4_inode_put(inode);
	if (e) {
		front_reply_error(req, e, "reading symbolic link", node);
		return;
	}
	target[len] = 0;
	fuse_reply_readlink(req, target);
}

static void op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	(void)node;
	if (front_of(req)->no_open) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

static void op_opendir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	(void)node;
	if (front_of(req)->no_opendir) {
		fuse_reply_err(req, ENOSYS);
		return;
	}
	fi->keep_cache = 1;
	fi->cache_readdir = 1;
	fuse_reply_open(req, fi);
}

static void op_read(
	fuse_req_t req, fuse_ino_t node, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct ext4_inode *inode = NULL;
	struct ext4_read r;
	enum err e;

	(void)fi;
	e = front_node_get(front_of(req), node, &inode);
	if (e == OK)
		e = ext4_read(inode, (uint64_t)off, MIN(size, (size_t)EXT4_READ_BYTES_MAX), &r);
	if (e) {
		front_reply_error(req, e, "reading", node);
	} else {
		if (r.bytes == 0)
			fuse_reply_buf(req, NULL, 0);
		else
			fuse_reply_iov(req, r.part, r.parts);
		ext4_read_done(&r);
	}
	ext4_inode_put(inode);
}

static void op_statfs(fuse_req_t req, fuse_ino_t node)
{
	struct ext4_statfs s;
	struct statvfs out;
	enum err e;

	e = ext4_statfs(front_of(req)->options.fs, &s);
	if (e) {
		front_reply_error(req, e, "statfs", node);
		return;
	}
	memset(&out, 0, sizeof(out));
	out.f_bsize = s.block_bytes;
	out.f_frsize = s.block_bytes;
	out.f_blocks = s.blocks;
	out.f_bfree = s.free_blocks;
	out.f_bavail = s.available_blocks;
	out.f_files = s.inodes;
	out.f_ffree = s.free_inodes;
	out.f_favail = s.free_inodes;
	out.f_fsid = s.fsid;
	out.f_namemax = EXT4_NAME_BYTES_MAX;
	fuse_reply_statfs(req, &out);
}

/* GETXATTR of `name`, or LISTXATTR where that is NULL; size 0 asks for the length. */
static void answer_xattr(fuse_req_t req, fuse_ino_t node, const char *name, size_t size)
{
	struct ext4_inode *inode = NULL;
	size_t room = MIN(size, (size_t)FRONT_XATTR_BYTES_MAX), len = 0;
	/* The kernel hides trusted.* from those without CAP_SYS_ADMIN; what we see is the user. */
	bool trusted = fuse_req_ctx(req)->uid == 0;
	char *buf = NULL;
	enum err e;

	e = front_node_get(front_of(req), node, &inode);
	if (e == OK && room && !(buf = malloc(room)))
		e = ERR_NOMEM;
	if (e == OK)
		e = name ? ext4_xattr_get(inode, name, buf, room, &len)
			 : ext4_xattr_list(inode, trusted, buf, room, &len);
	ext4_inode_put(inode);
	if (e)
		front_reply_error(
			req, e, name ? "reading an attribute" : "listing attributes", node);
	else if (room == 0)
		fuse_reply_xattr(req, len);
	else
		fuse_reply_buf(req, buf, len);
	free(buf);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t node, const char *name, size_t size)
{
	answer_xattr(req, node, name, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t node, size_t size)
{
	answer_xattr(req, node, NULL, size);
}

static void op_lseek(
	fuse_req_t req, fuse_ino_t node, off_t off, int whence, struct fuse_file_info *fi)
{
	struct ext4_inode *inode = NULL;
	uint64_t found = 0;
	enum err e;

	(void)fi;
	e = front_node_get(front_of(req), node, &inode);
	if (e == OK)
		e = off < 0 ? ERR_NXIO : ext4_seek(inode, (uint64_t)off, whence, &found);
	ext4_inode_put(inode);
	if (e)
		front_reply_error(req, e, "seeking", node);
	else
		fuse_reply_lseek(req, (off_t)found);
}

/* --- what would change something ------------------------------------------------------------- */

static void op_setattr(
	fuse_req_t req, fuse_ino_t node, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
	(void)node, (void)attr, (void)to_set, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	(void)parent, (void)name, (void)mode, (void)rdev;
	fuse_reply_err(req, EROFS);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	fuse_reply_err(req, EROFS);
}

static void op_remove(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	(void)target, (void)parent, (void)name;
	fuse_reply_err(req, EROFS);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	const char *new_name, unsigned flags)
{
	(void)parent, (void)name, (void)new_parent, (void)new_name, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t new_parent, const char *new_name)
{
	(void)node, (void)new_parent, (void)new_name;
	fuse_reply_err(req, EROFS);
}

static void op_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t size, off_t off,
	struct fuse_file_info *fi)
{
	(void)node, (void)buf, (void)size, (void)off, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void op_create(
	fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	(void)parent, (void)name, (void)mode, (void)fi;
	fuse_reply_err(req, EROFS);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t node, const char *name, const char *value,
	size_t size, int flags)
{
	(void)node, (void)name, (void)value, (void)size, (void)flags;
	fuse_reply_err(req, EROFS);
}

static void op_fallocate(
	fuse_req_t req, fuse_ino_t node, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	(void)node, (void)mode, (void)off, (void)len, (void)fi;
	fuse_reply_err(req, EROFS);
}

const struct fuse_lowlevel_ops front_ops = {
	.init = front_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.readlink = op_readlink,
	.open = op_open,
	.opendir = op_opendir,
	.read = op_read,
	.readdir = front_op_readdir,
	.readdirplus = front_op_readdirplus,
	.statfs = op_statfs,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.lseek = op_lseek,
	.setattr = op_setattr,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_remove,
	.rmdir = op_remove,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.write = op_write,
	.create = op_create,
	.setxattr = op_setxattr,
	.removexattr = op_remove,
	.fallocate = op_fallocate,
};
