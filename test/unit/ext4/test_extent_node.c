/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One extent node in memory: entries replaced, moved and joined, against arrays. */
#include "extent_int.h"
#include "scratch.h"

enum { BLOCK = 1024, FIT = 84, ROOT_FIT = 4 };

static uint8_t block_a[BLOCK], block_b[BLOCK], root_bytes[EXT4_I_BLOCK_BYTES];

static struct extent_node node_of(uint8_t *bytes, size_t room)
{
	return (struct extent_node){.bytes = bytes, .room_bytes = room};
}

static struct ext4_run run_of(lblk_t logical, uint32_t count, fsblk_t physical, bool unwritten)
{
	return (struct ext4_run){logical, count, physical, unwritten};
}

static void check_run(struct ext4_run a, struct ext4_run b)
{
	ck_assert_uint_eq(a.logical, b.logical);
	ck_assert_uint_eq(a.count, b.count);
	ck_assert_uint_eq(a.physical, b.physical);
	ck_assert_int_eq(a.unwritten, b.unwritten);
}

START_TEST(room_is_what_the_bytes_hold)
{
	struct extent_node block = node_of(block_a, BLOCK), root = node_of(root_bytes, 60);
	struct extent_node large = node_of(block_a, 4096);

	ck_assert_uint_eq(extent_fit(&block), FIT);
	ck_assert_uint_eq(extent_fit(&large), 340);
	ck_assert_uint_eq(extent_fit(&root), ROOT_FIT);
	memset(block_a, 0xaa, BLOCK);
	extent_node_init(&block, 3);
	ck_assert_uint_eq(le16_get(extent_header(&block)->eh_magic), EXT4_EXTENT_MAGIC);
	ck_assert_uint_eq(le16_get(extent_header(&block)->eh_max), FIT);
	ck_assert_uint_eq(extent_entries(&block), 0);
	ck_assert_uint_eq(extent_depth(&block), 3);
	for (size_t i = 8; i < BLOCK; i++)
		ck_assert_uint_eq(block_a[i], 0);
}
END_TEST

/* The bytes, as the kernel's documentation has them. */
START_TEST(an_extent_in_bytes)
{
	static const uint8_t written[12] = {
		0x78, 0x56, 0x34, 0x12, 0x00, 0x80, 0x34, 0x12, 0x88, 0x77, 0x66, 0x55};
	static const uint8_t unwritten[12] = {1, 0, 0, 0, 0xff, 0xff, 0, 0, 9, 0, 0, 0};
	static const uint8_t index[12] = {7, 0, 0, 0, 0x78, 0x56, 0x34, 0x12, 0x01, 0, 0, 0};
	struct extent_node n = node_of(block_a, BLOCK);
	struct ext4_run runs[2] = {
		run_of(1, 32767, 9, true), run_of(0x12345678, 32768, 0x123455667788, false)};

	extent_node_init(&n, 0);
	extent_replace(&n, 0, 0, runs, 2);
	ck_assert_mem_eq(block_a + 12, unwritten, 12);
	ck_assert_mem_eq(block_a + 24, written, 12);
	check_run(extent_get(&n, 0), runs[0]);
	check_run(extent_get(&n, 1), runs[1]);
	extent_node_init(&n, 1);
	extent_index_insert(&n, 0, 7, 0x112345678);
	ck_assert_mem_eq(block_a + 12, index, 12);
	ck_assert_uint_eq(extent_child(&n, 0), 0x112345678);
	ck_assert_uint_eq(extent_key(&n, 0), 7);
}
END_TEST

START_TEST(random_replacements)
{
	struct extent_node n = node_of(block_a, BLOCK);
	struct ext4_run truth[FIT], with[8];
	unsigned count = 0;

	extent_node_init(&n, 0);
	for (int round = 0; round < 20000; round++) {
		unsigned at = (unsigned)scratch_random(count + 1);
		unsigned drop = (unsigned)scratch_random(MIN(count - at, 6u) + 1);
		unsigned add = (unsigned)scratch_random(MIN(8u, FIT - count + drop) + 1);

		for (unsigned i = 0; i < add; i++)
			with[i] = run_of((lblk_t)scratch_random(UINT32_MAX),
				1 + (uint32_t)scratch_random(32767), 1 + scratch_random(1ull << 48),
				scratch_random(2));
		extent_replace(&n, at, drop, with, add);
		memmove(&truth[at + add], &truth[at + drop],
			(count - at - drop) * sizeof(truth[0]));
		memcpy(&truth[at], with, add * sizeof(truth[0]));
		count = count - drop + add;
		ck_assert_uint_eq(extent_entries(&n), count);
		for (unsigned i = 0; i < count; i++)
			check_run(extent_get(&n, i), truth[i]);
	}
}
END_TEST

