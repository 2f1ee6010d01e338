/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * READDIR and READDIRPLUS.
 *
 * ext4 holds the directory's lock while it hands out entries, and an entry's attributes need the
 * lock of another inode, so the entries are first collected and then answered. Nothing is kept
 * between two requests: the cookie says where to go on, which is why OPENDIR need not be answered.
 *
 * Threads: everything runs in the worker that has the request.
 */
#include "front_int.h"
#include <dirent.h>
#include <stdlib.h>

/* A collected entry; the NUL-terminated name follows. Never larger than its FUSE form. */
struct dir_record {
	uint64_t cookie;
	inum_t inum;
	uint8_t type;
	uint8_t len;
	char name[];
};
enum { DIR_RECORD_ALIGN = 8 };

struct dir_collector {
	fuse_req_t req;
	bool plus;
	size_t room, reply_bytes; /* what the kernel takes, and what the entries so far need */
	uint8_t *records;         /* room bytes */
	size_t record_bytes;
};

static size_t record_size(size_t name_len)
{
	size_t bytes = offsetof(struct dir_record, name) + name_len + 1;

	return (bytes + DIR_RECORD_ALIGN - 1) & ~(size_t)(DIR_RECORD_ALIGN - 1);
}

static bool collect(void *context, const struct ext4_dirent *entry)
{
	struct dir_collector *c = context;
	struct dir_record *r = (void *)(c->records + c->record_bytes);
	char name[EXT4_NAME_BYTES_MAX + 1];
	size_t need;

	ensure(entry->len <= EXT4_NAME_BYTES_MAX);
	memcpy(name, entry->name, entry->len);
	name[entry->len] = 0;
	need = c->plus ? fuse_add_direntry_plus(c->req, NULL, 0, name, NULL, 0)
		       : fuse_add_direntry(c->req, NULL, 0, name, NULL, 0);
	if (need > c->room - c->reply_bytes)
		return false;
	ensure(record_size(entry->len) <= c->room - c->record_bytes);
	r->cookie = entry->cookie;
	r->inum = entry->inum;
	r->type = entry->type;
	r->len = (uint8_t)entry->len;
	memcpy(r->name, name, entry->len + 1);
	c->record_bytes += record_size(entry->len);
	c->reply_bytes += need;
	return true;
}

static bool is_dot_or_dotdot(const struct dir_record *r)
{
	return r->name[0] == '.' && (r->len == 1 || (r->len == 2 && r->name[1] == '.'));
}

/*
 * An entry whose inode cannot be read is listed without its attributes (node id 0 says so): the
 * lookup that follows reports the damage for that name alone. "." and ".." are never looked up
 * through READDIRPLUS.
 */
static void fill_entry(
	struct dir_collector *c, const struct dir_record *r, struct fuse_entry_param *out)
{
	struct front *f = front_of(c->req);
	enum err e = OK;

	if (c->plus && !is_dot_or_dotdot(r)) {
		e = front_entry(f, r->inum, out);
		if (e == OK)
			return;
		front_log_error(f, e, "listing", r->inum);
		err_clear_detail();
	}
	memset(out, 0, sizeof(*out));
	out->attr.st_ino = r->inum;
	out->attr.st_mode = (mode_t)DTTOIF(r->type);
}

static size_t answer(struct dir_collector *c, char *reply)
{
	size_t at = 0, used = 0;

	while (at < c->record_bytes) {
		const struct dir_record *r = (const void *)(c->records + at);
		struct fuse_entry_param entry;
		off_t next = (off_t)r->cookie;

		fill_entry(c, r, &entry);
		if (c->plus)
			used += fuse_add_direntry_plus(
				c->req, reply + used, c->room - used, r->name, &entry, next);
		else
			used += fuse_add_direntry(
				c->req, reply + used, c->room - used, r->name, &entry.attr, next);
		at += record_size(r->len);
	}
	ensure(used <= c->room);
	return used;
}

static void readdir_any(fuse_req_t req, fuse_ino_t node, size_t size, off_t off, bool plus)
{
	struct dir_collector c = {.req = req, .plus = plus, .room = size};
	struct ext4_inode *dir = NULL;
	char *reply = NULL;
	enum err e;

	e = front_node_get(front_of(req), node, &dir);
	if (e)
		goto out;
	e = ERR_NOMEM;
	c.records = malloc(size + DIR_RECORD_ALIGN);
	reply = malloc(size + DIR_RECORD_ALIGN);
	if (!c.records || !reply)
		goto out;
	e = ext4_readdir(dir, (uint64_t)off, collect, &c);
	/* What was read before the damage is listed; the next request meets the damage first. */
	if (e && c.record_bytes) {
		front_log_error(front_of(req), e, "listing", node);
		err_clear_detail();
		e = OK;
	}
out:
	ext4_inode_put(dir);
	if (e)
		front_reply_error(req, e, "listing", node);
	else
		fuse_reply_buf(req, reply, answer(&c, reply));
	free(c.records);
	free(reply);
}

void front_op_readdir(
	fuse_req_t req, fuse_ino_t node, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	readdir_any(req, node, size, off, false);
}

void front_op_readdirplus(
	fuse_req_t req, fuse_ino_t node, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	readdir_any(req, node, size, off, true);
}
