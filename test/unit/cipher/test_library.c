/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of cipher/library.c: set-up where memory cannot be locked, and more handles than the secure
 * pool holds.
 */
#include "cipher_int.h"

#include "base.h"
#include "scratch.h"

#include <grp.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void use_cipher(const char *text, uint32_t key_bytes, struct cipher **out)
{
	struct cipher_spec spec;
	struct secret key;
	uint8_t bytes[512] = {1}, back[512];

	ck_ok(cipher_spec_parse(text, key_bytes, 512, &spec));
	ck_ok(secret_alloc(&key, key_bytes));
	for (uint32_t i = 0; i < key_bytes; i++)
		key.bytes[i] = (uint8_t)(i * 11 + 3);
	ck_ok(cipher_create(&spec, &key, out));
	secret_free(&key);
	ck_ok(cipher_encrypt(*out, back, bytes, 512, 5));
	ck_assert_mem_ne(back, bytes, 512);
	ck_ok(cipher_decrypt(*out, back, back, 512, 5));
	ck_assert_mem_eq(back, bytes, 512);
}

START_TEST(test_init_twice)
{
	struct cipher *c;
	bool locked;

	ck_ok(cipher_library_init());
	locked = cipher_library_locked();
	ck_ok(cipher_library_init());
	ck_assert(cipher_library_locked() == locked);
	use_cipher("aes-xts-plain64", 64, &c);
	cipher_destroy(c);
}
END_TEST

START_TEST(test_no_locked_memory)
{
	static uint8_t page[PAGE_BYTES] __attribute__((aligned(PAGE_BYTES)));
	struct rlimit none = {0, 0};
	struct cipher *c;
	bool works;

	if (geteuid() == 0 &&
		(setgroups(0, NULL) != 0 || setegid(65534) != 0 || seteuid(65534) != 0)) {
		printf("SKIP: test_no_locked_memory: root keeps its capability to lock\n");
		return;
	}
	ensure(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
	/* The sanitizers replace mlock by nothing that says that it worked. */
	works = mlock(page, sizeof(page)) == 0;
	ck_ok(cipher_library_init());
	ck_assert(cipher_library_locked() == works);
	use_cipher("aes-xts-plain64", 64, &c);
	cipher_destroy(c);
	/* The leak checker, which runs at the end, needs to be root again. */
	ensure(seteuid(getuid()) == 0);
}
END_TEST

START_TEST(test_pool_used_up)
{
	enum { CIPHERS = 160 };
	static struct cipher *c[CIPHERS];

	ck_ok(cipher_library_init());
	for (int i = 0; i < CIPHERS; i++)
		use_cipher("twofish-xts-plain64", 64, &c[i]);
	ck_assert(!cipher_library_locked());
	for (int i = 0; i < CIPHERS; i++)
		cipher_destroy(c[i]);
}
END_TEST

/* libgcrypt knows weak keys of DES; the user gets an error, not a volume of weak encryption. */
START_TEST(test_weak_key)
{
	struct cipher_spec spec;
	struct secret key;
	struct cipher *c = NULL;

	ck_ok(cipher_library_init());
	ck_ok(cipher_spec_parse("des3_ede-cbc-plain64", 24, 512, &spec));
	ck_ok(secret_alloc(&key, 24));
	memset(key.bytes, 1, 24);
	ck_err(cipher_create(&spec, &key, &c), ERR_CIPHER_LIBRARY);
	ck_detail("Weak");
	ck_assert_ptr_null(c);
	secret_free(&key);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cipher/library");
	TCase *t = tcase_create("library");

	tcase_add_test(t, test_init_twice);
	tcase_add_test(t, test_no_locked_memory);
	tcase_add_test(t, test_pool_used_up);
	tcase_add_test(t, test_weak_key);
	suite_add_tcase(s, t);
	return scratch_main(s);
}
