/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * htree: the hash index of a directory: from a hash to the blocks that hold it.
 *
 *     block 0: root --- entries {hash, block} --- node --- (node with large_dir) --- leaf
 *
 * A leaf holds the names whose hash lies from its entry's hash up to the next entry's. Names with
 * one hash may spill into the leaves that follow; their entries then have bit 0 set.
 *
 * Index blocks are verified in two parts: what needs only the block (checksum, limit, order) once
 * a read, remembered by the cache; what needs the way to it (that its hashes lie between its
 * parent's, that it is a block of the directory) each time it is walked. Steps are bounded by the
 * directory's blocks, so that entries that point at one block again and again end.
 *
 * ERR_EXT4_INDEX means that the names are still to be found without the index, as a chain of
 * entries in every block; I/O and checksum errors are no such thing.
 *
 * Threads: any; the directory's inode lock is held, shared is enough.
 *
 * Source: Documentation/filesystems/ext4/directory.rst.
 */
#include "dir_int.h"

#include <stdlib.h>

enum { HTREE_HASH_LAST = (int)0xfffffffc }; /* the largest that a name can have */

static enum err htree_damage(const struct ext4_inode *dir, lblk_t block, const char *text)
{
	return err_set_detail(ERR_EXT4_INDEX,
		"inode %u: directory index block %u: %s; run fsck.cryptfs", dir->inum, block, text);
}

/* Where the entries of a root or a node start, by what stands before them; 0: neither. */
static size_t htree_entries_offset(const struct ext4_inode *dir, const uint8_t *bytes)
{
	const struct ext4 *fs = dir->fs;
	const struct ext4_disk_dirent *dot = (const void *)bytes;
	const struct ext4_disk_dirent *dotdot = (const void *)(bytes + EXT4_DIRENT_BYTES_MIN);
	const struct ext4_dx_root_info *info = (const void *)(bytes + EXT4_DX_ROOT_INFO_OFFSET);

	if (ext4_dirent_rec_len(fs, dot) == fs->block_bytes)
		return le32_get(dot->inode) == 0 ? EXT4_DX_NODE_ENTRIES_OFFSET : 0;
	if (ext4_dirent_rec_len(fs, dot) != EXT4_DIRENT_BYTES_MIN ||
		ext4_dirent_rec_len(fs, dotdot) != fs->block_bytes - EXT4_DIRENT_BYTES_MIN ||
		le32_get(info->reserved_zero) != 0 || info->info_length != sizeof(*info))
		return 0;
	return EXT4_DX_ROOT_INFO_OFFSET + sizeof(*info);
}

/* The only limit that is right. */
static unsigned htree_limit(const struct ext4_inode *dir, size_t offset)
{
	size_t room = dir->fs->block_bytes - offset;

	if (dir->fs->csum)
		room -= sizeof(struct ext4_dx_tail);
	return (unsigned)(room / sizeof(struct ext4_dx_entry));
}

bool htree_csum_valid(const struct ext4_inode *dir, const uint8_t *bytes)
{
	size_t offset = htree_entries_offset(dir, bytes);
	const struct ext4_dx_countlimit *cl = (const void *)(bytes + offset);
	const struct ext4_dx_tail *tail;
	const le32 zero = le32_make(0);
	unsigned limit, count;
	uint32_t crc;

	if (!dir->fs->csum)
		return true;
	if (offset == 0)
		return false;
	limit = le16_get(cl->limit);
	count = le16_get(cl->count);
	if (limit > htree_limit(dir, offset) || count > limit)
		return false;
	tail = (const void *)(bytes + offset + limit * sizeof(struct ext4_dx_entry));
	crc = crc32c(dir->csum_seed, bytes, offset + count * sizeof(struct ext4_dx_entry));
	crc = crc32c(crc, &tail->dt_reserved, sizeof(tail->dt_reserved));
	crc = crc32c(crc, &zero, sizeof(zero));
	return crc == le32_get(tail->dt_checksum);
}

/* What the block alone can tell, but for the checksum and the chain of entries. */
static const char *htree_block_fault(
	const struct ext4_inode *dir, const uint8_t *bytes, bool is_root, struct htree_frame *out)
{
	size_t offset = htree_entries_offset(dir, bytes);
	const struct ext4_dx_countlimit *cl = (const void *)(bytes + offset);
	unsigned count;

	if (offset == 0 || (offset == EXT4_DX_NODE_ENTRIES_OFFSET) == is_root)
		return "it is not an index block";
	count = le16_get(cl->count);
	if (le16_get(cl->limit) != htree_limit(dir, offset))
		return "its limit is wrong";
	if (count == 0 || count > le16_get(cl->limit))
		return "its count is wrong";
	out->entry = (const void *)(bytes + offset);
	out->count = count;
	return NULL;
}

static const char *htree_order_fault(const struct htree_frame *f)
{
	uint32_t before = 0;

	for (unsigned i = 1; i < f->count; i++) {
		uint32_t hash = le32_get(f->entry[i].hash);

		if (hash < before || (hash == before && !(hash & 1)))
			return "its hashes are not in order";
		before = hash;
	}
	return NULL;
}

/* Pins an index block into a frame and verifies what it tells alone. */
static enum err htree_load(struct ext4_inode *dir, lblk_t block, struct htree_frame *out)
{
	struct htree_frame f = {0};
	const char *fault;
	enum err e;

	if (block >= ext4_dir_blocks(dir))
		return htree_damage(dir, block, "it is past the directory's end");
	e = ext4_dir_block(dir, block, &f.block);
	if (e)
		return e;
	fault = htree_block_fault(dir, f.block->data, block == 0, &f);
	if (!fault && atomic_load_explicit(&f.block->verified, memory_order_relaxed) !=
			      EXT4_KIND_DIR_INDEX) {
		fault = htree_order_fault(&f);
		if (!fault)
			atomic_store_explicit(
				&f.block->verified, EXT4_KIND_DIR_INDEX, memory_order_relaxed);
	}
	if (fault) {
		cache_put(dir->fs->cache, f.block);
		return htree_damage(dir, block, fault);
	}
	*out = f;
	return OK;
}

static lblk_t htree_entry_block(const struct htree_frame *f)
{
	return le32_get(f->entry[f->at].block) & EXT4_DX_BLOCK_MASK;
}

/* The hash, with its bit 0, at which the part below `depth` starts. */
static uint32_t htree_low(const struct htree_path *p, unsigned depth)
{
	for (unsigned i = depth + 1; i-- > 0;)
		if (p->frame[i].at > 0)
			return le32_get(p->frame[i].entry[p->frame[i].at].hash);
	return 0;
}

/* The hash, with its bit 0, at which the part behind the one below `depth` starts. */
static bool htree_next_low(const struct htree_path *p, unsigned depth, uint32_t *out)
{
	for (unsigned i = depth + 1; i-- > 0;) {
		const struct htree_frame *f = &p->frame[i];

		if (f->at + 1 < f->count) {
			*out = le32_get(f->entry[f->at + 1].hash);
			return true;
		}
	}
	return false;
}

/* Replaces the frame below `depth` by the block that depth's entry names. */
static enum err htree_descend(struct htree_path *p, unsigned depth)
{
	struct htree_frame *below = &p->frame[depth + 1];
	lblk_t block = htree_entry_block(&p->frame[depth]);
	uint32_t first, next_low;
	enum err e;

	cache_put(p->dir->fs->cache, below->block);
	*below = (struct htree_frame){0};
	e = htree_load(p->dir, block, below);
	if (e || below->count == 1)
		return e;
	first = le32_get(below->entry[1].hash);
	if (first < htree_low(p, depth) || (first == htree_low(p, depth) && !(first & 1)) ||
		(htree_next_low(p, depth, &next_low) &&
			le32_get(below->entry[below->count - 1].hash) > next_low))
		return htree_damage(p->dir, block, "its hashes lie outside its parent's");
	return OK;
}

enum err htree_open(struct ext4_inode *dir, struct htree_path *out)
{
	unsigned levels_max = ext4_has_incompat(dir->fs, EXT4_INCOMPAT_LARGEDIR)
				      ? HTREE_LEVELS_MAX
				      : HTREE_LEVELS_MAX - 1;
	const struct ext4_dx_root_info *info;
	struct htree_path p = {.dir = dir};
	const char *fault = NULL;
	enum err e = htree_load(dir, 0, &p.frame[0]);

	if (e)
		return e;
	info = (const void *)(p.frame[0].block->data + EXT4_DX_ROOT_INFO_OFFSET);
	if (info->hash_version > EXT4_HASH_TEA)
		fault = "its hash is not known";
	else if (info->unused_flags & 1)
		fault = "its flags are not known";
	else if (info->indirect_levels >= levels_max)
		fault = "it has too many levels";
	if (fault) {
		cache_put(dir->fs->cache, p.frame[0].block);
		return htree_damage(dir, 0, fault);
	}
	p.version = ext4_hash_resolve(dir->fs, info->hash_version);
	p.levels = info->indirect_levels + 1u;
	*out = p;
	return OK;
}

void htree_close(struct htree_path *path)
{
	for (unsigned i = 0; i < HTREE_LEVELS_MAX; i++) {
		cache_put(path->dir->fs->cache, path->frame[i].block);
		path->frame[i] = (struct htree_frame){0};
	}
}

/* The last entry whose hash, with its bit 0, is not larger. */
static unsigned htree_search(const struct htree_frame *f, uint32_t hash)
{
	unsigned low = 0, high = f->count;

	while (high - low > 1) {
		unsigned middle = low + (high - low) / 2;

		if (le32_get(f->entry[middle].hash) > hash)
			high = middle;
		else
			low = middle;
	}
	return low;
}

/*
 * What an entry for a leaf may name. Taken for a leaf, the root would show no names where the leaf
 * has some.
 */
static enum err htree_check_leaf(const struct htree_path *path)
{
	lblk_t block = htree_entry_block(&path->frame[path->levels - 1]);

	if (block == 0)
		return htree_damage(path->dir, 0, "an entry for a leaf points at the root");
	if (block >= ext4_dir_blocks(path->dir))
		return htree_damage(path->dir, block, "it is past the directory's end");
	return OK;
}

enum err htree_seek(struct htree_path *path, uint32_t hash)
{
	path->leaves = 0;
	for (unsigned depth = 0;; depth++) {
		enum err e;

		path->frame[depth].at = htree_search(&path->frame[depth], hash);
		if (depth + 1 == path->levels)
			return htree_check_leaf(path);
		e = htree_descend(path, depth);
		if (e)
			return e;
	}
}

enum err htree_next(struct htree_path *path, bool *end)
{
	unsigned depth = path->levels - 1;

	while (path->frame[depth].at + 1 >= path->frame[depth].count) {
		if (depth == 0) {
			*end = true;
			return OK;
		}
		depth--;
	}
	if (++path->leaves >= ext4_dir_blocks(path->dir))
		return htree_damage(
			path->dir, 0, "it has more leaves than the directory has blocks");
	path->frame[depth].at++;
	for (; depth + 1 < path->levels; depth++) {
		enum err e = htree_descend(path, depth);

		if (e)
			return e;
	}
	*end = false;
	return htree_check_leaf(path);
}

struct htree_leaf htree_leaf(const struct htree_path *path)
{
	unsigned depth = path->levels - 1;
	struct htree_leaf leaf = {.block = htree_entry_block(&path->frame[depth]),
		.low = htree_low(path, depth) & ~1u,
		.high = (uint32_t)HTREE_HASH_LAST};
	uint32_t next;

	if (htree_next_low(path, depth, &next)) {
		leaf.continues = next & 1;
		leaf.high = leaf.continues ? next & ~1u : MAX(next, 2u) - 2;
	}
	leaf.high = MAX(leaf.high, leaf.low);
	return leaf;
}

/* Notes the leaves of the last index block on the way; one that was noted before is damage. */
static enum err htree_note_leaves(struct htree_path *path, uint8_t *seen)
{
	struct htree_frame *last = &path->frame[path->levels - 1];
	enum err e = OK;

	for (last->at = 0; !e && last->at < last->count; last->at++) {
		lblk_t block = htree_entry_block(last);

		e = htree_check_leaf(path);
		if (!e && seen[block / 8] & 1u << block % 8)
			e = htree_damage(path->dir, block, "two entries point at it");
		if (!e)
			seen[block / 8] |= (uint8_t)(1u << block % 8);
	}
	last->at = last->count - 1;
	return e;
}

enum err htree_check(struct ext4_inode *dir)
{
	uint8_t *seen = NULL;
	struct htree_path path;
	bool end = false;
	enum err e = htree_open(dir, &path);

	if (e)
		return e;
	seen = calloc(1, ext4_dir_blocks(dir) / 8 + 1);
	e = seen ? htree_seek(&path, 0) : ERR_NOMEM;
	while (!e && !end) {
		e = htree_note_leaves(&path, seen);
		if (!e)
			e = htree_next(&path, &end);
	}
	free(seen);
	htree_close(&path);
	return e;
}
