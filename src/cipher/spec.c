/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cipher: from the text of a cipher specification to what libgcrypt needs.
 *
 * Two spellings, both dm-crypt's (Documentation/admin-guide/device-mapper/dm-crypt.rst):
 * cipher-mode-iv[:option], where a missing mode, or "plain" in its place, means cbc-plain as in old
 * headers, and capi:mode(cipher)-iv[:option]. Both end in the same parts. What we cannot do is
 * refused with the name of the part, mode and IV before cipher and key: "adiantum" and "lmk" are
 * what the user knows such volumes by, and their ciphers and key sizes are odd only because of it.
 *
 * Does not do: several keys ("aes:64"), IVs that also change the data (lmk, tcw, elephant), and
 * whatever needs room for tags (gcm, authenc, rfc7539). Threads: no state.
 */
#include "cipher_int.h"

#include "base.h"

#include <stdio.h>
#include <strings.h>

struct spec_key {
	uint16_t bytes_min, bytes_max;
	int algorithm;
};

struct spec_cipher {
	const char *name;
	uint32_t block_bytes;
	struct spec_key keys[3];
};

static const struct spec_cipher spec_ciphers[] = {
	{"aes", 16,
		{{16, 16, GCRY_CIPHER_AES128}, {24, 24, GCRY_CIPHER_AES192},
			{32, 32, GCRY_CIPHER_AES256}}},
	{"serpent", 16,
		{{16, 16, GCRY_CIPHER_SERPENT128}, {24, 24, GCRY_CIPHER_SERPENT192},
			{32, 32, GCRY_CIPHER_SERPENT256}}},
	{"twofish", 16, {{16, 16, GCRY_CIPHER_TWOFISH128}, {32, 32, GCRY_CIPHER_TWOFISH}}},
	{"camellia", 16,
		{{16, 16, GCRY_CIPHER_CAMELLIA128}, {24, 24, GCRY_CIPHER_CAMELLIA192},
			{32, 32, GCRY_CIPHER_CAMELLIA256}}},
	{"sm4", 16, {{16, 16, GCRY_CIPHER_SM4}}},
	{"seed", 16, {{16, 16, GCRY_CIPHER_SEED}}},
	{"cast5", 8, {{16, 16, GCRY_CIPHER_CAST5}}},
	{"blowfish", 8, {{4, 56, GCRY_CIPHER_BLOWFISH}}},
	{"des3_ede", 8, {{24, 24, GCRY_CIPHER_3DES}}},
};

/* Only hashes whose length some cipher takes as a key are of use to ESSIV. */
static const struct {
	const char *name;
	int algorithm;
} spec_hashes[] = {
	{"md5", GCRY_MD_MD5},
	{"sha1", GCRY_MD_SHA1},
	{"sha224", GCRY_MD_SHA224},
	{"sha256", GCRY_MD_SHA256},
	{"sha384", GCRY_MD_SHA384},
	{"sha512", GCRY_MD_SHA512},
	{"sha3-224", GCRY_MD_SHA3_224},
	{"sha3-256", GCRY_MD_SHA3_256},
	{"sha3-384", GCRY_MD_SHA3_384},
	{"sha3-512", GCRY_MD_SHA3_512},
	{"rmd160", GCRY_MD_RMD160},
	{"ripemd160", GCRY_MD_RMD160},
	{"wp512", GCRY_MD_WHIRLPOOL},
	{"whirlpool", GCRY_MD_WHIRLPOOL},
	{"sm3", GCRY_MD_SM3},
	{"streebog256", GCRY_MD_STRIBOG256},
	{"blake2b-256", GCRY_MD_BLAKE2B_256},
	{"blake2s-256", GCRY_MD_BLAKE2S_256},
};

static const struct {
	const char *name;
	enum cipher_iv iv;
} spec_ivs[] = {
	{"null", CIPHER_IV_NULL},
	{"plain", CIPHER_IV_PLAIN},
	{"plain64", CIPHER_IV_PLAIN64},
	{"plain64be", CIPHER_IV_PLAIN64BE},
	{"essiv", CIPHER_IV_ESSIV},
	{"benbi", CIPHER_IV_BENBI},
	{"eboiv", CIPHER_IV_EBOIV},
};