START_TEST(indexes_search_and_move)
{
	struct extent_node n = node_of(block_a, BLOCK), to = node_of(block_b, BLOCK);
	struct extent_node root = node_of(root_bytes, EXT4_I_BLOCK_BYTES);

	extent_node_init(&n, 2);
	for (unsigned i = 0; i < FIT; i++)
		extent_index_insert(&n, i / 2, 1000 - i, 2000 + i);
	/* Every second one went before the middle; sort by hand what the test wants to search. */
	for (unsigned i = 0; i < FIT; i++)
		extent_index_set_key(&n, i, 10 * i + 5);
	ck_assert_int_eq(extent_search(&n, 4), -1);
	ck_assert_int_eq(extent_search(&n, 5), 0);
	ck_assert_int_eq(extent_search(&n, 14), 0);
	ck_assert_int_eq(extent_search(&n, 15), 1);
	ck_assert_int_eq(extent_search(&n, UINT32_MAX), FIT - 1);

	extent_node_init(&to, 2);
	extent_move_tail(&n, FIT - 3, &to);
	ck_assert_uint_eq(extent_entries(&n), FIT - 3);
	ck_assert_uint_eq(extent_entries(&to), 3);
	ck_assert_uint_eq(extent_key(&to, 0), 10 * (FIT - 3) + 5);
	extent_copy(&to, &root);
	ck_assert_uint_eq(extent_entries(&root), 3);
	ck_assert_uint_eq(extent_depth(&root), 2);
	ck_assert_uint_eq(le16_get(extent_header(&root)->eh_max), ROOT_FIT);
	ck_assert_uint_eq(extent_child(&root, 2), extent_child(&to, 2));
	extent_index_remove(&root, 0);
	ck_assert_uint_eq(extent_key(&root, 0), 10 * (FIT - 2) + 5);
	extent_move_tail(&n, 0, (extent_node_init(&to, 2), &to));
	ck_assert_uint_eq(extent_entries(&n), 0);
}
END_TEST

START_TEST(neighbours_join)
{
	struct ext4_run list[8];
	unsigned count = 0;

	list[count++] = run_of(0, 10, 100, false);
	list[count++] = run_of(10, 5, 110, false);
	list[count++] = run_of(15, 5, 115, true);
	list[count++] = run_of(20, 1, 121, true);
	list[count++] = run_of(22, 1, 122, true);
	count = extent_coalesce(list, count);
	ck_assert_uint_eq(count, 4);
	check_run(list[0], run_of(0, 15, 100, false));
	check_run(list[1], run_of(15, 5, 115, true));
	check_run(list[2], run_of(20, 1, 121, true));
	check_run(list[3], run_of(22, 1, 122, true));
}
END_TEST

START_TEST(joined_extents_are_full)
{
	struct ext4_run list[8] = {run_of(0, 32000, 100, false), run_of(32000, 1000, 32100, false)};
	struct ext4_run whole = run_of(7, 100000, 500, true);
	unsigned count;

	ck_assert_uint_eq(extent_coalesce(list, 2), 2);
	check_run(list[0], run_of(0, 32768, 100, false));
	check_run(list[1], run_of(32768, 232, 32868, false));
	count = extent_push(list, 0, &whole);
	ck_assert_uint_eq(count, 4);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(list[i].count, 32767);
	check_run(list[3], run_of(7 + 3 * 32767, 100000 - 3 * 32767, 500 + 3 * 32767, true));
	ck_assert_uint_eq(extent_coalesce(list, count), 4);
	whole.count = 0;
	ck_assert_uint_eq(extent_push(list, 2, &whole), 2);
}
END_TEST

static void check_same_blocks(
	const struct ext4_run *before, unsigned count, const struct ext4_run *list, unsigned after)
{
	unsigned j = 0, used = 0;

	for (unsigned i = 0; i < count; i++)
		for (uint32_t b = 0; b < before[i].count; b++, used++) {
			if (used == list[j].count) {
				j++;
				used = 0;
			}
			if (j >= after || list[j].logical + used != before[i].logical + b ||
				list[j].physical + used != before[i].physical + b ||
				list[j].unwritten != before[i].unwritten)
				ck_abort_msg("block %u of run %u is not there", b, i);
		}
	ck_assert_uint_eq(j + 1, after);
}

/* Whatever is joined covers the same blocks in the same way, and nothing is left to join. */
START_TEST(random_lists_join)
{
	for (int round = 0; round < 300; round++) {
		struct ext4_run list[8], before[8];
		unsigned count = 1 + (unsigned)scratch_random(8), after;
		lblk_t at = 0;
		fsblk_t physical = 1000;

		for (unsigned i = 0; i < count; i++) {
			bool unwritten = scratch_random(3) == 0;
			uint32_t blocks = scratch_random(2) ? 1 + (uint32_t)scratch_random(5)
							    : 32700 + (uint32_t)scratch_random(68);
			at += scratch_random(4) == 0;
			physical += scratch_random(4) == 0;
			list[i] = before[i] = run_of(at, blocks, physical, unwritten);
			at += blocks;
			physical += blocks;
		}
		after = extent_coalesce(list, count);
		check_same_blocks(before, count, list, after);
		for (unsigned j = 0; j + 1 < after; j++)
			ck_assert(list[j].count == extent_blocks_max(list[j].unwritten) ||
				  list[j].unwritten != list[j + 1].unwritten ||
				  extent_run_end(&list[j]) != list[j + 1].logical ||
				  list[j].physical + list[j].count != list[j + 1].physical);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/extent_node");
	TCase *tcase = tcase_create("extent_node");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, room_is_what_the_bytes_hold);
	tcase_add_test(tcase, an_extent_in_bytes);
	tcase_add_test(tcase, random_replacements);
	tcase_add_test(tcase, indexes_search_and_move);
	tcase_add_test(tcase, neighbours_join);
	tcase_add_test(tcase, joined_extents_are_full);
	tcase_add_test(tcase, random_lists_join);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
