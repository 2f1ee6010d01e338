/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mount_options.c: the command line as mount(8) and people write it, row by row.
 */
#include "mount_options.h"
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

static enum err parse_list(struct mount_options *o, const char *list)
{
	mount_options_init(o);
	err_clear_detail();
	return mount_options_parse_list(o, list);
}

enum { ARGUMENTS_MAX = 10 };
struct line {
	const char *arg[ARGUMENTS_MAX];
	enum err error;
	const char *detail; /* a part of it */
};

static const struct line lines[] = {
	{{"mount.cryptfs", "/dev/sdb", "/mnt"}, OK, NULL},
	{{"mount.cryptfs", "/dev/sdb", "/mnt", "-sfnv", "-o", "ro"}, OK, NULL},
	{{"mount.cryptfs", "-o", "ro", "/dev/sdb", "-v", "/mnt"}, OK, NULL},
	{{"mount.cryptfs", "-oro", "--", "/dev/sdb", "/mnt"}, OK, NULL},
	{{"mount.cryptfs", "s", "d", "-o", "ro", "-o", "noexec"}, OK, NULL},
	{{"mount.cryptfs", "s", "d", "-t", "fuse.cryptfs"}, OK, NULL},
	{{"mount.cryptfs", "s", "d", "-t", "ext4"}, ERR_INVAL, "ext4"},
	{{"mount.cryptfs", "s", "d", "-o", "bogus", "-s"}, OK, NULL},
	{{"mount.cryptfs", "s", "d", "-o", "bogus"}, ERR_INVAL, "unknown option 'bogus'"},
	{{"mount.cryptfs", "--help"}, OK, NULL},
	{{"mount.cryptfs", "-V"}, OK, NULL},
	{{"mount.cryptfs"}, ERR_INVAL, "no source"},
	{{"mount.cryptfs", "s"}, ERR_INVAL, "no mount point"},
	{{"mount.cryptfs", "s", ""}, ERR_INVAL, "empty"},
	{{"mount.cryptfs", "s", "d", "e"}, ERR_INVAL, "'e'"},
	{{"mount.cryptfs", "s", "d", "-o"}, ERR_INVAL, "-o needs a value"},
	{{"mount.cryptfs", "s", "d", "-q"}, ERR_INVAL, "unknown option -q"},
	{{"mount.cryptfs", "s", "d", "--bogus"}, ERR_INVAL, "--bogus"},
	{{"mount.cryptfs", "s", "d", "-o", "key-slot=1,token-id=2"}, ERR_INVAL, "exclude"},
};

START_TEST(command_lines)
{
	const struct line *line = &lines[_i];
	const char *arg[ARGUMENTS_MAX]; /* getopt reorders it */
	struct mount_options o;
	int argc = 0;

	err_clear_detail();
	memcpy(arg, line->arg, sizeof(arg));
	while (arg[argc])
		argc++;
	ck_assert_int_eq(mount_options_parse(argc, (char **)(uintptr_t)arg, &o), line->error);
	if (line->detail)
		ck_assert_msg(strstr(err_detail(), line->detail), "'%s' is not in '%s'",
			line->detail, err_detail());
	mount_options_free(&o);
}
END_TEST

START_TEST(operands_and_flags)
{
	const char *arg[] = {"mount.cryptfs", "-o", "debug", "UUID=1-2", "-fv", "dir", "-n", "-o",
		"rw,ro", NULL};
	struct mount_options o;

	ck_assert_int_eq(mount_options_parse(9, (char **)(uintptr_t)arg, &o), OK);
	ck_assert_str_eq(o.source, "UUID=1-2");
	ck_assert_str_eq(o.dir, "dir");
	ck_assert(o.fake && o.verbose && !o.sloppy && o.readonly);
	ck_assert(o.debug && o.foreground);
	mount_options_free(&o);
}
END_TEST

