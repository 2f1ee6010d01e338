/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of cipher/spec.c: both spellings, the key sizes, and the names that refusals give.
 */
#include "cipher_int.h"

#include "base.h"
#include "scratch.h"

static const struct {
	const char *text;
	uint32_t key_bytes;
	int algorithm;
	enum cipher_mode mode;
	enum cipher_iv iv;
	int hash;
	uint32_t block;
} accepted[] = {
	{"aes-xts-plain64", 64, GCRY_CIPHER_AES256, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64, 0, 16},
	{"aes-xts-plain64", 32, GCRY_CIPHER_AES128, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64, 0, 16},
	{"aes-xts-plain64", 48, GCRY_CIPHER_AES192, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64, 0, 16},
	{"aes-xts-plain", 64, GCRY_CIPHER_AES256, CIPHER_MODE_XTS, CIPHER_IV_PLAIN, 0, 16},
	{"aes-xts-plain64be", 64, GCRY_CIPHER_AES256, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64BE, 0, 16},
	{"aes-cbc-essiv:sha256", 32, GCRY_CIPHER_AES256, CIPHER_MODE_CBC, CIPHER_IV_ESSIV,
		GCRY_MD_SHA256, 16},
	{"aes-cbc-essiv:sha256", 16, GCRY_CIPHER_AES128, CIPHER_MODE_CBC, CIPHER_IV_ESSIV,
		GCRY_MD_SHA256, 16},
	{"aes-cbc-essiv:md5", 32, GCRY_CIPHER_AES256, CIPHER_MODE_CBC, CIPHER_IV_ESSIV, GCRY_MD_MD5,
		16},
	{"aes-xts-essiv:sha3-256", 64, GCRY_CIPHER_AES256, CIPHER_MODE_XTS, CIPHER_IV_ESSIV,
		GCRY_MD_SHA3_256, 16},
	{"aes-cbc-null", 24, GCRY_CIPHER_AES192, CIPHER_MODE_CBC, CIPHER_IV_NULL, 0, 16},
	{"aes-cbc-benbi", 32, GCRY_CIPHER_AES256, CIPHER_MODE_CBC, CIPHER_IV_BENBI, 0, 16},
	{"aes-cbc-eboiv", 32, GCRY_CIPHER_AES256, CIPHER_MODE_CBC, CIPHER_IV_EBOIV, 0, 16},
	{"aes-ctr-plain64", 32, GCRY_CIPHER_AES256, CIPHER_MODE_CTR, CIPHER_IV_PLAIN64, 0, 16},
	{"aes-ecb", 32, GCRY_CIPHER_AES256, CIPHER_MODE_ECB, CIPHER_IV_NULL, 0, 16},
	{"aes", 32, GCRY_CIPHER_AES256, CIPHER_MODE_CBC, CIPHER_IV_PLAIN, 0, 16},
	{"aes-plain", 32, GCRY_CIPHER_AES256, CIPHER_MODE_CBC, CIPHER_IV_PLAIN, 0, 16},
	{"aes-cbc-plain", 32, GCRY_CIPHER_AES256, CIPHER_MODE_CBC, CIPHER_IV_PLAIN, 0, 16},
	{"serpent-xts-plain64", 64, GCRY_CIPHER_SERPENT256, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64, 0,
		16},
	{"serpent-xts-plain64", 32, GCRY_CIPHER_SERPENT128, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64, 0,
		16},
	{"twofish-xts-plain64", 64, GCRY_CIPHER_TWOFISH, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64, 0, 16},
	{"twofish-cbc-essiv:sha256", 16, GCRY_CIPHER_TWOFISH128, CIPHER_MODE_CBC, CIPHER_IV_ESSIV,
		GCRY_MD_SHA256, 16},
	{"camellia-xts-plain64", 64, GCRY_CIPHER_CAMELLIA256, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64, 0,
		16},
	{"sm4-xts-plain64", 32, GCRY_CIPHER_SM4, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64, 0, 16},
	{"seed-cbc-plain64", 16, GCRY_CIPHER_SEED, CIPHER_MODE_CBC, CIPHER_IV_PLAIN64, 0, 16},
	{"cast5-cbc-plain64", 16, GCRY_CIPHER_CAST5, CIPHER_MODE_CBC, CIPHER_IV_PLAIN64, 0, 8},
	{"blowfish-cbc-essiv:sha256", 32, GCRY_CIPHER_BLOWFISH, CIPHER_MODE_CBC, CIPHER_IV_ESSIV,
		GCRY_MD_SHA256, 8},
	{"blowfish-cbc-plain", 56, GCRY_CIPHER_BLOWFISH, CIPHER_MODE_CBC, CIPHER_IV_PLAIN, 0, 8},
	{"des3_ede-cbc-plain64", 24, GCRY_CIPHER_3DES, CIPHER_MODE_CBC, CIPHER_IV_PLAIN64, 0, 8},
	{"capi:xts(aes)-plain64", 64, GCRY_CIPHER_AES256, CIPHER_MODE_XTS, CIPHER_IV_PLAIN64, 0,
		16},
	{"capi:cbc(serpent)-essiv:sha256", 32, GCRY_CIPHER_SERPENT256, CIPHER_MODE_CBC,
		CIPHER_IV_ESSIV, GCRY_MD_SHA256, 16},
	{"capi:ecb(aes)", 32, GCRY_CIPHER_AES256, CIPHER_MODE_ECB, CIPHER_IV_NULL, 0, 16},
};

