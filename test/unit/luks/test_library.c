/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of luks/library.c: tokens (a passphrase in the kernel's keyring), and that the library's
 * lines end in our details, not on stderr.
 */
#include "luks_rig.h"
#include <sys/syscall.h>

enum { PROCESS_KEYRING = -2 };

static bool keyring_add(const char *name, const char *passphrase)
{
	return syscall(SYS_add_key, "user", name, passphrase, strlen(passphrase),
		       PROCESS_KEYRING) >= 0;
}

static struct luks *load(struct dev **d, const char *arguments)
{
	struct luks *l = NULL;

	rig_setup();
	(void)rig_volume("v", 20, arguments);
	rig_shell("cryptsetup isLuks --type luks1 v || cryptsetup token add --key-description "
		  "cryptfs:test -S 0 v");
	*d = rig_dev(scratch_path("v"));
	ck_ok(luks_load(*d, NULL, &l));
	return l;
}

START_TEST(test_token)
{
	struct secret key = {0}, good, want = {0};
	struct dev *d;
	struct luks *l = load(&d, "--type luks2 " RIG_CHEAP);

	/* The key is not there yet. */
	ck_assert_int_ne(luks_unlock_token(l, -1, NULL, NULL, &key), OK);
	ck_assert_ptr_null(key.bytes);
	if (!keyring_add("cryptfs:test", RIG_PASSPHRASE)) {
		printf("SKIP: test_token: no kernel keyring (%s)\n", strerror(errno));
		goto out;
	}
	rig_secret(RIG_PASSPHRASE, &good);
	ck_ok(luks_unlock(l, &good, -1, &want));
	ck_ok(luks_unlock_token(l, -1, NULL, NULL, &key));
	ck_assert_mem_eq(key.bytes, want.bytes, want.len);
	secret_free(&key);
	ck_ok(luks_unlock_token(l, 0, NULL, NULL, &key));
	secret_free(&key);
	ck_ok(luks_unlock_token(l, -1, "luks2-keyring", NULL, &key));
	secret_free(&key);
	ck_err(luks_unlock_token(l, 7, NULL, NULL, &key), ERR_LUKS_SLOT);
	ck_assert(keyring_add("cryptfs:test", "wrong"));
	ck_err(luks_unlock_token(l, -1, NULL, NULL, &key), ERR_LUKS_KEY);
	secret_free(&good);
	secret_free(&want);
out:
	luks_close(l);
	dev_close(d);
}
END_TEST

START_TEST(test_no_tokens_in_luks1)
{
	struct secret key = {0};
	struct dev *d;
	struct luks *l = load(&d, "--type luks1 --pbkdf-force-iterations 1000");

	ck_err(luks_unlock_token(l, -1, NULL, NULL, &key), ERR_LUKS_SLOT);
	luks_close(l);
	dev_close(d);
}
END_TEST

START_TEST(test_says)
{
	struct luks l = {.copy_fd = -1, .info = {.version = 2}};
	int fd;

	rig_setup();
	(void)scratch_file("zeros", 1 << 20);
	fd = open(scratch_path("zeros"), O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	l.copy_fd = fd;
	ck_err(library_load(&l), ERR_LUKS_HEADER);
	ck_detail("libcryptsetup refuses");
	ck_assert_ptr_null(l.cd);
	close(fd);
}
END_TEST

START_TEST(test_knows)
{
	ck_assert(library_knows("aes-xts-plain64"));
	ck_assert(library_knows("aes-cbc-essiv:sha256"));
	ck_assert(!library_knows("aes-lrw-benbi"));
	ck_assert(!library_knows("serpent-xts-plain64"));
	ck_assert(!library_knows(""));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("luks/library");
	TCase *tc = tcase_create("library");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_token);
	tcase_add_test(tc, test_no_tokens_in_luks1);
	tcase_add_test(tc, test_says);
	tcase_add_test(tc, test_knows);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
