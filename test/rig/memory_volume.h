/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A volume in memory behind the identity cipher, with a fault injector between: for the suites of
 * the cache and the layers above. Included by tests only; not thread-safe to set up.
 */
#ifndef CRYPTFS_RIG_MEMORY_VOLUME_H
#define CRYPTFS_RIG_MEMORY_VOLUME_H

#include "cipher.h"

struct memory_volume {
	struct dev *memory; /* owned by fault */
	struct dev *fault;
	struct ioq *ioq;
	struct volume *volume;
	uint8_t *bytes;
	uint64_t size_bytes;
};

static inline enum err memory_volume_open_over(
	struct dev *below, uint64_t size_bytes, struct memory_volume *m)
{
	struct cipher *cipher = NULL;
	enum err e = dev_open_fault(below, &m->fault);

	if (e == OK)
		e = ioq_create(m->fault, &m->ioq);
	if (e == OK)
		e = cipher_create_identity(SECTOR_BYTES, &cipher);
	if (e == OK)
		e = volume_create(
			&(struct volume_config){
				.ioq = m->ioq, .cipher = cipher, .size_bytes = size_bytes},
			&m->volume);
	m->size_bytes = size_bytes;
	return e;
}

static inline enum err memory_volume_open(uint64_t size_bytes, struct memory_volume *m)
{
	enum err e = dev_open_memory(size_bytes, &m->memory);

	if (e != OK)
		return e;
	m->bytes = dev_memory_bytes(m->memory);
	return memory_volume_open_over(m->memory, size_bytes, m);
}

static inline void memory_volume_close(struct memory_volume *m)
{
	volume_destroy(m->volume);
	ioq_destroy(m->ioq);
	dev_close(m->fault);
	*m = (struct memory_volume){0};
}

#endif