START_TEST(test_accepted)
{
	static const uint32_t sectors[] = {512, 1024, 2048, 4096};
	const uint32_t sector = sectors[_i % 4];
	struct cipher_spec s;

	ck_ok(cipher_spec_parse(accepted[_i].text, accepted[_i].key_bytes, sector, &s));
	ck_assert_int_eq(s.algorithm, accepted[_i].algorithm);
	ck_assert_int_eq(s.mode, accepted[_i].mode);
	ck_assert_int_eq(s.iv, accepted[_i].iv);
	ck_assert_int_eq(s.essiv_hash, accepted[_i].hash);
	ck_assert_uint_eq(s.block_bytes, accepted[_i].block);
	ck_assert_uint_eq(s.key_bytes, accepted[_i].key_bytes);
	ck_assert_uint_eq(s.sector_bytes, sector);
	ck_assert_str_eq(s.text, accepted[_i].text);
}
END_TEST

static const struct {
	const char *text;
	uint32_t key_bytes, sector_bytes;
	const char *part;
} refused[] = {
	{"aes-lrw-benbi", 32, 512, "mode 'lrw'"},
	{"aes-cbc-tcw", 48, 512, "IV 'tcw'"},
	{"aes-cbc-lmk", 16, 512, "IV 'lmk'"},
	{"aes:64-cbc-lmk", 64, 512, "IV 'lmk'"},
	{"aes:2-cbc-plain64", 64, 512, "several keys 'aes:2'"},
	{"aes-cbc-essiv:wp256", 32, 512, "ESSIV hash 'wp256'"},
	{"aes-cbc-essiv", 32, 512, "ESSIV hash ''"},
	{"aes-cbc-essiv:sha1", 32, 512, "'aes' takes no key of 20 bytes"},
	{"aes-cbc-elephant", 32, 512, "IV 'elephant'"},
	{"aes-xts-random", 64, 512, "IV 'random'"},
	{"aes-xts", 64, 512, "IV ''"},
	{"aes-xts-plain64:x", 64, 512, "IV option 'x'"},
	{"xchacha12,aes-adiantum-plain64", 32, 4096, "mode 'adiantum'"},
	{"capi:adiantum(xchacha12,aes)-plain64", 32, 4096, "mode 'adiantum'"},
	{"aes-gcm-random", 32, 4096, "mode 'gcm'"},
	{"capi:gcm(aes)-random", 32, 4096, "mode 'gcm'"},
	{"capi:authenc(hmac(sha256),xts(aes))-random", 96, 4096, "mode 'authenc'"},
	{"capi:essiv(cbc(aes),sha256)-plain64", 32, 512, "mode 'essiv'"},
	{"capi:rfc7539(chacha20,poly1305)-random", 32, 512, "mode 'rfc7539'"},
	{"capi:xts-aes-aesni-plain64", 64, 512, "kernel algorithm 'xts-aes-aesni-plain64'"},
	{"capi:", 64, 512, "kernel algorithm ''"},
	{"capi:xts)aes(-plain64", 64, 512, "kernel algorithm"},
	{"aria-xts-plain64", 64, 512, "cipher 'aria'"},
	{"khazad-cbc-plain", 16, 512, "cipher 'khazad'"},
	{"", 32, 512, "cipher ''"},
	{"-", 32, 512, "cipher ''"},
	{"-xts-plain64", 32, 512, "cipher ''"},
	{"cipher_null-ecb", 32, 512, "does not encrypt"},
	{"cipher_null", 0, 512, "does not encrypt"},
	{"capi:ecb(cipher_null)", 0, 512, "does not encrypt"},
	{"aes-ctr-benbi", 32, 512, "with mode 'ctr' the IV 'benbi'"},
	{"aes-ctr-eboiv", 32, 512, "with mode 'ctr' the IV 'eboiv'"},
	{"blowfish-xts-plain64", 32, 512, "blocks of 16 bytes"},
	{"aes-xts-plain64", 16, 512, "a key of 128 bits"},
	{"aes-xts-plain64", 63, 512, "a key of 504 bits"},
	{"aes-xts-plain64", 65, 512, "a key of 520 bits"},
	{"aes-cbc-plain64", 64, 512, "a key of 512 bits"},
	{"aes-cbc-plain64", 0, 512, "a key of 0 bits"},
	{"twofish-xts-plain64", 48, 512, "a key of 384 bits"},
	{"blowfish-cbc-plain", 57, 512, "a key of 456 bits"},
	{"aes-xts-plain64", 64, 8192, "sectors of 8192 bytes"},
	{"aes-xts-plain64", 64, 0, "sectors of 0 bytes"},
	{"aes-xts-plain64", 64, 1000, "sectors of 1000 bytes"},
	{"aes-xts-plain64-and-more-than-a-header-has-room-for-in-its-cipher-field", 64, 512,
		"is not supported"},
	{"AES-xts-plain64", 64, 512, "cipher 'AES'"},
};

