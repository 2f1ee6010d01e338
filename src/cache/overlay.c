/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The overlay: which blocks have a newer copy in the log, and where.
 *
 * An array sorted by home block. A log of 1 GiB holds at most a few hundred thousand copies, so a
 * look-up is some eighteen steps, and only a miss of the cache or a read of file data makes one.
 * The copies stay in the log and are read there.
 *
 * Threads: constant after overlay_create, so any number may look up in parallel.
 *
 * Format: jbd2's ESCAPE flag, the kernel's Documentation/filesystems/ext4/journal.rst. Does not
 * verify the copies: replay has done so before it made the entries.
 */
#include "cache.h"

#include <stdlib.h>

/* What an escaped copy's first four bytes, zeroed in the log, stand for: jbd2's magic number. */
static const uint8_t overlay_escaped_bytes[4] = {0xc0, 0x3b, 0x39, 0x98};

struct overlay {
	size_t count;
	struct overlay_entry entries[]; /* by rising, distinct block */
};

static int overlay_compare(const void *a, const void *b)
{
	const struct overlay_entry *x = a, *y = b;

	return (x->block > y->block) - (x->block < y->block);
}

enum err overlay_create(const struct overlay_entry *entries, size_t count, struct overlay **out)
{
	struct overlay *o = malloc(sizeof(*o) + count * sizeof(*entries));

	if (o == NULL)
		return ERR_NOMEM;
	o->count = count;
	if (count > 0) {
		memcpy(o->entries, entries, count * sizeof(*entries));
		qsort(o->entries, count, sizeof(*entries), overlay_compare);
	}
	for (size_t i = 1; i < count; i++)
		ensure(o->entries[i - 1].block < o->entries[i].block);
	*out = o;
	return OK;
}

void overlay_destroy(struct overlay *o)
{
	free(o);
}

size_t overlay_count(const struct overlay *o)
{
	return o->count;
}

const struct overlay_entry *overlay_find(const struct overlay *o, fsblk_t first, uint64_t count)
{
	size_t low = 0, high = o->count; /* the answer, if any, is in [low, high] */

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (o->entries[middle].block < first)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == o->count || o->entries[low].block - first >= count)
		return NULL;
	return &o->entries[low];
}

enum err overlay_read(
	const struct overlay_entry *e, struct volume *v, uint32_t block_bytes, void *buf)
{
	enum err result = volume_read(v, buf, block_bytes, e->log * block_bytes);

	if (result == OK && e->escaped)
		memcpy(buf, overlay_escaped_bytes, sizeof(overlay_escaped_bytes));
	return result;
}
