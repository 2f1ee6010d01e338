/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of luks/kdf.c: known answers (RFC 6070 and RFC 7914 for pbkdf2, OpenSSL's for the other
 * hashes, the argon2 reference implementation's own test values for version 1.3), and the bounds
 * on what a header may ask for. That many lanes agree with libargon2 is test_luks.c's.
 */
#include "luks_rig.h"

static void expect(struct kdf k, const char *salt, const char *passphrase, const char *hex)
{
	struct secret out = {0};
	char got[2 * 64 + 1] = "";

	ck_ok(cipher_library_init());
	k.salt_bytes = strlen(salt);
	memcpy(k.salt, salt, k.salt_bytes);
	ck_ok(secret_alloc(&out, strlen(hex) / 2));
	ck_ok(kdf_derive(&k, passphrase, strlen(passphrase), &out));
	for (size_t i = 0; i < out.len; i++)
		snprintf(got + 2 * i, 3, "%02x", out.bytes[i]);
	ck_assert_str_eq(got, hex);
	secret_free(&out);
}

static struct kdf pbkdf2(const char *hash, uint64_t iterations)
{
	struct kdf k = {.kind = LUKS_KDF_PBKDF2, .iterations = iterations};

	snprintf(k.hash, sizeof(k.hash), "%s", hash);
	return k;
}

START_TEST(test_pbkdf2)
{
	expect(pbkdf2("sha1", 2), "salt", "password", "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957");
	expect(pbkdf2("sha1", 4096), "saltSALTsaltSALTsaltSALTsaltSALTsalt",
		"passwordPASSWORDpassword", "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038");
	expect(pbkdf2("sha256", 1), "salt", "passwd",
		"55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
		"49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783");
}
END_TEST

START_TEST(test_hash_names)
{
	static const char *const answers[][2] = {
		{"sha512", "afe6c5530785b6cc6b1c6453384731bd5ee432ee549fd42fb6695779ad8a1c5b"},
		{"sha3-256", "ee56a9b7311bb081d0bbfa8dc3c2798f30abbbec6344426829d956ed06eaecab"},
		{"blake2b-512", "bea9c4f32ea86aa9965157f6eaa2c5e8d8e0362ea12e3af854d1d5db62b276a9"},
		{"ripemd160", "b5c5682c46fdb315930cfc54e82d0987e6ef938fee9320191bfbac2700de4ed4"},
	};
	static const char *const others[] = {"sha224", "sha384", "sha3-512", "blake2b-256",
		"blake2s-256", "whirlpool", "stribog512", "sm3", "SHA256"};
	struct secret out = {0};
	struct kdf k;

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
		expect(pbkdf2(answers[i][0], 1000), "salt", "password", answers[i][1]);
	ck_ok(secret_alloc(&out, 32));
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		k = pbkdf2(others[i], 1);
		k.salt_bytes = 8;
		ck_ok(kdf_derive(&k, "p", 1, &out));
	}
	k = pbkdf2("rot13", 1);
	ck_err(kdf_derive(&k, "p", 1, &out), ERR_LUKS_REQUIREMENT);
	ck_detail("rot13");
	/* The empty passphrase is one. */
	k = pbkdf2("sha256", 1);
	k.salt_bytes = 8;
	ck_ok(kdf_derive(&k, NULL, 0, &out));
	secret_free(&out);
}
END_TEST

START_TEST(test_argon2)
{
	struct kdf k = {
		.kind = LUKS_KDF_ARGON2ID, .iterations = 2, .memory_kib = 65536, .lanes = 1};

	expect(k, "somesalt", "password",
		"09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7");
	k.kind = LUKS_KDF_ARGON2I;
	expect(k, "somesalt", "password",
		"c1628832147d9720c5bd1cfd61367078729f6dfb6f8fea9ff98158e0d7816ed0");
}
END_TEST

START_TEST(test_bounds)
{
	const struct kdf sane = {
		.kind = LUKS_KDF_ARGON2ID, .iterations = 4, .memory_kib = 1 << 20, .lanes = 4};
	struct kdf k = pbkdf2("sha256", 0);

	ck_err(kdf_check(&k), ERR_LUKS_HEADER);
	k.iterations = (uint64_t)INT32_MAX + 1;
	ck_err(kdf_check(&k), ERR_LUKS_HEADER);
	k.iterations = INT32_MAX;
	ck_ok(kdf_check(&k));
	ck_ok(kdf_check(&sane));
	k = sane;
	k.memory_kib = LUKS_KDF_MEMORY_KIB_MAX;
	ck_ok(kdf_check(&k));
	k.memory_kib++;
	ck_err(kdf_check(&k), ERR_LUKS_HEADER);
	k = sane;
	k.memory_kib = 31; /* four lanes need 32 */
	ck_err(kdf_check(&k), ERR_LUKS_HEADER);
	k = sane;
	k.lanes = 0;
	ck_err(kdf_check(&k), ERR_LUKS_HEADER);
	k.lanes = LUKS_KDF_LANES_MAX + 1;
	ck_err(kdf_check(&k), ERR_LUKS_HEADER);
	k = sane;
	k.iterations = 0;
	ck_err(kdf_check(&k), ERR_LUKS_HEADER);
	k.iterations = UINT32_MAX;
	ck_err(kdf_check(&k), ERR_LUKS_HEADER);
}
END_TEST

START_TEST(test_merge_refuses_unknown_hash)
{
	struct secret key = {0};
	static uint8_t stripes[LUKS_STRIPES * 32];

	ck_ok(cipher_library_init());
	ck_ok(secret_alloc(&key, 32));
	ck_err(kdf_af_merge(stripes, "rot13", &key), ERR_LUKS_REQUIREMENT);
	ck_ok(kdf_af_merge(stripes, "sha1", &key)); /* 32 bytes in pieces of 20 and 12 */
	secret_free(&key);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("luks/kdf");
	TCase *tc = tcase_create("kdf");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_pbkdf2);
	tcase_add_test(tc, test_hash_names);
	tcase_add_test(tc, test_argon2);
	tcase_add_test(tc, test_bounds);
	tcase_add_test(tc, test_merge_refuses_unknown_hash);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
