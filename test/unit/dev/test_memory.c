/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of dev/memory.c, and through it of dev.c: bounds, empty requests, sums that overflow.
 */
#include "dev.h"

#include "base.h"
#include "scratch.h"

START_TEST(test_transfer)
{
	struct dev *d;
	uint8_t a[100], b[100], zeros[100] = {0};
	struct iovec out[3] = {{a, 40}, {NULL, 0}, {a + 40, 60}};
	struct iovec in[2] = {{b, 99}, {b + 99, 1}};

	ck_ok(dev_open_memory(1000, &d));
	ck_assert_uint_eq(d->align_bytes, 1);
	ck_ok(dev_read(d, b, 100, 900));
	ck_assert_mem_eq(b, zeros, 100);
	scratch_fill(a, sizeof(a));
	ck_ok(dev_writev(d, out, 3, 900));
	ck_assert_mem_eq(dev_memory_bytes(d) + 900, a, 100);
	ck_ok(dev_readv(d, in, 2, 900));
	ck_assert_mem_eq(a, b, 100);
	ck_ok(dev_flush(d));
	ck_ok(dev_discard(d, 950, 50));
	ck_assert_mem_eq(dev_memory_bytes(d) + 950, zeros, 50);
	ck_assert_mem_eq(dev_memory_bytes(d) + 900, a, 50);
	dev_close(d);
	dev_close(NULL);
}
END_TEST

START_TEST(test_bounds)
{
	struct dev *d;
	uint8_t a[16] = {0};
	struct iovec huge[2] = {{a, SIZE_MAX - 4}, {a, 16}};

	ck_ok(dev_open_memory(1000, &d));
	ck_ok(dev_read(d, a, 16, 984));
	ck_err(dev_read(d, a, 16, 985), ERR_DEV_BOUNDS);
	ck_detail("16 bytes at byte 985");
	ck_err(dev_write(d, a, 16, 985), ERR_DEV_BOUNDS);
	ck_err(dev_discard(d, 985, 16), ERR_DEV_BOUNDS);
	ck_err(dev_read(d, a, 16, UINT64_MAX - 3), ERR_DEV_BOUNDS);
	ck_err(dev_readv(d, huge, 2, 0), ERR_DEV_BOUNDS);
	ck_ok(dev_read(d, a, 0, 1000));
	ck_ok(dev_write(d, a, 0, 1000));
	ck_ok(dev_discard(d, 1000, 0));
	ck_err(dev_read(d, a, 0, 1001), ERR_DEV_BOUNDS);
	d->readonly = true;
	ck_err(dev_write(d, a, 1, 0), ERR_ROFS);
	ck_err(dev_discard(d, 0, 1), ERR_ROFS);
	dev_close(d);
}
END_TEST

START_TEST(test_too_large)
{
	struct dev *d = NULL;

	ck_err(dev_open_memory(UINT64_MAX / 2, &d), ERR_NOMEM);
	ck_assert_ptr_null(d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("dev/memory");
	TCase *t = tcase_create("memory");

	tcase_add_test(t, test_transfer);
	tcase_add_test(t, test_bounds);
	tcase_add_test(t, test_too_large);
	suite_add_tcase(s, t);
	return scratch_main(s);
}
