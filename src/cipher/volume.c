/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cipher: a range of a device behind a cipher: offset 0 is the volume's first byte in clear.
 *
 * A read of whole cipher sectors goes from the device into the caller's buffers, which O_DIRECT
 * takes when they are aligned, and is decrypted there. A read whose ends, or whose buffers'
 * borders, lie inside a cipher sector goes through a bounce buffer widened to whole sectors. A
 * write always goes through one, since the caller keeps its bytes in clear; a cipher sector it
 * covers in part is read and decrypted before, and the caller keeps others off that sector.
 *
 * The volume's size is a multiple of its cipher sector, so widening never leaves it. Threads: any,
 * in parallel; nothing here changes after volume_create().
 */
#include "cipher_int.h"

#include "base.h"

#include <inttypes.h>
#include <stdlib.h>

enum { VOLUME_BOUNCE_BYTES_MAX = 1 << 20 };

struct volume {
	struct volume_config config;
	uint32_t sector_bytes;
};

/* A piece of a request: what is wanted of it, and the whole cipher sectors around that. */
struct volume_piece {
	uint64_t start, end;           /* wanted bytes */
	uint64_t wide_start, wide_end; /* widened */
};

enum err volume_create(const struct volume_config *config, struct volume **out)
{
	const struct dev *d = ioq_dev(config->ioq);
	const uint32_t sector = cipher_spec(config->cipher)->sector_bytes;
	struct volume *v;
	uint64_t end;

	if (__builtin_add_overflow(config->offset_bytes, config->size_bytes, &end) ||
		end > d->size_bytes)
		return err_set_detail(ERR_DEV_SHORT,
			"the device has %" PRIu64 " bytes, the volume on it takes %" PRIu64
			" from byte %" PRIu64 ": it is truncated",
			d->size_bytes, config->size_bytes, config->offset_bytes);
	if (config->size_bytes == 0 || config->size_bytes % sector != 0)
		return err_set_detail(ERR_INVAL,
			"the encrypted area has %" PRIu64
			" bytes, which is not a whole number of its sectors of %u bytes",
			config->size_bytes, sector);
	if (config->offset_bytes % SECTOR_BYTES != 0)
		return err_set_detail(ERR_INVAL,
			"the encrypted area starts at byte %" PRIu64 ", inside a sector",
			config->offset_bytes);
	v = calloc(1, sizeof(*v));
	if (!v)
		return ERR_NOMEM;
	v->config = *config;
	v->sector_bytes = sector;
	*out = v;
	return OK;
}

void volume_destroy(struct volume *v)
{
	if (!v)
		return;
	cipher_destroy(v->config.cipher);
	free(v);
}

uint64_t volume_size_bytes(const struct volume *v)
{
	return v->config.size_bytes;
}

uint32_t volume_sector_bytes(const struct volume *v)
{
	return v->sector_bytes;
}

bool volume_readonly(const struct volume *v)
{
	return ioq_dev(v->config.ioq)->readonly;
}

struct ioq *volume_ioq(struct volume *v)
{
	return v->config.ioq;
}

static sector_t volume_sector(const struct volume *v, uint64_t offset_bytes)
{
	return offset_bytes / SECTOR_BYTES + v->config.iv_offset;
}

static enum err volume_check(const struct volume *v, uint64_t len_bytes, uint64_t offset_bytes)
{
	uint64_t end;

	ensure(len_bytes % SECTOR_BYTES == 0 && offset_bytes % SECTOR_BYTES == 0);
	if (__builtin_add_overflow(offset_bytes, len_bytes, &end) || end > v->config.size_bytes)
		return err_set_detail(ERR_DEV_BOUNDS,
			"request of %" PRIu64 " bytes at byte %" PRIu64
			" is past the end of the volume (%" PRIu64 " bytes)",
			len_bytes, offset_bytes, v->config.size_bytes);
	return OK;
}

/* The next piece of [offset, end) that fits a bounce buffer. */
static struct volume_piece volume_piece_at(const struct volume *v, uint64_t offset, uint64_t end)
{
	const uint64_t mask = v->sector_bytes - 1;
	struct volume_piece p = {.start = offset, .wide_start = offset & ~mask};

	p.wide_end = MIN((end + mask) & ~mask, p.wide_start + VOLUME_BOUNCE_BYTES_MAX);
	p.end = MIN(end, p.wide_end);
	return p;
}

static void *volume_bounce_alloc(const struct volume *v, uint64_t len)
{
	const size_t room = (size_t)MIN(len + 2 * v->sector_bytes, VOLUME_BOUNCE_BYTES_MAX);
	void *bounce = NULL;

	return posix_memalign(&bounce, PAGE_BYTES, room) == 0 ? bounce : NULL;
}

/* Reads and decrypts whole cipher sectors into one buffer. */
static enum err volume_read_flat(struct volume *v, void *buf, size_t len, uint64_t offset)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	enum err e = ioq_readv(v->config.ioq, &iov, 1, v->config.offset_bytes + offset);

	if (e != OK)
		return e;
	return cipher_decrypt(v->config.cipher, buf, buf, len, volume_sector(v, offset));
}

static enum err volume_read_direct(
	struct volume *v, const struct iovec *iov, int count, uint64_t offset)
{
	enum err e = ioq_readv(v->config.ioq, iov, count, v->config.offset_bytes + offset);

