/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dev: transfers on a block device or a regular file.
 *
 * Two ways. What the descriptor takes as it is goes to preadv/pwritev in the calling thread, with
 * short transfers completed. What O_DIRECT refuses (an address, offset or length off the
 * alignment) goes through an aligned bounce buffer that covers the request widened to the
 * alignment; a write reads its first and last sector before. A second, buffered descriptor would
 * need no bounce, but a buffered and a direct write to the two halves of one page can collide in
 * the page cache, which Linux reports as EIO at the next fdatasync, and the ciphertext would sit
 * in memory twice.
 *
 * Threads: any number in parallel; only widened writes exclude each other (bounce_mutex).
 */
#include "dev_int.h"

#include "base.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
	IOV_WINDOW = 256, /* a MiB of single pages in one system call */
	BOUNCE_BYTES_MAX = 1 << 20,
};

/* Where a transfer is in the caller's iovec array. */
struct iov_cursor {
	const struct iovec *iov;
	int count;
	int index;
	size_t skip_bytes; /* of iov[index] */
};

static void iov_cursor_advance(struct iov_cursor *c, size_t bytes)
{
	while (bytes > 0) {
		size_t left = c->iov[c->index].iov_len - c->skip_bytes;
		size_t step = MIN(left, bytes);

		c->skip_bytes += step;
		bytes -= step;
		if (c->skip_bytes == c->iov[c->index].iov_len) {
			c->index++;
			c->skip_bytes = 0;
		}
	}
}

static void iov_cursor_copy(struct iov_cursor *c, uint8_t *flat, size_t bytes, bool to_iov)
{
	while (bytes > 0) {
		const struct iovec *v = &c->iov[c->index];
		size_t step = MIN(v->iov_len - c->skip_bytes, bytes);
		uint8_t *at = (uint8_t *)v->iov_base + c->skip_bytes;

		if (step > 0) {
			if (to_iov)
				memcpy(at, flat, step);
			else
				memcpy(flat, at, step);
		}
		flat += step;
		bytes -= step;
		c->skip_bytes += step;
		if (c->skip_bytes == v->iov_len) {
			c->index++;
			c->skip_bytes = 0;
		}
	}
}

/* What is left of the iovec, as far as one system call takes it. Empty elements are left out. */
static int iov_cursor_window(const struct iov_cursor *c, struct iovec *out, size_t *bytes)
{
	size_t skip = c->skip_bytes, sum = 0;
	int n = 0;

	for (int i = c->index; i < c->count && n < IOV_WINDOW; i++, skip = 0) {
		size_t left = c->iov[i].iov_len - skip;

		if (left == 0)
			continue;
		out[n].iov_base = (uint8_t *)c->iov[i].iov_base + skip;
		out[n++].iov_len = left;
		sum += left;
	}
	*bytes = sum;
	return n;
}

static bool file_is_aligned(
	const struct dev *d, const struct iovec *iov, int count, uint64_t offset)
{
	uint64_t bits = offset;

	for (int i = 0; i < count; i++)
		bits |= (uint64_t)(uintptr_t)iov[i].iov_base | iov[i].iov_len;
	return (bits & (d->align_bytes - 1)) == 0;
}

static enum err file_error(int error, bool write, size_t bytes, uint64_t offset)
{
	return err_set_detail(err_from_errno(error),
		"%s %zu bytes at byte %" PRIu64 " of the device: %s", write ? "writing" : "reading",
		bytes, offset, strerror(error));
}

/*
 * One system call of at most a window. A transfer of nothing is the end of a file that somebody
 * has cut short, or of a device that has gone.
 */
