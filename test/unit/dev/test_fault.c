/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of dev/fault.c: exactly the nth call of the armed operations fails, and does not reach the
 * device below.
 */
#include "dev.h"

#include "base.h"
#include "scratch.h"

static struct dev *fault_dev(struct dev **below)
{
	struct dev *d;

	ck_ok(dev_open_memory(4096, below));
	ck_ok(dev_open_fault(*below, &d));
	ck_assert_int_eq(d->kind, DEV_FAULT);
	ck_assert_uint_eq(d->size_bytes, 4096);
	return d;
}

START_TEST(test_once)
{
	struct dev *below, *d = fault_dev(&below);
	uint8_t a[4] = {1, 2, 3, 4};

	dev_fault_arm(d, DEV_FAULT_WRITE, 2, false, ERR_NOSPC);
	ck_ok(dev_write(d, a, 4, 0));
	ck_ok(dev_read(d, a, 4, 0));
	ck_ok(dev_flush(d));
	ck_err(dev_write(d, a, 4, 8), ERR_NOSPC);
	ck_assert_uint_eq(dev_memory_bytes(below)[8], 0);
	ck_ok(dev_write(d, a, 4, 8));
	ck_assert_uint_eq(dev_memory_bytes(below)[8], 1);
	ck_assert_uint_eq(dev_fault_calls(d, DEV_FAULT_WRITE), 3);
	ck_assert_uint_eq(dev_fault_calls(d, DEV_FAULT_READ | DEV_FAULT_FLUSH), 2);
	ck_assert_uint_eq(dev_fault_calls(d, DEV_FAULT_DISCARD), 0);
	dev_close(d);
}
END_TEST

START_TEST(test_for_ever)
{
	struct dev *below, *d = fault_dev(&below);
	uint8_t a[4] = {0};

	dev_fault_arm(d, DEV_FAULT_READ | DEV_FAULT_FLUSH | DEV_FAULT_DISCARD, 3, true, ERR_IO);
	ck_ok(dev_read(d, a, 4, 0));
	ck_ok(dev_flush(d));
	ck_err(dev_discard(d, 0, 512), ERR_IO);
	ck_err(dev_read(d, a, 4, 0), ERR_IO);
	ck_err(dev_flush(d), ERR_IO);
	ck_ok(dev_write(d, a, 4, 0));
	dev_fault_arm(d, 0, 1, false, ERR_IO);
	ck_ok(dev_read(d, a, 4, 0));
	dev_close(d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("dev/fault");
	TCase *t = tcase_create("fault");

	tcase_add_test(t, test_once);
	tcase_add_test(t, test_for_ever);
	suite_add_tcase(s, t);
	return scratch_main(s);
}
