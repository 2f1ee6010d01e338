/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * base/crc: the three checksums of ext4 and jbd2, without inversion before or after.
 *
 * crc32c uses SSE 4.2's instruction where the CPU has it and eight tables of 256 words (eight
 * bytes a step) elsewhere. The tables are built once, at the first use. Any thread may call.
 * Sources: RFC 3720 appendix B.4 (Castagnoli polynomial), the kernel's documentation of ext4
 * checksums; the table method is Sarwate's, extended to eight bytes by Kounavis and Berry (2005).
 */
#include "base.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

enum { SLICES = 8 };
#define CRC32C_POLY   UINT32_C(0x82f63b78) /* reflected */
#define CRC16_POLY    UINT16_C(0xa001)     /* reflected */
#define CRC32_BE_POLY UINT32_C(0x04c11db7)

static pthread_once_t tables_once = PTHREAD_ONCE_INIT;
static uint32_t crc32c_slices[SLICES][256];
static uint16_t crc16_table[256];
static uint32_t crc32_be_table[256];

static void tables_build(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i, b = i << 24;
		uint16_t s = (uint16_t)i;
		for (int bit = 0; bit < 8; bit++) {
			c = c >> 1 ^ (c & 1 ? CRC32C_POLY : 0);
			s = (uint16_t)(s >> 1 ^ (s & 1 ? CRC16_POLY : 0));
			b = b << 1 ^ (b >> 31 ? CRC32_BE_POLY : 0);
		}
		crc32c_slices[0][i] = c;
		crc16_table[i] = s;
		crc32_be_table[i] = b;
	}
	/* Slice k holds what slice k-1 gives after one more zero byte. */
	for (int k = 1; k < SLICES; k++) {
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t c = crc32c_slices[k - 1][i];
			crc32c_slices[k][i] = c >> 8 ^ crc32c_slices[0][c & 0xff];
		}
	}
}

static void tables_need(void)
{
	ensure(pthread_once(&tables_once, tables_build) == 0);
}

static uint32_t crc32c_tables(uint32_t crc, const uint8_t *p, size_t len)
{
	tables_need();
	for (; len >= SLICES; p += SLICES, len -= SLICES) {
		le64 raw;
		memcpy(raw.b, p, sizeof(raw.b));
		uint64_t v = le64_get(raw) ^ crc;
		crc = 0;
		for (unsigned k = 0; k < SLICES; k++)
			crc ^= crc32c_slices[SLICES - 1 - k][v >> 8 * k & 0xff];
	}
	for (; len > 0; p++, len--)
		crc = crc >> 8 ^ crc32c_slices[0][(crc ^ *p) & 0xff];
	return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(
	uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t c = crc;
	for (; len >= 8; p += 8, len -= 8) {
		uint64_t v;
		memcpy(&v, p, sizeof(v));
		c = _mm_crc32_u64(c, v);
	}
	crc = (uint32_t)c;
	for (; len > 0; p++, len--)
		crc = _mm_crc32_u8(crc, *p);
	return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return crc32c_sse42(crc, data, len);
#endif
	return crc32c_tables(crc, data, len);
}

uint16_t crc16(uint16_t crc, const void *data, size_t len)
{
	tables_need();
	for (const uint8_t *p = data; len > 0; p++, len--)
		crc = (uint16_t)(crc >> 8 ^ crc16_table[(crc ^ *p) & 0xff]);
	return crc;
}

uint32_t crc32_be(uint32_t crc, const void *data, size_t len)
{
	tables_need();
	for (const uint8_t *p = data; len > 0; p++, len--)
		crc = crc << 8 ^ crc32_be_table[(crc >> 24 ^ *p) & 0xff];
	return crc;
}
