/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cipher, private: a cipher's handles by thread slot, and the IV of a sector.
 */
#ifndef CRYPTFS_CIPHER_INT_H
#define CRYPTFS_CIPHER_INT_H

#include "cipher.h"

#include <gcrypt.h>

enum { CIPHER_BLOCK_BYTES_MAX = 16 };

/* Belongs to the thread that has the slot; all NULL until it first encrypts or decrypts. */
struct cipher_handles {
	bool ready;             /* every handle that the specification needs is open */
	gcry_cipher_hd_t data;  /* in the specification's mode; NULL with cipher.xts_bulk */
	gcry_cipher_hd_t essiv; /* the IV's own cipher, ECB under the hashed key; ESSIV only */
	gcry_cipher_hd_t xts_cfb, xts_cbc, xts_tweak; /* with cipher.xts_bulk */
};

struct cipher {
	struct cipher_spec spec;
	struct secret key;
	struct secret essiv_key;        /* empty without ESSIV */
	bool xts_bulk;                  /* xts_bulk.c instead of libgcrypt's XTS */
	struct cipher_handles *handles; /* THREAD_SLOTS; NULL for the identity */
};

/* The algorithm of the same cipher for a key of that length; 0 when it takes none such. */
int cipher_algorithm_resize(int algorithm, size_t key_bytes);

/* Sets the detail to what failed and libgcrypt's text; returns ERR_CIPHER_LIBRARY. */
enum err cipher_library_error(const char *what, gcry_error_t error);
/* In secure memory while there is some. ERR_CIPHER_LIBRARY. */
enum err cipher_handle_open(
	int algorithm, int mode, const struct secret *key, gcry_cipher_hd_t *out) must_check;

/*
 * Writes block_bytes of IV for the 512-byte sector s. EBOIV leaves the data handle with another IV
 * than it had; the caller sets the new one anyway.
 */
enum err cipher_make_iv(const struct cipher *c, const struct cipher_handles *h, sector_t s,
	uint8_t iv[CIPHER_BLOCK_BYTES_MAX]) must_check;

/* Whether xts_bulk.c is faster than libgcrypt's own mode, and equal to it. */
bool cipher_xts_bulk_helps(const struct cipher_spec *spec);
enum err cipher_xts_bulk_open(const struct cipher *c, struct cipher_handles *h) must_check;
/* One sector; in == out or apart. */
enum err cipher_xts_bulk(const struct cipher *c, const struct cipher_handles *h, uint8_t *out,
	const uint8_t *in, const uint8_t iv[CIPHER_BLOCK_BYTES_MAX], bool encrypt) must_check;

#endif