static const struct {
	const char *name;
	enum cipher_mode mode;
} spec_modes[] = {
	{"xts", CIPHER_MODE_XTS},
	{"cbc", CIPHER_MODE_CBC},
	{"ctr", CIPHER_MODE_CTR},
	{"ecb", CIPHER_MODE_ECB},
};

struct spec_parts {
	char cipher[64], mode[64], iv[64], option[64];
};

static enum err spec_refuse(const char *text, const char *kind, const char *part)
{
	return err_set_detail(
		ERR_CIPHER_SPEC, "cipher '%s': %s '%s' is not supported", text, kind, part);
}

/* Copies what stands before `stop`, or all of it, and returns what stands behind, or NULL. */
static const char *spec_cut(char out[64], const char *from, char stop)
{
	const char *end = strchr(from, stop);
	const size_t len = end ? (size_t)(end - from) : strlen(from);

	ensure(len < 64);
	memcpy(out, from, len);
	out[len] = '\0';
	return end ? end + 1 : NULL;
}

static void spec_split_iv(struct spec_parts *p, const char *from)
{
	const char *option = from ? spec_cut(p->iv, from, ':') : NULL;

	if (option)
		(void)spec_cut(p->option, option, '\0');
}

/* capi:mode(cipher)-iv. Templates inside one another (essiv, authenc) end as an unknown mode. */
static enum err spec_split_capi(const char *text, struct spec_parts *p)
{
	const char *name = text + strlen("capi:");
	const char *close = strrchr(name, ')');
	const char *open = strchr(name, '(');

	if (!open || !close || close < open || (close[1] != '-' && close[1] != '\0'))
		return spec_refuse(text, "kernel algorithm", name);
	(void)spec_cut(p->mode, name, '(');
	memcpy(p->cipher, open + 1, (size_t)(close - open - 1));
	p->cipher[close - open - 1] = '\0';
	spec_split_iv(p, close[1] == '-' ? close + 2 : NULL);
	return OK;
}

static void spec_split_classic(const char *text, struct spec_parts *p)
{
	const char *rest = spec_cut(p->cipher, text, '-');

	if (rest)
		rest = spec_cut(p->mode, rest, '-');
	if (p->mode[0] == '\0' || (strcmp(p->mode, "plain") == 0 && !rest)) {
		strcpy(p->mode, "cbc");
		rest = "plain";
	}
	spec_split_iv(p, rest);
}

static enum err spec_find_mode(const char *text, const struct spec_parts *p, enum cipher_mode *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(spec_modes); i++) {
		if (strcmp(p->mode, spec_modes[i].name) == 0) {
			*out = spec_modes[i].mode;
			return OK;
		}
	}
	return spec_refuse(text, "mode", p->mode);
}

static const struct spec_cipher *spec_find_cipher(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(spec_ciphers); i++) {
		if (strcmp(name, spec_ciphers[i].name) == 0)
			return &spec_ciphers[i];
	}
	return NULL;
}

static int spec_key_algorithm(const struct spec_cipher *c, size_t key_bytes)
{
	for (size_t i = 0; i < ARRAY_SIZE(c->keys); i++) {
		if (key_bytes >= c->keys[i].bytes_min && key_bytes <= c->keys[i].bytes_max &&
			key_bytes > 0)
			return c->keys[i].algorithm;
	}
	return 0;
}

int cipher_algorithm_resize(int algorithm, size_t key_bytes)
{
	for (size_t i = 0; i < ARRAY_SIZE(spec_ciphers); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(spec_ciphers[i].keys); k++) {
			if (spec_ciphers[i].keys[k].algorithm == algorithm)
				return spec_key_algorithm(&spec_ciphers[i], key_bytes);
		}
	}
	return 0;
}

/* The cipher, its key and its block: algorithm and block_bytes of the result. */
static enum err spec_set_cipher(
	const char *text, const struct spec_parts *p, struct cipher_spec *spec)
{
	const struct spec_cipher *c = spec_find_cipher(p->cipher);
	const bool xts = spec->mode == CIPHER_MODE_XTS;

	if (!c)
		return spec_refuse(
			text, strchr(p->cipher, ':') ? "several keys" : "cipher", p->cipher);
	if (xts && c->block_bytes != 16)
		return err_set_detail(ERR_CIPHER_SPEC,
			"cipher '%s': mode 'xts' needs a cipher with blocks of 16 bytes, '%s' has "
			"%u",
			text, c->name, c->block_bytes);
	spec->block_bytes = c->block_bytes;
	if (!xts || spec->key_bytes % 2 == 0)
		spec->algorithm =
			spec_key_algorithm(c, xts ? spec->key_bytes / 2 : spec->key_bytes);
	if (spec->algorithm == 0)
		return err_set_detail(ERR_CIPHER_SPEC,
			"cipher '%s': a key of %u bits is not supported", text,
			8 * spec->key_bytes);
	return OK;
}

