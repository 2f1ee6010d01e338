/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the cache's suites share: a volume whose every block carries its number. */
#ifndef CRYPTFS_TEST_CACHE_RIG_H
#define CRYPTFS_TEST_CACHE_RIG_H

#include "cache.h"
#include "memory_volume.h"

#include <check.h>
#include <stdlib.h>

struct rig {
	struct memory_volume m;
	struct cache *cache;
	uint32_t block_bytes;
	fsblk_t blocks;
};

/* Each 8 bytes of a block are a function of its number and their place in it. */
static inline uint64_t rig_word(fsblk_t nr, size_t index)
{
	return (nr + 1) * UINT64_C(0x100000001b3) + index;
}

static inline void rig_fill(uint8_t *data, fsblk_t nr, uint32_t block_bytes)
{
	for (size_t i = 0; i < block_bytes / 8; i++) {
		uint64_t word = rig_word(nr, i);

		memcpy(data + i * 8, &word, sizeof(word));
	}
}

static inline bool rig_holds(const uint8_t *data, fsblk_t nr, uint32_t block_bytes)
{
	for (size_t i = 0; i < block_bytes / 8; i++) {
		uint64_t word = rig_word(nr, i);

		if (memcmp(data + i * 8, &word, sizeof(word)) != 0)
			return false;
	}
	return true;
}

static inline void rig_start(struct rig *r, uint32_t block_bytes, fsblk_t blocks,
	uint64_t capacity_bytes, struct overlay *overlay)
{
	*r = (struct rig){.block_bytes = block_bytes, .blocks = blocks};
	ck_assert_int_eq(memory_volume_open(blocks * block_bytes, &r->m), OK);
	for (fsblk_t nr = 0; nr < blocks; nr++)
		rig_fill(r->m.bytes + nr * block_bytes, nr, block_bytes);
	ck_assert_int_eq(cache_create(
				 &(struct cache_config){
					 .volume = r->m.volume,
					 .block_bytes = block_bytes,
					 .blocks = blocks,
					 .capacity_bytes = capacity_bytes,
					 .overlay = overlay,
				 },
				 &r->cache),
		OK);
}

static inline void rig_stop(struct rig *r)
{
	cache_destroy(r->cache);
	memory_volume_close(&r->m);
}

static inline uint64_t rig_reads(const struct rig *r)
{
	return dev_fault_calls(r->m.fault, DEV_FAULT_READ);
}

#endif
