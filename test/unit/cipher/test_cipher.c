/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of cipher/cipher.c and iv.c: IEEE 1619 vectors, and every specification against a second
 * composition of mode and IV, written out here over single blocks of the bare cipher.
 */
#include "cipher_int.h"

#include "base.h"
#include "scratch.h"

enum { BLOCK_MAX = 16 };

static void make_key(struct secret *key, uint32_t bytes)
{
	ck_ok(secret_alloc(key, bytes));
	scratch_fill(key->bytes, bytes);
}

static struct cipher *make_cipher(const char *text, const struct secret *key, uint32_t sector)
{
	struct cipher_spec spec;
	struct cipher *c;

	ck_ok(cipher_spec_parse(text, (uint32_t)key->len, sector, &spec));
	ck_ok(cipher_create(&spec, key, &c));
	return c;
}

/* --- vectors of IEEE Std 1619-2007, Annex B ----------------------------------------------------
 */

static void from_hex(uint8_t *out, const char *hex)
{
	for (; hex[0] && hex[1]; hex += 2)
		ensure(sscanf(hex, "%2hhx", out++) == 1);
}

static const struct {
	const char *key;
	sector_t sector;
	const char *begin; /* of the ciphertext of bytes 00 01 .. ff 00 01 .. ff */
} ieee1619[] = {
	{"2718281828459045235360287471352631415926535897932384626433832795", 0,
		"27a7479befa1d476489f308cd4cfa6e2a96e4bbe3208ff25287dd3819616e89c"},
	{"2718281828459045235360287471352662497757247093699959574966967627"
	 "3141592653589793238462643383279502884197169399375105820974944592",
		0xff, "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b"},
	{"2718281828459045235360287471352662497757247093699959574966967627"
	 "3141592653589793238462643383279502884197169399375105820974944592",
		0xffff, "77a31251618a15e6b92d1d66dffe7b50b50bad552305ba0217a610688eff7e11"},
};

START_TEST(test_ieee1619)
{
	uint8_t plain[512], out[512], want[32];
	struct secret key;
	struct cipher *c;

	ck_ok(secret_alloc(&key, strlen(ieee1619[_i].key) / 2));
	from_hex(key.bytes, ieee1619[_i].key);
	from_hex(want, ieee1619[_i].begin);
	for (size_t i = 0; i < sizeof(plain); i++)
		plain[i] = (uint8_t)i;
	c = make_cipher("aes-xts-plain64", &key, 512);
	ck_ok(cipher_encrypt(c, out, plain, 512, ieee1619[_i].sector));
	ck_assert_mem_eq(out, want, 32);
	ck_ok(cipher_decrypt(c, out, out, 512, ieee1619[_i].sector));
	ck_assert_mem_eq(out, plain, 512);
	cipher_destroy(c);
	secret_free(&key);
}
END_TEST

/* --- the second composition --------------------------------------------------------------------
 */

struct second {
	gcry_cipher_hd_t data, tweak, essiv;
	uint32_t block, sector_bytes;
	char mode[8], iv[16];
};

static gcry_cipher_hd_t second_open(int algorithm, const uint8_t *key, size_t len)
{
	gcry_cipher_hd_t h;

	ensure(gcry_cipher_open(&h, algorithm, GCRY_CIPHER_MODE_ECB, 0) == 0);
	ensure(gcry_cipher_setkey(h, key, len) == 0);
	return h;
}

static void second_block(gcry_cipher_hd_t h, uint8_t *block, uint32_t len)
{
	ensure(gcry_cipher_encrypt(h, block, len, NULL, 0) == 0);
}

static void put(uint8_t *at, uint64_t v, int bytes, bool big)
{
	for (int i = 0; i < bytes; i++)
		at[big ? bytes - 1 - i : i] = (uint8_t)(v >> (8 * i));
}

static void second_xor(uint8_t *to, const uint8_t *with, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] ^= with[i];
}

static void second_encrypt_with(struct second *s, uint8_t *bytes, uint32_t len, const uint8_t *iv);

static void second_iv(struct second *s, sector_t n, uint8_t iv[BLOCK_MAX])
{
	uint8_t zero[BLOCK_MAX] = {0};

	memset(iv, 0, BLOCK_MAX);
	if (strcmp(s->iv, "plain") == 0) {
		put(iv, n & 0xffffffff, 4, false);
	} else if (strcmp(s->iv, "plain64") == 0) {
		put(iv, n, 8, false);
	} else if (strcmp(s->iv, "plain64be") == 0) {
		put(iv + s->block - 8, n, 8, true);
	} else if (strcmp(s->iv, "benbi") == 0) {
		put(iv + s->block - 8, n * (512 / s->block) + 1, 8, true);
	} else if (strcmp(s->iv, "essiv") == 0) {
		put(iv, n, 8, false);
		second_block(s->essiv, iv, s->block);
	} else if (strcmp(s->iv, "eboiv") == 0) {
		put(iv, n * s->sector_bytes, 8, false);
		second_encrypt_with(s, zero, s->block, iv);
		memcpy(iv, zero, s->block);
	} else {
		ensure(strcmp(s->iv, "null") == 0);
	}
}

