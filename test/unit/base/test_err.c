/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of base/err.c and of the disk types and lists in base.h.
 */
#include "base.h"
#include "rig_run.h"

#include <signal.h>

START_TEST(every_code_has_errno_and_text)
{
	ck_assert_int_eq(err_errno(OK), 0);
	ck_assert_str_eq(err_name(OK), "OK");
	for (enum err e = OK + 1; e < ERR_COUNT; e++) {
		ck_assert_int_gt(err_errno(e), 0);
		ck_assert_uint_gt(strlen(err_text(e)), 0);
		ck_assert_int_eq(strncmp(err_name(e), "ERR_", 4), 0);
		for (enum err f = OK; f < e; f++)
			ck_assert_str_ne(err_name(e), err_name(f));
	}
	ck_assert_str_eq(err_name(ERR_IO), "ERR_IO");
	ck_assert_int_eq(err_errno(ERR_CORRUPT), EUCLEAN);
}
END_TEST

START_TEST(errno_becomes_its_code)
{
	ck_assert_int_eq(err_from_errno(EIO), ERR_IO);
	ck_assert_int_eq(err_from_errno(ENOSPC), ERR_NOSPC);
	ck_assert_int_eq(err_from_errno(EDQUOT), ERR_NOSPC);
	ck_assert_int_eq(err_from_errno(ENODEV), ERR_NXIO);
	ck_assert_int_eq(err_from_errno(EOPNOTSUPP), ERR_OPNOTSUPP);
	/* Damage is found by a verifier; an errno never says it. */
	ck_assert_int_eq(err_from_errno(EUCLEAN), ERR_SYSTEM);
	/* Whatever it is, an error stays an error. */
	for (int e = -1; e < 200; e++)
		ck_assert_int_ne(err_from_errno(e), OK);
	/* Codes that have a class of their own come back as the same errno. */
	for (enum err e = OK + 1; e < ERR_SYSTEM; e++)
		ck_assert_int_eq(err_errno(err_from_errno(err_errno(e))), err_errno(e));
}
END_TEST

static void detail_of_other_thread(unsigned index, void *arg)
{
	(void)arg;
	ck_assert_str_eq(err_detail(), "");
	(void)err_set_detail(ERR_IO, "thread %u", index);
}

START_TEST(detail_belongs_to_the_thread_and_is_bounded)
{
	char text[1000];
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	ck_assert_int_eq(err_set_detail(ERR_NOENT, "%s", text), ERR_NOENT);
	ck_assert_uint_eq(strlen(err_detail()), 511);
	ck_assert_int_eq(err_set_detail(ERR_IO, "read %d", 5), ERR_IO);
	ck_assert_int_eq(err_set_detail(ERR_IO, "/dev/sdb: %s", err_detail()), ERR_IO);
	rig_run_threads(4, detail_of_other_thread, NULL);
	ck_assert_str_eq(err_detail(), "/dev/sdb: read 5");
	err_clear_detail();
	ck_assert_str_eq(err_detail(), "");
}
END_TEST

START_TEST(ensure_aborts)
{
	int two = 2;
	ensure(two == 2);
	ensure(two == 3);
}
END_TEST

START_TEST(disk_numbers_have_their_byte_order)
{
	static const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
	le64 l64;
	be64 b64;
	le32 l32;
	be32 b32;
	le16 l16;
	be16 b16;
	memcpy(l64.b, bytes, 8);
	memcpy(b64.b, bytes, 8);
	memcpy(l32.b, bytes, 4);
	memcpy(b32.b, bytes, 4);
	memcpy(l16.b, bytes, 2);
	memcpy(b16.b, bytes, 2);
	ck_assert(le64_get(l64) == UINT64_C(0x0807060504030201));
	ck_assert(be64_get(b64) == UINT64_C(0x0102030405060708));
	ck_assert_uint_eq(le32_get(l32), 0x04030201);
	ck_assert_uint_eq(be32_get(b32), 0x01020304);
	ck_assert_uint_eq(le16_get(l16), 0x0201);
	ck_assert_uint_eq(be16_get(b16), 0x0102);
	ck_assert_mem_eq(be32_make(0x01020304).b, bytes, 4);
	ck_assert_mem_eq(le64_make(UINT64_C(0x0807060504030201)).b, bytes, 8);
}
END_TEST

START_TEST(list_keeps_order_and_removed_nodes_are_alone)
{
	struct list head, n[4];
	list_init(&head);
	ck_assert(list_empty(&head));
	list_push_back(&head, &n[1]);
	list_push_back(&head, &n[2]);
	list_push_front(&head, &n[0]);
	list_insert_after(&n[2], &n[3]);
	unsigned i = 0;
	list_for_each (at, &head)
		ck_assert_ptr_eq(at, &n[i++]);
	ck_assert_uint_eq(i, 4);
	list_remove(&n[1]);
	ck_assert(list_empty(&n[1]));
	list_for_each_safe (at, &head)
		list_remove(at);
	ck_assert(list_empty(&head));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base/err");
	TCase *tc = rig_case(s, "err");
	tcase_add_test(tc, every_code_has_errno_and_text);
	tcase_add_test(tc, errno_becomes_its_code);
	tcase_add_test(tc, detail_belongs_to_the_thread_and_is_bounded);
	tcase_add_test_raise_signal(tc, ensure_aborts, SIGABRT);
	tcase_add_test(tc, disk_numbers_have_their_byte_order);
	tcase_add_test(tc, list_keeps_order_and_removed_nodes_are_alone);
	return rig_run_suite(s);
}
