/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ciphers against programs that share no code with libgcrypt: cryptsetup's offline
 * reencryption (OpenSSL in Debian) encrypts an image, and `openssl enc` one sector of the ciphers
 * that cryptsetup cannot do without the kernel.
 */
#include "cipher.h"

#include "base.h"
#include "scratch.h"

enum { IMAGE_BYTES = 256 << 10 };

static void read_file(const char *name, uint8_t *out, size_t len)
{
	FILE *f = fopen(scratch_path(name), "r");

	ensure(f != NULL);
	ck_assert_uint_eq(fread(out, 1, len, f), len);
	fclose(f);
}

static void write_file(const char *name, const uint8_t *bytes, size_t len)
{
	FILE *f = fopen(scratch_path(name), "w");

	ensure(f != NULL);
	ensure(fwrite(bytes, 1, len, f) == len);
	ensure(fclose(f) == 0);
}

static const struct {
	const char *text;
	uint32_t key_bytes, sector_bytes;
} by_cryptsetup[] = {
	{"aes-xts-plain64", 64, 512},
	{"aes-xts-plain64", 64, 1024},
	{"aes-xts-plain64", 64, 2048},
	{"aes-xts-plain64", 64, 4096},
	{"aes-xts-plain64", 32, 4096},
	{"aes-xts-plain", 64, 512},
	{"aes-xts-plain64be", 64, 4096},
	{"aes-xts-essiv:sha256", 64, 512},
	{"aes-cbc-essiv:sha256", 32, 512},
	{"aes-cbc-essiv:sha256", 16, 4096},
	{"aes-cbc-plain64", 24, 512},
	{"aes-cbc-benbi", 32, 512},
	{"aes-cbc-null", 32, 512},
	{"aes-cbc-eboiv", 32, 512},
	{"aes-cbc-eboiv", 32, 4096},
	{"aes-ctr-plain64", 32, 512},
	{"camellia-cbc-essiv:sha256", 32, 512},
	{"camellia-cbc-plain64", 32, 4096},
};

START_TEST(test_cryptsetup)
{
	static uint8_t plain[IMAGE_BYTES], encrypted[IMAGE_BYTES];
	char command[1500], says[256];
	struct cipher_spec spec;
	struct secret key;
	struct cipher *c;

	if (!scratch_run("command -v cryptsetup", NULL)) {
		printf("SKIP: test_cryptsetup: cryptsetup is not installed\n");
		return;
	}
	scratch_fill(plain, sizeof(plain));
	write_file("image", plain, sizeof(plain));
	write_file("pass", (const uint8_t *)"pass", 4);
	snprintf(command, sizeof(command),
		"cd '%s' && rm -f header key && { cryptsetup reencrypt --encrypt -q "
		"--force-offline-reencrypt --disable-locks --header header -c %s --key-size %u "
		"--sector-size %u --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file pass "
		"image && cryptsetup luksDump -q --disable-locks --dump-volume-key "
		"--volume-key-file key --key-file pass header >/dev/null; } 2>&1",
		scratch_dir, by_cryptsetup[_i].text, 8 * by_cryptsetup[_i].key_bytes,
		by_cryptsetup[_i].sector_bytes);
	ck_assert_msg(
		scratch_run(command, says), "cryptsetup %s: %s", by_cryptsetup[_i].text, says);
	ck_ok(secret_alloc(&key, by_cryptsetup[_i].key_bytes));
	read_file("key", key.bytes, key.len);
	read_file("image", encrypted, sizeof(encrypted));
	ck_assert_mem_ne(encrypted, plain, 16);
	ck_ok(cipher_spec_parse(by_cryptsetup[_i].text, by_cryptsetup[_i].key_bytes,
		by_cryptsetup[_i].sector_bytes, &spec));
	ck_ok(cipher_create(&spec, &key, &c));
	ck_ok(cipher_decrypt(c, encrypted, encrypted, sizeof(encrypted), 0));
	ck_assert_mem_eq(encrypted, plain, sizeof(plain));
	cipher_destroy(c);
	secret_free(&key);
}
END_TEST

static const struct {
	const char *text, *name;
	uint32_t key_bytes, block_bytes;
	bool legacy;
} by_openssl[] = {
	{"sm4-cbc-plain64", "sm4-cbc", 16, 16, false},
	{"sm4-ctr-plain64", "sm4-ctr", 16, 16, false},
	{"camellia-ctr-plain64", "camellia-256-ctr", 32, 16, false},
	{"camellia-cbc-plain64", "camellia-192-cbc", 24, 16, false},
	{"des3_ede-cbc-plain64", "des-ede3-cbc", 24, 8, false},
	{"cast5-cbc-plain64", "cast5-cbc", 16, 8, true},
	{"blowfish-cbc-plain64", "bf-cbc", 16, 8, true},
	{"seed-cbc-plain64", "seed-cbc", 16, 16, true},
	{"aes-ecb", "aes-256-ecb", 32, 16, false},
};

START_TEST(test_openssl)
{
	static uint8_t plain[4096], want[4096], got[4096];
	const uint32_t sector = 0x04030201;
	char command[1000], hex[65] = "", iv[40] = "", says[256];
	struct cipher_spec spec;
	struct secret key;
	struct cipher *c;

	if (!scratch_run("command -v openssl", NULL)) {
		printf("SKIP: test_openssl: openssl is not installed\n");
		return;
	}
	ck_ok(secret_alloc(&key, by_openssl[_i].key_bytes));
	for (uint32_t i = 0; i < key.len; i++) {
		key.bytes[i] = (uint8_t)scratch_random(256);
		snprintf(hex + 2 * i, 3, "%02x", key.bytes[i]);
	}
	if (strcmp(by_openssl[_i].text, "aes-ecb") != 0)
		snprintf(iv, sizeof(iv), "-iv 01020304%0*d",
			(int)by_openssl[_i].block_bytes * 2 - 8, 0);
	scratch_fill(plain, sizeof(plain));
	write_file("plain", plain, sizeof(plain));
	snprintf(command, sizeof(command),
		"cd '%s' && openssl enc -e -%s -K %s %s -nopad %s -in plain -out want 2>&1",
		scratch_dir, by_openssl[_i].name, hex, iv,
		by_openssl[_i].legacy ? "-provider legacy -provider default" : "");
	ck_assert_msg(scratch_run(command, says), "openssl %s: %s", by_openssl[_i].name, says);
	read_file("want", want, sizeof(want));
	ck_ok(cipher_spec_parse(by_openssl[_i].text, by_openssl[_i].key_bytes, 4096, &spec));
	ck_ok(cipher_create(&spec, &key, &c));
	ck_ok(cipher_encrypt(c, got, plain, sizeof(got), sector));
	ck_assert_mem_eq(got, want, sizeof(want));
	cipher_destroy(c);
	secret_free(&key);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cipher/reference");
	TCase *t = tcase_create("reference");

	ensure(cipher_library_init() == OK);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, test_cryptsetup, 0, ARRAY_SIZE(by_cryptsetup));
	tcase_add_loop_test(t, test_openssl, 0, ARRAY_SIZE(by_openssl));
	suite_add_tcase(s, t);
	return scratch_main(s);
}
