/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dev: opening a block device or a regular file: what it is, the claim on it, its size, and the
 * alignment that O_DIRECT wants.
 *
 * Nothing is written. A FIFO, a terminal or a folder is refused without being opened, and the open
 * itself never waits (O_NONBLOCK), should the name change its meaning in between. O_DIRECT is
 * switched on afterwards: a host file system that refuses it leaves the buffered path.
 *
 * The claim (what keeps two users of one source apart) is O_EXCL on a descriptor of its own for a
 * block device, so that it can be dropped before the descriptor that serves; on a regular file it
 * is an OFD lock on the first byte. It is never flock: libcryptsetup takes that on files and would
 * wait for ours for ever, and udev takes it on disks.
 */
#include "dev_int.h"

#include "base.h"

#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *open_kind_text(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "is a directory";
	case S_IFIFO:
		return "is a FIFO";
	case S_IFSOCK:
		return "is a socket";
	case S_IFCHR:
		return "is a character device";
	default:
		return "is neither a regular file nor a block device";
	}
}

static enum err open_check_kind(const struct stat *st)
{
	if (S_ISREG(st->st_mode) || S_ISBLK(st->st_mode))
		return OK;
	return err_set_detail(ERR_DEV_TYPE, "%s; a block device or a regular file is needed",
		open_kind_text(st->st_mode));
}

/* EACCES at a block device that forbids writing: the medium, not the permission, is the reason. */
static bool open_is_write_protected(const char *path, const struct stat *st)
{
	int ro = 0, fd;

	if (!S_ISBLK(st->st_mode))
		return false;
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (ioctl(fd, BLKROGET, &ro) < 0)
		ro = 0;
	close(fd);
	return ro != 0;
}

static enum err open_protected_error(void)
{
	return err_set_detail(ERR_ROFS, "the device is write-protected; it can only be opened "
					"read-only");
}

static enum err open_permission_error(const struct stat *st, bool readonly)
{
	const mode_t group_wants = S_IRGRP | (readonly ? 0 : S_IWGRP);
	const char *what = readonly ? "read" : "read and write";
	struct group group, *found = NULL;
	char buf[1024];

	if ((st->st_mode & group_wants) == group_wants && st->st_gid != 0 &&
		getgrgid_r(st->st_gid, &group, buf, sizeof(buf), &found) == 0 && found)
		return err_set_detail(ERR_ACCESS,
			"no permission to %s; root and members of group %s have it", what,
			found->gr_name);
	return err_set_detail(ERR_ACCESS, "no permission to %s; its owner is uid %u, its mode %04o",
		what, (unsigned)st->st_uid, (unsigned)(st->st_mode & 07777));
}

/* One line for what open(2) said, naming what is missing. */
static enum err open_error(int error, const char *path, const struct stat *st, bool readonly)
{
	switch (error) {
	case EACCES:
		if (!readonly && open_is_write_protected(path, st))
			return open_protected_error();
		return open_permission_error(st, readonly);
	case EPERM:
		return err_set_detail(ERR_PERM, "opening it to %s is not permitted",
			readonly ? "read" : "read and write");
	case EROFS:
		if (S_ISBLK(st->st_mode))
			return open_protected_error();
		return err_set_detail(
			ERR_ROFS, "on a read-only file system; it can only be opened read-only");
	case ENXIO:
	case ENODEV:
		return err_set_detail(ERR_NXIO, "no device behind this node");
	case ENOMEDIUM:
		return err_set_detail(ERR_NXIO, "no medium in the device");
	default:
		return err_set_detail(err_from_errno(error), "cannot open it: %s", strerror(error));
	}
}

static enum err open_stat(const char *path, struct stat *st)
{
	if (stat(path, st) == 0)
		return open_check_kind(st);
	switch (errno) {
	case ENOENT:
		return err_set_detail(ERR_NOENT, "no such file or device");
	case EACCES:
		return err_set_detail(
			ERR_ACCESS, "no permission to search a folder on the way to it");
	default:
		return err_set_detail(
			err_from_errno(errno), "cannot look it up: %s", strerror(errno));
	}
}

/* --- the claim -------------------------------------------------------------------------------- */

static enum err open_claim_block(struct dev_file *f, const char *path, const struct stat *st)
{
	struct stat again;
	int fd = open(path, O_RDONLY | O_EXCL | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0) {
		if (errno == EBUSY)
			return err_set_detail(ERR_BUSY,
				"already in use: mounted, opened by the "
				"device mapper, or held by another cryptfs");
		return open_error(errno, path, st, true);
	}
	if (fstat(fd, &again) < 0 || !S_ISBLK(again.st_mode) || again.st_rdev != st->st_rdev) {
		close(fd);
		return err_set_detail(ERR_BUSY, "the device node changed while it was opened");
	}
	f->claim_fd = fd;
	return OK;
}

static enum err open_claim_file(struct dev_file *f)
{
	struct flock lock = {
		.l_type = f->base.readonly ? F_RDLCK : F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = 0,
		.l_len = 1,
	};

	if (fcntl(f->fd, F_OFD_SETLK, &lock) == 0)
		return OK;
	if (errno == EAGAIN || errno == EACCES)
		return err_set_detail(ERR_BUSY, "already in use by another cryptfs%s",
			f->base.readonly ? ", which may write to it" : "");
	return err_set_detail(err_from_errno(errno),
		"cannot be claimed, its file system offers no file locks: %s", strerror(errno));
}

enum err dev_drop_claim(struct dev *d)
{
	struct dev_file *f = container_of(d, struct dev_file, base);
	struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

