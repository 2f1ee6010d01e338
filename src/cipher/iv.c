/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cipher: the initialization vector of a sector.
 *
 * The rules are dm-crypt's (dm-crypt.rst and the generators of drivers/md/dm-crypt.c), which
 * cryptsetup's lib/crypto_backend/crypto_storage.c follows; the table stands in cipher.h. The
 * number s counts 512-byte sectors whatever the cipher's sector is. EBOIV encrypts a block of
 * zeros in the volume's own mode with the sector's byte offset as its IV, which in CBC is one
 * encryption of that offset.
 *
 * Threads: works on the caller's handles and stack only.
 */
#include "cipher_int.h"

#include "base.h"

static enum err iv_make_essiv(
	const struct cipher *c, const struct cipher_handles *h, uint8_t iv[CIPHER_BLOCK_BYTES_MAX])
{
	gcry_error_t g = gcry_cipher_encrypt(h->essiv, iv, c->spec.block_bytes, NULL, 0);

	return g == 0 ? OK : cipher_library_error("encrypting an IV", g);
}

static enum err iv_make_eboiv(
	const struct cipher *c, const struct cipher_handles *h, uint8_t iv[CIPHER_BLOCK_BYTES_MAX])
{
	gcry_error_t g = gcry_cipher_setiv(h->data, iv, c->spec.block_bytes);

	memset(iv, 0, CIPHER_BLOCK_BYTES_MAX);
	if (g == 0)
		g = gcry_cipher_encrypt(h->data, iv, c->spec.block_bytes, NULL, 0);
	return g == 0 ? OK : cipher_library_error("encrypting an IV", g);
}

enum err cipher_make_iv(const struct cipher *c, const struct cipher_handles *h, sector_t s,
	uint8_t iv[CIPHER_BLOCK_BYTES_MAX])
{
	const uint32_t block = c->spec.block_bytes;
	const unsigned benbi_shift = 9 - (unsigned)__builtin_ctz(block);
	const le32 plain = le32_make((uint32_t)s);
	const le64 plain64 = le64_make(s);
	const be64 plain64be = be64_make(s);
	const be64 benbi = be64_make((s << benbi_shift) + 1);
	const le64 eboiv = le64_make(s * c->spec.sector_bytes);

	memset(iv, 0, CIPHER_BLOCK_BYTES_MAX);
	switch (c->spec.iv) {
	case CIPHER_IV_NULL:
		return OK;
	case CIPHER_IV_PLAIN:
		memcpy(iv, plain.b, sizeof(plain));
		return OK;
	case CIPHER_IV_PLAIN64:
		memcpy(iv, plain64.b, sizeof(plain64));
		return OK;
	case CIPHER_IV_PLAIN64BE:
		memcpy(iv + block - sizeof(plain64be), plain64be.b, sizeof(plain64be));
		return OK;
	case CIPHER_IV_BENBI:
		memcpy(iv + block - sizeof(benbi), benbi.b, sizeof(benbi));
		return OK;
	case CIPHER_IV_ESSIV:
		memcpy(iv, plain64.b, sizeof(plain64));
		return iv_make_essiv(c, h, iv);
	case CIPHER_IV_EBOIV:
		memcpy(iv, eboiv.b, sizeof(eboiv));
		return iv_make_eboiv(c, h, iv);
	}
	ensure_failed("an IV of cipher_iv", __FILE__, __LINE__);
}
