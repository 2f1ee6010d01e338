/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dev: the checked entry points that every kind of device shares.
 *
 * A request that passes here lies inside the device, so that an implementation only transfers. A
 * request of no bytes succeeds without reaching it. Threads: no state of its own.
 */
#include "dev_int.h"

#include "base.h"

#include <inttypes.h>

bool dev_iov_bytes(const struct iovec *iov, int count, size_t *out)
{
	size_t sum = 0;

	for (int i = 0; i < count; i++) {
		if (__builtin_add_overflow(sum, iov[i].iov_len, &sum))
			return false;
	}
	*out = sum;
	return true;
}

static enum err dev_check_bounds(const struct dev *d, uint64_t offset_bytes, uint64_t len_bytes)
{
	uint64_t end;

	if (__builtin_add_overflow(offset_bytes, len_bytes, &end) || end > d->size_bytes)
		return err_set_detail(ERR_DEV_BOUNDS,
			"request of %" PRIu64 " bytes at byte %" PRIu64
			" is past the end of the device (%" PRIu64 " bytes)",
			len_bytes, offset_bytes, d->size_bytes);
	return OK;
}

static enum err dev_check_iov(
	const struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes, size_t *len)
{
	ensure(count >= 0);
	if (!dev_iov_bytes(iov, count, len))
		return ERR_DEV_BOUNDS;
	return dev_check_bounds(d, offset_bytes, *len);
}

enum err dev_readv(struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	size_t len;
	enum err e = dev_check_iov(d, iov, count, offset_bytes, &len);

	if (e != OK || len == 0)
		return e;
	return d->ops->readv(d, iov, count, offset_bytes);
}

enum err dev_writev(struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	size_t len;
	enum err e = dev_check_iov(d, iov, count, offset_bytes, &len);

	if (d->readonly)
		return ERR_ROFS;
	if (e != OK || len == 0)
		return e;
	return d->ops->writev(d, iov, count, offset_bytes);
}

enum err dev_read(struct dev *d, void *buf, size_t len_bytes, uint64_t offset_bytes)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len_bytes};

	return dev_readv(d, &iov, 1, offset_bytes);
}

enum err dev_write(struct dev *d, const void *buf, size_t len_bytes, uint64_t offset_bytes)
{
	/* An iovec has no const; writev does not change what it points at. */
	union {
		const void *in;
		void *out;
	} base = {.in = buf};
	struct iovec iov = {.iov_base = base.out, .iov_len = len_bytes};

	return dev_writev(d, &iov, 1, offset_bytes);
}

enum err dev_flush(struct dev *d)
{
	return d->ops->flush(d);
}

enum err dev_discard(struct dev *d, uint64_t offset_bytes, uint64_t len_bytes)
{
	enum err e = dev_check_bounds(d, offset_bytes, len_bytes);

	if (d->readonly)
		return ERR_ROFS;
	if (e != OK || len_bytes == 0)
		return e;
	return d->ops->discard(d, offset_bytes, len_bytes);
}

void dev_close(struct dev *d)
{
	if (d)
		d->ops->close(d);
}
