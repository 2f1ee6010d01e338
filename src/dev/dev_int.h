/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dev, private: the device over a file descriptor, which file_open.c makes and file.c drives.
 *
 * Invariants: `fd` is O_DIRECT exactly when base.direct; then base.size_bytes is a multiple of
 * base.align_bytes, so that widening a request to the alignment never leaves the device.
 */
#ifndef CRYPTFS_DEV_INT_H
#define CRYPTFS_DEV_INT_H

#include "dev.h"

struct dev_file {
	struct dev base;
	int fd;
	int claim_fd; /* the O_EXCL claim on a block device, else -1 */
	/*
	 * Held over the read-modify-write of a request that O_DIRECT does not take as it is: two
	 * of them may touch the two halves of one device sector.
	 */
	struct mutex bounce_mutex;
};

extern const struct dev_ops dev_file_ops;

/* The bytes of an iovec array; false when the sum overflows. */
bool dev_iov_bytes(const struct iovec *iov, int count, size_t *out);

#endif
