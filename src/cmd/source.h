/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a mount needs to be there: the source, the mount point, FUSE itself. All of it is looked at
 * before anybody is asked for a passphrase.
 */
#ifndef CRYPTFS_CMD_SOURCE_H
#define CRYPTFS_CMD_SOURCE_H

#include "dev.h"

/*
 * The path behind SOURCE: itself, or the device that a tag (UUID=, LABEL=, PARTUUID=, PARTLABEL=)
 * names. *path is malloc'ed. ERR_NOENT, ERR_NOMEM.
 */
enum err source_resolve(const char *source, char **path) must_check;

/*
 * The name that the mount table shows for a source, as mount(8) would have given it: absolute, so
 * that it means the same to everybody who reads it. *name is malloc'ed. ERR_NOMEM.
 */
enum err source_name(const char *path, char **name) must_check;

/*
 * Refuses, as mount(8) does, to mount a source once more on the directory that shows it already.
 * ERR_BUSY. Another directory is another matter: readers share.
 */
enum err source_check_not_mounted(const char *name, const char *dir) must_check;

/*
 * Opens and claims the source for reading. One that is busy because a daemon is only finishing is
 * waited for, for a second. ERR_BUSY says where the source is mounted, if that can be known.
 */
enum err source_open(const char *name, const char *path, struct dev **out) must_check;

/* The mount point as an absolute path (malloc'ed). ERR_NOENT, ERR_NOTDIR, ERR_ACCESS, ERR_BUSY. */
enum err source_check_mount_point(const char *dir, char **absolute) must_check;

/* /dev/fuse, and for a plain user the right to allow_other. ERR_NOENT, ERR_ACCESS, ERR_PERM. */
enum err source_check_fuse(bool allow_other) must_check;

#endif
