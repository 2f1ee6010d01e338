/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dir: directories as chains of entries in blocks: verification, search, listing by offset.
 *
 * A block's whole chain is verified before any entry of it is used, and the cache remembers it, so
 * that loops over a verified chain need no checks. An entry's cookie in a listing by offset is the
 * directory's offset just behind the entry; a listing goes on at the first entry that starts at
 * or behind it, found from the start of the block, so that entries may have been removed or
 * merged since.
 *
 * Threads: any; the directory's inode lock is held shared by everything but the door's functions,
 * which take it.
 *
 * Source: Documentation/filesystems/ext4/directory.rst. What the hash index adds stands in
 * htree.c, listing in hash order in hashdir.c.
 */
#include "dir_int.h"

#include <dirent.h>
#include <sys/stat.h>

enum {
	DIR_WINDOW_BYTES = 128 << 10,
};

static const char *dirent_fault(
	const struct ext4 *fs, const struct ext4_disk_dirent *d, size_t left)
{
	uint32_t rec_len = ext4_dirent_rec_len(fs, d);

	if (rec_len < EXT4_DIRENT_BYTES_MIN)
		return "an entry is too short";
	if (rec_len % 4)
		return "an entry's length is not a multiple of 4";
	if (rec_len > left)
		return "an entry crosses the block's end";
	if (rec_len != left && left - rec_len < EXT4_DIRENT_BYTES_MIN)
		return "an entry ends too close to the block's end";
	if (sizeof(*d) + d->name_len > rec_len)
		return "a name is longer than its entry";
	if (le32_get(d->inode) == 0)
		return NULL;
	if (le32_get(d->inode) > fs->inodes)
		return "an entry's inode number is out of range";
	if (d->name_len == 0)
		return "an entry has no name";
	if (memchr(d->name, '/', d->name_len) || memchr(d->name, 0, d->name_len))
		return "a name holds a slash or a NUL";
	return NULL;
}

enum err ext4_dir_check_chunk(
	const struct ext4_inode *dir, struct ext4_dir_chunk chunk, lblk_t block)
{
	size_t at = 0;

	while (at < chunk.len) {
		const struct ext4_disk_dirent *d = ext4_dirent_at(chunk, at);
		const char *fault = chunk.len - at < EXT4_DIRENT_BYTES_MIN
					    ? "no room for an entry at the end"
					    : dirent_fault(dir->fs, d, chunk.len - at);

		if (fault)
			return ext4_corrupt(dir->fs, dir->inum,
				"directory block %u, offset %zu: %s", block, at, fault);
		at += ext4_dirent_rec_len(dir->fs, d);
	}
	return OK;
}

lblk_t ext4_dir_blocks(const struct ext4_inode *dir)
{
	return (lblk_t)MIN(dir->attr.size_bytes >> dir->fs->block_bits, (uint64_t)EXT4_LBLK_END);
}

bool ext4_dir_is_indexed(const struct ext4_inode *dir)
{
	return dir->attr.flags & EXT4_INDEX_FL && ext4_has_compat(dir->fs, EXT4_COMPAT_DIR_INDEX);
}

static bool dir_leaf_csum_valid(const struct ext4_inode *dir, const uint8_t *bytes)
{
	const size_t at = dir->fs->block_bytes - sizeof(struct ext4_dir_tail);
	const struct ext4_dir_tail *tail = (const void *)(bytes + at);

	if (le32_get(tail->det_reserved_zero1) != 0 ||
		le16_get(tail->det_rec_len) != sizeof(*tail) || tail->det_reserved_zero2 != 0 ||
		tail->det_reserved_ft != EXT4_DIR_TAIL_TYPE)
		return false;
	return le32_get(tail->det_checksum) == crc32c(dir->csum_seed, bytes, at);
}

/* With checksums every block of names ends in a tail, so only an index block has one long entry. */
static bool dir_block_csum_valid(
	const struct ext4_inode *dir, lblk_t block, const struct cache_block *b)
{
	const struct ext4_disk_dirent *first = (const void *)b->data;

	if (!dir->fs->csum)
		return true;
	if (dir->attr.flags & EXT4_INDEX_FL &&
		(block == 0 || ext4_dirent_rec_len(dir->fs, first) == dir->fs->block_bytes))
		return htree_csum_valid(dir, b->data);
	return dir_leaf_csum_valid(dir, b->data);
}

/* An index node is one unused entry with a header of 8 bytes, which a chain's check takes. */
enum err ext4_dir_block(struct ext4_inode *dir, lblk_t block, struct cache_block **out)
{
	struct cache_block *b = NULL;
	uint32_t kind;
	enum err e;

	if (block >= ext4_dir_blocks(dir))
		return ext4_corrupt(
			dir->fs, dir->inum, "directory block %u is past its end", block);
	e = ext4_map_block(dir, block, &b);
	if (e)
		return e;
	kind = atomic_load_explicit(&b->verified, memory_order_relaxed);
	if (kind != EXT4_KIND_DIR_LEAF && kind != EXT4_KIND_DIR_INDEX) {
		if (!dir_block_csum_valid(dir, block, b))
			e = err_set_detail(ERR_CHECKSUM,
				"inode %u: the checksum of directory block %u does not match; run "
				"fsck.cryptfs",
				dir->inum, block);
		if (!e)
			e = ext4_dir_check_chunk(dir, ext4_dir_block_chunk(dir, b), block);
		if (e) {
			cache_put(dir->fs->cache, b);
			return e;
		}
		atomic_store_explicit(&b->verified, EXT4_KIND_DIR_LEAF, memory_order_relaxed);
	}
	*out = b;
	return OK;
}