static enum err file_transfer_once(struct dev_file *f, const struct iovec *iov, int count,
	uint64_t offset, bool write, size_t *done)
{
	ssize_t n;
	size_t want = 0;

	(void)dev_iov_bytes(iov, count, &want);
	do {
		n = write ? pwritev2(f->fd, iov, count, (off_t)offset, 0)
			  : preadv2(f->fd, iov, count, (off_t)offset, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return file_error(errno, write, want, offset);
	if (n == 0)
		return err_set_detail(ERR_DEV_SHORT,
			"the device ends at byte %" PRIu64 ", it had %" PRIu64
			" when it was opened",
			offset, f->base.size_bytes);
	*done = (size_t)n;
	return OK;
}

/* The flat, aligned buffer of the bounce path; a short transfer goes on from the aligned byte. */
static enum err file_transfer_flat(
	struct dev_file *f, uint8_t *buf, size_t len, uint64_t offset, bool write)
{
	size_t at = 0, n = 0;

	while (at < len) {
		struct iovec iov = {.iov_base = buf + at, .iov_len = len - at};
		enum err e = file_transfer_once(f, &iov, 1, offset + at, write, &n);

		if (e != OK)
			return e;
		if (at + n < len)
			n &= ~(size_t)(f->base.align_bytes - 1);
		if (n == 0)
			return file_error(EIO, write, len - at, offset + at);
		at += n;
	}
	return OK;
}

/* The sectors that a write covers only in part are read before. */
static enum err file_bounce_fill(
	struct dev_file *f, uint8_t *bounce, uint64_t start, uint64_t end, const uint64_t wanted[2])
{
	const uint32_t align = f->base.align_bytes;
	const uint64_t last = end - align;
	enum err e = OK;

	if (wanted[0] != start)
		e = file_transfer_flat(f, bounce, align, start, false);
	if (e == OK && wanted[1] != end && (last != start || wanted[0] == start))
		e = file_transfer_flat(f, bounce + (last - start), align, last, false);
	return e;
}

static enum err file_bounce_write(struct dev_file *f, uint8_t *bounce, struct iov_cursor *c,
	const uint64_t wanted[2], const uint64_t wide[2])
{
	enum err e;

	ioq_lock(&f->bounce_mutex);
	e = file_bounce_fill(f, bounce, wide[0], wide[1], wanted);
	if (e == OK) {
		iov_cursor_copy(
			c, bounce + (wanted[0] - wide[0]), (size_t)(wanted[1] - wanted[0]), false);
		e = file_transfer_flat(f, bounce, (size_t)(wide[1] - wide[0]), wide[0], true);
	}
	ioq_unlock(&f->bounce_mutex);
	return e;
}

static enum err file_bounce(
	struct dev_file *f, struct iov_cursor *c, size_t len, uint64_t offset, bool write)
{
	const uint64_t mask = f->base.align_bytes - 1;
	const size_t room = MIN((len + 2 * f->base.align_bytes) & ~(size_t)mask, BOUNCE_BYTES_MAX);
	const uint64_t end = offset + len;
	enum err e = OK;
	void *bounce = NULL;

	if (posix_memalign(&bounce, MAX(f->base.align_bytes, PAGE_BYTES), room) != 0)
		return ERR_NOMEM;
	while (e == OK && offset < end) {
		const uint64_t start = offset & ~mask;
		const uint64_t stop = MIN((end + mask) & ~mask, start + room);
		const uint64_t wanted[2] = {offset, MIN(end, stop)};
		const uint64_t wide[2] = {start, stop};

		if (write) {
			e = file_bounce_write(f, bounce, c, wanted, wide);
		} else {
			e = file_transfer_flat(f, bounce, (size_t)(stop - start), start, false);
			if (e == OK)
				iov_cursor_copy(c, (uint8_t *)bounce + (offset - start),
					(size_t)(wanted[1] - offset), true);
		}
		offset = wanted[1];
	}
	free(bounce);
	return e;
}

static enum err file_transfer(
	struct dev_file *f, const struct iovec *iov, int count, uint64_t offset, bool write)
{
	struct iov_cursor c = {.iov = iov, .count = count};
	struct iovec window[IOV_WINDOW];
	size_t left = 0;
	enum err e;

	(void)dev_iov_bytes(iov, count, &left);
	while (left > 0) {
		size_t bytes = 0, done = 0;
		int n = iov_cursor_window(&c, window, &bytes);

		/* A short direct transfer may stop off the alignment: the rest bounces too. */
		if (f->base.direct && !file_is_aligned(&f->base, window, n, offset))
			return file_bounce(f, &c, left, offset, write);
		e = file_transfer_once(f, window, n, offset, write, &done);
		if (e != OK)
			return e;
		iov_cursor_advance(&c, done);
		offset += done;
		left -= done;
	}
	return OK;
}

static struct dev_file *file_of(struct dev *d)
{
	return container_of(d, struct dev_file, base);
}

static enum err file_readv(struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	return file_transfer(file_of(d), iov, count, offset_bytes, false);
}

static enum err file_writev(
	struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	return file_transfer(file_of(d), iov, count, offset_bytes, true);
}

static enum err file_flush(struct dev *d)
{
	int r;

	do {
		r = fdatasync(file_of(d)->fd);
	} while (r < 0 && errno == EINTR);
	if (r < 0) {
		int error = errno;

		return err_set_detail(
			err_from_errno(error), "flushing the device: %s", strerror(error));
	}
	return OK;
}

/* A block device discards whole sectors: the ends of the range that are none are kept. */
static enum err file_discard(struct dev *d, uint64_t offset_bytes, uint64_t len_bytes)
{
	struct dev_file *f = file_of(d);
	int r;

	if (d->kind == DEV_BLOCK) {
		const uint64_t mask = d->align_bytes > 1 ? d->align_bytes - 1 : SECTOR_BYTES - 1;
		const uint64_t start = (offset_bytes + mask) & ~mask;
		const uint64_t end = (offset_bytes + len_bytes) & ~mask;
		uint64_t range[2] = {start, end > start ? end - start : 0};

		if (range[1] == 0)
			return OK;
		do {
			r = ioctl(f->fd, BLKDISCARD, range);
		} while (r < 0 && errno == EINTR);
	} else {
		do {
			r = fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(off_t)offset_bytes, (off_t)len_bytes);
		} while (r < 0 && errno == EINTR);
	}
	if (r < 0) {
		int error = errno;

		return err_set_detail(err_from_errno(error),
			"discarding %" PRIu64 " bytes at byte %" PRIu64 " of the device: %s",
			len_bytes, offset_bytes, strerror(error));
	}
	return OK;
}

static void file_close(struct dev *d)
{
	struct dev_file *f = file_of(d);

	if (f->claim_fd >= 0)
		close(f->claim_fd);
	close(f->fd);
	mutex_destroy(&f->bounce_mutex);
	free(f);
}

const struct dev_ops dev_file_ops = {
	.readv = file_readv,
	.writev = file_writev,
	.flush = file_flush,
	.discard = file_discard,
	.close = file_close,
};