static enum err spec_set_essiv(
	const char *text, const struct spec_parts *p, struct cipher_spec *spec)
{
	unsigned digest_bytes;

	for (size_t i = 0; i < ARRAY_SIZE(spec_hashes); i++) {
		if (strcasecmp(p->option, spec_hashes[i].name) == 0)
			spec->essiv_hash = spec_hashes[i].algorithm;
	}
	if (spec->essiv_hash == 0)
		return spec_refuse(text, "ESSIV hash", p->option);
	digest_bytes = gcry_md_get_algo_dlen(spec->essiv_hash);
	if (cipher_algorithm_resize(spec->algorithm, digest_bytes) == 0)
		return err_set_detail(ERR_CIPHER_SPEC,
			"cipher '%s': '%s' takes no key of %u bytes, which ESSIV hash '%s' gives",
			text, p->cipher, digest_bytes, p->option);
	return OK;
}

static enum err spec_set_iv(const char *text, const struct spec_parts *p, struct cipher_spec *spec)
{
	size_t i;

	/* ECB has no IV; dm-crypt ignores one that is named. */
	if (spec->mode == CIPHER_MODE_ECB) {
		spec->iv = CIPHER_IV_NULL;
		return OK;
	}
	for (i = 0; i < ARRAY_SIZE(spec_ivs); i++) {
		if (strcmp(p->iv, spec_ivs[i].name) == 0)
			break;
	}
	if (i == ARRAY_SIZE(spec_ivs))
		return spec_refuse(text, "IV", p->iv);
	spec->iv = spec_ivs[i].iv;
	/*
	 * dm-crypt refuses eboiv with ctr, and counts benbi in the mode's block, which for ctr is
	 * one byte, where cryptsetup counts in the IV's 16: two readers would not agree.
	 */
	if (spec->mode == CIPHER_MODE_CTR &&
		(spec->iv == CIPHER_IV_EBOIV || spec->iv == CIPHER_IV_BENBI))
		return spec_refuse(text, "with mode 'ctr' the IV", p->iv);
	if (spec->iv == CIPHER_IV_ESSIV)
		return OK;
	return p->option[0] == '\0' ? OK : spec_refuse(text, "IV option", p->option);
}

static bool spec_sector_is_known(uint32_t bytes)
{
	return bytes == 512 || bytes == 1024 || bytes == 2048 || bytes == 4096;
}

enum err cipher_spec_parse(
	const char *text, uint32_t key_bytes, uint32_t sector_bytes, struct cipher_spec *out)
{
	struct cipher_spec spec = {.sector_bytes = sector_bytes, .key_bytes = key_bytes};
	struct spec_parts parts = {.cipher = ""};
	enum err e = OK;

	if (strlen(text) >= sizeof(spec.text))
		return err_set_detail(ERR_CIPHER_SPEC, "cipher '%.64s...' is not supported", text);
	if (!spec_sector_is_known(sector_bytes))
		return err_set_detail(ERR_CIPHER_SPEC,
			"encryption sectors of %u bytes are not supported", sector_bytes);
	memcpy(spec.text, text, strlen(text) + 1);
	if (strncmp(text, "capi:", 5) == 0)
		e = spec_split_capi(text, &parts);
	else
		spec_split_classic(text, &parts);
	if (e == OK && strcmp(parts.cipher, "cipher_null") == 0)
		return err_set_detail(ERR_CIPHER_SPEC,
			"cipher '%s' does not encrypt: everything on this volume is readable "
			"without a key; it is not served",
			text);
	if (e == OK)
		e = spec_find_mode(text, &parts, &spec.mode);
	if (e == OK)
		e = spec_set_iv(text, &parts, &spec);
	if (e == OK)
		e = spec_set_cipher(text, &parts, &spec);
	if (e == OK && spec.iv == CIPHER_IV_ESSIV)
		e = spec_set_essiv(text, &parts, &spec);
	if (e == OK)
		*out = spec;
	return e;
}
