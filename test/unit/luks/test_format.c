/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of luks/format.c: the header that it makes opens here and for the stock cryptsetup, the
 * layout is what was promised, and nothing is written when it refuses.
 */
#include "luks_rig.h"

static struct luks_format_options cheap(uint64_t data_size_bytes)
{
	return (struct luks_format_options){.pbkdf = "pbkdf2",
		.pbkdf_force_iterations = 1000,
		.data_size_bytes = data_size_bytes};
}

START_TEST(test_layout)
{
	static const struct {
		uint64_t size_bytes, header_bytes;
		uint32_t sector_bytes;
	} rows[] = {{2 << 20, 1 << 20, 4096}, {(32 << 20) - 4096, 1 << 20, 4096},
		{32 << 20, 4 << 20, 4096}, {64 << 20, 4 << 20, 4096}, {256 << 20, 16 << 20, 4096},
		{(uint64_t)1 << 40, 16 << 20, 4096}, {(64 << 20) + 512, 4 << 20, 512}};
	struct luks_format_options o;
	struct luks_layout y;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		o = cheap(rows[i].size_bytes);
		ck_ok(luks_format_layout(&o, &y));
		ck_assert_uint_eq(y.header_bytes, rows[i].header_bytes);
		ck_assert_uint_eq(y.offset_bytes, rows[i].header_bytes);
		ck_assert_uint_eq(y.size_bytes, rows[i].size_bytes - rows[i].header_bytes);
		ck_assert_uint_eq(y.sector_bytes, rows[i].sector_bytes);
	}
	o = cheap(1 << 20);
	ck_err(luks_format_layout(&o, &y), ERR_NOSPC);
	o = cheap(0);
	ck_err(luks_format_layout(&o, &y), ERR_NOSPC);
	o = cheap((64 << 20) + 512);
	o.sector_bytes = 4096;
	ck_err(luks_format_layout(&o, &y), ERR_INVAL);
	o.sector_bytes = 1000;
	ck_err(luks_format_layout(&o, &y), ERR_INVAL);
	o = cheap(10 << 20);
	o.detached = true;
	o.header_size_bytes = 1000;
	ck_err(luks_format_layout(&o, &y), ERR_NOSPC);
	o.header_size_bytes = 16 << 20;
	ck_ok(luks_format_layout(&o, &y));
	ck_assert_uint_eq(y.offset_bytes, 0);
	ck_assert_uint_eq(y.size_bytes, 10 << 20);
}
END_TEST

static struct dev *open_rw(const char *path)
{
	struct dev_open_options options = {.claim = true};
	struct dev *d = NULL;

	ck_ok(dev_open(path, &options, &d));
	return d;
}

START_TEST(test_opens)
{
	static const uint64_t sizes[] = {2 << 20, 64 << 20, (uint64_t)1 << 40};
	struct luks_format_options o = cheap(sizes[_i]);
	struct secret good, key = {0}, got = {0};
	uint8_t dumped[LUKS_KEY_BYTES_MAX];
	struct luks *l = NULL;
	struct dev *d;

	rig_setup();
	o.label = "a label";
	o.uuid = "11111111-2222-3333-4444-555555555555";
	d = open_rw(scratch_file("v", sizes[_i]));
	rig_secret(RIG_PASSPHRASE, &good);
	ck_ok(luks_format(d, &o, &good, &key));
	ck_ok(luks_load(d, NULL, &l));
	ck_assert_str_eq(l->info.label, o.label);
	ck_assert_str_eq(l->info.uuid, o.uuid);
	ck_assert_uint_eq(l->info.sector_bytes, 4096);
	ck_ok(luks_unlock(l, &good, 0, &got));
	ck_assert_mem_eq(got.bytes, key.bytes, key.len);
	luks_close(l);
	dev_close(d);
	ck_assert_uint_eq(rig_dumped_key("v", "", dumped), key.len);
	ck_assert_mem_eq(dumped, key.bytes, key.len);
	secret_free(&key);
	secret_free(&got);
	secret_free(&good);
}
END_TEST

