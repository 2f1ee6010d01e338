/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The file or block device that mkfs.cryptfs writes.
 *
 * It is claimed (dev.h) before it is looked at and until all is on it, so that what was found
 * empty is still empty when it is written. "Holds something" means a signature that libblkid knows
 * or, in a regular file, any byte that is not zero; holes are skipped, so that a sparse file of
 * any size is quick. On a block device old bytes are normal and only signatures count.
 *
 * Threads: none.
 */
#include "mkfs.h"
#include <blkid.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TARGET_CHUNK_BYTES = 1 << 20, TARGET_SIGNATURES_MAX = 64 };

/* --- what is there -----------------------------------------------------------------------------
 */

static enum err target_holds(const char *what)
{
	return err_set_detail(
		ERR_EXIST, "it holds %s; --force overwrites it", what ? what : "something");
}

static enum err target_probe(const char *path)
{
	blkid_probe probe = blkid_new_probe_from_filename(path);
	const char *what = NULL;
	enum err e = OK;
	int r;

	if (probe == NULL)
		return err_set_detail(ERR_IO, "cannot look for what it holds");
	(void)blkid_probe_enable_partitions(probe, 1);
	r = blkid_do_safeprobe(probe);
	if (r == -2) {
		e = target_holds("signatures of several kinds");
	} else if (r < 0) {
		e = err_set_detail(ERR_IO, "cannot look for what it holds");
	} else if (r == 0) {
		if (blkid_probe_lookup_value(probe, "TYPE", &what, NULL) != 0)
			(void)blkid_probe_lookup_value(probe, "PTTYPE", &what, NULL);
		e = target_holds(what);
	}
	blkid_free_probe(probe);
	return e;
}

static bool bytes_are_zero(const uint8_t *bytes, size_t len)
{
	return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static enum err target_scan_range(int fd, off_t at, off_t end, uint8_t *chunk)
{
	while (at < end) {
		ssize_t n = pread(fd, chunk, (size_t)MIN(end - at, (off_t)TARGET_CHUNK_BYTES), at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_from_errno(errno);
		if (n == 0)
			return OK;
		if (!bytes_are_zero(chunk, (size_t)n))
			return target_holds("data");
		at += n;
	}
	return OK;
}

static enum err target_scan(const char *path)
{
	uint8_t *chunk = malloc(TARGET_CHUNK_BYTES);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t at = 0;
	enum err e = OK;

	if (chunk == NULL || fd < 0) {
		e = chunk ? err_from_errno(errno) : ERR_NOMEM;
		goto out;
	}
	while (e == OK && (at = lseek(fd, at, SEEK_DATA)) >= 0) {
		off_t end = lseek(fd, at, SEEK_HOLE);

		if (end < 0)
			e = err_from_errno(errno);
		else
			e = target_scan_range(fd, at, end, chunk);
		at = end;
	}
	/* ENXIO: no data behind `at`. */
	if (e == OK && errno != ENXIO)
		e = err_from_errno(errno);
out:
	if (fd >= 0)
		close(fd);
	free(chunk);
	return e;
}

/* --- open, wipe, close -------------------------------------------------------------------------
 */

static enum err target_create(const char *path, uint64_t size_bytes, bool *created)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	enum err e = OK;

	if (fd < 0 && errno == EEXIST)
		return err_set_detail(ERR_EXIST,
			"it exists already; leave SIZE out to use it with the size it has");
	if (fd < 0)
		return err_from_errno(errno);
	*created = true;
	if (size_bytes > INT64_MAX || ftruncate(fd, (off_t)size_bytes) != 0)
		e = err_from_errno(size_bytes > INT64_MAX ? EFBIG : errno);
	close(fd);
	return e;
}

enum err mkfs_target_open(
	const char *path, uint64_t size_bytes, bool force, struct mkfs_target *out)
{
	const struct dev_open_options options = {.claim = true};
	struct mkfs_target t = {.path = path};
	enum err e = OK;

	if (size_bytes != 0)
		e = target_create(path, size_bytes, &t.created);
	if (e == OK)
		e = dev_open(path, &options, &t.dev);
	if (e == ERR_NOENT && size_bytes == 0)
		e = err_set_detail(e, "no such file; give a SIZE to make one");
	if (e == OK && !t.created && !force)
		e = target_probe(path);
	if (e == OK && !t.created && !force && t.dev->kind == DEV_FILE)
		e = target_scan(path);
	if (e == OK)
		*out = t;
	else
		mkfs_target_close(&t, false);
	return e;
}

/* Zeroes the signature that the probe has found; false when it does not say where it stands. */
static bool target_signature(blkid_probe probe, uint64_t *offset_bytes, size_t *len)
{
	const char *offset = NULL;

	if (blkid_probe_lookup_value(probe, "SBMAGIC_OFFSET", &offset, NULL) == 0)
		(void)blkid_probe_lookup_value(probe, "SBMAGIC", NULL, len);
	else if (blkid_probe_lookup_value(probe, "PTMAGIC_OFFSET", &offset, NULL) == 0)
		(void)blkid_probe_lookup_value(probe, "PTMAGIC", NULL, len);
	if (offset == NULL || *len == 0)
		return false;
	*offset_bytes = strtoull(offset, NULL, 10);
	return true;
}

enum err mkfs_target_wipe(struct mkfs_target *t)
{
	static const uint8_t zeros[64];
	blkid_probe probe;
	enum err e = OK;

	if (t->created)
		return OK;
	probe = blkid_new_probe_from_filename(t->path);
	if (probe == NULL)
		return err_set_detail(ERR_IO, "cannot look for old signatures");
	(void)blkid_probe_enable_superblocks(probe, 1);
	(void)blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_TYPE);
	(void)blkid_probe_enable_partitions(probe, 1);
	(void)blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
	for (int n = 0; e == OK && n < TARGET_SIGNATURES_MAX && blkid_do_probe(probe) == 0; n++) {
		uint64_t offset_bytes;
		size_t len = 0;

		if (!target_signature(probe, &offset_bytes, &len))
			continue;
		e = dev_write(t->dev, zeros, MIN(len, sizeof(zeros)), offset_bytes);
		/* The same prober once more: it may know a second place. */
		if (e == OK)
			(void)blkid_probe_step_back(probe);
	}
	blkid_free_probe(probe);
	return e;
}

void mkfs_target_close(struct mkfs_target *t, bool keep)
{
	dev_close(t->dev);
	t->dev = NULL;
	if (t->created && !keep)
		(void)unlink(t->path);
	t->created = false;
}
