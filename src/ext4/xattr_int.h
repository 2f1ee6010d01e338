/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files about extended attributes share.
 */
#ifndef CRYPTFS_EXT4_XATTR_INT_H
#define CRYPTFS_EXT4_XATTR_INT_H

#include "ext4_int.h"
#include "disk_dir.h"

/* --- xattr_area.c ---------------------------------------------------------------------------- */
/* A place that holds attributes: the rest of an inode, or a block. Verified when it was opened. */
struct xattr_area {
	const uint8_t *base;       /* value offsets count from here */
	size_t len;                /* bytes from base to the area's end */
	size_t first;              /* the first entry's offset */
	struct cache_block *block; /* pinned; NULL in an inode */
};

/* Both: ERR_NODATA when there is none; ERR_CORRUPT, ERR_CHECKSUM. The inode lock is held, shared.
 */
enum err xattr_open_ibody(const struct ext4_inode *inode, struct xattr_area *out) must_check;
enum err xattr_open_block(const struct ext4_inode *inode, struct xattr_area *out) must_check;
void xattr_close(const struct ext4_inode *inode, struct xattr_area *area); /* empty is fine */

/* The entry at an offset of a verified area; NULL at the end. */
const struct ext4_xattr_entry *xattr_entry_at(const struct xattr_area *area, size_t at);
static inline size_t xattr_entry_bytes(const struct ext4_xattr_entry *entry)
{
	return (sizeof(*entry) + entry->e_name_len + EXT4_XATTR_ROUND - 1) &
	       ~(size_t)(EXT4_XATTR_ROUND - 1);
}
/* NULL when there is none of that name. */
const struct ext4_xattr_entry *xattr_find(
	const struct xattr_area *area, uint8_t index, const char *name, size_t len);
static inline const uint8_t *xattr_value(
	const struct xattr_area *area, const struct ext4_xattr_entry *entry)
{
	return le32_get(entry->e_value_size) ? area->base + le16_get(entry->e_value_offs)
					     : area->base;
}
/* True when e_hash fits the name and the value's `count` words. */
bool xattr_hash_valid(const struct ext4_xattr_entry *entry, const uint8_t *words, size_t count);

/* Sets the block's checksum where the file system has them; xattr_lock is held. */
void xattr_block_seal(const struct ext4 *fs, struct cache_block *b);

/* --- xattr_inode.c --------------------------------------------------------------------------- */
/* What an entry says of a value that has an inode of its own. */
struct xattr_remote {
	inum_t inum;
	uint32_t size_bytes;
	uint8_t entry[sizeof(struct ext4_xattr_entry) + EXT4_XATTR_NAME_BYTES_MAX]; /* a copy */
};
/* Reads and verifies it into buf. The caller holds no inode lock. */
enum err xattr_remote_read(struct ext4_inode *inode, const struct xattr_remote *remote, void *buf)
	must_check;

/* --- acl.c ----------------------------------------------------------------------------------- */
/* As ext4_xattr_get: with room 0 only *out_len is set. ERR_NODATA for an empty list. */
enum err ext4_acl_from_disk(const struct ext4_inode *inode, const uint8_t *disk, size_t len,
	void *buf, size_t room, size_t *out_len) must_check;

#endif
