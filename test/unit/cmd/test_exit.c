/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * exit.c: every error has a status in both conventions, and a line.
 */
#include "cmd.h"
#include <check.h>
#include <stdlib.h>

static const struct {
	enum err error;
	int mount, cryptsetup;
} statuses[] = {
	{OK, 0, 0},
	{ERR_ACCESS, 1, 2},
	{ERR_PERM, 1, 2},
	{ERR_NOENT, 2, 4},
	{ERR_NOTDIR, 2, 4},
	{ERR_KEY_FILE, 2, 1},
	{ERR_NOMEM, 2, 3},
	{ERR_INTR, 8, 1},
	{ERR_LUKS_KEY, 32, 2},
	{ERR_LUKS_NONE, 32, 1},
	{ERR_LUKS_REENCRYPT, 32, 1},
	{ERR_CIPHER_SPEC, 32, 1},
	{ERR_EXT4_FEATURE, 32, 1},
	{ERR_DEV_SHORT, 32, 4},
	{ERR_BUSY, 32, 5},
	{ERR_EXIST, 32, 5},
};

START_TEST(status_of_an_error)
{
	ck_assert_int_eq(cmd_exit_mount(statuses[_i].error), statuses[_i].mount);
	ck_assert_int_eq(cmd_exit_cryptsetup(statuses[_i].error), statuses[_i].cryptsetup);
}
END_TEST

START_TEST(every_error_is_a_failure_with_a_line)
{
	err_clear_detail();
	for (int e = OK + 1; e < ERR_COUNT; e++) {
		ck_assert_int_ne(cmd_exit_mount((enum err)e), 0);
		ck_assert_int_ne(cmd_exit_cryptsetup((enum err)e), 0);
		ck_assert_ptr_nonnull(cmd_error_text((enum err)e));
		ck_assert_uint_gt(strlen(cmd_error_text((enum err)e)), 0);
	}
}
END_TEST

START_TEST(the_detail_comes_first)
{
	enum err e = err_set_detail(ERR_IO, "block %d", 7);

	ck_assert_str_eq(cmd_error_text(e), "block 7");
	err_clear_detail();
	ck_assert_str_eq(cmd_error_text(e), err_text(ERR_IO));
}
END_TEST

START_TEST(path_is_set_where_it_is_absent)
{
	unsetenv("PATH");
	cmd_ensure_path();
	ck_assert_ptr_nonnull(strstr(getenv("PATH"), "/usr/bin"));
	setenv("PATH", "/mine", 1);
	cmd_ensure_path();
	ck_assert_str_eq(getenv("PATH"), "/mine");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cmd/exit");
	TCase *tests = tcase_create("exit");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tests, status_of_an_error, 0, (int)ARRAY_SIZE(statuses));
	tcase_add_test(tests, every_error_is_a_failure_with_a_line);
	tcase_add_test(tests, the_detail_comes_first);
	tcase_add_test(tests, path_is_set_where_it_is_absent);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