	if (d->kind == DEV_BLOCK && f->claim_fd >= 0) {
		close(f->claim_fd);
		f->claim_fd = -1;
	}
	if (d->kind == DEV_FILE && fcntl(f->fd, F_OFD_SETLK, &lock) < 0)
		return err_from_errno(errno);
	return OK;
}

/* --- size and alignment ----------------------------------------------------------------------- */

static enum err open_size(struct dev_file *f, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size;

	if (f->base.kind == DEV_BLOCK) {
		int ro = 0;

		if (ioctl(f->fd, BLKGETSIZE64, &size) < 0)
			return err_set_detail(
				err_from_errno(errno), "cannot read its size: %s", strerror(errno));
		if (size == 0)
			return err_set_detail(ERR_NXIO, "nothing behind the device: no medium, or "
							"a loop device without a file");
		if (!f->base.readonly && ioctl(f->fd, BLKROGET, &ro) == 0 && ro != 0)
			return open_protected_error();
	}
	f->base.size_bytes = size;
	return OK;
}

static bool open_align_is_usable(uint32_t align)
{
	return align >= SECTOR_BYTES && align <= 65536 && (align & (align - 1)) == 0;
}

/* What statx says: 0 when it says nothing, UINT32_MAX when there is no direct I/O on the file. */
static uint32_t open_align_statx(int fd)
{
#ifdef STATX_DIOALIGN
	struct statx sx;
	uint32_t align;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) < 0 ||
		!(sx.stx_mask & STATX_DIOALIGN))
		return 0;
	if (sx.stx_dio_offset_align == 0)
		return UINT32_MAX;
	align = MAX(sx.stx_dio_mem_align, sx.stx_dio_offset_align);
	align = MAX(align, SECTOR_BYTES);
	return open_align_is_usable(align) ? align : UINT32_MAX;
#else
	(void)fd;
	return 0;
#endif
}

/* Whether a direct read of one sector of this size, at an address aligned to no more, works. */
static bool open_probe_read(int fd, uint32_t align)
{
	void *buf = NULL;
	ssize_t n;

	if (posix_memalign(&buf, 2 * PAGE_BYTES, 2 * PAGE_BYTES) != 0)
		return false;
	do {
		n = pread(fd, (uint8_t *)buf + align, align, 0);
	} while (n < 0 && errno == EINTR);
	free(buf);
	return n == (ssize_t)align;
}

/* The alignment of a descriptor that has O_DIRECT on; 0 when direct I/O does not work. */
static uint32_t open_align(const struct dev_file *f)
{
	uint32_t align = open_align_statx(f->fd);
	int sector = 0;

	if (align == UINT32_MAX)
		return 0;
	if (align == 0 && f->base.kind == DEV_BLOCK && ioctl(f->fd, BLKSSZGET, &sector) == 0 &&
		sector > 0 && open_align_is_usable((uint32_t)sector))
		align = (uint32_t)sector;
	if (align != 0)
		return f->base.size_bytes % align == 0 && open_probe_read(f->fd, align) ? align : 0;
	for (align = SECTOR_BYTES; align <= PAGE_BYTES; align *= PAGE_BYTES / SECTOR_BYTES) {
		if (f->base.size_bytes % align == 0 && open_probe_read(f->fd, align))
			return align;
	}
	return 0;
}

/* Takes O_NONBLOCK off and, where it works, puts O_DIRECT on. */
static enum err open_set_direct(struct dev_file *f, bool no_direct)
{
	const int flags = fcntl(f->fd, F_GETFL);
	uint32_t align;

	f->base.align_bytes = 1;
	f->base.direct = false;
	if (flags < 0 || fcntl(f->fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
		return err_set_detail(
			err_from_errno(errno), "cannot set its flags: %s", strerror(errno));
	if (no_direct || f->base.size_bytes == 0 ||
		fcntl(f->fd, F_SETFL, (flags & ~O_NONBLOCK) | O_DIRECT) < 0)
		return OK;
	align = open_align(f);
	if (align != 0) {
		f->base.align_bytes = align;
		f->base.direct = true;
		return OK;
	}
	if (fcntl(f->fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
		return err_set_detail(
			err_from_errno(errno), "cannot set its flags: %s", strerror(errno));
	return OK;
}

static enum err open_fill(
	struct dev_file *f, const char *path, const struct dev_open_options *options)
{
	struct stat st;
	enum err e;

	if (fstat(f->fd, &st) < 0)
		return err_from_errno(errno);
	e = open_check_kind(&st);
	if (e != OK)
		return e;
	f->base.kind = S_ISBLK(st.st_mode) ? DEV_BLOCK : DEV_FILE;
	e = open_size(f, &st);
	if (e == OK && options->claim)
		e = f->base.kind == DEV_BLOCK ? open_claim_block(f, path, &st) : open_claim_file(f);
	if (e == OK)
		e = open_set_direct(f, options->no_direct);
	return e;
}

enum err dev_open(const char *path, const struct dev_open_options *options, struct dev **out)
{
	const int access_mode = options->readonly ? O_RDONLY : O_RDWR;
	struct dev_file *f;
	struct stat st;
	enum err e = open_stat(path, &st);

	if (e != OK)
		return e;
	f = calloc(1, sizeof(*f));
	if (!f)
		return ERR_NOMEM;
	f->base.ops = &dev_file_ops;
	f->base.readonly = options->readonly;
	f->claim_fd = -1;
	mutex_init(&f->bounce_mutex);
	f->fd = open(path, access_mode | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (f->fd < 0) {
		e = open_error(errno, path, &st, options->readonly);
		mutex_destroy(&f->bounce_mutex);
		free(f);
		return e;
	}
	e = open_fill(f, path, options);
	if (e != OK) {
		dev_close(&f->base);
		return e;
	}
	*out = &f->base;
	return OK;
}
