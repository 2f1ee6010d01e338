/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files about directories share: blocks of names, the hash index, hashes.
 *
 * All of them expect the directory's inode lock to be held, shared is enough. Threads: any.
 */
#ifndef CRYPTFS_EXT4_DIR_INT_H
#define CRYPTFS_EXT4_DIR_INT_H

#include "ext4_int.h"
#include "disk_dir.h"

/* --- hash.c ---------------------------------------------------------------------------------- */
struct ext4_hash {
	uint32_t major; /* even, and never the largest even number, which stands for the end */
	uint32_t minor; /* 0 with the legacy hash */
};
struct ext4_hash ext4_hash_name(
	enum ext4_hash_version version, const uint32_t seed[4], const char *name, size_t len);
/* The version that names in directories of fs are hashed with when the index says `version`. */
enum ext4_hash_version ext4_hash_resolve(const struct ext4 *fs, uint8_t version);

/* --- dir.c ----------------------------------------------------------------------------------- */
/* A verified chain of entries: a block's, or a part of inline data. */
struct ext4_dir_chunk {
	const uint8_t *bytes;
	size_t len;
};

static inline uint32_t ext4_dirent_rec_len(const struct ext4 *fs, const struct ext4_disk_dirent *d)
{
	uint32_t raw = le16_get(d->rec_len);

	if (fs->block_bytes <= UINT16_MAX)
		return raw;
	if (raw == 0 || raw == UINT16_MAX)
		return fs->block_bytes;
	return (raw & ~3u) | (raw & 3) << 16;
}
static inline const struct ext4_disk_dirent *ext4_dirent_at(struct ext4_dir_chunk c, size_t offset)
{
	return (const struct ext4_disk_dirent *)(const void *)(c.bytes + offset);
}
/* Loop over a verified chain; d is the entry, at its offset. */
#define ext4_dirent_for_each(fs, chunk, d, at)                            \
	for (size_t at = 0; at < (chunk).len;                             \
		at += ext4_dirent_rec_len(fs, ext4_dirent_at(chunk, at))) \
		for (const struct ext4_disk_dirent *d = ext4_dirent_at(chunk, at); d; d = NULL)

/* "." or ".." */
static inline bool ext4_dirent_is_dot(const struct ext4_disk_dirent *d, size_t dots)
{
	return d->name_len == dots && memcmp(d->name, "..", dots) == 0;
}

/* Verifies a chain of entries: ERR_CORRUPT. `block` is for the message. */
enum err ext4_dir_check_chunk(
	const struct ext4_inode *dir, struct ext4_dir_chunk chunk, lblk_t block) must_check;
/* Whole blocks of the directory, by its size. */
lblk_t ext4_dir_blocks(const struct ext4_inode *dir);
/* The directory uses its hash index (the flag, on a file system with the feature). */
bool ext4_dir_is_indexed(const struct ext4_inode *dir);
/*
 * Pins a block whose entries and checksum are verified; an index block passes, as its index hides
 * in what looks unused. ERR_CORRUPT, ERR_CHECKSUM.
 */
enum err ext4_dir_block(struct ext4_inode *dir, lblk_t block, struct cache_block **out) must_check;
static inline struct ext4_dir_chunk ext4_dir_block_chunk(
	const struct ext4_inode *dir, const struct cache_block *b)
{
	return (struct ext4_dir_chunk){b->data, dir->fs->block_bytes};
}
/* Has the blocks around `block` read in few requests; *window says which were last. */
void ext4_dir_prefetch(struct ext4_inode *dir, lblk_t block, lblk_t *window);
#define EXT4_DIR_NO_WINDOW ((lblk_t)UINT32_MAX)
/* Looks a name up in a chain. */
bool ext4_dir_find(const struct ext4 *fs, struct ext4_dir_chunk chunk, const char *name, size_t len,
	inum_t *out);
/* Gives one entry to the reader; false when the reader has no room. */
bool ext4_dir_emit(const struct ext4 *fs, const struct ext4_disk_dirent *d, uint64_t cookie,
	ext4_readdir_fn *emit, void *context);

/* --- htree.c --------------------------------------------------------------------------------- */
enum { HTREE_LEVELS_MAX = 3 };

struct htree_frame {
	struct cache_block *block;
	const struct ext4_dx_entry *entry; /* [count]; the first one's hash is not a hash */
	unsigned count, at;
};
/* A way from the root to a leaf. Close it in any case once it was opened. */
struct htree_path {
	struct ext4_inode *dir;
	enum ext4_hash_version version;
	unsigned levels; /* index blocks on the way, 1 to HTREE_LEVELS_MAX */
	lblk_t leaves;   /* steps made with htree_next */
	struct htree_frame frame[HTREE_LEVELS_MAX];
};
/* A leaf's place: the hashes that belong in it. */
struct htree_leaf {
	lblk_t block;
	uint32_t low, high; /* even; both inclusive */
	bool continues;     /* the next leaf may begin with `high` too */
};

/*
 * Every function here returns ERR_EXT4_INDEX for an index that makes no sense, in which case the
 * names can still be found by reading all blocks.
 */
enum err htree_open(struct ext4_inode *dir, struct htree_path *out) must_check;
void htree_close(struct htree_path *path);
/* Goes to the first leaf that may hold the hash. */
enum err htree_seek(struct htree_path *path, uint32_t hash) must_check;
/* Goes to the next leaf; *end when there is none. */
enum err htree_next(struct htree_path *path, bool *end) must_check;
struct htree_leaf htree_leaf(const struct htree_path *path);
/* Reads every index block: all in order, and every leaf a block of its own. ERR_NOMEM. */
enum err htree_check(struct ext4_inode *dir) must_check;
/* Checksum of a block that starts like a root or a node; true when there is none to check. */
bool htree_csum_valid(const struct ext4_inode *dir, const uint8_t *bytes);

/* --- hashdir.c ------------------------------------------------------------------------------- */
/* Reads the directory in the order of its names' hashes: indexed, of one block, or inline. */
enum err hashdir_read(struct ext4_inode *dir, uint64_t cookie, ext4_readdir_fn *emit, void *context)
	must_check;
/* The first cookie that hashdir_read never gives; there are 2^32 from here to the largest. */
#define HASHDIR_COOKIE_END ((uint64_t)0x7fffffff << 32)

/* --- inline.c -------------------------------------------------------------------------------- */
enum { EXT4_INLINE_CHUNKS = 2 };
struct ext4_inline_dir {
	inum_t parent;
	struct ext4_dir_chunk chunk[EXT4_INLINE_CHUNKS]; /* verified; the second may be empty */
};
enum err ext4_inline_dir(struct ext4_inode *dir, struct ext4_inline_dir *out) must_check;

#endif
