/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A small ext4 in memory and a FUSE device made of a socket pair, for the tests of front: requests
 * are written as the kernel writes them (linux/fuse.h), the replies are read back and looked at.
 * The definitions here stand in for libext4's, so one test program includes this file once.
 *
 * The tree: / (2) holds file (12), dir (13), link (14), loop (naming inode 1), lost (naming inode
 * 99, which is not in use), broken (15, whose attributes cannot be read), slow (16, whose READ
 * waits for the gate) and many (17, a directory of many entries).
 */
#ifndef TEST_FRONT_FAKE_H
#define TEST_FRONT_FAKE_H

#include "front_int.h"
#include <check.h>
#include <dirent.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FAKE_FILE_BYTES = 10000, FAKE_MANY = 300 };

struct ext4_inode {
	inum_t inum;
};
static _Atomic int fake_inodes_out, fake_reads_out, fake_waiting;
static struct mutex fake_gate_lock;
static struct cond fake_gate_cond;
static bool fake_gate_open = true;
static const char fake_target[] = "where/it/points";
static const char fake_list[] = "user.a\0trusted.b";

enum err ext4_inode_get(struct ext4 *fs, inum_t inum, struct ext4_inode **out)
{
	(void)fs;
	if (inum != EXT4_ROOT_INUM && (inum < 12 || inum > 17 + FAKE_MANY))
		return ERR_STALE;
	*out = malloc(sizeof(**out));
	(*out)->inum = inum;
	fake_inodes_out++;
	return OK;
}

void ext4_inode_put(struct ext4_inode *inode)
{
	if (inode)
		fake_inodes_out--;
	free(inode);
}

enum err ext4_getattr(struct ext4_inode *inode, struct ext4_attr *out)
{
	bool dir = inode->inum == 2 || inode->inum == 13 || inode->inum == 17;

	if (inode->inum == 15)
		return err_set_detail(ERR_CHECKSUM, "inode 15: checksum");
	*out = (struct ext4_attr){
		.inum = inode->inum,
		.mode = dir ? S_IFDIR | 0755 : S_IFREG | 0640,
		.uid = 1000,
		.gid = 1001,
		.nlink = 1,
		.size_bytes = FAKE_FILE_BYTES,
		.blocks_512 = 24,
		.generation = 77,
		.mtime = {.sec = -5, .nsec = 123456789},
	};
	return OK;
}

static const struct {
	const char *name;
	inum_t inum;
	uint8_t type;
} fake_names[] = {
	{".", 2, DT_DIR},
	{"..", 2, DT_DIR},
	{"file", 12, DT_REG},
	{"dir", 13, DT_DIR},
	{"link", 14, DT_LNK},
	{"loop", 1, DT_REG},
	{"lost", 99999, DT_REG},
	{"broken", 15, DT_REG},
	{"slow", 16, DT_REG},
	{"many", 17, DT_DIR},
};

enum err ext4_lookup(struct ext4_inode *dir, const char *name, size_t len, inum_t *out)
{
	if (dir->inum == 12)
		return ERR_NOTDIR;
	if (dir->inum == 13 && len == 2 && memcmp(name, "..", 2) == 0) {
		*out = 2;
		return OK;
	}
	for (size_t i = 0; i < ARRAY_SIZE(fake_names); i++)
		if (strlen(fake_names[i].name) == len &&
			memcmp(fake_names[i].name, name, len) == 0) {
			*out = fake_names[i].inum;
			return OK;
		}
	return ERR_NOENT;
}

enum err ext4_readdir(struct ext4_inode *dir, uint64_t cookie, ext4_readdir_fn *emit, void *context)
{
	size_t count = dir->inum == 17 ? FAKE_MANY : ARRAY_SIZE(fake_names);

