/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Key derivation and the anti-forensic merge of the native keyslot reader, over libgcrypt.
 *
 * pbkdf2 (RFC 8018) with any hash that libgcrypt has, argon2i and argon2id (RFC 9106, version
 * 1.3). Argon2's lanes run in threads, as many at once as there are lanes: the time to unlock is
 * the library's only with them. The merge is section 2.4 of the LUKS1 specification.
 *
 * Threads: kdf_derive() starts and joins its own; there is no shared state.
 */
#include "luks_int.h"
#include <gcrypt.h>
#include <stdio.h>
#include <strings.h>

/* cryptsetup's names are libgcrypt's but for these. */
static int kdf_hash(const char *name)
{
	char mapped[32];

	if (strncasecmp(name, "blake2", 6) != 0)
		return gcry_md_map_name(name);
	snprintf(mapped, sizeof(mapped), "%s", name);
	for (char *c = mapped; *c != '\0'; c++)
		if (*c == '-')
			*c = '_';
	return gcry_md_map_name(mapped);
}

enum err kdf_check(const struct kdf *k)
{
	/*
	 * cryptsetup writes at most a few passes over at most 4 GiB; 64 TiB of memory traffic is a
	 * thousand times that, and still ends within the day. Its pbkdf2 count is a positive int.
	 */
	const uint64_t work_kib_max = (uint64_t)64 << 30;
	bool sane;

	if (k->kind == LUKS_KDF_PBKDF2)
		sane = k->iterations >= 1 && k->iterations <= INT32_MAX;
	else
		sane = k->iterations >= 1 && k->iterations <= UINT32_MAX && k->lanes >= 1 &&
		       k->lanes <= LUKS_KDF_LANES_MAX && k->memory_kib >= 8 * k->lanes &&
		       k->memory_kib <= LUKS_KDF_MEMORY_KIB_MAX &&
		       k->iterations <= work_kib_max / k->memory_kib;
	if (sane)
		return OK;
	return err_set_detail(ERR_LUKS_HEADER,
		"the LUKS header asks for a key derivation without measure (%llu iterations, %u "
		"KiB, %u lanes)",
		(unsigned long long)k->iterations, k->memory_kib, k->lanes);
}

static enum err kdf_library(const char *what, gpg_error_t error)
{
	if (gcry_err_code(error) == GPG_ERR_ENOMEM)
		return err_set_detail(ERR_NOMEM, "out of memory in %s", what);
	return err_set_detail(ERR_CIPHER_LIBRARY, "%s: %s", what, gcry_strerror(error));
}

static enum err kdf_pbkdf2(
	const struct kdf *k, const void *passphrase, size_t passphrase_bytes, struct secret *out)
{
	const int hash = kdf_hash(k->hash);
	gpg_error_t error;

	if (hash == 0)
		return err_set_detail(ERR_LUKS_REQUIREMENT, "hash '%s' is not supported", k->hash);
	error = gcry_kdf_derive(passphrase, passphrase_bytes, GCRY_KDF_PBKDF2, hash, k->salt,
		k->salt_bytes, (unsigned long)k->iterations, out->len, out->bytes);
	return error ? kdf_library("pbkdf2", error) : OK;
}

struct kdf_job {
	gcry_kdf_job_fn_t run;
	void *argument;
};
struct kdf_jobs {
	unsigned count;
	pthread_t threads[LUKS_KDF_LANES_MAX];
	struct kdf_job jobs[LUKS_KDF_LANES_MAX];
};

static void *kdf_job_run(void *argument)
{
	const struct kdf_job *job = argument;

	job->run(job->argument);
	return NULL;
}

/* libgcrypt hands out one job a lane and waits for all of them before the next round. */
static int kdf_dispatch(void *context, gcry_kdf_job_fn_t run, void *argument)
{
	struct kdf_jobs *all = context;
	const unsigned n = all->count;

	if (n < LUKS_KDF_LANES_MAX) {
		all->jobs[n] = (struct kdf_job){.run = run, .argument = argument};
		if (thread_start(&all->threads[n], "argon2", kdf_job_run, &all->jobs[n]) == OK) {
			all->count++;
			return 0;
		}
	}
	run(argument); /* no thread to be had: slower, and right */
	return 0;
}

