/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Access lists from the disk's form, byte by byte; what the kernel makes of real ones is compared
 * in test_kernel.c.
 */
#include "scratch.h"
#include "xattr_int.h"

#include <linux/posix_acl.h>

static const struct ext4_inode inode = {.inum = 7};

/* One entry, tag, permissions and, for named ones, the id. */
#define O(t, p)     t, 0, p, 0
#define N(t, p, id) t, 0, p, 0, id, 0, 0, 0
#define X(t, p, id) t, 0, p, 0, id
#define NONE        0xff, 0xff, 0xff, 0xff
#define V1          1, 0, 0, 0

struct good {
	uint8_t disk[64], want[96];
	size_t disk_len, want_len;
};
static const struct good goods[] = {
	{{V1, O(1, 6), O(4, 4), O(0x20, 0)},
		{2, 0, 0, 0, X(1, 6, NONE), X(4, 4, NONE), X(0x20, 0, NONE)}, 16, 28},
	{{V1, O(1, 7), N(2, 5, 9), N(2, 0, 10), O(4, 4), N(8, 1, 3), O(0x10, 7), O(0x20, 4)},
		{2, 0, 0, 0, X(1, 7, NONE), N(2, 5, 9), N(2, 0, 10), X(4, 4, NONE), N(8, 1, 3),
			X(0x10, 7, NONE), X(0x20, 4, NONE)},
		44, 60},
	{{V1, O(1, 7), O(4, 4), O(0x10, 7), O(0x20, 4)},
		{2, 0, 0, 0, X(1, 7, NONE), X(4, 4, NONE), X(0x10, 7, NONE), X(0x20, 4, NONE)}, 20,
		36},
};

START_TEST(test_good)
{
	const struct good *g = &goods[_i];
	uint8_t buf[128], before[128];
	size_t len = 0;

	ck_ok(ext4_acl_from_disk(&inode, g->disk, g->disk_len, NULL, 0, &len));
	ck_assert_uint_eq(len, g->want_len);
	ck_ok(ext4_acl_from_disk(&inode, g->disk, g->disk_len, buf, g->want_len, &len));
	ck_assert_uint_eq(len, g->want_len);
	ck_assert_mem_eq(buf, g->want, len);
	for (size_t room = 1; room < g->want_len; room++) {
		memset(buf, 0xaa, sizeof(buf));
		memset(before, 0xaa, sizeof(before));
		ck_err(ext4_acl_from_disk(&inode, g->disk, g->disk_len, buf, room, &len),
			ERR_RANGE);
		ck_assert_mem_eq(buf + room, before + room, sizeof(buf) - room);
	}
}
END_TEST

struct bad {
	uint8_t disk[64];
	size_t len;
};
static const struct bad bads[] = {
	{{0}, 0}, {{1, 0}, 2}, {{2, 0, 0, 0, O(1, 6), O(4, 4), O(0x20, 0)}, 16},
	{{V1, O(1, 6), O(4, 4), O(0x20, 0)}, 14}, {{V1, O(1, 6), O(4, 4)}, 12},
	{{V1, O(1, 6), O(0x20, 0)}, 12}, {{V1, O(4, 6), O(1, 4), O(0x20, 0)}, 16},
	{{V1, O(1, 6), O(1, 6), O(4, 4), O(0x20, 0)}, 20},
	{{V1, O(1, 6), O(4, 4), O(4, 4), O(0x20, 0)}, 20},
	{{V1, O(1, 6), O(4, 4), O(0x20, 0), O(0x20, 0)}, 20},
	{{V1, O(1, 8), O(4, 4), O(0x20, 0)}, 16}, {{V1, O(1, 6), O(4, 4), O(0x40, 0)}, 16},
	{{V1, O(1, 6), O(4, 4), O(0, 0)}, 16},
	{{V1, O(1, 6), N(2, 5, 9), O(4, 4), O(0x20, 0)}, 24},             /* no mask */
	{{V1, O(1, 6), O(4, 4), N(8, 5, 9), O(0x20, 0)}, 24},             /* no mask */
	{{V1, O(1, 6), O(4, 4), N(2, 5, 9), O(0x10, 7), O(0x20, 0)}, 28}, /* a user behind groups */
	{{V1, O(1, 6), N(8, 5, 9), O(4, 4), O(0x10, 7), O(0x20, 0)}, 28},
	{{V1, O(1, 6), O(4, 4), O(0x10, 7), N(8, 5, 9), O(0x20, 0)}, 28},
	{{V1, O(1, 6), O(4, 4), O(0x10, 7), O(0x10, 7), O(0x20, 0)}, 24},
	{{V1, O(1, 6), N(2, 5, 9)}, 12}, /* the id is cut off */
};

START_TEST(test_bad)
{
	uint8_t *exact = malloc(bads[_i].len + 1), buf[128];
	size_t len = 77;

	memcpy(exact, bads[_i].disk, bads[_i].len);
	ck_err(ext4_acl_from_disk(&inode, exact, bads[_i].len, buf, sizeof(buf), &len),
		ERR_CORRUPT);
	ck_detail("inode 7");
	ck_err(ext4_acl_from_disk(&inode, exact, bads[_i].len, NULL, 0, &len), ERR_CORRUPT);
	ck_assert_uint_eq(len, 77);
	free(exact);
}
END_TEST

START_TEST(test_empty)
{
	static const uint8_t disk[] = {V1};
	size_t len;

	ck_err(ext4_acl_from_disk(&inode, disk, sizeof(disk), NULL, 0, &len), ERR_NODATA);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("acl");
	TCase *c = tcase_create("acl");

	tcase_add_loop_test(c, test_good, 0, (int)ARRAY_SIZE(goods));
	tcase_add_loop_test(c, test_bad, 0, (int)ARRAY_SIZE(bads));
	tcase_add_test(c, test_empty);
	suite_add_tcase(s, c);
	return scratch_main(s);
}