	if (dir->inum == 13)
		return err_set_detail(ERR_CORRUPT, "inode 13: no entries");
	for (size_t i = cookie; i < count; i++) {
		char name[32];
		struct ext4_dirent e = {.cookie = i + 1, .type = DT_REG, .inum = (inum_t)(18 + i)};

		snprintf(name, sizeof(name), "entry-%zu", i);
		e.name = dir->inum == 17 ? name : fake_names[i].name;
		e.len = strlen(e.name);
		if (dir->inum != 17) {
			e.type = fake_names[i].type;
			e.inum = fake_names[i].inum;
		}
		if (!emit(context, &e))
			break;
	}
	return OK;
}

enum err ext4_readlink(struct ext4_inode *inode, char *buf, size_t room, size_t *len)
{
	if (inode->inum != 14)
		return ERR_INVAL;
	*len = MIN(room, strlen(fake_target));
	memcpy(buf, fake_target, *len);
	return OK;
}

static uint8_t fake_byte(uint64_t offset)
{
	return (uint8_t)(offset * 7 + offset / 251);
}

enum err ext4_read(
	struct ext4_inode *inode, uint64_t offset_bytes, size_t len_bytes, struct ext4_read *out)
{
	size_t bytes = offset_bytes < FAKE_FILE_BYTES ? FAKE_FILE_BYTES - offset_bytes : 0;
	uint8_t *data;

	if (inode->inum == 2 || inode->inum == 13)
		return ERR_ISDIR;
	if (inode->inum == 15)
		return err_set_detail(ERR_IO, "inode 15: block 7 cannot be read");
	if (inode->inum == 16) {
		fake_waiting++;
		ioq_lock(&fake_gate_lock);
		while (!fake_gate_open)
			cond_wait(&fake_gate_cond, &fake_gate_lock);
		ioq_unlock(&fake_gate_lock);
		fake_waiting--;
	}
	memset(out, 0, sizeof(*out));
	out->bytes = MIN(bytes, len_bytes);
	data = malloc(out->bytes + 1);
	for (size_t i = 0; i < out->bytes; i++)
		data[i] = fake_byte(offset_bytes + i);
	out->hold[0] = data;
	out->parts = out->bytes > 1 ? 2 : (int)out->bytes;
	out->part[0] = (struct iovec){data, out->bytes > 1 ? out->bytes / 2 : out->bytes};
	if (out->parts == 2)
		out->part[1] = (struct iovec){data + out->bytes / 2, out->bytes - out->bytes / 2};
	fake_reads_out++;
	return OK;
}

void ext4_read_done(struct ext4_read *r)
{
	free(r->hold[0]);
	fake_reads_out--;
}

enum err ext4_seek(struct ext4_inode *inode, uint64_t offset_bytes, int whence, uint64_t *out)
{
	(void)inode;
	if (offset_bytes >= FAKE_FILE_BYTES)
		return ERR_NXIO;
	*out = whence == SEEK_HOLE ? FAKE_FILE_BYTES : offset_bytes;
	return OK;
}

enum err ext4_xattr_get(
	struct ext4_inode *inode, const char *name, void *buf, size_t room, size_t *len)
{
	(void)inode;
	if (strcmp(name, "user.a") != 0)
		return ERR_NODATA;
	*len = 5;
	if (room == 0)
		return OK;
	if (room < 5)
		return ERR_RANGE;
	memcpy(buf, "value", 5);
	return OK;
}

enum err ext4_xattr_list(
	struct ext4_inode *inode, bool trusted, char *buf, size_t room, size_t *len)
{
	(void)inode;
	*len = trusted ? sizeof(fake_list) : 7;
	if (room == 0)
		return OK;
	if (room < *len)
		return ERR_RANGE;
	memcpy(buf, fake_list, *len);
	return OK;
}

enum err ext4_statfs(struct ext4 *fs, struct ext4_statfs *out)
{
	(void)fs;
	*out = (struct ext4_statfs){.block_bytes = 1024,
		.blocks = 100,
		.free_blocks = 50,
		.available_blocks = 40,
		.inodes = 30,
		.free_inodes = 20};
	return OK;
}