static void second_double(uint8_t tweak[16])
{
	const uint8_t carry = tweak[15] >> 7;

	for (int i = 15; i > 0; i--)
		tweak[i] = (uint8_t)(tweak[i] << 1 | tweak[i - 1] >> 7);
	tweak[0] = (uint8_t)(tweak[0] << 1) ^ (carry ? 0x87 : 0);
}

static void second_encrypt_with(struct second *s, uint8_t *bytes, uint32_t len, const uint8_t *iv)
{
	uint8_t state[BLOCK_MAX];

	memcpy(state, iv, s->block);
	if (strcmp(s->mode, "xts") == 0)
		second_block(s->tweak, state, 16);
	for (uint32_t at = 0; at < len; at += s->block) {
		if (strcmp(s->mode, "xts") == 0) {
			second_xor(bytes + at, state, 16);
			second_block(s->data, bytes + at, 16);
			second_xor(bytes + at, state, 16);
			second_double(state);
		} else if (strcmp(s->mode, "cbc") == 0) {
			second_xor(bytes + at, state, s->block);
			second_block(s->data, bytes + at, s->block);
			memcpy(state, bytes + at, s->block);
		} else if (strcmp(s->mode, "ctr") == 0) {
			uint8_t pad[BLOCK_MAX];

			memcpy(pad, state, s->block);
			second_block(s->data, pad, s->block);
			second_xor(bytes + at, pad, s->block);
			for (uint32_t i = s->block; i-- > 0 && ++state[i] == 0;)
				;
		} else {
			ensure(strcmp(s->mode, "ecb") == 0);
			second_block(s->data, bytes + at, s->block);
		}
	}
}

static void second_make(struct second *s, const struct cipher_spec *spec, const struct secret *key,
	const char *mode, const char *iv)
{
	const bool xts = strcmp(mode, "xts") == 0;
	const size_t half = xts ? key->len / 2 : key->len;
	uint8_t hash[64];

	*s = (struct second){.block = spec->block_bytes, .sector_bytes = spec->sector_bytes};
	strcpy(s->mode, mode);
	strcpy(s->iv, iv);
	s->data = second_open(spec->algorithm, key->bytes, half);
	if (xts)
		s->tweak = second_open(spec->algorithm, key->bytes + half, half);
	if (strcmp(iv, "essiv") == 0) {
		gcry_md_hash_buffer(GCRY_MD_SHA256, hash, key->bytes, key->len);
		s->essiv = second_open(cipher_algorithm_resize(spec->algorithm, 32), hash, 32);
	}
}

static void second_close(struct second *s)
{
	gcry_cipher_close(s->data);
	gcry_cipher_close(s->tweak);
	gcry_cipher_close(s->essiv);
}

static void compare_at(struct cipher *c, struct second *s, uint32_t sector_bytes, sector_t first)
{
	enum { SECTORS = 3 };
	static uint8_t plain[SECTORS * 4096], want[SECTORS * 4096], got[SECTORS * 4096];
	const size_t len = (size_t)SECTORS * sector_bytes;
	uint8_t iv[BLOCK_MAX];

	scratch_fill(plain, len);
	memcpy(want, plain, len);
	for (uint32_t i = 0; i < SECTORS; i++) {
		second_iv(s, first + i * (sector_bytes / 512), iv);
		second_encrypt_with(s, want + (size_t)i * sector_bytes, sector_bytes, iv);
	}
	ck_ok(cipher_encrypt(c, got, plain, len, first));
	ck_assert_mem_eq(got, want, len);
	ck_ok(cipher_decrypt(c, got, got, len, first));
	ck_assert_mem_eq(got, plain, len);
	memcpy(got, plain, len);
	ck_ok(cipher_encrypt(c, got, got, len, first));
	ck_assert_mem_eq(got, want, len);
	/* A sector in the middle stands for itself. */
	ck_ok(cipher_decrypt(
		c, got, want + sector_bytes, sector_bytes, first + sector_bytes / 512));
	ck_assert_mem_eq(got, plain + sector_bytes, sector_bytes);
}

static const struct {
	const char *name;
	uint32_t keys[4]; /* bytes of one half */
	bool small;       /* blocks of 8 bytes */
} second_ciphers[] = {
	{"aes", {16, 24, 32}, false},
	{"serpent", {16, 24, 32}, false},
	{"twofish", {16, 32}, false},
	{"camellia", {16, 24, 32}, false},
	{"sm4", {16}, false},
	{"seed", {16}, false},
	{"cast5", {16}, true},
	{"blowfish", {16, 32, 56}, true},
	{"des3_ede", {24}, true},
};

