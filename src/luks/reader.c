/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Opens a keyslot without libcryptsetup, for the keyslot ciphers that it can only do with kernel
 * crypto (Serpent, Twofish, Camellia in XTS, ...).
 *
 * LUKS1 specification 1.2.3, section 4.2, and LUKS2 1.1, section 4.1: passphrase -> KDF -> key of
 * the area -> 4000 stripes, decrypted in 512-byte sectors with IVs from 0 -> merged volume key ->
 * compared with the header's digest. It reads the private copy only and writes nothing. All key
 * material is in struct secret and wiped on every way out.
 *
 * Does not do: keyslots of the null cipher. Only the empty passphrase may open those, else a
 * swapped header could make the user's own passphrase a formality.
 */
#include "luks_int.h"
#include <gcrypt.h>
#include <stdlib.h>
#include <unistd.h>

enum err reader_verify(const struct luks *l, const struct secret *key)
{
	struct secret got = {0};
	uint8_t difference = 0;
	enum err e;

	if (l->digest.len == 0)
		return ERR_LUKS_HEADER;
	e = secret_alloc(&got, l->digest.len);
	if (e == OK)
		e = kdf_derive(&l->digest.kdf, key->bytes, key->len, &got);
	for (size_t i = 0; e == OK && i < got.len; i++)
		difference |= (uint8_t)(got.bytes[i] ^ l->digest.bytes[i]);
	secret_free(&got);
	return e == OK && difference != 0 ? ERR_LUKS_KEY : e;
}

static enum err reader_read_area(const struct luks *l, const struct keyslot *s, struct secret *area)
{
	size_t done = 0;

	while (done < area->len) {
		ssize_t n = pread(l->copy_fd, area->bytes + done, area->len - done,
			(off_t)(s->area_offset_bytes + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_from_errno(errno);
		if (n == 0)
			return err_set_detail(
				ERR_LUKS_HEADER, "key slot %d lies past the end", s->info.slot);
		done += (size_t)n;
	}
	return OK;
}

/* `area` is decrypted in place; area_key is the key that the KDF gave. */
static enum err reader_decrypt_area(
	const struct cipher_spec *spec, const struct secret *area_key, struct secret *area)
{
	struct cipher *cipher = NULL;
	enum err e = cipher_create(spec, area_key, &cipher);

	if (e != OK)
		return e;
	e = cipher_decrypt(cipher, area->bytes, area->bytes, area->len, 0);
	cipher_destroy(cipher);
	return e;
}

enum err reader_unlock(const struct luks *l, const struct keyslot *s,
	const struct secret *passphrase, struct secret *key)
{
	struct secret area_key = {0}, area = {0}, candidate = {0};
	const size_t stripes_bytes = (size_t)LUKS_STRIPES * s->info.key_bytes;
	struct cipher_spec spec;
	enum err e;

	if (s->problem != OK)
		return err_set_detail(s->problem, "key slot %d: %s", s->info.slot, s->why);
	/* The cheap refusal stands before the costly derivation. */
	e = cipher_spec_parse(s->info.cipher, s->area_key_bytes, SECTOR_BYTES, &spec);
	if (e != OK)
		return e;
	if (spec.mode == CIPHER_MODE_IDENTITY)
		return err_set_detail(ERR_CIPHER_SPEC,
			"key slot %d is not encrypted (%s), which is not supported", s->info.slot,
			s->info.cipher);
	e = secret_alloc(&area_key, s->area_key_bytes);
	if (e == OK)
		e = secret_alloc(
			&area, (stripes_bytes + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES);
	if (e == OK)
		e = secret_alloc(&candidate, s->info.key_bytes);
	if (e == OK)
		e = reader_read_area(l, s, &area);
	if (e == OK)
		e = kdf_derive(&s->kdf, passphrase->bytes, passphrase->len, &area_key);
	if (e == OK)
		e = reader_decrypt_area(&spec, &area_key, &area);
	if (e == OK)
		e = kdf_af_merge(area.bytes, s->af_hash, &candidate);
	if (e == OK)
		e = reader_verify(l, &candidate);
	if (e == OK) {
		*key = candidate;
		candidate = (struct secret){0};
	}
	secret_free(&candidate);
	secret_free(&area);
	secret_free(&area_key);
	return e;
}