START_TEST(values)
{
	struct mount_options o;

	ck_assert_int_eq(
		parse_list(&o, "key-file=/k,keyfile-offset=18446744073709551615,keyfile-size=32,"
			       "key-slot=7,header=/h,tries=0,timeout=9,token-id=3,"
			       "token-type=systemd-fido2,token-timeout=30,uid=1000,gid=0,"
			       "pages=64M,noload,allow_other,noexec,nosuid,nodev,nosymfollow"),
		OK);
	ck_assert_str_eq(o.unlock.key_file, "/k");
	ck_assert_uint_eq(o.unlock.keyfile_offset_bytes, UINT64_MAX);
	ck_assert_uint_eq(o.unlock.keyfile_size_bytes, 32);
	ck_assert_int_eq(o.unlock.key_slot, 7);
	ck_assert_str_eq(o.unlock.header, "/h");
	ck_assert_uint_eq(o.unlock.tries, 0);
	ck_assert_uint_eq(o.unlock.timeout_seconds, 9);
	ck_assert(o.unlock.use_token);
	ck_assert_int_eq(o.unlock.token_id, 3);
	ck_assert_str_eq(o.unlock.token_type, "systemd-fido2");
	ck_assert_uint_eq(o.unlock.token_timeout_seconds, 30);
	ck_assert(o.override_uid && o.override_gid);
	ck_assert_uint_eq(o.uid, 1000);
	ck_assert_uint_eq(o.pages_bytes, 64 << 20);
	ck_assert(o.noload && o.allow_other && o.noexec && o.nosuid && o.nodev && o.nosymfollow);
	mount_options_free(&o);
}
END_TEST

START_TEST(defaults)
{
	struct mount_options o;

	ck_assert_int_eq(parse_list(&o, ""), OK);
	ck_assert_ptr_null(o.unlock.key_file);
	ck_assert_int_eq(o.unlock.key_slot, -1);
	ck_assert_uint_eq(o.unlock.tries, 3);
	ck_assert(!o.unlock.use_token && !o.readonly && !o.override_uid && !o.override_gid);
	mount_options_free(&o);
}
END_TEST

START_TEST(the_last_of_two_counts)
{
	struct mount_options o;

	ck_assert_int_eq(parse_list(&o, "ro,rw,nosuid,suid,noexec,exec,nodev,dev,key-file=a,"
					"key-file=b,context=x:y,context=z:w"),
		OK);
	ck_assert(!o.readonly && !o.nosuid && !o.noexec && !o.nodev);
	ck_assert_str_eq(o.unlock.key_file, "b");
	ck_assert_str_eq(o.contexts[0], "context=z:w");
	ck_assert_ptr_null(o.contexts[1]);
	mount_options_free(&o);
}
END_TEST

START_TEST(quotes_hold_commas_together)
{
	struct mount_options o;

	ck_assert_int_eq(parse_list(&o, "key-file=\"/a,b\",context=\"u:r:t:s0:c1,c2\",ro"), OK);
	ck_assert_str_eq(o.unlock.key_file, "/a,b");
	ck_assert_str_eq(o.contexts[0], "context=\"u:r:t:s0:c1,c2\""); /* the kernel wants them */
	ck_assert(o.readonly);
	mount_options_free(&o);
}
END_TEST

/* Each alone is accepted and leaves everything as it was. */
static const char *const without_effect[] = {"discard", "allow-discards", "sync", "dirsync",
	"noatime", "relatime", "strictatime", "nodiratime", "lazytime", "commit=30",
	"errors=continue", "errors=remount-ro", "errors=panic", "async", "suid", "dev", "exec",
	"acl", "user_xattr", "barrier", "barrier=1", "data=ordered", "silent", "loud", "defaults",
	"auto", "noauto", "user", "user=anna", "users", "nofail", "_netdev", "x-systemd.automount",
	"x-gvfs-name=a", "X-mount.mkdir", "comment=hello", "rw", "", ","};