void ext4_dir_prefetch(struct ext4_inode *dir, lblk_t block, lblk_t *window)
{
	lblk_t window_blocks = DIR_WINDOW_BYTES >> dir->fs->block_bits;
	lblk_t end, at = block - block % window_blocks;
	struct ext4_run run;

	if (at == *window || ext4_dir_blocks(dir) < 2)
		return;
	*window = at;
	end = MIN(at + window_blocks, ext4_dir_blocks(dir));
	while (at < end) {
		/* A hint: whoever needs the block meets the error. */
		if (ext4_map(dir, at, end - at, &run)) {
			err_clear_detail();
			return;
		}
		if (run.physical && !run.unwritten)
			cache_prefetch(dir->fs->cache, run.physical, run.count);
		at += run.count;
	}
}

bool ext4_dir_find(const struct ext4 *fs, struct ext4_dir_chunk chunk, const char *name, size_t len,
	inum_t *out)
{
	ext4_dirent_for_each(fs, chunk, d, at)
	{
		if (d->name_len != len || le32_get(d->inode) == 0 ||
			memcmp(d->name, name, len) != 0)
			continue;
		*out = le32_get(d->inode);
		return true;
	}
	return false;
}

bool ext4_dir_emit(const struct ext4 *fs, const struct ext4_disk_dirent *d, uint64_t cookie,
	ext4_readdir_fn *emit, void *context)
{
	static const uint8_t type_of[EXT4_FT_SYMLINK + 1] = {
		DT_UNKNOWN, DT_REG, DT_DIR, DT_CHR, DT_BLK, DT_FIFO, DT_SOCK, DT_LNK};
	struct ext4_dirent entry = {.name = d->name,
		.len = d->name_len,
		.inum = le32_get(d->inode),
		.type = DT_UNKNOWN,
		.cookie = cookie};

	if (ext4_has_incompat(fs, EXT4_INCOMPAT_FILETYPE) && d->file_type <= EXT4_FT_SYMLINK)
		entry.type = type_of[d->file_type];
	return emit(context, &entry);
}

/* Lists by offset. `base` and `unit` make cookies of offsets: base + offset / unit. */
static enum err dir_read_linear(struct ext4_inode *dir, uint64_t start, uint64_t base,
	unsigned unit, ext4_readdir_fn *emit, void *context)
{
	const struct ext4 *fs = dir->fs;
	lblk_t blocks = ext4_dir_blocks(dir), window = EXT4_DIR_NO_WINDOW;
	uint64_t first = start >> fs->block_bits;
	struct cache_block *b;
	bool taken = true;

	for (lblk_t block = (lblk_t)MIN(first, (uint64_t)blocks); block < blocks && taken;
		block++) {
		enum err e;

		ext4_dir_prefetch(dir, block, &window);
		e = ext4_dir_block(dir, block, &b);
		if (e)
			return e;
		struct ext4_dir_chunk chunk = ext4_dir_block_chunk(dir, b);
		ext4_dirent_for_each(fs, chunk, d, at)
		{
			uint64_t offset = ((uint64_t)block << fs->block_bits) + at;
			uint64_t behind = offset + ext4_dirent_rec_len(fs, d);

			if (!taken || offset < start || le32_get(d->inode) == 0)
				continue;
			taken = ext4_dir_emit(fs, d, base + behind / unit, emit, context);
		}
		cache_put(fs->cache, b);
	}
	return OK;
}

/*
 * Lists by offset what has a broken index. The cookies lie above those of a listing in hash order:
 * 2^32 of them, so they count entries' offsets in units of 4.
 */
static enum err dir_read_without_index(
	struct ext4_inode *dir, uint64_t cookie, ext4_readdir_fn *emit, void *context)
{
	const unsigned unit = 4;
	uint64_t start = cookie ? (cookie - HASHDIR_COOKIE_END) * unit : 0;

	if (dir->attr.size_bytes / unit > UINT32_MAX)
		return ext4_corrupt(dir->fs, dir->inum,
			"the index is damaged, and it is too large to do without");
	return dir_read_linear(dir, start, HASHDIR_COOKIE_END, unit, emit, context);
}

/*
 * Of a directory of one block the order is by hash already, because it may get an index between
 * two calls; one of more blocks without an index never gets one.
 */
static enum err dir_read(
	struct ext4_inode *dir, uint64_t cookie, ext4_readdir_fn *emit, void *context)
{
	enum err e;

	if (dir->attr.flags & EXT4_INLINE_DATA_FL)
		return hashdir_read(dir, cookie, emit, context);
	if (ext4_dir_is_indexed(dir)) {
		if (cookie >= HASHDIR_COOKIE_END)
			return dir_read_without_index(dir, cookie, emit, context);
		if (cookie == 0) {
			e = htree_check(dir);
			if (e == ERR_EXT4_INDEX)
				return dir_read_without_index(dir, cookie, emit, context);
			if (e)
				return e;
		}
		return hashdir_read(dir, cookie, emit, context);
	}
	if (ext4_has_compat(dir->fs, EXT4_COMPAT_DIR_INDEX) && ext4_dir_blocks(dir) == 1)
		return hashdir_read(dir, cookie, emit, context);
	return dir_read_linear(dir, cookie, 0, 1, emit, context);
}

enum err ext4_readdir(struct ext4_inode *dir, uint64_t cookie, ext4_readdir_fn *emit, void *context)
{
	enum err e;

	inode_lock_shared(&dir->lock);
	e = S_ISDIR(dir->attr.mode) ? dir_read(dir, cookie, emit, context) : ERR_NOTDIR;
	inode_unlock_shared(&dir->lock);
	return e;
}
