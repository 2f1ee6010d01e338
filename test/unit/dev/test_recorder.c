/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of dev/recorder.c: what a cut may leave and what it must.
 */
#include <stdlib.h>

#include "dev.h"

#include "base.h"
#include "scratch.h"

enum { SIZE = 64 << 10, PIECE = 4096 };

static uint8_t image[SIZE];

static struct dev *recorder_new(void)
{
	struct dev *below, *d;

	ck_ok(dev_open_memory(SIZE, &below));
	memset(dev_memory_bytes(below), 'b', SIZE);
	ck_ok(dev_open_recorder(below, &d));
	return d;
}

static void write_filled(struct dev *d, char fill, size_t len, uint64_t offset)
{
	uint8_t *bytes = malloc(len);

	memset(bytes, fill, len);
	ck_ok(dev_write(d, bytes, len, offset));
	free(bytes);
}

static void cut(struct dev *d, uint64_t stamp, uint64_t seed)
{
	struct dev_cut c = {.stamp = stamp, .seed = seed, .tear_bytes = PIECE};

	dev_recorder_image(d, &c, image);
}

START_TEST(test_prefixes)
{
	struct dev *d = recorder_new();
	uint64_t after_first, end;

	write_filled(d, '1', PIECE, 0);
	after_first = dev_recorder_stamp(d);
	write_filled(d, '2', PIECE, 0);
	end = dev_recorder_stamp(d);

	cut(d, 1, 0);
	ck_assert_int_eq(image[0], 'b');
	cut(d, after_first, 0);
	ck_assert_int_eq(image[0], '1');
	cut(d, end, 0);
	ck_assert_int_eq(image[0], '2');
	ck_assert_int_eq(image[PIECE], 'b');
	dev_close(d);
}
END_TEST

/* Whatever the seed, what was flushed is there and what had not started is not. */
START_TEST(test_flush_is_a_promise)
{
	struct dev *d = recorder_new();
	uint64_t flush_start, end;
	bool lost = false, kept = false, torn = false;

	write_filled(d, 'f', 2 * PIECE, 0);
	ck_ok(dev_flush(d));
	write_filled(d, 'u', 4 * PIECE, 8 * PIECE);
	end = dev_recorder_stamp(d);
	write_filled(d, 'l', PIECE, 0);
	ck_assert_uint_eq(dev_recorder_flushes(d, &flush_start, 1), 1);

	for (uint64_t seed = 1; seed <= 200; seed++) {
		size_t pieces = 0;

		cut(d, end, seed);
		ck_assert_int_eq(image[0], 'f');
		ck_assert_int_eq(image[2 * PIECE - 1], 'f');
		for (size_t i = 0; i < 4; i++) {
			ck_assert_int_eq(image[(8 + i) * PIECE], image[(9 + i) * PIECE - 1]);
			pieces += image[(8 + i) * PIECE] == 'u';
		}
		lost |= pieces == 0;
		kept |= pieces == 4;
		torn |= pieces != 0 && pieces != 4;
		/* While the flush itself is running nothing is promised yet. */
		cut(d, flush_start + 1, seed);
		ck_assert(image[0] == 'f' || image[0] == 'b');
	}
	ck_assert(lost && kept && torn);
	dev_close(d);
}
END_TEST

START_TEST(test_same_cut_same_image)
{
	struct dev *d = recorder_new();
	uint8_t *first = malloc(SIZE);

	for (uint64_t i = 0; i < 8; i++)
		write_filled(d, (char)('0' + i), 2 * PIECE, i * PIECE);
	cut(d, dev_recorder_stamp(d), 77);
	memcpy(first, image, SIZE);
	memset(image, 0, SIZE);
	cut(d, dev_recorder_stamp(d), 77);
	ck_assert_mem_eq(first, image, SIZE);
	free(first);
	dev_close(d);
}
END_TEST

START_TEST(test_failed_flush_promises_nothing)
{
	struct dev *memory, *fault, *d;
	bool lost = false;

	ck_ok(dev_open_memory(SIZE, &memory));
	ck_ok(dev_open_fault(memory, &fault));
	ck_ok(dev_open_recorder(fault, &d));
	write_filled(d, 'w', PIECE, 0);
	dev_fault_arm(fault, DEV_FAULT_FLUSH, 1, false, ERR_IO);
	ck_err(dev_flush(d), ERR_IO);
	for (uint64_t seed = 1; seed <= 100 && !lost; seed++) {
		cut(d, dev_recorder_stamp(d), seed);
		lost = image[0] != 'w';
	}
	ck_assert(lost);
	dev_close(d);
}
END_TEST

START_TEST(test_marks_and_discards)
{
	struct dev *d = recorder_new();
	uint64_t stamp, now;

	ck_ok(dev_discard(d, 0, PIECE));
	ck_ok(dev_flush(d));
	now = dev_recorder_stamp(d);
	ck_ok(dev_recorder_mark(d, 5, &stamp));
	ck_assert_uint_eq(stamp, now);
	cut(d, stamp, 3);
	ck_assert_int_eq(image[0], 0);
	ck_assert_int_eq(image[PIECE], 'b');
	dev_close(d);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("dev/recorder");
	TCase *t = tcase_create("recorder");

	tcase_add_test(t, test_prefixes);
	tcase_add_test(t, test_flush_is_a_promise);
	tcase_add_test(t, test_same_cut_same_image);
	tcase_add_test(t, test_failed_flush_promises_nothing);
	tcase_add_test(t, test_marks_and_discards);
	suite_add_tcase(s, t);
	return scratch_main(s);
}