static int kdf_wait_all(void *context)
{
	struct kdf_jobs *all = context;

	for (unsigned n = 0; n < all->count; n++)
		ensure(pthread_join(all->threads[n], NULL) == 0);
	all->count = 0;
	return 0;
}

static enum err kdf_argon2(
	const struct kdf *k, const void *passphrase, size_t passphrase_bytes, struct secret *out)
{
	const unsigned long parameters[4] = {
		out->len, (unsigned long)k->iterations, k->memory_kib, k->lanes};
	const int variant = k->kind == LUKS_KDF_ARGON2I ? GCRY_KDF_ARGON2I : GCRY_KDF_ARGON2ID;
	struct kdf_jobs jobs = {0};
	const gcry_kdf_thread_ops_t threads = {
		.jobs_context = &jobs, .dispatch_job = kdf_dispatch, .wait_all_jobs = kdf_wait_all};
	gcry_kdf_hd_t handle;
	gpg_error_t error = gcry_kdf_open(&handle, GCRY_KDF_ARGON2, variant, parameters, 4,
		passphrase, passphrase_bytes, k->salt, k->salt_bytes, NULL, 0, NULL, 0);

	if (error)
		return kdf_library("argon2", error);
	error = gcry_kdf_compute(handle, &threads);
	if (!error)
		error = gcry_kdf_final(handle, out->len, out->bytes);
	gcry_kdf_close(handle);
	return error ? kdf_library("argon2", error) : OK;
}

enum err kdf_derive(
	const struct kdf *k, const void *passphrase, size_t passphrase_bytes, struct secret *out)
{
	enum err e = kdf_check(k);

	if (e != OK)
		return e;
	if (passphrase == NULL)
		passphrase = ""; /* the empty passphrase */
	if (k->kind == LUKS_KDF_PBKDF2)
		return kdf_pbkdf2(k, passphrase, passphrase_bytes, out);
	return kdf_argon2(k, passphrase, passphrase_bytes, out);
}

/* Each digest-sized piece of the block becomes hash(be32(its number) || piece), cut to size. */
static enum err kdf_diffuse(gcry_md_hd_t md, int hash, struct secret *block)
{
	const size_t digest_bytes = gcry_md_get_algo_dlen(hash);

	for (size_t at = 0, n = 0; at < block->len; at += digest_bytes, n++) {
		const size_t piece = MIN(digest_bytes, block->len - at);
		const be32 number = be32_make((uint32_t)n);
		const unsigned char *digest;

		gcry_md_reset(md);
		gcry_md_write(md, &number, sizeof(number));
		gcry_md_write(md, block->bytes + at, piece);
		digest = gcry_md_read(md, hash);
		if (digest == NULL)
			return ERR_CIPHER_LIBRARY;
		memcpy(block->bytes + at, digest, piece);
	}
	return OK;
}

enum err kdf_af_merge(const uint8_t *stripes, const char *name, struct secret *key)
{
	const int hash = kdf_hash(name);
	struct secret block = {0};
	gcry_md_hd_t md = NULL;
	gpg_error_t error;
	enum err e;

	if (hash == 0 || gcry_md_get_algo_dlen(hash) == 0)
		return err_set_detail(ERR_LUKS_REQUIREMENT, "hash '%s' is not supported", name);
	error = gcry_md_open(&md, hash, GCRY_MD_FLAG_SECURE);
	if (error)
		return kdf_library(name, error);
	e = secret_alloc(&block, key->len);
	for (size_t n = 0; e == OK && n + 1 < LUKS_STRIPES; n++) {
		for (size_t i = 0; i < block.len; i++)
			block.bytes[i] ^= stripes[n * block.len + i];
		e = kdf_diffuse(md, hash, &block);
	}
	for (size_t i = 0; e == OK && i < block.len; i++)
		key->bytes[i] =
			block.bytes[i] ^ stripes[(size_t)(LUKS_STRIPES - 1) * block.len + i];
	secret_free(&block);
	gcry_md_close(md);
	return e;
}
