/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of luks/luks1.c: a real LUKS1 header with one field changed, and one with a hash that
 * libcryptsetup's build does not have, which must open all the same.
 */
#include "luks_rig.h"

enum { /* offsets in the header, from the specification */
	AT_CIPHER = 8,
	AT_MODE = 40,
	AT_HASH = 72,
	AT_PAYLOAD = 104,
	AT_KEY_BYTES = 108,
	AT_DIGEST_ITERATIONS = 164,
	AT_SLOT0 = 208,
};

static void setup(void)
{
	rig_setup();
	(void)rig_volume("v", 20, "--type luks1 --pbkdf-force-iterations 1000");
}

static void header_of(struct luks_header *h)
{
	struct dev *d = rig_dev(scratch_path("v"));

	ck_ok(luks_header_read(d, h));
	ck_assert_int_eq(h->version, 1);
	dev_close(d);
}

static const struct {
	unsigned at;
	const char *bytes;
	size_t len;
	const char *detail;
} refusals[] = {
	{AT_CIPHER, "", 1, "no name"},
	{AT_CIPHER, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 32, "no name"},
	{AT_MODE, "", 1, "no name"},
	{AT_HASH, "", 1, "no name"},
	{AT_KEY_BYTES, "\0\0\0\0", 4, "key size"},
	{AT_KEY_BYTES, "\0\0\2\1", 4, "key size"},
	{AT_KEY_BYTES, "\377\377\377\377", 4, "key size"},
	{AT_DIGEST_ITERATIONS, "\0\0\0\0", 4, "without measure"},
	{AT_SLOT0, "\1\2\3\4", 4, "neither on nor off"},
	{AT_SLOT0 + 40, "\0\0\0\1", 4, "outside"},
	{AT_SLOT0 + 40, "\377\377\377\377", 4, "outside"},
	{AT_SLOT0 + 44, "\0\0\17\241", 4, "stripes"},
	{AT_PAYLOAD, "\0\0\0\11", 4, "outside"},
};

START_TEST(test_refusals)
{
	struct luks_header h;
	struct luks l = {0};

	setup();
	header_of(&h);
	memcpy(h.phdr + refusals[_i].at, refusals[_i].bytes, refusals[_i].len);
	ck_err(luks1_parse(&h, &l), ERR_LUKS_HEADER);
	ck_detail(refusals[_i].detail);
	luks_header_free(&h);
}
END_TEST

/* An absurd iteration count stays with its slot. */
START_TEST(test_bad_slot)
{
	struct luks_header h;
	struct luks l = {0};

	setup();
	header_of(&h);
	memcpy(h.phdr + AT_SLOT0 + 4, "\377\377\377\377", 4);
	ck_ok(luks1_parse(&h, &l));
	ck_assert_uint_eq(l.slot_count, 1);
	ck_assert_int_eq(l.slots[0].problem, ERR_LUKS_HEADER);
	luks_header_free(&h);
}
END_TEST

START_TEST(test_parse)
{
	struct luks_header h;
	struct luks l = {0};

	setup();
	header_of(&h);
	memcpy(h.phdr + AT_HASH, "SHA256", 6);
	ck_ok(luks1_parse(&h, &l));
	ck_assert_str_eq(l.info.cipher, "aes-xts-plain64");
	ck_assert_str_eq(l.slots[0].info.hash, "sha256");
	ck_assert_uint_eq(l.info.key_bytes, 64);
	ck_assert_uint_eq(l.info.iv_offset, 0);
	ck_assert_uint_eq(l.slots[0].info.iterations, 1000);
	luks_header_free(&h);
}
END_TEST

/* Without libcryptsetup the reader serves the header: the door must not need the library. */
START_TEST(test_unknown_hash_of_the_library)
{
	struct luks *l = NULL;
	struct dev *d;
	FILE *f;

	setup();
	f = fopen(scratch_path("v"), "r+b");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fseek(f, AT_HASH, SEEK_SET), 0);
	ck_assert_uint_eq(fwrite("stribog512\0", 1, 11, f), 11);
	fclose(f);
	d = rig_dev(scratch_path("v"));
	ck_ok(luks_load(d, NULL, &l));
	ck_assert_ptr_null(l->cd);
	ck_assert_str_eq(err_detail(), "");
	luks_close(l);
	dev_close(d);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("luks/luks1");
	TCase *tc = tcase_create("luks1");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_refusals, 0, (int)ARRAY_SIZE(refusals));
	tcase_add_test(tc, test_bad_slot);
	tcase_add_test(tc, test_parse);
	tcase_add_test(tc, test_unknown_hash_of_the_library);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
