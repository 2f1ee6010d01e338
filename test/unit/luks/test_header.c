/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of luks/header.c: which copy of a LUKS2 header counts, where the second is looked for, and
 * what is no header.
 */
#include "luks_rig.h"

static const char *const metadata_sizes[] = {
	"16k", "32k", "64k", "128k", "256k", "512k", "1m", "2m", "4m"};

static void damage(const char *name, long at, const char *bytes, size_t len)
{
	FILE *f = fopen(scratch_path(name), "r+b");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
	ck_assert_uint_eq(fwrite(bytes, 1, len, f), len);
	fclose(f);
}

/* Loads and unlocks it, and shows that the file is what it was. */
static void expect_unlocks(const char *name)
{
	struct secret good, key = {0};
	struct luks *l = NULL;
	struct dev *d = rig_dev(scratch_path(name));
	char before[256], after[256];

	rig_sum(scratch_path(name), before);
	ck_ok(luks_load(d, NULL, &l));
	rig_secret(RIG_PASSPHRASE, &good);
	ck_ok(luks_unlock(l, &good, -1, &key));
	secret_free(&good);
	secret_free(&key);
	luks_close(l);
	dev_close(d);
	rig_sum(scratch_path(name), after);
	ck_assert_str_eq(before, after);
}

static void expect_refused(const char *name, enum err want)
{
	struct luks *l = NULL;
	struct dev *d = rig_dev(scratch_path(name));

	ck_err(luks_load(d, NULL, &l), want);
	dev_close(d);
}

START_TEST(test_lost_primary)
{
	char arguments[200];

	rig_setup();
	snprintf(arguments, sizeof(arguments), "--type luks2 --luks2-metadata-size %s " RIG_CHEAP,
		metadata_sizes[_i]);
	(void)rig_volume("v", 32, arguments);
	expect_unlocks("v");
	rig_shell("head -c 4096 /dev/zero | dd of=v conv=notrunc status=none");
	expect_unlocks("v");
}
END_TEST

START_TEST(test_damaged_copies)
{
	rig_setup();
	(void)rig_volume("v", 20, "--type luks2 " RIG_CHEAP);
	rig_shell("cp v second; cp v json; cp v both");
	damage("v", 6000, "xx", 2); /* the first copy's JSON */
	expect_unlocks("v");
	damage("second", 16384, "xx", 2);
	expect_unlocks("second");
	damage("json", 16384 + 6000, "xx", 2);
	expect_unlocks("json");
	damage("both", 6000, "xx", 2);
	damage("both", 16384 + 6000, "xx", 2);
	expect_refused("both", ERR_LUKS_HEADER);
	ck_detail("both copies");
}
END_TEST

/* The copy with the higher sequence number is the one that counts. */
START_TEST(test_newer_second)
{
	struct luks_header h;
	struct dev *d;

	rig_setup();
	(void)rig_volume("v", 20, "--type luks2 " RIG_CHEAP);
	rig_shell("head -c 16384 v >old; cryptsetup config --label newer v; "
		  "dd if=old of=v conv=notrunc status=none");
	d = rig_dev(scratch_path("v"));
	ck_ok(luks_header_read(d, &h));
	ck_assert_str_eq(h.label, "newer");
	luks_header_free(&h);
	dev_close(d);
	expect_unlocks("v");
}
END_TEST

/* A file system was made over it: the second copy is a ruin, not a volume. */
START_TEST(test_overwritten)
{
	rig_setup();
	(void)rig_volume("v", 20, "--type luks2 " RIG_CHEAP);
	rig_shell("cp v w; truncate -s 20M plain; mke2fs -q -F plain; "
		  "head -c 8192 plain | dd of=v conv=notrunc status=none");
	expect_refused("v", ERR_LUKS_HEADER);
}
END_TEST

START_TEST(test_no_header)
{
	rig_setup();
	(void)scratch_file("v", 1 << 20);
	expect_refused("v", ERR_LUKS_NONE);
	damage("v", 0, "LUKS\xba\xbe\0\3", 8);
	expect_refused("v", ERR_LUKS_HEADER);
	ck_detail("version 3");
	damage("v", 0, "LUKS\xba\xbe\0\2", 8);
	expect_refused("v", ERR_LUKS_HEADER);
	damage("v", 0, "LUKS\xba\xbe\0\1", 8);
	expect_refused("v", ERR_LUKS_HEADER);
	(void)scratch_file("short", 1023);
	damage("short", 0, "LUKS\xba\xbe\0\2", 8);
	expect_refused("short", ERR_LUKS_NONE);
}
END_TEST

/* Every length at which the file may be cut ends in an error by name. */
START_TEST(test_cut)
{
	static const long cuts[] = {1024, 4095, 4096, 16383, 16384, 20480, 32767, 32768, 65536,
		290815, 290816, 1 << 20, (16 << 20) - 1, 16 << 20};

	rig_setup();
	(void)rig_volume("v", 20, "--type luks2 " RIG_CHEAP);
	for (size_t i = ARRAY_SIZE(cuts); i-- > 0;) {
		struct luks *l = NULL;
		struct dev *d;
		enum err e;

		rig_shell("truncate -s %ld v", cuts[i]);
		d = rig_dev(scratch_path("v"));
		e = luks_load(d, NULL, &l);
		ck_assert_msg(e == ERR_DEV_SHORT || e == ERR_LUKS_HEADER, "cut at %ld: %s", cuts[i],
			err_name(e));
		dev_close(d);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("luks/header");
	TCase *tc = tcase_create("header");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_lost_primary, 0, (int)ARRAY_SIZE(metadata_sizes));
	tcase_add_test(tc, test_damaged_copies);
	tcase_add_test(tc, test_newer_second);
	tcase_add_test(tc, test_overwritten);
	tcase_add_test(tc, test_no_header);
	tcase_add_test(tc, test_cut);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