static void compare_spec(const char *name, uint32_t half, const char *mode, const char *iv)
{
	const sector_t firsts[] = {0, 8, 0xfffffff8, 0x123456789a8};
	struct cipher_spec spec;
	struct secret key;
	char text[64];

	snprintf(text, sizeof(text), "%s-%s-%s%s", name, mode, iv,
		strcmp(iv, "essiv") == 0 ? ":sha256" : "");
	make_key(&key, strcmp(mode, "xts") == 0 ? 2 * half : half);
	if (cipher_spec_parse(text, (uint32_t)key.len, 512, &spec) != OK) {
		/* SM4, SEED, CAST5 and 3DES take no key of 32 bytes; ctr has its own rule. */
		ck_assert(strcmp(iv, "essiv") == 0 || strcmp(mode, "ctr") == 0);
		secret_free(&key);
		return;
	}
	for (uint32_t sector = 512; sector <= 4096; sector *= 2) {
		struct cipher *c = make_cipher(text, &key, sector);
		struct second s;

		second_make(&s, cipher_spec(c), &key, mode, iv);
		for (size_t i = 0; i < ARRAY_SIZE(firsts); i++)
			compare_at(c, &s, sector, firsts[i]);
		second_close(&s);
		cipher_destroy(c);
	}
	secret_free(&key);
}

START_TEST(test_second_composition)
{
	static const char *const modes[] = {"xts", "cbc", "ctr", "ecb"};
	static const char *const ivs[] = {
		"null", "plain", "plain64", "plain64be", "essiv", "benbi", "eboiv"};

	for (size_t k = 0; k < 4 && second_ciphers[_i].keys[k]; k++) {
		for (size_t m = 0; m < ARRAY_SIZE(modes); m++) {
			if (second_ciphers[_i].small && strcmp(modes[m], "xts") == 0)
				continue;
			/* ECB is tried once, it has no IV. */
			for (size_t v = 0; v < (m == 3 ? 1 : ARRAY_SIZE(ivs)); v++)
				compare_spec(second_ciphers[_i].name, second_ciphers[_i].keys[k],
					modes[m], ivs[v]);
		}
	}
}
END_TEST

START_TEST(test_identity)
{
	struct cipher *c;
	uint8_t a[1024], b[1024];

	ck_ok(cipher_create_identity(512, &c));
	ck_assert_uint_eq(cipher_spec(c)->sector_bytes, 512);
	scratch_fill(a, sizeof(a));
	ck_ok(cipher_encrypt(c, b, a, sizeof(a), 3));
	ck_assert_mem_eq(a, b, sizeof(a));
	ck_ok(cipher_decrypt(c, b, b, sizeof(b), 3));
	ck_assert_mem_eq(a, b, sizeof(a));
	cipher_destroy(c);
	cipher_destroy(NULL);
}
END_TEST

/* --- threads -----------------------------------------------------------------------------------
 */

enum { THREADS = 6, THREAD_ROUNDS = 40, THREAD_BYTES = 8192 };

struct thread_work {
	struct cipher *c;
	const uint8_t *plain, *want;
	unsigned number;
};

static void *thread_run(void *arg)
{
	struct thread_work *w = arg;
	uint8_t buf[THREAD_BYTES];

	for (unsigned r = 0; r < THREAD_ROUNDS; r++) {
		const size_t at = ((w->number + r) % (THREAD_BYTES / 512)) * 512;
		const size_t len = THREAD_BYTES - at;

		if (cipher_encrypt(w->c, buf, w->plain + at, len, at / 512) != OK ||
			memcmp(buf, w->want + at, len) != 0)
			return arg;
		if (cipher_decrypt(w->c, buf, buf, len, at / 512) != OK ||
			memcmp(buf, w->plain + at, len) != 0)
			return arg;
	}
	return NULL;
}

/* Threads in parallel, twice over, so that the second round inherits the first one's slots. */
START_TEST(test_threads)
{
	static const char *const texts[] = {"aes-xts-plain64", "aes-xts-essiv:sha256",
		"serpent-xts-plain64", "serpent-xts-eboiv"};
	static uint8_t plain[THREAD_BYTES], want[THREAD_BYTES];
	struct secret key;
	struct cipher *c;

	make_key(&key, 64);
	c = make_cipher(texts[_i], &key, 512);
	scratch_fill(plain, sizeof(plain));
	ck_ok(cipher_encrypt(c, want, plain, sizeof(plain), 0));
	for (int round = 0; round < 2; round++) {
		struct thread_work work[THREADS];
		pthread_t threads[THREADS];

		for (unsigned i = 0; i < THREADS; i++) {
			work[i] = (struct thread_work){c, plain, want, i};
			ck_ok(thread_start(&threads[i], "cipher", thread_run, &work[i]));
		}
		for (unsigned i = 0; i < THREADS; i++) {
			void *failed;

			pthread_join(threads[i], &failed);
			ck_assert_ptr_null(failed);
		}
	}
	cipher_destroy(c);
	secret_free(&key);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cipher/cipher");
	TCase *t = tcase_create("cipher");

	ensure(cipher_library_init() == OK);
	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, test_ieee1619, 0, ARRAY_SIZE(ieee1619));
	tcase_add_loop_test(t, test_second_composition, 0, ARRAY_SIZE(second_ciphers));
	tcase_add_test(t, test_identity);
	tcase_add_loop_test(t, test_threads, 0, 4);
	suite_add_tcase(s, t);
	return scratch_main(s);
}
