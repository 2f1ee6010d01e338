/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dev: a device in memory, for tests.
 *
 * The bytes are an anonymous mapping, so that a large device costs only what is touched. A discard
 * zeroes, which makes a use of discarded data show. Threads: as safe as memcpy on the same ranges.
 */
#include "dev_int.h"

#include "base.h"

#include <stdlib.h>
#include <sys/mman.h>

struct dev_memory {
	struct dev base;
	uint8_t *bytes;
};

static struct dev_memory *memory_of(struct dev *d)
{
	ensure(d->kind == DEV_MEMORY);
	return container_of(d, struct dev_memory, base);
}

static enum err memory_readv(
	struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	const uint8_t *at = memory_of(d)->bytes + offset_bytes;

	for (int i = 0; i < count; at += iov[i++].iov_len) {
		if (iov[i].iov_len > 0)
			memcpy(iov[i].iov_base, at, iov[i].iov_len);
	}
	return OK;
}

static enum err memory_writev(
	struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	uint8_t *at = memory_of(d)->bytes + offset_bytes;

	for (int i = 0; i < count; at += iov[i++].iov_len) {
		if (iov[i].iov_len > 0)
			memcpy(at, iov[i].iov_base, iov[i].iov_len);
	}
	return OK;
}

static enum err memory_flush(struct dev *d)
{
	(void)d;
	return OK;
}

static enum err memory_discard(struct dev *d, uint64_t offset_bytes, uint64_t len_bytes)
{
	memset(memory_of(d)->bytes + offset_bytes, 0, (size_t)len_bytes);
	return OK;
}

static void memory_close(struct dev *d)
{
	struct dev_memory *m = memory_of(d);

	munmap(m->bytes, MAX((size_t)d->size_bytes, 1));
	free(m);
}

static const struct dev_ops memory_ops = {
	.readv = memory_readv,
	.writev = memory_writev,
	.flush = memory_flush,
	.discard = memory_discard,
	.close = memory_close,
};

enum err dev_open_memory(uint64_t size_bytes, struct dev **out)
{
	struct dev_memory *m;
	void *bytes;

	bytes = mmap(NULL, MAX((size_t)size_bytes, 1), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bytes == MAP_FAILED)
		return ERR_NOMEM;
	m = calloc(1, sizeof(*m));
	if (!m) {
		munmap(bytes, MAX((size_t)size_bytes, 1));
		return ERR_NOMEM;
	}
	m->base = (struct dev){
		.ops = &memory_ops,
		.kind = DEV_MEMORY,
		.size_bytes = size_bytes,
		.align_bytes = 1,
	};
	m->bytes = bytes;
	*out = &m->base;
	return OK;
}

uint8_t *dev_memory_bytes(struct dev *d)
{
	return memory_of(d)->bytes;
}