/* --- the device ------------------------------------------------------------------------------ */
struct harness {
	struct front *front;
	int kernel_fd; /* our end: the kernel's */
	pthread_t server;
	bool serving;
	uint64_t unique;
	struct fuse_init_out init;
	_Alignas(8) uint8_t reply[128 * 1024]; /* without the header */
	size_t reply_bytes;
};

static inline void harness_send(
	struct harness *h, uint32_t opcode, uint64_t node, const void *body, size_t len)
{
	struct fuse_in_header in = {
		.len = (uint32_t)(sizeof(in) + len),
		.opcode = opcode,
		.unique = ++h->unique,
		.nodeid = node,
	};
	struct iovec iov[2] = {{&in, sizeof(in)}, {(void *)(uintptr_t)body, len}};

	ck_assert_int_eq(writev(h->kernel_fd, iov, 2), (ssize_t)in.len);
}

/* Reads one reply; returns its positive errno. *unique says whose it is. */
static inline int harness_receive(struct harness *h, uint64_t *unique)
{
	struct fuse_out_header out;
	struct iovec iov[2] = {{&out, sizeof(out)}, {h->reply, sizeof(h->reply)}};
	ssize_t n = readv(h->kernel_fd, iov, 2);

	ck_assert_int_ge(n, (ssize_t)sizeof(out));
	ck_assert_int_eq(n, (ssize_t)out.len);
	h->reply_bytes = (size_t)n - sizeof(out);
	*unique = out.unique;
	return -out.error;
}

static inline int harness_ask(
	struct harness *h, uint32_t opcode, uint64_t node, const void *body, size_t len)
{
	uint64_t unique;
	int error;

	harness_send(h, opcode, node, body, len);
	error = harness_receive(h, &unique);
	ck_assert_uint_eq(unique, h->unique);
	return error;
}

static inline int harness_ask_name(
	struct harness *h, uint32_t opcode, uint64_t node, const char *name)
{
	return harness_ask(h, opcode, node, name, strlen(name) + 1);
}

static inline void *harness_server(void *arg)
{
	struct harness *h = arg;

	ck_assert_int_eq(front_serve(h->front, NULL, NULL), OK);
	return NULL;
}

static inline void harness_open(struct harness *h, struct front_options *options)
{
	struct fuse_init_in init = {
		.major = FUSE_KERNEL_VERSION,
		.minor = FUSE_KERNEL_MINOR_VERSION,
		.max_readahead = 131072,
		.flags = 0x3fffffff,
	};
	uint64_t unique;
	int ends[2];

	memset(h, 0, sizeof(*h));
	mutex_init(&fake_gate_lock);
	cond_init(&fake_gate_cond);
	options->source = options->source ? options->source : "/dev/test";
	options->dir = "/nowhere";
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	ck_assert_int_eq(front_create(options, &h->front), OK);
	ck_assert_int_eq(front_attach(h->front, ends[0]), OK);
	h->kernel_fd = ends[1];
	harness_send(h, FUSE_INIT, 0, &init, sizeof(init));
	ck_assert_int_eq(front_handshake(h->front), OK);
	ck_assert_int_eq(harness_receive(h, &unique), 0);
	ck_assert_uint_ge(h->reply_bytes, sizeof(h->init));
	memcpy(&h->init, h->reply, sizeof(h->init));
}

static inline void harness_serve(struct harness *h)
{
	ck_assert_int_eq(thread_start(&h->server, "server", harness_server, h), OK);
	h->serving = true;
}

/* As the kernel does at an unmount: the device is gone for every reader. */
static inline void harness_close(struct harness *h)
{
	close(h->kernel_fd);
	if (h->serving)
		pthread_join(h->server, NULL);
	front_destroy(h->front);
	ck_assert_int_eq(fake_inodes_out, 0);
	ck_assert_int_eq(fake_reads_out, 0);
}

static inline int harness_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
