/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Private to mkfs.cryptfs: mkfs.c has the command, mkfs_target.c the file or device that is
 * written, mkfs_ext4.c the file system inside.
 */
#ifndef CRYPTFS_MKFS_H
#define CRYPTFS_MKFS_H

#include "luks.h"

/* --- mkfs_target.c --------------------------------------------------------------------------- */

struct mkfs_target {
	const char *path; /* borrowed */
	struct dev *dev;  /* open for writing and claimed */
	bool created;     /* by us, and removed again unless it is kept */
};
/*
 * With size_bytes a new file of that size (ERR_EXIST when there is something of that name), else
 * what is there: ERR_EXIST with a detail when it holds something and `force` is not set.
 */
enum err mkfs_target_open(
	const char *path, uint64_t size_bytes, bool force, struct mkfs_target *out) must_check;
/* Overwrites every signature that libblkid knows, also those at the end of the device. */
enum err mkfs_target_wipe(struct mkfs_target *t) must_check;
/* Closes it; a file that we made stays only when `keep` is set. */
void mkfs_target_close(struct mkfs_target *t, bool keep);

/* --- mkfs_ext4.c ----------------------------------------------------------------------------- */

enum { MKFS_ARGUMENTS_MAX = 128 };

/* What the user gave behind "--", sorted. Strings are borrowed from argv. */
struct mkfs_ext4_options {
	const char *arguments[MKFS_ARGUMENTS_MAX];
	size_t count;
	char extended[1024];  /* all -E, joined by commas */
	uint32_t block_bytes; /* of -b; 0 when there is none */
	const char *label;
};
enum err mkfs_ext4_parse(int argc, char **argv, struct mkfs_ext4_options *out) must_check;
/*
 * Runs mke2fs on a sparse temporary file of size_bytes, open at *fd then. `beside` is a folder on
 * disk for volumes that might not fit into memory.
 */
enum err mkfs_ext4_make(const struct mkfs_ext4_options *o, uint64_t size_bytes,
	uint32_t sector_bytes, const char *beside, int *fd) must_check;
/* Writes what is not a hole to the volume, encrypted; shows how far it is when `progress` is set.
 */
enum err mkfs_ext4_copy(int fd, struct volume *v, bool progress) must_check;

#endif
