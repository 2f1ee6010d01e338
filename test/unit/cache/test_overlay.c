/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The overlay: look-ups against a linear search, and reading a copy from the log. */
#include "rig.h"

START_TEST(an_empty_overlay_finds_nothing)
{
	struct overlay *o;

	ck_assert_int_eq(overlay_create(NULL, 0, &o), OK);
	ck_assert_uint_eq(overlay_count(o), 0);
	ck_assert_ptr_null(overlay_find(o, 0, UINT64_MAX));
	overlay_destroy(o);
	overlay_destroy(NULL);
}
END_TEST

START_TEST(finds_the_smallest_block_of_a_range)
{
	static const struct overlay_entry entries[] = {
		{.block = 90, .log = 1}, {.block = 10, .log = 2}, {.block = 50, .log = 3}};
	struct overlay *o;

	ck_assert_int_eq(overlay_create(entries, ARRAY_SIZE(entries), &o), OK);
	ck_assert_uint_eq(overlay_count(o), 3);
	ck_assert_uint_eq(overlay_find(o, 0, 100)->block, 10);
	ck_assert_uint_eq(overlay_find(o, 10, 1)->log, 2);
	ck_assert_uint_eq(overlay_find(o, 11, 100)->block, 50);
	ck_assert_ptr_null(overlay_find(o, 11, 39));
	ck_assert_uint_eq(overlay_find(o, 11, 40)->block, 50);
	ck_assert_ptr_null(overlay_find(o, 50, 0));
	ck_assert_ptr_null(overlay_find(o, 91, UINT64_MAX));
	/* A range that would end past 2^64 does not wrap. */
	ck_assert_uint_eq(overlay_find(o, 60, UINT64_MAX)->block, 90);
	overlay_destroy(o);
}
END_TEST

START_TEST(agrees_with_a_linear_search)
{
	enum { SPAN = 512, ENTRIES = 100 };
	struct overlay_entry entries[ENTRIES];
	bool taken[SPAN] = {false};
	struct overlay *o;
	unsigned seed = 20240611;

	for (size_t i = 0; i < ENTRIES; i++) {
		fsblk_t block;

		do
			block = (unsigned)rand_r(&seed) % SPAN;
		while (taken[block]);
		taken[block] = true;
		entries[i] = (struct overlay_entry){.block = block, .log = i};
	}
	ck_assert_int_eq(overlay_create(entries, ENTRIES, &o), OK);
	for (fsblk_t first = 0; first < SPAN; first++) {
		for (fsblk_t count = 1; count < 40; count++) {
			const struct overlay_entry *found = overlay_find(o, first, count);
			fsblk_t at = first;

			while (at < SPAN && at < first + count && !taken[at])
				at++;
			if (at == SPAN || at == first + count)
				ck_assert_ptr_null(found);
			else
				ck_assert_uint_eq(found->block, at);
		}
	}
	overlay_destroy(o);
}
END_TEST

START_TEST(reads_the_copy_and_unescapes_it)
{
	struct memory_volume m;
	struct overlay_entry e = {.block = 3, .log = 5};
	static const uint8_t magic[4] = {0xc0, 0x3b, 0x39, 0x98};
	uint8_t buf[1024];

	ck_assert_int_eq(memory_volume_open(16 * 1024, &m), OK);
	rig_fill(m.bytes + 5 * 1024, 77, 1024);
	ck_assert_int_eq(overlay_read(&e, m.volume, 1024, buf), OK);
	ck_assert(rig_holds(buf, 77, 1024));
	memset(m.bytes + 5 * 1024, 0, 4);
	e.escaped = true;
	ck_assert_int_eq(overlay_read(&e, m.volume, 1024, buf), OK);
	ck_assert_mem_eq(buf, magic, 4);
	ck_assert_mem_eq(buf + 4, m.bytes + 5 * 1024 + 4, 1020);
	dev_fault_arm(m.fault, DEV_FAULT_READ, 1, false, ERR_IO);
	ck_assert_int_eq(overlay_read(&e, m.volume, 1024, buf), ERR_IO);
	memory_volume_close(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("overlay");
	TCase *t = tcase_create("overlay");

	tcase_add_test(t, an_empty_overlay_finds_nothing);
	tcase_add_test(t, finds_the_smallest_block_of_a_range);
	tcase_add_test(t, agrees_with_a_linear_search);
	tcase_add_test(t, reads_the_copy_and_unescapes_it);
	suite_add_tcase(s, t);

	SRunner *sr = srunner_create(s);

	srunner_run_all(sr, CK_ENV);
	int failed = srunner_ntests_failed(sr);

	srunner_free(sr);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
