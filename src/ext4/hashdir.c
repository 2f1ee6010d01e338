/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hashdir: listing a directory in the order of its names' hashes.
 *
 * A name's place in the order does not depend on the block that it stands in, so a listing that is
 * taken up again sees every name that stays exactly once, whatever was inserted, removed or split
 * in between. Nothing is kept between calls: a cookie is the place itself.
 *
 *     bit 62      32 31         10 9        0
 *     [ major >> 1 ][ minor >> 10 ][ ordinal ]   + 3; 1 and 2 stand for "." and ".."
 *
 * The ordinal counts names whose 53 bits of hash are equal, in the order of their remaining bits
 * and bytes. The legacy hash has no minor half; crc32c of the name stands in for it.
 *
 * A leaf is read whole and sorted, together with those that its last hash spills into. A name whose
 * hash does not belong into its leaf (a damaged index) is listed at the leaf's edge, so that the
 * order of cookies holds on any disk and a listing always ends.
 *
 * Threads: any; the directory's inode lock is held, shared is enough.
 */
#include "dir_int.h"

#include <stdlib.h>

enum {
	COOKIE_DOT = 1,
	COOKIE_DOTDOT = 2,
	COOKIE_FIRST = 3,
	ORDINAL_BITS = 10,
	ORDINAL_MAX = 1000,        /* so that no cookie reaches HASHDIR_COOKIE_END */
	BATCH_NAMES_MAX = 1 << 18, /* names with one hash in a row of leaves */
	/* Leaves are read in no order; a larger directory would push its own windows out again. */
	PREFETCH_DIR_BYTES_MAX = 32 << 20,
};
static const uint64_t ordinal_mask = (1 << ORDINAL_BITS) - 1;

struct hash_name {
	uint64_t place; /* major >> 1 and minor */
	const struct ext4_disk_dirent *dirent;
};

/* The names that are sorted together, and the blocks that they stand in. */
struct hash_batch {
	struct ext4_inode *dir;
	enum ext4_hash_version version;
	uint64_t from; /* places below are left out; ordinal bits clear */
	struct hash_name *name;
	size_t names, names_room;
	struct cache_block **pin;
	size_t pins, pins_room;
};

static void batch_clear(struct hash_batch *b)
{
	for (size_t i = 0; i < b->pins; i++)
		cache_put(b->dir->fs->cache, b->pin[i]);
	b->pins = 0;
	b->names = 0;
}

static void batch_free(struct hash_batch *b)
{
	batch_clear(b);
	free(b->name);
	free(b->pin);
}

/* Room for one more of *array's elements. */
static enum err batch_grow(void **array, size_t count, size_t *room, size_t element_bytes)
{
	size_t more = MAX(*room * 2, (size_t)64);
	void *grown;

	if (count < *room)
		return OK;
	grown = realloc(*array, more * element_bytes);
	if (!grown)
		return ERR_NOMEM;
	*array = grown;
	*room = more;
	return OK;
}

static uint64_t hash_place(
	const struct hash_batch *b, const struct ext4_disk_dirent *d, const struct htree_leaf *leaf)
{
	struct ext4_hash h =
		ext4_hash_name(b->version, b->dir->fs->hash_seed, d->name, d->name_len);

	if (b->version == EXT4_HASH_LEGACY || b->version == EXT4_HASH_LEGACY_UNSIGNED)
		h.minor = crc32c(0, d->name, d->name_len);
	if (h.major < leaf->low)
		h = (struct ext4_hash){leaf->low, 0};
	if (h.major > leaf->high)
		h = (struct ext4_hash){leaf->high, UINT32_MAX};
	return (uint64_t)(h.major >> 1) << 32 | h.minor;
}

static enum err batch_add_chunk(
	struct hash_batch *b, struct ext4_dir_chunk chunk, const struct htree_leaf *leaf)
{
	const struct ext4 *fs = b->dir->fs;

	ext4_dirent_for_each(fs, chunk, d, at)
	{
		uint64_t place;
		void *array = b->name;
		enum err e;

		if (le32_get(d->inode) == 0 || ext4_dirent_is_dot(d, 1) || ext4_dirent_is_dot(d, 2))
			continue;
		place = hash_place(b, d, leaf);
		if (place < b->from)
			continue;
		if (b->names == BATCH_NAMES_MAX)
			return ext4_corrupt(
				fs, b->dir->inum, "too many of its names have the same hash");
		e = batch_grow(&array, b->names, &b->names_room, sizeof(*b->name));
		if (e)
			return e;
		b->name = array;
		b->name[b->names++] = (struct hash_name){place, d};
	}
	return OK;
}

static enum err batch_add_block(struct hash_batch *b, const struct htree_leaf *leaf)
{
	struct cache_block *block = NULL;
	void *array = b->pin;
	enum err e = batch_grow(&array, b->pins, &b->pins_room, sizeof(struct cache_block *));

	if (e)
		return e;
	b->pin = array;
	e = ext4_dir_block(b->dir, leaf->block, &block);
	if (e)
		return e;
	b->pin[b->pins++] = block;
	return batch_add_chunk(b, ext4_dir_block_chunk(b->dir, block), leaf);
}

static int batch_compare(const void *a, const void *b)
{
	const struct hash_name *x = a, *y = b;
	int order;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	if (x->dirent->name_len != y->dirent->name_len)
		return x->dirent->name_len < y->dirent->name_len ? -1 : 1;
	order = memcmp(x->dirent->name, y->dirent->name, x->dirent->name_len);
	if (order)
		return order;
	return memcmp(&x->dirent->inode, &y->dirent->inode, sizeof(le32));
}

/* Sorts and lists; *taken is false when the reader had no more room. */
static enum err batch_emit(
	struct hash_batch *b, uint64_t cookie, ext4_readdir_fn *emit, void *context, bool *taken)
{
	unsigned ordinal = 0;

