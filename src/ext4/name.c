/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * name: from a name to an inode number.
 *
 * An indexed directory is searched through its index; where the index is damaged, and in all
 * others, block by block. Such damage is logged once a mount, as the names are still found. A
 * damaged block on the way is an error, not a missing name.
 *
 * Threads: any; the door takes the directory's inode lock, shared.
 */
#include "dir_int.h"

#include <sys/stat.h>

static bool name_is_dots(const char *name, size_t len)
{
	return name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'));
}

static enum err lookup_block(
	struct ext4_inode *dir, lblk_t block, const char *name, size_t len, inum_t *out)
{
	struct cache_block *b;
	enum err e = ext4_dir_block(dir, block, &b);

	if (e)
		return e;
	if (!ext4_dir_find(dir->fs, ext4_dir_block_chunk(dir, b), name, len, out))
		e = ERR_NOENT;
	cache_put(dir->fs->cache, b);
	return e;
}

static enum err lookup_indexed(struct ext4_inode *dir, const char *name, size_t len, inum_t *out)
{
	struct htree_path path;
	uint32_t hash;
	bool end = false;
	enum err e = htree_open(dir, &path);

	if (e)
		return e;
	hash = ext4_hash_name(path.version, dir->fs->hash_seed, name, len).major;
	e = htree_seek(&path, hash);
	while (!e && !end) {
		struct htree_leaf leaf = htree_leaf(&path);

		e = lookup_block(dir, leaf.block, name, len, out);
		if (e != ERR_NOENT || !leaf.continues || leaf.high != hash)
			break;
		e = htree_next(&path, &end);
		if (!e && end)
			e = ERR_NOENT;
	}
	htree_close(&path);
	return e;
}

static enum err lookup_linear(struct ext4_inode *dir, const char *name, size_t len, inum_t *out)
{
	lblk_t window = EXT4_DIR_NO_WINDOW, blocks = ext4_dir_blocks(dir);
	enum err e = ERR_NOENT;

	for (lblk_t block = 0; block < blocks && e == ERR_NOENT; block++) {
		ext4_dir_prefetch(dir, block, &window);
		e = lookup_block(dir, block, name, len, out);
	}
	return e;
}

static enum err lookup_inline(struct ext4_inode *dir, const char *name, size_t len, inum_t *out)
{
	struct ext4_inline_dir in;
	enum err e = ext4_inline_dir(dir, &in);

	if (e)
		return e;
	if (name_is_dots(name, len)) {
		*out = len == 1 ? dir->inum : in.parent;
		return OK;
	}
	for (int i = 0; i < EXT4_INLINE_CHUNKS; i++)
		if (ext4_dir_find(dir->fs, in.chunk[i], name, len, out))
			return OK;
	return ERR_NOENT;
}

static enum err lookup_any(struct ext4_inode *dir, const char *name, size_t len, inum_t *out)
{
	enum err e;

	if (dir->attr.flags & EXT4_INLINE_DATA_FL)
		return lookup_inline(dir, name, len, out);
	if (ext4_dir_blocks(dir) == 0)
		return ext4_corrupt(dir->fs, dir->inum, "a directory without blocks");
	if (name_is_dots(name, len))
		return lookup_block(dir, 0, name, len, out);
	if (!ext4_dir_is_indexed(dir))
		return lookup_linear(dir, name, len, out);
	e = lookup_indexed(dir, name, len, out);
	if (e != ERR_EXT4_INDEX)
		return e;
	if (!atomic_exchange_explicit(&dir->fs->index_warned, true, memory_order_relaxed))
		log_warn("%s; its names are searched without the index", err_detail());
	err_clear_detail();
	return lookup_linear(dir, name, len, out);
}

enum err ext4_lookup(struct ext4_inode *dir, const char *name, size_t len, inum_t *out)
{
	inum_t found = 0;
	enum err e;

	if (!S_ISDIR(dir->attr.mode))
		return ERR_NOTDIR;
	if (len > EXT4_NAME_BYTES_MAX)
		return ERR_NAMETOOLONG;
	if (len == 0)
		return ERR_NOENT;
	inode_lock_shared(&dir->lock);
	e = lookup_any(dir, name, len, &found);
	inode_unlock_shared(&dir->lock);
	if (!e)
		*out = found;
	return e;
}
