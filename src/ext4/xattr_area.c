/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * xattr_area: where attributes stand: behind the fields of an inode, and in a block.
 *
 *     header | entry | entry | 4 zero bytes | ... free ... | value | value
 *
 * An area is verified as a whole before an entry of it is used: the entries end inside, every
 * value that is here lies behind them and inside. So whoever walks a verified area needs no checks.
 * A block's verification is remembered by the cache.
 *
 * Threads: any; the inode's lock is held, shared is enough.
 *
 * Source: Documentation/filesystems/ext4/attributes.rst, checksums.rst.
 */
#include "xattr_int.h"

const struct ext4_xattr_entry *xattr_entry_at(const struct xattr_area *area, size_t at)
{
	const uint8_t zero[4] = {0};
	const uint8_t *p = area->base + at;

	return memcmp(p, zero, sizeof(zero)) ? (const void *)p : NULL;
}

static const char *xattr_entry_fault(const struct ext4_inode *inode, const struct xattr_area *area,
	size_t names_end, const struct ext4_xattr_entry *entry)
{
	const struct ext4 *fs = inode->fs;
	uint32_t inum = le32_get(entry->e_value_inum), size = le32_get(entry->e_value_size);
	size_t offset = le16_get(entry->e_value_offs), padded;

	if (memchr(entry->e_name, 0, entry->e_name_len))
		return "a name holds a NUL";
	if (size > EXT4_XATTR_VALUE_BYTES_MAX)
		return "a value is too large";
	if (inum && !ext4_has_incompat(fs, EXT4_INCOMPAT_EA_INODE))
		return "a value in an inode of its own without the feature";
	if (inum && (inum > fs->inodes || inum < fs->first_inum || inum == inode->inum))
		return "a value's inode number is out of range";
	if (inum || size == 0)
		return NULL;
	padded = (size + EXT4_XATTR_ROUND - 1) & ~(size_t)(EXT4_XATTR_ROUND - 1);
	if (offset > area->len || padded > area->len - offset)
		return "a value crosses the end";
	if (offset < names_end)
		return "a value overlaps the names";
	return NULL;
}

static const char *xattr_area_fault(const struct ext4_inode *inode, const struct xattr_area *area)
{
	const struct ext4_xattr_entry *entry;
	size_t at = area->first, end;

	for (;;) {
		if (at > area->len || area->len - at < EXT4_XATTR_ROUND)
			return "the names have no end";
		entry = xattr_entry_at(area, at);
		if (!entry)
			break;
		if (area->len - at < sizeof(*entry) || area->len - at < xattr_entry_bytes(entry))
			return "a name crosses the end";
		at += xattr_entry_bytes(entry);
	}
	end = at + EXT4_XATTR_ROUND;
	for (at = area->first; (entry = xattr_entry_at(area, at)); at += xattr_entry_bytes(entry)) {
		const char *fault = xattr_entry_fault(inode, area, end, entry);

		if (fault)
			return fault;
	}
	return NULL;
}

enum err xattr_open_ibody(const struct ext4_inode *inode, struct xattr_area *out)
{
	const struct ext4_xattr_ibody_header *header;
	size_t at = EXT4_INODE_BYTES_OLD + inode->extra_bytes;
	struct xattr_area area = {0};
	const char *fault;

	if (inode->extra_bytes == 0 ||
		inode->fs->inode_bytes - at < sizeof(*header) + EXT4_XATTR_ROUND)
		return ERR_NODATA;
	header = (const void *)(inode->raw + at);
	if (le32_get(header->h_magic) != (uint32_t)EXT4_XATTR_MAGIC)
		return ERR_NODATA;
	area.base = inode->raw + at + sizeof(*header);
	area.len = inode->fs->inode_bytes - at - sizeof(*header);
	fault = xattr_area_fault(inode, &area);
	if (fault)
		return ext4_corrupt(inode->fs, inode->inum, "attributes in the inode: %s", fault);
	*out = area;
	return OK;
}

static uint32_t xattr_block_csum(const struct ext4 *fs, const struct cache_block *b)
{
	const size_t at = offsetof(struct ext4_xattr_header, h_checksum);
	const size_t behind = at + sizeof(le32);
	const le32 zero = le32_make(0);
	le64 number = le64_make(b->nr);
	uint32_t crc;

	crc = crc32c(fs->csum_seed, &number, sizeof(number));
	crc = crc32c(crc, b->data, at);
	crc = crc32c(crc, &zero, sizeof(zero));
	return crc32c(crc, b->data + behind, fs->block_bytes - behind);
}

static bool xattr_block_csum_valid(const struct ext4 *fs, const struct cache_block *b)
{
	const struct ext4_xattr_header *header = (const void *)b->data;

	return !fs->csum || le32_get(header->h_checksum) == xattr_block_csum(fs, b);
}

void xattr_block_seal(const struct ext4 *fs, struct cache_block *b)
{
	struct ext4_xattr_header *header = (void *)b->data;

	if (fs->csum)
		header->h_checksum = le32_make(xattr_block_csum(fs, b));
}

static enum err xattr_block_verify_locked(const struct ext4_inode *inode, struct cache_block *b,
	const struct xattr_area *area) REQUIRES(xattr_token);