START_TEST(test_refused)
{
	struct cipher_spec s = {.algorithm = -1};

	ck_err(cipher_spec_parse(
		       refused[_i].text, refused[_i].key_bytes, refused[_i].sector_bytes, &s),
		ERR_CIPHER_SPEC);
	ck_detail(refused[_i].part);
	ck_assert_int_eq(s.algorithm, -1);
}
END_TEST

/* Whatever a header holds, the parser ends and stays in its buffers (asan watches). */
START_TEST(test_random_text)
{
	static const char *const parts[] = {"aes", "-", ":", "(", ")", "capi:", "xts", "cbc",
		"plain64", "essiv", "sha256", ",", "\xff", "%s", "ecb", "x"};
	struct cipher_spec s;
	char text[400];

	for (int i = 0; i < 20000; i++) {
		int n = (int)scratch_random(14);

		text[0] = '\0';
		for (int p = 0; p < n; p++)
			strcat(text, parts[scratch_random(ARRAY_SIZE(parts))]);
		if (cipher_spec_parse(text, 64, 512, &s) != OK)
			ck_assert_str_ne(err_detail(), "");
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cipher/spec");
	TCase *t = tcase_create("spec");

	ensure(cipher_library_init() == OK);
	tcase_add_loop_test(t, test_accepted, 0, ARRAY_SIZE(accepted));
	tcase_add_loop_test(t, test_refused, 0, ARRAY_SIZE(refused));
	tcase_add_test(t, test_random_text);
	suite_add_tcase(s, t);
	return scratch_main(s);
}
