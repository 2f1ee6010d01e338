/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of base/crc.c. The file is compiled into the suite, so that the table and the instruction
 * are both tested whatever the CPU has.
 *
 * Known answers: RFC 3720 B.4 for crc32c (the RFC inverts before and after, which the tests do by
 * hand); the check values of "123456789" from Koopman's and Cook's catalogues: CRC-32/ISCSI,
 * CRC-16/ARC, CRC-32/MPEG-2 (the Ethernet polynomial, most significant bit first, seed ~0, not
 * inverted at the end).
 */
#include "crc.c"
#include "rig_run.h"

typedef uint32_t (*crc32c_fn)(uint32_t crc, const uint8_t *p, size_t len);

static unsigned ways(crc32c_fn fn[2])
{
	fn[0] = crc32c_tables;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2")) {
		fn[1] = crc32c_sse42;
		return 2;
	}
#endif
	return 1;
}

START_TEST(crc32c_of_rfc3720)
{
	/* An iSCSI read (10) command PDU, the RFC's last example. */
	static const uint8_t pdu[48] = {0x01, 0xc0, [16] = 0x14, [22] = 0x04, [26] = 0x00,
		[27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
	uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
	crc32c_fn fn[2];
	memset(ones, 0xff, sizeof(ones));
	for (unsigned i = 0; i < 32; i++) {
		up[i] = (uint8_t)i;
		down[i] = (uint8_t)(31 - i);
	}
	for (unsigned w = ways(fn); w-- > 0;) {
		ck_assert_uint_eq(~fn[w](~0u, zeros, 32), 0x8a9136aa);
		ck_assert_uint_eq(~fn[w](~0u, ones, 32), 0x62a8ab43);
		ck_assert_uint_eq(~fn[w](~0u, up, 32), 0x46dd794e);
		ck_assert_uint_eq(~fn[w](~0u, down, 32), 0x113fdb5c);
		ck_assert_uint_eq(~fn[w](~0u, pdu, 48), 0xd9963a56);
		ck_assert_uint_eq(~fn[w](~0u, (const uint8_t *)"123456789", 9), 0xe3069283);
		ck_assert_uint_eq(fn[w](0x12345678, zeros, 0), 0x12345678);
	}
}
END_TEST

START_TEST(crc16_and_crc32_be_check_values)
{
	ck_assert_uint_eq(crc16(0, "123456789", 9), 0xbb3d);
	ck_assert_uint_eq(crc32_be(~0u, "123456789", 9), 0x0376e6e7);
	ck_assert_uint_eq(crc16(0x1234, "", 0), 0x1234);
	ck_assert_uint_eq(crc32_be(0x12345678, "", 0), 0x12345678);
}
END_TEST

/* One bit at a time, straight from the polynomial. */
static uint32_t crc32c_slow(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len > 0; p++, len--) {
		crc ^= *p;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82f63b78) : 0);
	}
	return crc;
}

START_TEST(every_length_alignment_and_split_agrees)
{
	uint64_t random = rig_seed("every_length_alignment_and_split_agrees");
	uint8_t data[300];
	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)rig_random(&random);
	for (size_t from = 0; from < 8; from++) {
		for (size_t len = 0; len < sizeof(data) - 8; len++) {
			uint32_t seed = (uint32_t)rig_random(&random);
			uint32_t want = crc32c_slow(seed, data + from, len);
			size_t cut = len > 0 ? rig_random(&random) % len : 0;
			ck_assert_uint_eq(crc32c_tables(seed, data + from, len), want);
			ck_assert_uint_eq(crc32c(seed, data + from, len), want);
			ck_assert_uint_eq(crc32c(crc32c(seed, data + from, cut), data + from + cut,
						  len - cut),
				want);
		}
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base/crc");
	TCase *tc = rig_case(s, "crc");
	tcase_add_test(tc, crc32c_of_rfc3720);
	tcase_add_test(tc, crc16_and_crc32_be_check_values);
	tcase_add_test(tc, every_length_alignment_and_split_agrees);
	return rig_run_suite(s);
}
