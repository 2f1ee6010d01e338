/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ops.c: each operation's request and reply, as they cross the device.
 */
#include "fake.h"

static struct harness *h;

static void open_default(void)
{
	struct front_options options = {0};

	h = calloc(1, sizeof(*h));
	harness_open(h, &options);
	harness_serve(h);
}

static void close_default(void)
{
	harness_close(h);
	free(h);
}

START_TEST(lookup_answers_node_generation_and_timeouts)
{
	struct fuse_entry_out *e = (void *)h->reply;

	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 1, "file"), 0);
	ck_assert_uint_eq(e->nodeid, 12);
	ck_assert_uint_eq(e->generation, 77);
	ck_assert_uint_eq(e->attr.ino, 12);
	ck_assert_uint_eq(e->attr.mode, S_IFREG | 0640);
	ck_assert_uint_eq(e->attr.size, FAKE_FILE_BYTES);
	ck_assert_int_eq((int64_t)e->attr.mtime, -5);
	ck_assert_uint_eq(e->attr.mtimensec, 123456789);
	ck_assert_uint_gt(e->entry_valid, 1000000);
	ck_assert_uint_gt(e->attr_valid, 1000000);
}
END_TEST

START_TEST(a_name_that_is_not_there_is_remembered)
{
	struct fuse_entry_out *e = (void *)h->reply;

	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 1, "absent"), 0);
	ck_assert_uint_eq(e->nodeid, 0);
	ck_assert_uint_gt(e->entry_valid, 1000000);
	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 12, "x"), ENOTDIR);
}
END_TEST

START_TEST(dot_and_dotdot_serve_an_export)
{
	struct fuse_entry_out *e = (void *)h->reply;

	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 12, "."), 0); /* a file's handle */
	ck_assert_uint_eq(e->nodeid, 12);
	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 13, ".."), 0);
	ck_assert_uint_eq(e->nodeid, 1);
	ck_assert_uint_eq(e->generation, 0); /* the root's, as the kernel made it */
	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 1, "."), 0);
	ck_assert_uint_eq(e->nodeid, 1);
	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 11, "."), ESTALE);
	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 2, "."), ESTALE);
	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, UINT64_C(1) << 32 | 12, "."), ESTALE);
}
END_TEST

START_TEST(inode_1_is_never_given_out)
{
	struct fuse_getattr_in in = {0};

	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 1, "loop"), EUCLEAN);
	ck_assert_int_eq(harness_ask_name(h, FUSE_LOOKUP, 1, "lost"), EUCLEAN);
	ck_assert_int_eq(harness_ask(h, FUSE_GETATTR, 2, &in, sizeof(in)), ESTALE);
	ck_assert_int_eq(harness_ask(h, FUSE_GETATTR, 0, &in, sizeof(in)), ESTALE);
}
END_TEST

START_TEST(getattr_of_the_root_and_of_damage)
{
	struct fuse_getattr_in in = {0};
	struct fuse_attr_out *a = (void *)h->reply;

	ck_assert_int_eq(harness_ask(h, FUSE_GETATTR, 1, &in, sizeof(in)), 0);
	ck_assert_uint_eq(a->attr.ino, 2);
	ck_assert_uint_eq(a->attr.uid, 1000);
	ck_assert_uint_eq(a->attr.blksize, 4096);
	ck_assert_uint_eq(a->attr.blocks, 24);
	ck_assert_int_eq(harness_ask(h, FUSE_GETATTR, 15, &in, sizeof(in)), EUCLEAN);
}
END_TEST

START_TEST(readlink_open_and_statfs)
{
	struct fuse_open_in in = {0};
	struct fuse_statfs_out *s = (void *)h->reply;

	ck_assert_int_eq(harness_ask(h, FUSE_READLINK, 14, NULL, 0), 0);
	ck_assert_uint_eq(h->reply_bytes, strlen(fake_target));
	ck_assert_mem_eq(h->reply, fake_target, strlen(fake_target));
	ck_assert_int_eq(harness_ask(h, FUSE_READLINK, 12, NULL, 0), EINVAL);
	ck_assert_int_eq(harness_ask(h, FUSE_OPEN, 12, &in, sizeof(in)), ENOSYS);
	ck_assert_int_eq(harness_ask(h, FUSE_OPENDIR, 13, &in, sizeof(in)), ENOSYS);
	ck_assert_int_eq(harness_ask(h, FUSE_STATFS, 1, NULL, 0), 0);
	ck_assert_uint_eq(s->st.bsize, 1024);
	ck_assert_uint_eq(s->st.blocks, 100);
	ck_assert_uint_eq(s->st.bavail, 40);
	ck_assert_uint_eq(s->st.ffree, 20);
	ck_assert_uint_eq(s->st.namelen, 255);
}
END_TEST

START_TEST(read_gives_the_parts_in_order)
{
	struct fuse_read_in in = {.offset = 3000, .size = 4096};

	ck_assert_int_eq(harness_ask(h, FUSE_READ, 12, &in, sizeof(in)), 0);
	ck_assert_uint_eq(h->reply_bytes, 4096);
	for (size_t i = 0; i < 4096; i++)
		ck_assert_uint_eq(h->reply[i], fake_byte(3000 + i));
	in.offset = 9999;
	ck_assert_int_eq(harness_ask(h, FUSE_READ, 12, &in, sizeof(in)), 0);
	ck_assert_uint_eq(h->reply_bytes, 1);
	in.offset = FAKE_FILE_BYTES;
	ck_assert_int_eq(harness_ask(h, FUSE_READ, 12, &in, sizeof(in)), 0);
	ck_assert_uint_eq(h->reply_bytes, 0);
	ck_assert_int_eq(harness_ask(h, FUSE_READ, 13, &in, sizeof(in)), EISDIR);
	ck_assert_int_eq(harness_ask(h, FUSE_READ, 15, &in, sizeof(in)), EIO);
}
END_TEST

