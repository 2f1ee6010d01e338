/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of luks/luks2.c: the JSON of a real header, changed in one place each, and what the parser
 * makes of it. Also base64 (RFC 4648's vectors).
 */
#include "luks_rig.h"
#include <json-c/json.h>

/* The member at a path like "segments/0/size"; the last part may be missing yet. */
static struct json_object *parent_of(struct json_object *root, const char *path, char last[64])
{
	struct json_object *at = root;
	const char *slash;

	while ((slash = strchr(path, '/')) != NULL) {
		char part[64];

		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		ck_assert_msg(json_object_object_get_ex(at, part, &at), "no %s", part);
		path = slash + 1;
	}
	snprintf(last, 64, "%s", path);
	return at;
}

/* A header whose JSON has `value` (JSON text; NULL deletes) at `path`. */
static void changed(struct luks_header *h, const char *path, const char *value)
{
	struct json_object *root, *parent;
	struct dev *d = rig_dev(scratch_path("v"));
	char last[64];

	ck_ok(luks_header_read(d, h));
	dev_close(d);
	root = json_tokener_parse(h->json);
	ck_assert_ptr_nonnull(root);
	parent = parent_of(root, path, last);
	json_object_object_del(parent, last);
	if (value)
		json_object_object_add(parent, last, json_tokener_parse(value));
	free(h->json);
	h->json = strdup(json_object_to_json_string(root));
	ck_assert_ptr_nonnull(h->json);
	h->json_bytes = strlen(h->json);
	json_object_put(root);
}

static void setup(void)
{
	rig_setup();
	(void)rig_volume("v", 20, "--type luks2 --sector-size 512 --label lab " RIG_CHEAP);
}

static const struct {
	const char *path, *value;
	enum err want;
	const char *detail;
} refusals[] = {
	{"config/requirements", "{\"mandatory\":[\"time-travel\"]}", ERR_LUKS_REQUIREMENT,
		"'time-travel'"},
	{"config/requirements", "{\"mandatory\":[\"online-reencrypt-v2\"]}", ERR_LUKS_REENCRYPT,
		""},
	{"config/requirements", "{\"mandatory\":[\"offline-reencrypt\"]}", ERR_LUKS_REENCRYPT, ""},
	{"config/requirements", "{\"mandatory\":[\"opal\"]}", ERR_LUKS_OPAL, ""},
	{"config/requirements", "{\"mandatory\":[\"inline-hw-tags\"]}", ERR_LUKS_INTEGRITY, ""},
	{"config/requirements", "{\"mandatory\":[null]}", ERR_LUKS_HEADER, "requirement"},
	{"config", NULL, ERR_LUKS_HEADER, "config"},
	{"segments/0/integrity", "{\"type\":\"hmac(sha256)\"}", ERR_LUKS_INTEGRITY, ""},
	{"segments/0/type", "\"hw-opal-crypt\"", ERR_LUKS_OPAL, ""},
	{"segments/0/type", "\"linear\"", ERR_LUKS_REQUIREMENT, "linear"},
	{"segments/0/offset", "\"16777217\"", ERR_LUKS_HEADER, "offset"},
	{"segments/0/offset", "\"-512\"", ERR_LUKS_HEADER, "offset"},
	{"segments/0/offset", "\"99999999999999999999999\"", ERR_LUKS_HEADER, "offset"},
	{"segments/0/size", "\"0\"", ERR_LUKS_HEADER, "size"},
	{"segments/0/size", "\"many\"", ERR_LUKS_HEADER, "size"},
	{"segments/0/size", "\"1000\"", ERR_LUKS_HEADER, "sector size"},
	{"segments/0/iv_tweak", NULL, ERR_LUKS_HEADER, "iv_tweak"},
	{"segments/0/sector_size", "8192", ERR_LUKS_HEADER, "sector size"},
	{"segments/0/sector_size", "0", ERR_LUKS_HEADER, "sector size"},
	{"segments/0/sector_size", "-512", ERR_LUKS_HEADER, "sector size"},
	{"segments/0/encryption", "\"\"", ERR_LUKS_HEADER, "cipher"},
	{"segments", "{}", ERR_LUKS_REQUIREMENT, "no data segment"},
	{"segments", NULL, ERR_LUKS_HEADER, "segments"},
	{"segments/1", "{\"type\":\"crypt\"}", ERR_LUKS_REQUIREMENT, "2 data segments"},
	{"digests/0/segments", "[]", ERR_LUKS_HEADER, "no digest"},
	{"digests/0/type", "\"argon2id\"", ERR_LUKS_HEADER, "digest"},
	{"digests/0/salt", "\"***\"", ERR_LUKS_HEADER, "digest"},
	{"digests/0/iterations", "0", ERR_LUKS_HEADER, "without measure"},
	{"digests", NULL, ERR_LUKS_HEADER, "digests"},
	{"keyslots", NULL, ERR_LUKS_HEADER, "keyslots"},
};

START_TEST(test_refusals)
{
	struct luks_header h;
	struct luks l = {0};

	setup();
	changed(&h, refusals[_i].path, refusals[_i].value);
	ck_err(luks2_parse(&h, &l), refusals[_i].want);
	ck_detail(refusals[_i].detail);
	luks_header_free(&h);
}
END_TEST

/* Trouble of one keyslot stays with that slot. */
static const struct {
	const char *path, *value;
} bad_slots[] = {
	{"keyslots/0/key_size", "0"},
	{"keyslots/0/key_size", "100000"},
	{"keyslots/0/af/stripes", "4001"},
	{"keyslots/0/af/type", "\"luks9\""},
	{"keyslots/0/af", NULL},
	{"keyslots/0/area/type", "\"journal\""},
	{"keyslots/0/area/size", "\"4096\""},
	{"keyslots/0/area/size", "\"999999999999\""},
	{"keyslots/0/area/offset", "\"18446744073709551615\""},
	{"keyslots/0/area/key_size", "0"},
	{"keyslots/0/area/encryption", "17"},
	{"keyslots/0/kdf/type", "\"scrypt\""},
	{"keyslots/0/kdf/iterations", "4294967295"},
	{"keyslots/0/kdf/salt", "\"A\""},
	{"keyslots/0/kdf", "{\"type\":\"argon2id\",\"salt\":\"AAAA\",\"time\":4,\"memory\":4194305,"
			   "\"cpus\":1}"},
	{"keyslots/0/kdf", "{\"type\":\"argon2id\",\"salt\":\"AAAA\",\"time\":4294967295,"
			   "\"memory\":4194304,\"cpus\":1}"},
	{"keyslots/0/kdf", "{\"type\":\"argon2i\",\"salt\":\"AAAA\",\"time\":4,\"memory\":4096,"
			   "\"cpus\":65}"},
};

START_TEST(test_bad_slot)
{
	struct secret good, key = {0};
	struct luks_header h;
	struct luks l = {.copy_fd = -1};

	setup();
	changed(&h, bad_slots[_i].path, bad_slots[_i].value);
	ck_ok(luks2_parse(&h, &l));
	ck_assert_uint_eq(l.slot_count, 1);
	ck_assert_int_eq(l.slots[0].problem, ERR_LUKS_HEADER);
	rig_secret(RIG_PASSPHRASE, &good);
	ck_err(luks_unlock(&l, &good, -1, &key), ERR_LUKS_HEADER);
	ck_detail("key slot 0");
	secret_free(&good);
	luks_header_free(&h);
}
END_TEST

START_TEST(test_geometry)
{
	struct luks_header h;
	struct luks l = {0};
	uint64_t area = 0;

	setup();
	changed(&h, "segments/0/iv_tweak", "\"238592\"");
	ck_ok(luks2_area_bytes(&h, &area));
	ck_assert_uint_eq(area, 16 << 20);
	ck_ok(luks2_parse(&h, &l));
	ck_assert_uint_eq(l.info.iv_offset, 238592);
	ck_assert_uint_eq(l.info.offset_bytes, 16 << 20);
	ck_assert_uint_eq(l.info.size_bytes, 0); /* dynamic */
	ck_assert_str_eq(l.info.label, "lab");
	ck_assert_uint_eq(strlen(l.info.uuid), 36);
	luks_header_free(&h);
	l = (struct luks){0};
	changed(&h, "segments/0/size", "\"1048576\"");
	ck_ok(luks2_parse(&h, &l));
	ck_assert_uint_eq(l.info.size_bytes, 1 << 20);
	luks_header_free(&h);
	changed(&h, "config/keyslots_size", "\"134217729\"");
	ck_err(luks2_area_bytes(&h, &area), ERR_LUKS_HEADER);
	luks_header_free(&h);
}
END_TEST

START_TEST(test_not_json)
{
	static const char *const texts[] = {"", "{", "[]", "7", "{\"config\":", "{} garbage \1"};
	char deep[400];

	for (size_t i = 0; i <= ARRAY_SIZE(texts); i++) {
		struct luks_header h = {.fd = -1};
		struct luks l = {0};

		memset(deep, '[', sizeof(deep) - 1);
		deep[sizeof(deep) - 1] = '\0';
		h.json = strdup(i < ARRAY_SIZE(texts) ? texts[i] : deep);
		ck_assert_ptr_nonnull(h.json);
		h.json_bytes = strlen(h.json);
		ck_err(luks2_parse(&h, &l), ERR_LUKS_HEADER);
		luks_header_free(&h);
	}
}
END_TEST

START_TEST(test_base64)
{
	static const char *const good[][2] = {{"Zg==", "f"}, {"Zm8=", "fo"}, {"Zm9v", "foo"},
		{"Zm9vYg==", "foob"}, {"Zm9vYmE=", "fooba"}, {"Zm9vYmFy", "foobar"}};
	static const char *const bad[] = {"", "Z", "Zg",
		"Zg=", "Z===", "====", "Zm9v====", "Zg==Zg==", "Zm 9", "Zm9-", "Zm=v"};
	uint8_t out[6];
	size_t len;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		ck_assert(luks_base64_decode(good[i][0], out, sizeof(out), &len));
		ck_assert_uint_eq(len, strlen(good[i][1]));
		ck_assert_mem_eq(out, good[i][1], len);
		ck_assert(!luks_base64_decode(good[i][0], out, len - 1, &len));
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(!luks_base64_decode(bad[i], out, sizeof(out), &len), "'%s'", bad[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("luks/luks2");
	TCase *tc = tcase_create("luks2");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_refusals, 0, (int)ARRAY_SIZE(refusals));
	tcase_add_loop_test(tc, test_bad_slot, 0, (int)ARRAY_SIZE(bad_slots));
	tcase_add_test(tc, test_geometry);
	tcase_add_test(tc, test_not_json);
	tcase_add_test(tc, test_base64);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
