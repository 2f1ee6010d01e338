/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of luks/reader.c: keyslots of ciphers that libcryptsetup cannot open here. The header is
 * cryptsetup's, with the cipher of its keyslot area changed and the area written anew: random
 * stripes whose last one makes them merge to the volume key. The merge and the derivation
 * themselves are held against cryptsetup in test_luks.c, and volumes that the kernel's own
 * crypto made in test/system/keyslot_ciphers.sh.
 */
#include "luks_rig.h"

static const struct {
	const char *cipher;
	uint32_t key_bytes;
} ciphers[] = {
	{"serpent-xts-plain64", 64},
	{"serpent-cbc-essiv:sha256", 32},
	{"twofish-xts-plain64", 64},
	{"twofish-xts-plain64", 32},
	{"camellia-xts-plain64", 64},
	{"aes-xts-plain64", 64},
	{"cast5-cbc-plain", 16},
};

static struct luks *load_aes(struct dev **d, const char *type)
{
	struct luks *l = NULL;
	char arguments[200];

	rig_setup();
	snprintf(arguments, sizeof(arguments), "--type %s", type);
	(void)rig_volume("v", 20, arguments);
	*d = rig_dev(scratch_path("v"));
	ck_ok(luks_load(*d, NULL, &l));
	return l;
}

/* Writes the keyslot's area in the private copy, so that it holds `key` behind `passphrase`. */
static void write_area(struct luks *l, struct keyslot *s, const struct secret *passphrase,
	const struct secret *key)
{
	const size_t stripes_bytes = (size_t)LUKS_STRIPES * key->len;
	const size_t area_bytes = (stripes_bytes + 511) / 512 * 512;
	uint8_t *area = calloc(1, area_bytes);
	struct secret merged = {0}, area_key = {0};
	struct cipher_spec spec;
	struct cipher *c = NULL;

	ck_assert_ptr_nonnull(area);
	scratch_fill(area, stripes_bytes - key->len);
	ck_ok(secret_alloc(&merged, key->len));
	ck_ok(kdf_af_merge(area, s->af_hash, &merged));
	for (size_t i = 0; i < key->len; i++)
		area[stripes_bytes - key->len + i] = merged.bytes[i] ^ key->bytes[i];
	ck_ok(secret_alloc(&area_key, s->area_key_bytes));
	ck_ok(kdf_derive(&s->kdf, passphrase->bytes, passphrase->len, &area_key));
	ck_ok(cipher_spec_parse(s->info.cipher, s->area_key_bytes, 512, &spec));
	ck_ok(cipher_create(&spec, &area_key, &c));
	ck_ok(cipher_encrypt(c, area, area, area_bytes, 0));
	cipher_destroy(c);
	ck_assert(pwrite(l->copy_fd, area, area_bytes, (off_t)s->area_offset_bytes) ==
		  (ssize_t)area_bytes);
	secret_free(&merged);
	secret_free(&area_key);
	free(area);
}

START_TEST(test_ciphers)
{
	struct secret good, bad, key = {0}, got = {0};
	struct dev *d;
	struct luks *l = load_aes(&d, "luks2 " RIG_CHEAP);
	struct keyslot *s = &l->slots[0];

	rig_secret(RIG_PASSPHRASE, &good);
	rig_secret("wrong", &bad);
	ck_ok(luks_unlock(l, &good, -1, &key));
	snprintf(s->info.cipher, sizeof(s->info.cipher), "%s", ciphers[_i].cipher);
	s->area_key_bytes = ciphers[_i].key_bytes;
	write_area(l, s, &good, &key);
	ck_ok(reader_unlock(l, s, &good, &got));
	ck_assert_mem_eq(got.bytes, key.bytes, key.len);
	secret_free(&got);
	ck_err(reader_unlock(l, s, &bad, &got), ERR_LUKS_KEY);
	secret_free(&good);
	secret_free(&bad);
	secret_free(&key);
	luks_close(l);
	dev_close(d);
}
END_TEST

START_TEST(test_refused_by_name)
{
	static const char *const names[] = {"aes-lrw-benbi", "aria-xts-plain64", "cipher_null-ecb",
		"xchacha12,aes-adiantum-plain64"};
	struct secret good, got = {0};
	struct dev *d;
	struct luks *l = load_aes(&d, "luks2 " RIG_CHEAP);
	struct keyslot *s = &l->slots[0];

	rig_secret(RIG_PASSPHRASE, &good);
	snprintf(s->info.cipher, sizeof(s->info.cipher), "%s", names[_i]);
	ck_err(reader_unlock(l, s, &good, &got), ERR_CIPHER_SPEC);
	ck_detail(_i == 2 ? "cipher_null-ecb" : "not supported");
	/* The door says the same when the library cannot either. */
	library_close(l);
	ck_err(luks_unlock(l, &good, -1, &got), ERR_CIPHER_SPEC);
	ck_assert_ptr_null(got.bytes);
	secret_free(&good);
	luks_close(l);
	dev_close(d);
}
END_TEST

/* Both versions open without the library at all. */
START_TEST(test_without_library)
{
	struct secret good, bad, key = {0}, got = {0};
	struct dev *d;
	struct luks *l =
		load_aes(&d, _i ? "luks1 --pbkdf-force-iterations 1000" : "luks2 " RIG_CHEAP);

	rig_secret(RIG_PASSPHRASE, &good);
	rig_secret("wrong", &bad);
	ck_ok(luks_unlock(l, &good, -1, &key));
	library_close(l);
	ck_ok(luks_unlock(l, &good, -1, &got));
	ck_assert_uint_eq(key.len, got.len);
	ck_assert_mem_eq(key.bytes, got.bytes, key.len);
	secret_free(&got);
	ck_err(luks_unlock(l, &bad, -1, &got), ERR_LUKS_KEY);
	ck_ok(reader_verify(l, &key));
	key.bytes[0] ^= 1;
	ck_err(reader_verify(l, &key), ERR_LUKS_KEY);
	secret_free(&key);
	secret_free(&good);
	secret_free(&bad);
	luks_close(l);
	dev_close(d);
}
END_TEST

START_TEST(test_area_past_the_end)
{
	struct secret good, got = {0};
	struct dev *d;
	struct luks *l = load_aes(&d, "luks2 " RIG_CHEAP);

	rig_secret(RIG_PASSPHRASE, &good);
	l->slots[0].area_offset_bytes = 1 << 30;
	ck_err(reader_unlock(l, &l->slots[0], &good, &got), ERR_LUKS_HEADER);
	ck_detail("past the end");
	secret_free(&good);
	luks_close(l);
	dev_close(d);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("luks/reader");
	TCase *tc = tcase_create("reader");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_ciphers, 0, (int)ARRAY_SIZE(ciphers));
	tcase_add_loop_test(tc, test_refused_by_name, 0, 4);
	tcase_add_loop_test(tc, test_without_library, 0, 2);
	tcase_add_test(tc, test_area_past_the_end);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
