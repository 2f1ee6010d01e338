/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hash: the hashes of names that order a directory's index: legacy, half-MD4 and TEA, each with
 * names taken as signed or as unsigned bytes (what char was on the machine that made the volume).
 *
 * Pure functions. Source: Documentation/filesystems/ext4/directory.rst for the names of the
 * hashes, the kernel's fs/ext4/hash.c for the functions; RFC 1320 for MD4's rounds, and Wheeler
 * and Needham's paper for TEA. Known answers for the tests come from debugfs. The hash of
 * casefolded and encrypted directories is not here: such volumes are refused at mount.
 */
#include "dir_int.h"

enum {
	HASH_HALF_MD4_CHUNK = 32, /* bytes of a name that go through one transformation */
	HASH_TEA_CHUNK = 16,
	HASH_TEA_ROUNDS = 16,
	HASH_WORDS_MAX = HASH_HALF_MD4_CHUNK / 4,
};

static uint32_t rotate_left(uint32_t v, unsigned bits)
{
	return v << bits | v >> (32 - bits);
}

/* Three of MD4's rounds over half the input, on an order of words of its own. */
static void hash_half_md4(uint32_t state[4], const uint32_t in[8])
{
	static const struct {
		uint32_t add;
		uint8_t shift[4];
		uint8_t word[8];
	} round[3] = {
		{0, {3, 7, 11, 19}, {0, 1, 2, 3, 4, 5, 6, 7}},
		{0x5a827999, {3, 5, 9, 13}, {1, 3, 5, 7, 0, 2, 4, 6}},
		{0x6ed9eba1, {3, 9, 11, 15}, {3, 7, 2, 6, 1, 5, 0, 4}},
	};
	uint32_t a = state[0], b = state[1], c = state[2], d = state[3];

	for (int r = 0; r < 3; r++) {
		for (int i = 0; i < 8; i++) {
			uint32_t mix, next;

			if (r == 0)
				mix = d ^ (b & (c ^ d));
			else if (r == 1)
				mix = (b & c) + ((b ^ c) & d);
			else
				mix = b ^ c ^ d;
			next = rotate_left(a + mix + in[round[r].word[i]] + round[r].add,
				round[r].shift[i % 4]);
			a = d;
			d = c;
			c = b;
			b = next;
		}
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
}

static void hash_tea(uint32_t state[4], const uint32_t in[4])
{
	uint32_t x = state[0], y = state[1], sum = 0;

	for (int i = 0; i < HASH_TEA_ROUNDS; i++) {
		sum += 0x9e3779b9;
		x += ((y << 4) + in[0]) ^ (y + sum) ^ ((y >> 5) + in[1]);
		y += ((x << 4) + in[2]) ^ (x + sum) ^ ((x >> 5) + in[3]);
	}
	state[0] += x;
	state[1] += y;
}

static uint32_t hash_byte(char c, bool is_unsigned)
{
	return is_unsigned ? (uint32_t)(unsigned char)c : (uint32_t)(int32_t)(signed char)c;
}

static uint32_t hash_legacy(const char *name, size_t len, bool is_unsigned)
{
	uint32_t now = 0x12a3fe2d, before = 0x37abe8f9;

	for (size_t i = 0; i < len; i++) {
		uint32_t next = before + (now ^ (hash_byte(name[i], is_unsigned) * 7152373));

		if (next & 0x80000000)
			next -= 0x7fffffff;
		before = now;
		now = next;
	}
	return now << 1;
}

/*
 * Packs up to words * 4 bytes, first byte highest; what the name does not fill holds the length of
 * what is left of it, in every byte.
 */
static void hash_pack(const char *name, size_t len, bool is_unsigned, uint32_t *out, unsigned words)
{
	uint32_t fill = (uint32_t)len | (uint32_t)len << 8;

	fill |= fill << 16;
	len = MIN(len, (size_t)words * 4);
	for (unsigned w = 0; w < words; w++) {
		uint32_t v = fill;

		for (size_t i = (size_t)w * 4; i < MIN(len, (size_t)w * 4 + 4); i++)
			v = hash_byte(name[i], is_unsigned) + (v << 8);
		out[w] = v;
	}
}

enum ext4_hash_version ext4_hash_resolve(const struct ext4 *fs, uint8_t version)
{
	ensure(version <= EXT4_HASH_TEA);
	return (enum ext4_hash_version)(version + (fs->hash_unsigned ? EXT4_HASH_TO_UNSIGNED : 0));
}

struct ext4_hash ext4_hash_name(
	enum ext4_hash_version version, const uint32_t seed[4], const char *name, size_t len)
{
	uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
	uint32_t in[HASH_WORDS_MAX];
	bool is_unsigned = version >= EXT4_HASH_LEGACY_UNSIGNED;
	struct ext4_hash h = {0, 0};

	ensure(version < EXT4_HASH_COUNT);
	if (seed[0] | seed[1] | seed[2] | seed[3])
		memcpy(state, seed, sizeof(state));
	switch (version) {
	case EXT4_HASH_LEGACY:
	case EXT4_HASH_LEGACY_UNSIGNED:
		h.major = hash_legacy(name, len, is_unsigned);
		break;
	case EXT4_HASH_HALF_MD4:
	case EXT4_HASH_HALF_MD4_UNSIGNED:
		for (size_t at = 0; at < len; at += HASH_HALF_MD4_CHUNK) {
			hash_pack(name + at, len - at, is_unsigned, in, 8);
			hash_half_md4(state, in);
		}
		h = (struct ext4_hash){state[1], state[2]};
		break;
	case EXT4_HASH_TEA:
	case EXT4_HASH_TEA_UNSIGNED:
		for (size_t at = 0; at < len; at += HASH_TEA_CHUNK) {
			hash_pack(name + at, len - at, is_unsigned, in, 4);
			hash_tea(state, in);
		}
		h = (struct ext4_hash){state[0], state[1]};
		break;
	case EXT4_HASH_COUNT:
		break;
	}
	h.major &= ~1u;
	if (h.major == 0xfffffffe) /* readdir's end */
		h.major = 0xfffffffc;
	return h;
}
