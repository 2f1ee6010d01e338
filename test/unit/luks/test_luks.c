/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of luks/luks.c: headers of every shape that the stock cryptsetup writes are loaded and
 * unlocked, with the key that cryptsetup dumps; the source is never written.
 */
#include "luks_rig.h"

static const struct shape {
	const char *arguments;
	int version;
	uint32_t sector_bytes, key_bytes;
	const char *cipher;
} shapes[] = {
	{"--type luks1 --pbkdf-force-iterations 1000", 1, 512, 64, "aes-xts-plain64"},
	{"--type luks1 -s 256 -h sha512 --pbkdf-force-iterations 1000", 1, 512, 32,
		"aes-xts-plain64"},
	{"--type luks1 -c aes-cbc-essiv:sha256 -s 128 -h ripemd160 --pbkdf-force-iterations 1000",
		1, 512, 16, "aes-cbc-essiv:sha256"},
	{"--type luks1 -c camellia-cbc-plain64 -s 256 --pbkdf-force-iterations 1000", 1, 512, 32,
		"camellia-cbc-plain64"},
	{"--type luks2 --sector-size 512 " RIG_CHEAP, 2, 512, 64, "aes-xts-plain64"},
	{"--type luks2 --sector-size 1024 " RIG_CHEAP, 2, 1024, 64, "aes-xts-plain64"},
	{"--type luks2 --sector-size 2048 " RIG_CHEAP, 2, 2048, 64, "aes-xts-plain64"},
	{"--type luks2 --sector-size 4096 " RIG_CHEAP, 2, 4096, 64, "aes-xts-plain64"},
	{"--type luks2 -h sha3-256 -s 256 --sector-size 512 " RIG_CHEAP, 2, 512, 32,
		"aes-xts-plain64"},
	{"--type luks2 -h blake2b-512 --sector-size 512 " RIG_CHEAP, 2, 512, 64, "aes-xts-plain64"},
	{"--type luks2 -c aes-ctr-plain64 -s 256 --sector-size 512 " RIG_CHEAP, 2, 512, 32,
		"aes-ctr-plain64"},
	{"--type luks2 --luks2-metadata-size 16k --luks2-keyslots-size 512k --sector-size "
	 "512 " RIG_CHEAP,
		2, 512, 64, "aes-xts-plain64"},
	{"--type luks2 --luks2-metadata-size 64k --sector-size 512 " RIG_CHEAP, 2, 512, 64,
		"aes-xts-plain64"},
	{"--type luks2 --luks2-metadata-size 4m --sector-size 512 " RIG_CHEAP, 2, 512, 64,
		"aes-xts-plain64"},
	{"--type luks2 --pbkdf argon2id --pbkdf-memory 64 --pbkdf-parallel 3 "
	 "--pbkdf-force-iterations 4 --sector-size 512",
		2, 512, 64, "aes-xts-plain64"},
	{"--type luks2 --pbkdf argon2i --pbkdf-memory 32 --pbkdf-parallel 1 "
	 "--pbkdf-force-iterations 5 --sector-size 512",
		2, 512, 64, "aes-xts-plain64"},
};

START_TEST(test_shapes)
{
	const struct shape *shape = &shapes[_i];
	uint8_t dumped[LUKS_KEY_BYTES_MAX];
	char before[256], after[256];
	struct secret good, bad, key = {0}, native = {0};
	struct luks *l = NULL;
	struct luks_info info;
	const char *path;
	struct dev *d;

	rig_setup();
	path = rig_volume("v", 20, shape->arguments);
	rig_sum(path, before);
	d = rig_dev(path);
	ck_ok(luks_load(d, NULL, &l));
	ck_assert_ptr_nonnull(l->cd);
	luks_info(l, &info);
	ck_assert_int_eq(info.version, shape->version);
	ck_assert_uint_eq(info.sector_bytes, shape->sector_bytes);
	ck_assert_uint_eq(info.key_bytes, shape->key_bytes);
	ck_assert_str_eq(info.cipher, shape->cipher);
	ck_assert_uint_eq(info.offset_bytes + info.size_bytes, 20 << 20);
	ck_assert(!info.detached);
	rig_secret(RIG_PASSPHRASE, &good);
	rig_secret("wrong", &bad);
	ck_err(luks_unlock(l, &bad, -1, &key), ERR_LUKS_KEY);
	ck_err(luks_unlock(l, &good, 3, &key), ERR_LUKS_SLOT);
	ck_assert_ptr_null(key.bytes);
	ck_ok(luks_unlock(l, &good, -1, &key));
	ck_ok(reader_unlock(l, &l->slots[0], &good, &native));
	ck_err(reader_unlock(l, &l->slots[0], &bad, &native), ERR_LUKS_KEY);
	dev_close(d);
	ck_assert_uint_eq(rig_dumped_key("v", "", dumped), key.len);
	ck_assert_uint_eq(native.len, key.len);
	ck_assert_mem_eq(key.bytes, dumped, key.len);
	ck_assert_mem_eq(native.bytes, dumped, key.len);
	rig_sum(path, after);
	ck_assert_str_eq(before, after);
	secret_free(&good);
	secret_free(&bad);
	secret_free(&key);
	secret_free(&native);
	luks_close(l);
}
END_TEST