START_TEST(test_detached)
{
	struct luks_format_options o = cheap(8 << 20);
	struct secret good, key = {0};
	struct dev *data, *header;
	struct luks *l = NULL;

	rig_setup();
	data = open_rw(scratch_file("data", 8 << 20));
	header = open_rw(scratch_file("header", 16 << 20));
	o.detached = true;
	o.header_size_bytes = header->size_bytes;
	rig_secret(RIG_PASSPHRASE, &good);
	ck_ok(luks_format(header, &o, &good, &key));
	ck_ok(luks_load(data, header, &l));
	ck_assert_uint_eq(l->info.offset_bytes, 0);
	ck_assert_uint_eq(l->info.size_bytes, 8 << 20);
	luks_close(l);
	l = NULL;
	ck_err(luks_load(data, NULL, &l), ERR_LUKS_NONE);
	dev_close(data);
	dev_close(header);
	rig_shell("cryptsetup open --test-passphrase --key-file key --header header data");
	secret_free(&key);
	secret_free(&good);
}
END_TEST

/* What it refuses leaves the device as it was, even with an old header on it. */
START_TEST(test_refusals)
{
	struct luks_format_options o = cheap(20 << 20);
	struct secret good, empty = {0}, key = {0};
	char before[256], after[256];
	enum err want = ERR_INVAL;
	struct dev *d;

	rig_setup();
	(void)rig_volume("v", 20, "--type luks2 " RIG_CHEAP);
	rig_sum(scratch_path("v"), before);
	rig_secret(RIG_PASSPHRASE, &good);
	switch (_i) {
	case 0:
		o.cipher = "aria-xts-plain64";
		want = ERR_CIPHER_SPEC;
		break;
	case 1:
		o.cipher = "aes-lrw-benbi";
		want = ERR_CIPHER_SPEC;
		break;
	case 2:
		o.key_bits = 320;
		want = ERR_CIPHER_SPEC;
		break;
	case 3:
		o.pbkdf = "scrypt";
		break;
	case 4:
		o.pbkdf_memory_kib = 100;
		break;
	case 5: /* libcryptsetup's own minimum is 4 */
		o.pbkdf = "argon2id";
		o.pbkdf_force_iterations = 1;
		want = ERR_LUKS_LIBRARY;
		break;
	case 6:
		o.uuid = "no uuid";
		want = ERR_LUKS_LIBRARY;
		break;
	default:
		want = ERR_KEY_EMPTY;
	}
	d = open_rw(scratch_path("v"));
	ck_err(luks_format(d, &o, want == ERR_KEY_EMPTY ? &empty : &good, &key), want);
	if (want == ERR_LUKS_LIBRARY)
		ck_detail("libcryptsetup: ");
	ck_assert_ptr_null(key.bytes);
	dev_close(d);
	rig_sum(scratch_path("v"), after);
	ck_assert_str_eq(before, after);
	secret_free(&good);
}
END_TEST

START_TEST(test_write_errors)
{
	struct luks_format_options o = cheap(20 << 20);
	struct secret good, key = {0};
	struct dev *memory, *faulty;

	rig_setup();
	ck_ok(dev_open_memory(20 << 20, &memory));
	ck_ok(dev_open_fault(memory, &faulty));
	rig_secret(RIG_PASSPHRASE, &good);
	dev_fault_arm(faulty, DEV_FAULT_WRITE, 1, false, ERR_NOSPC);
	ck_err(luks_format(faulty, &o, &good, &key), ERR_NOSPC);
	dev_fault_arm(faulty, DEV_FAULT_FLUSH, 1, false, ERR_IO);
	ck_err(luks_format(faulty, &o, &good, &key), ERR_IO);
	ck_assert_ptr_null(key.bytes);
	ck_ok(luks_format(faulty, &o, &good, &key));
	secret_free(&key);
	secret_free(&good);
	dev_close(faulty);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("luks/format");
	TCase *tc = tcase_create("format");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_layout);
	tcase_add_loop_test(tc, test_opens, 0, 3);
	tcase_add_test(tc, test_detached);
	tcase_add_loop_test(tc, test_refusals, 0, 8);
	tcase_add_test(tc, test_write_errors);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