static enum err xattr_block_verify_locked(
	const struct ext4_inode *inode, struct cache_block *b, const struct xattr_area *area)
{
	const struct ext4_xattr_header *header = (const void *)b->data;
	const char *fault = NULL;

	if (le32_get(header->h_magic) != (uint32_t)EXT4_XATTR_MAGIC)
		fault = "wrong magic number";
	else if (le32_get(header->h_blocks) != 1)
		fault = "more than one block";
	else if (!xattr_block_csum_valid(inode->fs, b))
		return err_set_detail(ERR_CHECKSUM,
			"inode %u: the checksum of attribute block %llu does not match; run "
			"fsck.cryptfs",
			inode->inum, (unsigned long long)b->nr);
	else
		fault = xattr_area_fault(inode, area);
	if (fault)
		return ext4_corrupt(inode->fs, inode->inum, "attribute block %llu: %s",
			(unsigned long long)b->nr, fault);
	atomic_store_explicit(&b->verified, EXT4_KIND_XATTR, memory_order_relaxed);
	return OK;
}

/* Under the lock that keeps the reference count and the checksum together. */
static enum err xattr_block_verify(
	const struct ext4_inode *inode, struct cache_block *b, const struct xattr_area *area)
{
	struct ext4 *fs = inode->fs;
	enum err e;

	if (atomic_load_explicit(&b->verified, memory_order_relaxed) == EXT4_KIND_XATTR)
		return OK;
	xattr_lock(&fs->xattr_lock);
	e = xattr_block_verify_locked(inode, b, area);
	xattr_unlock(&fs->xattr_lock);
	return e;
}

enum err xattr_open_block(const struct ext4_inode *inode, struct xattr_area *out)
{
	const struct ext4_disk_inode *disk = ext4_inode_disk(inode);
	const struct ext4 *fs = inode->fs;
	fsblk_t nr = le32_get(disk->i_file_acl_lo);
	struct xattr_area area = {
		.len = fs->block_bytes, .first = sizeof(struct ext4_xattr_header)};
	enum err e;

	if (ext4_has_incompat(fs, EXT4_INCOMPAT_64BIT))
		nr |= (fsblk_t)le16_get(disk->i_file_acl_high) << 32;
	if (nr == 0)
		return ERR_NODATA;
	if (!ext4_blocks_valid(fs, nr, 1))
		return ext4_corrupt(
			fs, inode->inum, "its attribute block is %llu", (unsigned long long)nr);
	e = cache_get(fs->cache, nr, &area.block);
	if (e)
		return e;
	area.base = area.block->data;
	e = xattr_block_verify(inode, area.block, &area);
	if (e) {
		cache_put(fs->cache, area.block);
		return e;
	}
	*out = area;
	return OK;
}

void xattr_close(const struct ext4_inode *inode, struct xattr_area *area)
{
	cache_put(inode->fs->cache, area->block);
	*area = (struct xattr_area){0};
}

const struct ext4_xattr_entry *xattr_find(
	const struct xattr_area *area, uint8_t index, const char *name, size_t len)
{
	const struct ext4_xattr_entry *entry;

	for (size_t at = area->first; (entry = xattr_entry_at(area, at));
		at += xattr_entry_bytes(entry))
		if (entry->e_name_index == index && entry->e_name_len == len &&
			memcmp(entry->e_name, name, len) == 0)
			return entry;
	return NULL;
}

/* Names were hashed as signed bytes by mistake in some kernels, so both count. */
static uint32_t xattr_hash(
	const struct ext4_xattr_entry *entry, bool is_signed, const uint8_t *words, size_t count)
{
	uint32_t hash = 0;

	for (size_t i = 0; i < entry->e_name_len; i++) {
		uint32_t c = is_signed ? (uint32_t)(int32_t)(signed char)entry->e_name[i]
				       : (uint32_t)(unsigned char)entry->e_name[i];

		hash = (hash << 5 | hash >> 27) ^ c;
	}
	for (size_t i = 0; i < count; i++) {
		le32 word;

		memcpy(&word, words + i * sizeof(word), sizeof(word));
		hash = (hash << 16 | hash >> 16) ^ le32_get(word);
	}
	return hash;
}

bool xattr_hash_valid(const struct ext4_xattr_entry *entry, const uint8_t *words, size_t count)
{
	uint32_t have = le32_get(entry->e_hash);

	return have == xattr_hash(entry, false, words, count) ||
	       have == xattr_hash(entry, true, words, count);
}

enum err ext4_inline_tail(struct ext4_inode *inode, const uint8_t **bytes, size_t *len)
{
	const struct ext4_xattr_entry *entry;
	struct xattr_area area;
	enum err e = xattr_open_ibody(inode, &area);

	if (e)
		return e;
	entry = xattr_find(&area, EXT4_XATTR_INDEX_SYSTEM, "data", 4);
	if (!entry)
		return ERR_NODATA;
	if (le32_get(entry->e_value_inum))
		return ext4_corrupt(inode->fs, inode->inum, "its inline data is in another inode");
	*bytes = xattr_value(&area, entry);
	*len = le32_get(entry->e_value_size);
	return OK;
}
