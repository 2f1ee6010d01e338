/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cipher: whole sectors encrypted and decrypted, one libgcrypt call a sector.
 *
 * A libgcrypt handle carries the IV and is not for two threads at once, so each thread slot has its
 * own, opened at the slot's first use and inherited by the slot's next thread; the keys stay in
 * secrets of ours for that. The key is tried when the cipher is made, so that a key libgcrypt
 * refuses shows at mount and not at a read. IVs live on the stack.
 *
 * Threads: any, in parallel, without a lock.
 */
#include "cipher_int.h"

#include "base.h"

#include <stdlib.h>

static int cipher_library_mode(enum cipher_mode mode)
{
	switch (mode) {
	case CIPHER_MODE_XTS:
		return GCRY_CIPHER_MODE_XTS;
	case CIPHER_MODE_CBC:
		return GCRY_CIPHER_MODE_CBC;
	case CIPHER_MODE_CTR:
		return GCRY_CIPHER_MODE_CTR;
	case CIPHER_MODE_ECB:
		return GCRY_CIPHER_MODE_ECB;
	case CIPHER_MODE_IDENTITY:
		break;
	}
	ensure_failed("a mode that libgcrypt has", __FILE__, __LINE__);
}

static enum err cipher_open_handles(const struct cipher *c, struct cipher_handles *h)
{
	enum err e = OK;

	if (c->spec.iv == CIPHER_IV_ESSIV && !h->essiv)
		e = cipher_handle_open(cipher_algorithm_resize(c->spec.algorithm, c->essiv_key.len),
			GCRY_CIPHER_MODE_ECB, &c->essiv_key, &h->essiv);
	if (e == OK && c->xts_bulk)
		e = cipher_xts_bulk_open(c, h);
	else if (e == OK)
		e = cipher_handle_open(
			c->spec.algorithm, cipher_library_mode(c->spec.mode), &c->key, &h->data);
	h->ready = e == OK;
	return e;
}

static enum err cipher_make_essiv_key(struct cipher *c)
{
	enum err e = secret_alloc(&c->essiv_key, gcry_md_get_algo_dlen(c->spec.essiv_hash));

	if (e == OK)
		gcry_md_hash_buffer(
			c->spec.essiv_hash, c->essiv_key.bytes, c->key.bytes, c->key.len);
	return e;
}

enum err cipher_create(
	const struct cipher_spec *spec, const struct secret *key, struct cipher **out)
{
	struct cipher *c = calloc(1, sizeof(*c));
	enum err e;

	if (!c)
		return ERR_NOMEM;
	ensure(key->len == spec->key_bytes);
	c->spec = *spec;
	c->xts_bulk = cipher_xts_bulk_helps(spec);
	c->handles = calloc(THREAD_SLOTS, sizeof(*c->handles));
	e = c->handles ? OK : ERR_NOMEM;
	if (e == OK)
		e = secret_copy(&c->key, key->bytes, key->len);
	if (e == OK && spec->iv == CIPHER_IV_ESSIV)
		e = cipher_make_essiv_key(c);
	if (e == OK)
		e = cipher_open_handles(c, &c->handles[thread_slot()]);
	if (e != OK) {
		cipher_destroy(c);
		return e;
	}
	*out = c;
	return OK;
}

enum err cipher_create_identity(uint32_t sector_bytes, struct cipher **out)
{
	struct cipher *c = calloc(1, sizeof(*c));

	if (!c)
		return ERR_NOMEM;
	c->spec = (struct cipher_spec){
		.mode = CIPHER_MODE_IDENTITY,
		.sector_bytes = sector_bytes,
		.block_bytes = 1,
		.text = "identity",
	};
	*out = c;
	return OK;
}

void cipher_destroy(struct cipher *c)
{
	if (!c)
		return;
	for (unsigned i = 0; c->handles && i < THREAD_SLOTS; i++) {
		gcry_cipher_close(c->handles[i].data);
		gcry_cipher_close(c->handles[i].essiv);
		gcry_cipher_close(c->handles[i].xts_cfb);
		gcry_cipher_close(c->handles[i].xts_cbc);
		gcry_cipher_close(c->handles[i].xts_tweak);
	}
	free(c->handles);
	secret_free(&c->key);
	secret_free(&c->essiv_key);
	free(c);
}

const struct cipher_spec *cipher_spec(const struct cipher *c)
{
	return &c->spec;
}

static gcry_error_t cipher_set_iv(
	const struct cipher *c, const struct cipher_handles *h, const uint8_t *iv)
{
	switch (c->spec.mode) {
	case CIPHER_MODE_ECB:
		return 0;
	case CIPHER_MODE_CTR:
		return gcry_cipher_setctr(h->data, iv, c->spec.block_bytes);
	default:
		return gcry_cipher_setiv(h->data, iv, c->spec.block_bytes);
	}
}

static enum err cipher_transform_sector(const struct cipher *c, const struct cipher_handles *h,
	uint8_t *out, const uint8_t *in, sector_t sector, bool encrypt)
{
	const size_t len = c->spec.sector_bytes;
	/* libgcrypt wants no input for a transformation in place. */
	const uint8_t *from = in == out ? NULL : in;
	const size_t from_len = from ? len : 0;
	uint8_t iv[CIPHER_BLOCK_BYTES_MAX];
	gcry_error_t g;
	enum err e = cipher_make_iv(c, h, sector, iv);

	if (e != OK)
		return e;
	if (c->xts_bulk)
		return cipher_xts_bulk(c, h, out, in, iv, encrypt);
	g = cipher_set_iv(c, h, iv);
	if (g == 0)
		g = encrypt ? gcry_cipher_encrypt(h->data, out, len, from, from_len)
			    : gcry_cipher_decrypt(h->data, out, len, from, from_len);
	return g == 0 ? OK : cipher_library_error(encrypt ? "encrypting" : "decrypting", g);
}

static enum err cipher_transform(struct cipher *c, void *out, const void *in, size_t len_bytes,
	sector_t sector, bool encrypt)
{
	const uint32_t step = c->spec.sector_bytes;
	struct cipher_handles *h;
	enum err e = OK;

	ensure(len_bytes % step == 0);
	if (c->spec.mode == CIPHER_MODE_IDENTITY) {
		if (out != in)
			memmove(out, in, len_bytes);
		return OK;
	}
	h = &c->handles[thread_slot()];
	if (!h->ready)
		e = cipher_open_handles(c, h);
	for (size_t at = 0; e == OK && at < len_bytes; at += step, sector += step / SECTOR_BYTES)
		e = cipher_transform_sector(
			c, h, (uint8_t *)out + at, (const uint8_t *)in + at, sector, encrypt);
	return e;
}

enum err cipher_decrypt(
	struct cipher *c, void *out, const void *in, size_t len_bytes, sector_t sector)
{
	return cipher_transform(c, out, in, len_bytes, sector, false);
}

enum err cipher_encrypt(
	struct cipher *c, void *out, const void *in, size_t len_bytes, sector_t sector)
{
	return cipher_transform(c, out, in, len_bytes, sector, true);
}
