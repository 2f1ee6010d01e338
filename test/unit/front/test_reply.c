/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * reply.c: node ids, shown owners, entries.
 */
#include "fake.h"

START_TEST(shown_owner_replaces_the_disk_s)
{
	struct front f = {.options = {.override_uid = true, .uid = 5}};
	struct ext4_attr attr = {.inum = 12, .uid = 1000, .gid = 1001, .mode = S_IFREG | 04755};
	struct stat st;

	front_stat(&f, &attr, &st);
	ck_assert_uint_eq(st.st_uid, 5);
	ck_assert_uint_eq(st.st_gid, 1001);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 04755);
	f.options.override_gid = true;
	f.options.gid = 6;
	front_stat(&f, &attr, &st);
	ck_assert_uint_eq(st.st_gid, 6);
}
END_TEST

START_TEST(nodes_that_are_never_given_out)
{
	static const fuse_ino_t bad[] = {0, 2, UINT64_C(1) << 32, UINT64_MAX};
	struct front f = {0};
	struct ext4_inode *inode = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(front_node_get(&f, bad[i], &inode), ERR_STALE);
	ck_assert_int_eq(front_node_get(&f, 1, &inode), OK);
	ck_assert_uint_eq(inode->inum, EXT4_ROOT_INUM);
	ext4_inode_put(inode);
}
END_TEST

START_TEST(entries)
{
	struct front f = {0};
	struct fuse_entry_param entry;

	ck_assert_int_eq(front_entry(&f, 12, &entry), OK);
	ck_assert_uint_eq(entry.ino, 12);
	ck_assert_int_eq(front_entry(&f, 2, &entry), OK);
	ck_assert_uint_eq(entry.ino, 1);
	ck_assert_uint_eq(entry.generation, 0);
	ck_assert_int_eq(front_entry(&f, 0, &entry), ERR_CORRUPT);
	ck_assert_int_eq(front_entry(&f, 1, &entry), ERR_CORRUPT);
	ck_assert_int_eq(front_entry(&f, 99999, &entry), ERR_CORRUPT);
	ck_assert_int_eq(front_entry(&f, 15, &entry), ERR_CHECKSUM);
	ck_assert_int_eq(fake_inodes_out, 0);
}
END_TEST

START_TEST(errors_are_logged_ten_in_a_window)
{
	struct front f = {0};
	FILE *caught = tmpfile();
	int saved = dup(2), lines = 0, c;

	ck_assert_ptr_nonnull(caught);
	dup2(fileno(caught), 2);
	log_open_stderr("test", LOG_INFO_);
	for (int i = 0; i < 1000; i++)
		front_log_error(&f, ERR_IO, "reading", 12);
	front_log_error(&f, ERR_NOENT, "reading", 12);
	dup2(saved, 2);
	close(saved);
	rewind(caught);
	while ((c = getc(caught)) != EOF)
		lines += c == '\n';
	fclose(caught);
	/* The loop may meet the end of a window, which allows ten more and a line on what was lost.
	 */
	ck_assert_int_ge(lines, 10);
	ck_assert_int_le(lines, 21);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("front/reply");
	TCase *tests = tcase_create("reply");

	tcase_add_test(tests, shown_owner_replaces_the_disk_s);
	tcase_add_test(tests, nodes_that_are_never_given_out);
	tcase_add_test(tests, entries);
	tcase_add_test(tests, errors_are_logged_ten_in_a_window);
	suite_add_tcase(suite, tests);
	return harness_run(suite);
}
