/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names' hashes against debugfs, which shares no code with us: all versions, names of every length
 * class, with bytes above 127, with and without a seed.
 */
#include "scratch.h"
#include "dir_int.h"

static const char *const version_name[EXT4_HASH_COUNT] = {
	"legacy", "half_md4", "tea", "3", "4", "5"};
static const char seed_text[] = "5ec4e7c0-ffee-4d15-a5ed-0fba11ad0ddd";
/* Taken as four little-endian words, as in the superblock. */
static const uint8_t seed_bytes[16] = {0x5e, 0xc4, 0xe7, 0xc0, 0xff, 0xee, 0x4d, 0x15, 0xa5, 0xed,
	0x0f, 0xba, 0x11, 0xad, 0x0d, 0xdd};

static void name_make(char *name, size_t len, bool high_bytes)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=";

	for (size_t i = 0; i < len; i++) {
		name[i] = plain[scratch_random(sizeof(plain) - 1)];
		if (high_bytes && scratch_random(2))
			name[i] = (char)(0x80 + scratch_random(0x80));
	}
	name[0] = plain[scratch_random(26)]; /* not an option */
	name[len] = 0;
}

enum { ROUNDS = 400 };

START_TEST(test_known_answers)
{
	static char names[ROUNDS][EXT4_NAME_BYTES_MAX + 1];
	uint32_t seed[4] = {0};
	bool seeded = _i & 1;
	enum ext4_hash_version version = (enum ext4_hash_version)(_i >> 1);
	FILE *commands = fopen(scratch_path("hashes"), "w"), *answers;
	char line[1024], command[400];
	int seen = 0;

	ensure(commands != NULL);
	for (int i = 0; seeded && i < 4; i++) {
		le32 word;

		memcpy(&word, seed_bytes + 4 * i, sizeof(word));
		seed[i] = le32_get(word);
	}
	for (int i = 0; i < ROUNDS; i++) {
		name_make(names[i], i < 255 ? (size_t)i + 1 : 1 + scratch_random(255), i & 1);
		fprintf(commands, "dx_hash -h %s %s %s %s\n", version_name[version],
			seeded ? "-s" : "", seeded ? seed_text : "", names[i]);
	}
	ensure(fclose(commands) == 0);
	snprintf(command, sizeof(command), "debugfs -f '%s' 2>&1", scratch_path("hashes"));
	answers = popen(command, "r");
	ensure(answers != NULL);
	while (fgets(line, sizeof(line), answers)) {
		const char *at = strrchr(line, '(');
		struct ext4_hash h;
		unsigned major, minor;

		if (strncmp(line, "Hash of ", 8) || !at)
			continue;
		ck_assert_int_lt(seen, ROUNDS);
		at = strstr(line, " is 0x");
		while (at && strstr(at + 1, " is 0x"))
			at = strstr(at + 1, " is 0x");
		ck_assert_ptr_nonnull(at);
		ck_assert_int_eq(sscanf(at, " is 0x%x (minor 0x%x)", &major, &minor), 2);
		h = ext4_hash_name(version, seed, names[seen], strlen(names[seen]));
		ck_assert_msg(h.major == major && h.minor == minor,
			"version %d, length %zu: %x %x, not %x %x", version, strlen(names[seen]),
			h.major, h.minor, major, minor);
		seen++;
	}
	pclose(answers);
	ck_assert_int_eq(seen, ROUNDS);
}
END_TEST

START_TEST(test_signedness_matters_only_for_high_bytes)
{
	const uint32_t seed[4] = {0};

	for (unsigned v = EXT4_HASH_LEGACY; v <= EXT4_HASH_TEA; v++) {
		enum ext4_hash_version s = (enum ext4_hash_version)v;
		enum ext4_hash_version u = (enum ext4_hash_version)(v + EXT4_HASH_TO_UNSIGNED);

		ck_assert_uint_eq(ext4_hash_name(s, seed, "plain", 5).major,
			ext4_hash_name(u, seed, "plain", 5).major);
		ck_assert_uint_ne(ext4_hash_name(s, seed, "pl\xe4in", 5).major,
			ext4_hash_name(u, seed, "pl\xe4in", 5).major);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hash");
	TCase *c = tcase_create("hash");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, test_known_answers, 0, 2 * EXT4_HASH_COUNT);
	tcase_add_test(c, test_signedness_matters_only_for_high_bytes);
	suite_add_tcase(s, c);
	return scratch_main(s);
}
