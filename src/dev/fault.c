/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dev: a fault injector over another device, for tests.
 *
 * Counts the calls of each operation and lets one of them fail, once or for ever, without passing
 * it on. The counting is under a mutex that is never held across the call below. The device below
 * belongs to the injector.
 */
#include "dev_int.h"

#include "base.h"

#include <stdlib.h>

enum { FAULT_OPERATIONS = 4 };

struct dev_fault {
	struct dev base;
	struct dev *below;
	struct mutex mutex;
	uint64_t calls[FAULT_OPERATIONS] GUARDED_BY(ioq_token);
	unsigned mask GUARDED_BY(ioq_token);      /* armed operations; 0: none */
	uint64_t countdown GUARDED_BY(ioq_token); /* calls to go; at 1 the next one fails */
	bool for_ever GUARDED_BY(ioq_token);
	enum err error GUARDED_BY(ioq_token);
};

static struct dev_fault *fault_of(struct dev *d)
{
	ensure(d->kind == DEV_FAULT);
	return container_of(d, struct dev_fault, base);
}

/* Counts a call of `operation` (one bit) and says whether it fails. */
static enum err fault_count(struct dev_fault *f, unsigned operation)
{
	enum err e = OK;

	ioq_lock(&f->mutex);
	for (unsigned i = 0; i < FAULT_OPERATIONS; i++)
		f->calls[i] += operation == 1u << i;
	if (f->mask & operation) {
		if (f->countdown > 1) {
			f->countdown--;
		} else {
			e = f->error;
			if (!f->for_ever)
				f->mask = 0;
		}
	}
	ioq_unlock(&f->mutex);
	return e;
}

static enum err fault_readv(
	struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	struct dev_fault *f = fault_of(d);
	enum err e = fault_count(f, DEV_FAULT_READ);

	return e != OK ? e : dev_readv(f->below, iov, count, offset_bytes);
}

static enum err fault_writev(
	struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
{
	struct dev_fault *f = fault_of(d);
	enum err e = fault_count(f, DEV_FAULT_WRITE);

	return e != OK ? e : dev_writev(f->below, iov, count, offset_bytes);
}

static enum err fault_flush(struct dev *d)
{
	struct dev_fault *f = fault_of(d);
	enum err e = fault_count(f, DEV_FAULT_FLUSH);

	return e != OK ? e : dev_flush(f->below);
}

static enum err fault_discard(struct dev *d, uint64_t offset_bytes, uint64_t len_bytes)
{
	struct dev_fault *f = fault_of(d);
	enum err e = fault_count(f, DEV_FAULT_DISCARD);

	return e != OK ? e : dev_discard(f->below, offset_bytes, len_bytes);
}

static void fault_close(struct dev *d)
{
	struct dev_fault *f = fault_of(d);

	dev_close(f->below);
	mutex_destroy(&f->mutex);
	free(f);
}

static const struct dev_ops fault_ops = {
	.readv = fault_readv,
	.writev = fault_writev,
	.flush = fault_flush,
	.discard = fault_discard,
	.close = fault_close,
};

enum err dev_open_fault(struct dev *below, struct dev **out)
{
	struct dev_fault *f = calloc(1, sizeof(*f));

	if (!f)
		return ERR_NOMEM;
	f->base = *below;
	f->base.ops = &fault_ops;
	f->base.kind = DEV_FAULT;
	f->below = below;
	mutex_init(&f->mutex);
	*out = &f->base;
	return OK;
}

void dev_fault_arm(struct dev *d, unsigned mask, uint64_t nth, bool for_ever, enum err error)
{
	struct dev_fault *f = fault_of(d);

	ensure(nth > 0 && error != OK);
	ioq_lock(&f->mutex);
	f->mask = mask;
	f->countdown = nth;
	f->for_ever = for_ever;
	f->error = error;
	ioq_unlock(&f->mutex);
}

uint64_t dev_fault_calls(struct dev *d, unsigned mask)
{
	struct dev_fault *f = fault_of(d);
	uint64_t sum = 0;

	ioq_lock(&f->mutex);
	for (unsigned i = 0; i < FAULT_OPERATIONS; i++)
		sum += mask & 1u << i ? f->calls[i] : 0;
	ioq_unlock(&f->mutex);
	return sum;
}