/* Slots 0 (prefer), 1, 2 (ignore), 3 (unbound), each with a passphrase of its own. */
START_TEST(test_several_slots)
{
	struct secret pass[4], key = {0};
	struct luks_keyslot_info slots[4];
	struct luks *l = NULL;
	struct dev *d;

	rig_setup();
	(void)rig_volume("v", 20, "--type luks2 " RIG_CHEAP);
	for (int n = 1; n < 4; n++)
		rig_shell("printf pass%d >k%d; cryptsetup -q luksAddKey --key-file key -S %d "
			  "%s " RIG_CHEAP " v k%d",
			n, n, n, n == 3 ? "--unbound -s 256" : "", n);
	rig_shell("cryptsetup config --priority prefer -S 1 v; "
		  "cryptsetup config --priority ignore -S 2 v");
	d = rig_dev(scratch_path("v"));
	ck_ok(luks_load(d, NULL, &l));
	ck_assert_uint_eq(luks_keyslots(l, slots, 4), 4);
	ck_assert(slots[1].preferred && slots[2].ignored && slots[3].unbound);
	ck_assert_uint_eq(slots[3].key_bytes, 32);
	rig_secret(RIG_PASSPHRASE, &pass[0]);
	rig_secret("pass1", &pass[1]);
	rig_secret("pass2", &pass[2]);
	rig_secret("pass3", &pass[3]);
	for (int n = 0; n < 2; n++) {
		ck_ok(luks_unlock(l, &pass[n], -1, &key));
		ck_ok(reader_verify(l, &key));
		secret_free(&key);
		ck_err(luks_unlock(l, &pass[n], 1 - n, &key), ERR_LUKS_KEY);
		ck_ok(luks_unlock(l, &pass[n], n, &key));
		secret_free(&key);
	}
	ck_err(luks_unlock(l, &pass[2], -1, &key), ERR_LUKS_KEY);
	ck_ok(luks_unlock(l, &pass[2], 2, &key));
	secret_free(&key);
	ck_err(luks_unlock(l, &pass[3], -1, &key), ERR_LUKS_KEY);
	ck_err(luks_unlock(l, &pass[3], 3, &key), ERR_LUKS_SLOT);
	for (int n = 0; n < 4; n++)
		secret_free(&pass[n]);
	luks_close(l);
	dev_close(d);
}
END_TEST

/* A slot that neither can open must not hide the one behind it. */
START_TEST(test_broken_slot_does_not_hide)
{
	struct secret good, second, bad, key = {0};
	struct luks *l = NULL;
	struct dev *d;

	rig_setup();
	(void)rig_volume("v", 20, "--type luks2 " RIG_CHEAP);
	rig_shell("cryptsetup -q luksAddKey --key-file key -S 1 " RIG_CHEAP " v key2");
	d = rig_dev(scratch_path("v"));
	ck_ok(luks_load(d, NULL, &l));
	l->slots[0].problem = ERR_LUKS_HEADER;
	rig_secret(RIG_PASSPHRASE, &good);
	rig_secret("second one", &second);
	rig_secret("neither", &bad);
	ck_ok(luks_unlock(l, &second, -1, &key));
	secret_free(&key);
	ck_err(luks_unlock(l, &bad, -1, &key), ERR_LUKS_KEY);
	ck_detail("not every slot could be tried");
	ck_err(luks_unlock(l, &good, 0, &key), ERR_LUKS_HEADER);
	secret_free(&good);
	secret_free(&second);
	secret_free(&bad);
	luks_close(l);
	dev_close(d);
}
END_TEST

START_TEST(test_detached)
{
	static const char *const types[] = {"luks1 --pbkdf-force-iterations 1000",
		"luks2 --sector-size 512 " RIG_CHEAP,
		"luks2 --sector-size 4096 --offset 4096 " RIG_CHEAP};
	static const uint64_t offsets[] = {0, 0, 4096 * 512};
	struct secret good, key = {0};
	struct luks *l = NULL;
	struct luks_info info;
	struct dev *data, *header;

	rig_setup();
	(void)scratch_file("data", 8 << 20);
	rig_shell("rm -f header; truncate -s 16M header; cryptsetup -q luksFormat --key-file key "
		  "--type %s --header header data",
		types[_i]);
	data = rig_dev(scratch_path("data"));
	header = rig_dev(scratch_path("header"));
	ck_err(luks_load(data, NULL, &l), ERR_LUKS_NONE);
	ck_ok(luks_load(data, header, &l));
	luks_info(l, &info);
	ck_assert(info.detached);
	ck_assert_uint_eq(info.offset_bytes, offsets[_i]);
	ck_assert_uint_eq(info.size_bytes, (8 << 20) - offsets[_i]);
	rig_secret(RIG_PASSPHRASE, &good);
	ck_ok(luks_unlock(l, &good, -1, &key));
	luks_close(l);
	l = NULL;
	/* The header alone is no volume, and says so. */
	if (offsets[_i] == 0) {
		ck_err(luks_load(header, NULL, &l), ERR_LUKS_HEADER);
		ck_detail("detached");
	}
	secret_free(&key);
	secret_free(&good);
	dev_close(data);
	dev_close(header);
}
END_TEST