	for (int i = 0; e == OK && i < count; i++) {
		e = cipher_decrypt(v->config.cipher, iov[i].iov_base, iov[i].iov_base,
			iov[i].iov_len, volume_sector(v, offset));
		offset += iov[i].iov_len;
	}
	return e;
}

/* The iovec's bytes from `skip` on get `len` bytes of `from`. */
static void volume_scatter(
	const struct iovec *iov, uint64_t skip, const uint8_t *from, uint64_t len)
{
	for (; len > 0; iov++) {
		uint64_t step;

		if (skip >= iov->iov_len) {
			skip -= iov->iov_len;
			continue;
		}
		step = MIN(iov->iov_len - skip, len);
		memcpy((uint8_t *)iov->iov_base + skip, from, (size_t)step);
		from += step;
		len -= step;
		skip = 0;
	}
}

static enum err volume_read_bounce(
	struct volume *v, const struct iovec *iov, uint64_t len, uint64_t offset)
{
	const uint64_t first = offset, end = offset + len;
	uint8_t *bounce = volume_bounce_alloc(v, len);
	enum err e = OK;

	if (!bounce)
		return ERR_NOMEM;
	while (e == OK && offset < end) {
		const struct volume_piece p = volume_piece_at(v, offset, end);

		e = volume_read_flat(v, bounce, (size_t)(p.wide_end - p.wide_start), p.wide_start);
		if (e == OK)
			volume_scatter(iov, p.start - first, bounce + (p.start - p.wide_start),
				p.end - p.start);
		offset = p.end;
	}
	free(bounce);
	return e;
}

enum err volume_readv(struct volume *v, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	uint64_t len = 0, bits = offset_bytes;
	enum err e;

	for (int i = 0; i < count; i++) {
		if (__builtin_add_overflow(len, iov[i].iov_len, &len))
			return ERR_DEV_BOUNDS;
		bits |= iov[i].iov_len;
	}
	e = volume_check(v, len, offset_bytes);
	if (e != OK || len == 0)
		return e;
	if ((bits & (v->sector_bytes - 1)) == 0)
		return volume_read_direct(v, iov, count, offset_bytes);
	return volume_read_bounce(v, iov, len, offset_bytes);
}

enum err volume_read(struct volume *v, void *buf, size_t len_bytes, uint64_t offset_bytes)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len_bytes};

	return volume_readv(v, &iov, 1, offset_bytes);
}

/* Reads the first and the last cipher sector of the piece, where it covers them only in part. */
static enum err volume_write_fill(struct volume *v, uint8_t *bounce, const struct volume_piece *p)
{
	const uint32_t sector = v->sector_bytes;
	const uint64_t last = p->wide_end - sector;
	const bool head = p->start != p->wide_start, tail = p->end != p->wide_end;
	enum err e = OK;

	if (head || (tail && last == p->wide_start))
		e = volume_read_flat(v, bounce, sector, p->wide_start);
	if (e == OK && tail && last != p->wide_start)
		e = volume_read_flat(v, bounce + (last - p->wide_start), sector, last);
	return e;
}

/* `len` bytes of the iovec from `skip` on. */
static void volume_gather(const struct iovec *iov, uint64_t skip, uint8_t *to, uint64_t len)
{
	for (; len > 0; iov++) {
		uint64_t step;

		if (skip >= iov->iov_len) {
			skip -= iov->iov_len;
			continue;
		}
		step = MIN(iov->iov_len - skip, len);
		memcpy(to, (const uint8_t *)iov->iov_base + skip, (size_t)step);
		to += step;
		len -= step;
		skip = 0;
	}
}

static enum err volume_write_piece(struct volume *v, uint8_t *bounce, const struct iovec *iov,
	uint64_t skip, const struct volume_piece *p)
{
	const size_t len = (size_t)(p->wide_end - p->wide_start);
	struct iovec whole = {.iov_base = bounce, .iov_len = len};
	enum err e = volume_write_fill(v, bounce, p);

	if (e != OK)
		return e;
	volume_gather(iov, skip, bounce + (p->start - p->wide_start), p->end - p->start);
	e = cipher_encrypt(v->config.cipher, bounce, bounce, len, volume_sector(v, p->wide_start));
	if (e != OK)
		return e;
	return ioq_writev(v->config.ioq, &whole, 1, v->config.offset_bytes + p->wide_start);
}

enum err volume_writev(struct volume *v, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	const uint64_t first = offset_bytes;
	uint64_t len = 0;
	uint8_t *bounce;
	enum err e;

	for (int i = 0; i < count; i++) {
		if (__builtin_add_overflow(len, iov[i].iov_len, &len))
			return ERR_DEV_BOUNDS;
	}
	e = volume_check(v, len, offset_bytes);
	if (e != OK || len == 0)
		return e;
	bounce = volume_bounce_alloc(v, len);
	if (!bounce)
		return ERR_NOMEM;
	while (e == OK && offset_bytes < first + len) {
		const struct volume_piece p = volume_piece_at(v, offset_bytes, first + len);

		e = volume_write_piece(v, bounce, iov, offset_bytes - first, &p);
		offset_bytes = p.end;
	}
	free(bounce);
	return e;
}

enum err volume_write(struct volume *v, const void *buf, size_t len_bytes, uint64_t offset_bytes)
{
	/* Only read from: an iovec serves both directions and cannot say so. */
	struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len_bytes};

	return volume_writev(v, &iov, 1, offset_bytes);
}

enum err volume_flush(struct volume *v)
{
	return ioq_flush(v->config.ioq);
}