static int ask_xattr(const char *name, uint32_t room)
{
	struct {
		struct fuse_getxattr_in in;
		char name[32];
	} body = {.in = {.size = room}};

	strcpy(body.name, name);
	return harness_ask(h, FUSE_GETXATTR, 12, &body, sizeof(body.in) + strlen(name) + 1);
}

START_TEST(xattrs_by_length_then_value)
{
	struct fuse_getxattr_out *length = (void *)h->reply;
	struct fuse_getxattr_in in = {.size = 0};

	ck_assert_int_eq(ask_xattr("user.a", 0), 0);
	ck_assert_uint_eq(length->size, 5);
	ck_assert_int_eq(ask_xattr("user.a", 4), ERANGE);
	ck_assert_int_eq(ask_xattr("user.a", 100), 0);
	ck_assert_uint_eq(h->reply_bytes, 5);
	ck_assert_mem_eq(h->reply, "value", 5);
	ck_assert_int_eq(ask_xattr("user.z", 100), ENODATA);
	ck_assert_int_eq(harness_ask(h, FUSE_LISTXATTR, 12, &in, sizeof(in)), 0);
	ck_assert_uint_eq(length->size, sizeof(fake_list)); /* uid 0 sees trusted.* */
	in.size = 100;
	ck_assert_int_eq(harness_ask(h, FUSE_LISTXATTR, 12, &in, sizeof(in)), 0);
	ck_assert_mem_eq(h->reply, fake_list, sizeof(fake_list));
}
END_TEST

START_TEST(lseek_finds_data_and_holes)
{
	struct fuse_lseek_in in = {.offset = 5, .whence = SEEK_HOLE};
	struct fuse_lseek_out *out = (void *)h->reply;

	ck_assert_int_eq(harness_ask(h, FUSE_LSEEK, 12, &in, sizeof(in)), 0);
	ck_assert_uint_eq(out->offset, FAKE_FILE_BYTES);
	in.offset = FAKE_FILE_BYTES;
	ck_assert_int_eq(harness_ask(h, FUSE_LSEEK, 12, &in, sizeof(in)), ENXIO);
	in.offset = UINT64_MAX;
	ck_assert_int_eq(harness_ask(h, FUSE_LSEEK, 12, &in, sizeof(in)), ENXIO);
}
END_TEST

START_TEST(nothing_can_be_changed)
{
	struct fuse_setattr_in set = {.valid = FATTR_MODE};
	struct fuse_write_in write_in = {.size = 0};
	struct fuse_fallocate_in allocate = {.length = 1};
	struct {
		struct fuse_mkdir_in in;
		char name[8];
	} mkdir_body = {.name = "new"};

	ck_assert_int_eq(harness_ask(h, FUSE_SETATTR, 12, &set, sizeof(set)), EROFS);
	ck_assert_int_eq(harness_ask(h, FUSE_WRITE, 12, &write_in, sizeof(write_in)), EROFS);
	ck_assert_int_eq(harness_ask(h, FUSE_FALLOCATE, 12, &allocate, sizeof(allocate)), EROFS);
	ck_assert_int_eq(harness_ask(h, FUSE_MKDIR, 1, &mkdir_body, sizeof(mkdir_body)), EROFS);
	ck_assert_int_eq(harness_ask_name(h, FUSE_UNLINK, 1, "file"), EROFS);
	ck_assert_int_eq(harness_ask_name(h, FUSE_RMDIR, 1, "dir"), EROFS);
	ck_assert_int_eq(harness_ask_name(h, FUSE_REMOVEXATTR, 12, "user.a"), EROFS);
	/* Block numbers would be those of the ciphertext. */
	ck_assert_int_eq(harness_ask(h, FUSE_BMAP, 12, &set, sizeof(struct fuse_bmap_in)), ENOSYS);
}
END_TEST

START_TEST(forgets_get_no_answer)
{
	struct fuse_forget_in one = {.nlookup = 1};
	struct fuse_getattr_in in = {0};

	harness_send(h, FUSE_FORGET, 12, &one, sizeof(one));
	ck_assert_int_eq(harness_ask(h, FUSE_GETATTR, 12, &in, sizeof(in)), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("front/ops");
	TCase *tests = tcase_create("ops");

	tcase_add_checked_fixture(tests, open_default, close_default);
	tcase_add_test(tests, lookup_answers_node_generation_and_timeouts);
	tcase_add_test(tests, a_name_that_is_not_there_is_remembered);
	tcase_add_test(tests, dot_and_dotdot_serve_an_export);
	tcase_add_test(tests, inode_1_is_never_given_out);
	tcase_add_test(tests, getattr_of_the_root_and_of_damage);
	tcase_add_test(tests, readlink_open_and_statfs);
	tcase_add_test(tests, read_gives_the_parts_in_order);
	tcase_add_test(tests, xattrs_by_length_then_value);
	tcase_add_test(tests, lseek_finds_data_and_holes);
	tcase_add_test(tests, nothing_can_be_changed);
	tcase_add_test(tests, forgets_get_no_answer);
	suite_add_tcase(suite, tests);
	return harness_run(suite);
}
