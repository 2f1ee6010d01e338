/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * xattr: extended attributes by their full names.
 *
 * The disk cuts a known prefix off each name and stores its number. What has no number that
 * programs may use (system.data, Lustre's, old kinds) is neither listed nor found. An attribute in
 * the inode comes before one of the same name in the block, and in the list too, as in the kernel.
 *
 * A value's hash is verified where there is one: blocks always have it, inodes mostly do not.
 *
 * Threads: any; the door takes the inode's lock, shared. A value in an inode of its own is read
 * without it, as two inodes are not locked at once.
 *
 * Source: Documentation/filesystems/ext4/attributes.rst.
 */
#include "xattr_int.h"

#include <stdlib.h>

enum { XATTR_AREAS = 2 };

struct xattr_kind {
	uint8_t index;
	bool whole; /* the prefix is the name */
	bool acl;
	const char *prefix;
};
static const struct xattr_kind xattr_kinds[] = {
	{.index = EXT4_XATTR_INDEX_USER, .prefix = "user."},
	{EXT4_XATTR_INDEX_ACL_ACCESS, true, true, "system.posix_acl_access"},
	{EXT4_XATTR_INDEX_ACL_DEFAULT, true, true, "system.posix_acl_default"},
	{.index = EXT4_XATTR_INDEX_TRUSTED, .prefix = "trusted."},
	{.index = EXT4_XATTR_INDEX_SECURITY, .prefix = "security."},
	{.index = EXT4_XATTR_INDEX_HURD, .prefix = "gnu."},
};

static const struct xattr_kind *xattr_kind_of_entry(const struct ext4_xattr_entry *entry)
{
	for (size_t i = 0; i < ARRAY_SIZE(xattr_kinds); i++)
		if (xattr_kinds[i].index == entry->e_name_index &&
			xattr_kinds[i].whole == (entry->e_name_len == 0))
			return &xattr_kinds[i];
	return NULL;
}

static const struct xattr_kind *xattr_kind_of_name(const char *name, const char **suffix)
{
	for (size_t i = 0; i < ARRAY_SIZE(xattr_kinds); i++) {
		size_t len = strlen(xattr_kinds[i].prefix);

		if (strncmp(name, xattr_kinds[i].prefix, len) != 0 ||
			(name[len] == 0) != xattr_kinds[i].whole)
			continue;
		*suffix = name + len;
		return &xattr_kinds[i];
	}
	return NULL;
}

static enum err xattr_open(const struct ext4_inode *inode, int which, struct xattr_area *out)
{
	return which == 0 ? xattr_open_ibody(inode, out) : xattr_open_block(inode, out);
}

/* --- get ------------------------------------------------------------------------------------- */

/* Hands out a value, in the form that programs know. */
static enum err xattr_give(const struct ext4_inode *inode, const struct xattr_kind *kind,
	const uint8_t *value, size_t size, void *buf, size_t room, size_t *len)
{
	if (kind->acl)
		return ext4_acl_from_disk(inode, value, size, buf, room, len);
	if (room && size > room)
		return ERR_RANGE;
	if (room && size)
		memcpy(buf, value, size);
	*len = size;
	return OK;
}

/* Gives a value that is here; notes where it is otherwise. */
static enum err xattr_get_entry(const struct ext4_inode *inode, const struct xattr_area *area,
	const struct ext4_xattr_entry *entry, const struct xattr_kind *kind, void *buf, size_t room,
	size_t *len, struct xattr_remote *remote)
{
	size_t size = le32_get(entry->e_value_size);
	const uint8_t *value = xattr_value(area, entry);

	if (le32_get(entry->e_value_inum)) {
		remote->inum = le32_get(entry->e_value_inum);
		remote->size_bytes = (uint32_t)size;
		memcpy(remote->entry, entry, sizeof(*entry) + entry->e_name_len);
		return OK;
	}
	if (le32_get(entry->e_hash) &&
		!xattr_hash_valid(entry, value, (size + EXT4_XATTR_ROUND - 1) / EXT4_XATTR_ROUND))
		return err_set_detail(ERR_CHECKSUM,
			"inode %u: an attribute's hash does not match; run fsck.cryptfs",
			inode->inum);
	return xattr_give(inode, kind, value, size, buf, room, len);
}

static enum err xattr_get_locked(const struct ext4_inode *inode, const struct xattr_kind *kind,
	const char *suffix, void *buf, size_t room, size_t *len, struct xattr_remote *remote)
{
	for (int i = 0; i < XATTR_AREAS; i++) {
		const struct ext4_xattr_entry *entry;
		struct xattr_area area = {0};
		enum err e = xattr_open(inode, i, &area);

		if (e == ERR_NODATA)
			continue;
		if (e)
			return e;
		entry = xattr_find(&area, kind->index, suffix, strlen(suffix));
		if (entry)
			e = xattr_get_entry(inode, &area, entry, kind, buf, room, len, remote);
		xattr_close(inode, &area);
		if (entry)
			return e;
	}
	return ERR_NODATA;
}

static enum err xattr_get_remote(struct ext4_inode *inode, const struct xattr_kind *kind,
	const struct xattr_remote *remote, void *buf, size_t room, size_t *len)
{
	uint8_t *value;
	enum err e;

	if (!kind->acl && room == 0) {
		*len = remote->size_bytes;
		return OK;
	}
	if (!kind->acl && remote->size_bytes > room)
		return ERR_RANGE;
	value = malloc(MAX(remote->size_bytes, 1u));
	if (!value)
		return ERR_NOMEM;
	e = xattr_remote_read(inode, remote, value);
	if (!e)
		e = xattr_give(inode, kind, value, remote->size_bytes, buf, room, len);
	free(value);
	return e;
}

enum err ext4_xattr_get(
	struct ext4_inode *inode, const char *name, void *buf, size_t room, size_t *len)
{
	const struct xattr_kind *kind;
	const char *suffix = NULL;
	struct xattr_remote remote = {0};
	enum err e;

	kind = xattr_kind_of_name(name, &suffix);
	if (!kind)
		return ERR_OPNOTSUPP;
	if (strlen(suffix) > EXT4_XATTR_NAME_BYTES_MAX)
		return ERR_RANGE;
	inode_lock_shared(&inode->lock);
	e = xattr_get_locked(inode, kind, suffix, buf, room, len, &remote);
	inode_unlock_shared(&inode->lock);
	if (!e && remote.inum)
		e = xattr_get_remote(inode, kind, &remote, buf, room, len);
	return e;
}

/* --- list ------------------------------------------------------------------------------------ */

static void xattr_list_area(
	const struct xattr_area *area, bool trusted, char *buf, size_t room, size_t *used)
{
	const struct ext4_xattr_entry *entry;

	for (size_t at = area->first; (entry = xattr_entry_at(area, at));
		at += xattr_entry_bytes(entry)) {
		const struct xattr_kind *kind = xattr_kind_of_entry(entry);
		size_t prefix, need;

		if (!kind || (kind->index == EXT4_XATTR_INDEX_TRUSTED && !trusted))
			continue;
		prefix = strlen(kind->prefix);
		need = prefix + entry->e_name_len + 1;
		if (*used <= room && need <= room - *used) {
			memcpy(buf + *used, kind->prefix, prefix);
			memcpy(buf + *used + prefix, entry->e_name, entry->e_name_len);
			buf[*used + need - 1] = 0;
		}
		*used += need;
	}
}

static enum err xattr_list_locked(
	const struct ext4_inode *inode, bool trusted, char *buf, size_t room, size_t *used)
{
	for (int i = 0; i < XATTR_AREAS; i++) {
		struct xattr_area area = {0};
		enum err e = xattr_open(inode, i, &area);

		if (e == ERR_NODATA)
			continue;
		if (e)
			return e;
		xattr_list_area(&area, trusted, buf, room, used);
		xattr_close(inode, &area);
	}
	return OK;
}

enum err ext4_xattr_list(
	struct ext4_inode *inode, bool trusted, char *buf, size_t room, size_t *len)
{
	size_t used = 0;
	enum err e;

	inode_lock_shared(&inode->lock);
	e = xattr_list_locked(inode, trusted, buf, room, &used);
	inode_unlock_shared(&inode->lock);
	if (!e && room && used > room)
		e = ERR_RANGE;
	if (!e)
		*len = used;
	return e;
}