START_TEST(test_refused)
{
	struct luks *l = NULL;
	struct dev *d;

	rig_setup();
	(void)rig_volume("v", 20, "--type luks2 " RIG_CHEAP);
	/* The data lies behind the end. */
	rig_shell("truncate -s 16M v");
	d = rig_dev(scratch_path("v"));
	ck_err(luks_load(d, NULL, &l), ERR_DEV_SHORT);
	dev_close(d);
	/* A keyslot area is cut off, and so is the data. */
	rig_shell("truncate -s 100K v");
	d = rig_dev(scratch_path("v"));
	ck_err(luks_load(d, NULL, &l), ERR_DEV_SHORT);
	dev_close(d);
	(void)scratch_file("zero", 1 << 20);
	d = rig_dev(scratch_path("zero"));
	ck_err(luks_load(d, NULL, &l), ERR_LUKS_NONE);
	dev_close(d);
	(void)scratch_file("tiny", 100);
	d = rig_dev(scratch_path("tiny"));
	ck_err(luks_load(d, NULL, &l), ERR_LUKS_NONE);
	dev_close(d);
}
END_TEST

START_TEST(test_reencryption_in_progress)
{
	struct luks *l = NULL;
	struct dev *d;

	rig_setup();
	(void)rig_volume("v", 40, "--type luks2 " RIG_CHEAP);
	rig_shell("cryptsetup -q reencrypt --init-only --force-offline-reencrypt --disable-locks "
		  "--key-file key " RIG_CHEAP " v");
	d = rig_dev(scratch_path("v"));
	ck_err(luks_load(d, NULL, &l), ERR_LUKS_REENCRYPT);
	dev_close(d);
}
END_TEST

/* Reads of the source that fail end the load with that error, wherever they fall. */
START_TEST(test_read_errors)
{
	struct luks *l = NULL;
	struct dev *faulty;
	uint64_t reads;

	rig_setup();
	(void)rig_volume("v", 20,
		_i ? "--type luks1 --pbkdf-force-iterations 1000" : "--type luks2 " RIG_CHEAP);
	ck_ok(dev_open_fault(rig_dev(scratch_path("v")), &faulty));
	ck_ok(luks_load(faulty, NULL, &l));
	luks_close(l);
	l = NULL;
	reads = dev_fault_calls(faulty, DEV_FAULT_READ);
	ck_assert_uint_ge(reads, 3);
	for (uint64_t n = 1; n <= reads; n++) {
		dev_fault_arm(faulty, DEV_FAULT_READ, n, false, ERR_IO);
		ck_err(luks_load(faulty, NULL, &l), ERR_IO);
		ck_assert_ptr_null(l);
	}
	dev_close(faulty);
}
END_TEST

/* The volume gives back what cryptsetup's offline reencryption put under this header. */
START_TEST(test_volume)
{
	struct secret good, key = {0};
	struct volume *v = NULL;
	struct ioq *q = NULL;
	struct luks *l = NULL;
	struct dev *data, *header;
	uint8_t got[8192], want[8192];
	FILE *f;

	rig_setup();
	rig_shell("head -c 8M /dev/urandom >plain; cp plain data; rm -f header; "
		  "truncate -s 16M header; cryptsetup -q reencrypt --encrypt "
		  "--force-offline-reencrypt --disable-locks --type luks2 --header header "
		  "--key-file key --sector-size 4096 " RIG_CHEAP " data");
	data = rig_dev(scratch_path("data"));
	header = rig_dev(scratch_path("header"));
	ck_ok(luks_load(data, header, &l));
	rig_secret(RIG_PASSPHRASE, &good);
	ck_ok(luks_unlock(l, &good, -1, &key));
	ck_ok(ioq_create(data, &q));
	ck_ok(luks_volume(l, &key, q, &v));
	ck_assert_uint_eq(volume_size_bytes(v), 8 << 20);
	f = fopen(scratch_path("plain"), "rb");
	ck_assert_ptr_nonnull(f);
	for (long at = 0; at < 8 << 20; at += 1 << 20) {
		ck_ok(volume_read(v, got, sizeof(got), (uint64_t)at));
		ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
		ck_assert_uint_eq(fread(want, 1, sizeof(want), f), sizeof(want));
		ck_assert_mem_eq(got, want, sizeof(got));
	}
	fclose(f);
	volume_destroy(v);
	ioq_destroy(q);
	secret_free(&key);
	secret_free(&good);
	luks_close(l);
	dev_close(data);
	dev_close(header);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("luks");
	TCase *tc = tcase_create("luks");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_shapes, 0, (int)ARRAY_SIZE(shapes));
	tcase_add_test(tc, test_several_slots);
	tcase_add_test(tc, test_broken_slot_does_not_hide);
	tcase_add_loop_test(tc, test_detached, 0, 3);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_reencryption_in_progress);
	tcase_add_loop_test(tc, test_read_errors, 0, 2);
	tcase_add_test(tc, test_volume);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
