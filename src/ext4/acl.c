/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * acl: access control lists from the disk's form to the one that programs and the kernel use.
 *
 * The disk leaves out the id where the tag says who is meant; the other form always has it. Both
 * are little-endian. A list is verified by POSIX.1e's rules: one owner, one group, one rest, named
 * entries in their places, and a mask when there are named ones.
 *
 * Pure function. Source: the kernel's fs/ext4/acl.h and include/uapi/linux/posix_acl_xattr.h.
 */
#include "xattr_int.h"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdlib.h>

struct acl_out_header {
	le32 version;
};
struct acl_out_entry {
	le16 tag, perm;
	le32 id;
};
static_assert(sizeof(struct acl_out_entry) == sizeof(struct posix_acl_xattr_entry), "ACL entry");

static bool acl_tag_is_named(unsigned tag)
{
	return tag == ACL_USER || tag == ACL_GROUP;
}

/*
 * What may follow: owner, users, group, groups, then mask and rest. Returns the state behind the
 * entry, 0 when it is out of place. States are the tags of what came last; 1 << 15 the start.
 */
enum { ACL_STATE_START = 1 << 15 };
static unsigned acl_step(unsigned state, unsigned tag, bool *needs_mask)
{
	switch (tag) {
	case ACL_USER_OBJ:
		return state == ACL_STATE_START ? tag : 0;
	case ACL_USER:
		*needs_mask = true;
		return state == ACL_USER_OBJ || state == ACL_USER ? tag : 0;
	case ACL_GROUP_OBJ:
		return state == ACL_USER_OBJ || state == ACL_USER ? tag : 0;
	case ACL_GROUP:
		*needs_mask = true;
		return state == ACL_GROUP_OBJ || state == ACL_GROUP ? tag : 0;
	case ACL_MASK:
		return state == ACL_GROUP_OBJ || state == ACL_GROUP ? tag : 0;
	case ACL_OTHER:
		if (state == ACL_MASK)
			return tag;
		return (state == ACL_GROUP_OBJ || state == ACL_GROUP) && !*needs_mask ? tag : 0;
	default:
		return 0;
	}
}

/* Reads one entry at *at; false when it is cut off or its permissions make no sense. */
static bool acl_read_entry(const uint8_t *disk, size_t len, size_t *at, struct acl_out_entry *out)
{
	struct ext4_acl_entry d = {.e_id = le32_make((uint32_t)ACL_UNDEFINED_ID)};
	size_t size = EXT4_ACL_ENTRY_BYTES_SHORT;

	if (len - *at < size)
		return false;
	memcpy(&d, disk + *at, size);
	if (acl_tag_is_named(le16_get(d.e_tag)))
		size = sizeof(d);
	if (len - *at < size || le16_get(d.e_perm) & ~(ACL_READ | ACL_WRITE | ACL_EXECUTE))
		return false;
	memcpy(&d, disk + *at, size);
	*at += size;
	*out = (struct acl_out_entry){d.e_tag, d.e_perm, d.e_id};
	return true;
}

enum err ext4_acl_from_disk(const struct ext4_inode *inode, const uint8_t *disk, size_t len,
	void *buf, size_t room, size_t *out_len)
{
	struct ext4_acl_header header;
	const struct acl_out_header out_header = {le32_make(POSIX_ACL_XATTR_VERSION)};
	size_t at = sizeof(header), out_at = sizeof(out_header);
	unsigned state = ACL_STATE_START;
	bool needs_mask = false;

	if (len < sizeof(header))
		return ext4_corrupt(inode->fs, inode->inum, "an access list is too short");
	memcpy(&header, disk, sizeof(header));
	if (le32_get(header.a_version) != EXT4_ACL_VERSION)
		return ext4_corrupt(inode->fs, inode->inum, "an access list of version %u",
			le32_get(header.a_version));
	if (len == sizeof(header))
		return ERR_NODATA;
	while (at < len) {
		struct acl_out_entry entry;

		if (!acl_read_entry(disk, len, &at, &entry))
			return ext4_corrupt(inode->fs, inode->inum, "a damaged access list");
		state = acl_step(state, le16_get(entry.tag), &needs_mask);
		if (!state)
			return ext4_corrupt(
				inode->fs, inode->inum, "an access list with entries out of place");
		if (room >= sizeof(entry) && out_at <= room - sizeof(entry))
			memcpy((uint8_t *)buf + out_at, &entry, sizeof(entry));
		out_at += sizeof(entry);
	}
	if (state != ACL_OTHER)
		return ext4_corrupt(inode->fs, inode->inum, "an access list that is not complete");
	if (room && out_at > room)
		return ERR_RANGE;
	if (room)
		memcpy(buf, &out_header, sizeof(out_header));
	*out_len = out_at;
	return OK;
}