START_TEST(accepted_without_effect)
{
	struct mount_options o, untouched;

	mount_options_init(&untouched);
	ck_assert_msg(parse_list(&o, without_effect[_i]) == OK, "%s: %s", without_effect[_i],
		err_detail());
	ck_assert_mem_eq(&o, &untouched, sizeof(o));
	mount_options_free(&o);
}
END_TEST

static const struct {
	const char *option, *detail;
} refused[] = {
	{"nobarrier", "nobarrier"},
	{"barrier=0", "barrier=0"},
	{"data=writeback", "data=writeback"},
	{"data=journal", "data=journal"},
	{"idle=60", "idle=60"},
	{"remount", "remount"},
	{"noacl", "noacl"},
	{"key-file", "key-file"},
	{"key-file=", "key-file"},
	{"ro=1", "takes no value"},
	{"sync=1", "takes no value"},
	{"commit=soon", "commit"},
	{"commit", "commit"},
	{"errors=explode", "errors"},
	{"tries=-1", "tries"},
	{"tries=4294967296", "tries"},
	{"key-slot=2147483648", "key-slot"},
	{"keyfile-size=18446744073709551616", "keyfile-size"},
	{"uid=anna", "uid"},
	{"uid=4294967295", "uid"},
	{"pages=", "pages"},
	{"pages=1K", "at least 1M"},
	{"pages=91%", "pages"},
	{"pages=16777216T", "too large"},
	{"pages=1X", "pages"},
	{"pages=9999999999999999999999999999M", "too large"},
	{"x", "unknown option 'x'"},
	{"KEY-FILE=/x", "unknown"},
	{"max_read=4096", "unknown"},
};

START_TEST(refused_by_name)
{
	struct mount_options o;

	ck_assert_int_eq(parse_list(&o, refused[_i].option), ERR_INVAL);
	ck_assert_msg(strstr(err_detail(), refused[_i].detail), "%s: '%s'", refused[_i].option,
		err_detail());
	mount_options_free(&o);
}
END_TEST

START_TEST(sloppy_forgives_only_the_unknown)
{
	struct mount_options o;

	mount_options_init(&o);
	o.sloppy = true;
	ck_assert_int_eq(mount_options_parse_list(&o, "bogus,ro,bogus=1"), OK);
	ck_assert(o.readonly);
	ck_assert_int_eq(mount_options_parse_list(&o, "nobarrier"), ERR_INVAL);
	ck_assert_int_eq(mount_options_parse_list(&o, "tries=x"), ERR_INVAL);
	mount_options_free(&o);
}
END_TEST

START_TEST(pages_as_a_share_of_memory)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct mount_options o;

	ck_assert_int_eq(parse_list(&o, "pages=10%"), OK);
	ck_assert_uint_eq(o.pages_bytes, memory / 100 * 10);
	mount_options_free(&o);
	ck_assert_int_eq(parse_list(&o, "pages=2g"), OK);
	ck_assert_uint_eq(o.pages_bytes, UINT64_C(2) << 30);
	mount_options_free(&o);
	ck_assert_int_eq(parse_list(&o, "pages=1048576"), OK);
	ck_assert_uint_eq(o.pages_bytes, 1 << 20);
	mount_options_free(&o);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cmd/mount_options");
	TCase *tests = tcase_create("mount_options");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tests, command_lines, 0, (int)ARRAY_SIZE(lines));
	tcase_add_test(tests, operands_and_flags);
	tcase_add_test(tests, values);
	tcase_add_test(tests, defaults);
	tcase_add_test(tests, the_last_of_two_counts);
	tcase_add_test(tests, quotes_hold_commas_together);
	tcase_add_loop_test(tests, accepted_without_effect, 0, (int)ARRAY_SIZE(without_effect));
	tcase_add_loop_test(tests, refused_by_name, 0, (int)ARRAY_SIZE(refused));
	tcase_add_test(tests, sloppy_forgives_only_the_unknown);
	tcase_add_test(tests, pages_as_a_share_of_memory);
	suite_add_tcase(suite, tests);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