	if (b->names)
		qsort(b->name, b->names, sizeof(*b->name), batch_compare);
	for (size_t i = 0; i < b->names; i++) {
		uint64_t place = b->name[i].place & ~ordinal_mask, here;

		ordinal = i && (b->name[i - 1].place & ~ordinal_mask) == place ? ordinal + 1 : 0;
		if (ordinal > ORDINAL_MAX)
			return ext4_corrupt(b->dir->fs, b->dir->inum,
				"too many of its names have the same hash");
		here = (place | ordinal) + COOKIE_FIRST;
		if (here <= cookie)
			continue;
		*taken = ext4_dir_emit(b->dir->fs, b->name[i].dirent, here, emit, context);
		if (!*taken)
			return OK;
	}
	return OK;
}

/* The directory itself and its parent, which come first wherever they stand. */
static void emit_dots(struct ext4_inode *dir, struct ext4_dir_chunk chunk, uint64_t cookie,
	ext4_readdir_fn *emit, void *context, bool *taken)
{
	for (unsigned dots = COOKIE_DOT; dots <= COOKIE_DOTDOT && *taken; dots++) {
		bool found = false;

		if (cookie >= dots)
			continue;
		ext4_dirent_for_each(dir->fs, chunk, d, at)
		{
			if (found || le32_get(d->inode) == 0 || !ext4_dirent_is_dot(d, dots))
				continue;
			found = true;
			*taken = ext4_dir_emit(dir->fs, d, dots, emit, context);
		}
	}
}

static enum err read_indexed(
	struct hash_batch *b, uint64_t cookie, ext4_readdir_fn *emit, void *context, bool *taken)
{
	lblk_t window = EXT4_DIR_NO_WINDOW;
	struct htree_path path;
	bool end = false;
	enum err e = htree_open(b->dir, &path);

	if (e)
		return e;
	b->version = path.version;
	emit_dots(b->dir, ext4_dir_block_chunk(b->dir, path.frame[0].block), cookie, emit, context,
		taken);
	if (!e && *taken)
		e = htree_seek(&path, (uint32_t)(b->from >> 32) << 1);
	while (!e && *taken && !end) {
		struct htree_leaf leaf = htree_leaf(&path);

		if (b->dir->attr.size_bytes <= PREFETCH_DIR_BYTES_MAX)
			ext4_dir_prefetch(b->dir, leaf.block, &window);
		e = batch_add_block(b, &leaf);
		if (!e)
			e = htree_next(&path, &end);
		if (!e && (end || !leaf.continues)) {
			e = batch_emit(b, cookie, emit, context, taken);
			batch_clear(b);
		}
	}
	htree_close(&path);
	return e;
}

static enum err read_one_block(
	struct hash_batch *b, uint64_t cookie, ext4_readdir_fn *emit, void *context, bool *taken)
{
	const struct htree_leaf all = {.block = 0, .low = 0, .high = UINT32_MAX};
	enum err e = batch_add_block(b, &all);

	if (!e)
		emit_dots(b->dir, ext4_dir_block_chunk(b->dir, b->pin[0]), cookie, emit, context,
			taken);
	if (!e && *taken)
		e = batch_emit(b, cookie, emit, context, taken);
	return e;
}

static enum err read_inline(
	struct hash_batch *b, uint64_t cookie, ext4_readdir_fn *emit, void *context, bool *taken)
{
	const struct htree_leaf all = {.block = 0, .low = 0, .high = UINT32_MAX};
	uint8_t dots[2 * EXT4_DIRENT_BYTES_MIN] = {0};
	struct ext4_inline_dir in;
	enum err e = ext4_inline_dir(b->dir, &in);

	if (e)
		return e;
	for (unsigned i = 0; i < 2; i++) {
		struct ext4_disk_dirent *d = (void *)(dots + i * EXT4_DIRENT_BYTES_MIN);

		d->inode = le32_make(i == 0 ? b->dir->inum : in.parent);
		d->rec_len = le16_make(EXT4_DIRENT_BYTES_MIN);
		d->name_len = (uint8_t)(i + 1);
		d->file_type = EXT4_FT_DIR;
		memcpy(d->name, "..", i + 1);
	}
	emit_dots(
		b->dir, (struct ext4_dir_chunk){dots, sizeof(dots)}, cookie, emit, context, taken);
	for (int i = 0; i < EXT4_INLINE_CHUNKS && !e; i++)
		e = batch_add_chunk(b, in.chunk[i], &all);
	if (!e && *taken)
		e = batch_emit(b, cookie, emit, context, taken);
	return e;
}

enum err hashdir_read(struct ext4_inode *dir, uint64_t cookie, ext4_readdir_fn *emit, void *context)
{
	uint8_t version = dir->fs->super.s_def_hash_version;
	struct hash_batch b = {.dir = dir};
	bool taken = true;
	enum err e;

	if (cookie >= HASHDIR_COOKIE_END)
		return ERR_INVAL;
	/* The index that the directory gets when it grows will use the default hash. */
	b.version = ext4_hash_resolve(
		dir->fs, version <= EXT4_HASH_TEA ? version : (uint8_t)EXT4_HASH_HALF_MD4);
	if (cookie >= COOKIE_FIRST)
		b.from = (cookie - COOKIE_FIRST) & ~ordinal_mask;
	if (dir->attr.flags & EXT4_INLINE_DATA_FL)
		e = read_inline(&b, cookie, emit, context, &taken);
	else if (ext4_dir_is_indexed(dir))
		e = read_indexed(&b, cookie, emit, context, &taken);
	else
		e = read_one_block(&b, cookie, emit, context, &taken);
	batch_free(&b);
	return e;
}
