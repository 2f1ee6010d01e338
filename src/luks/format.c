/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Makes a new LUKS2 header for mkfs, through libcryptsetup.
 *
 * The library formats a sparse memfd that stands for the target; only when all has gone well is
 * the header area copied to the device, zeros included, so that nothing old is left in it. The
 * library therefore never opens the target: it would want the exclusive claim that we hold, and
 * locks that a plain user cannot take. The volume key is drawn here, so that it need not be
 * unlocked again afterwards.
 *
 * Does not do: ciphers that the library cannot use for a keyslot without kernel crypto. It says so
 * and its line is passed on. Threads: the caller's.
 */
#include "luks_int.h"
#include <libcryptsetup.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum {
	FORMAT_HEADER_BYTES = 16 << 20, /* cryptsetup's default */
	FORMAT_HEADER_SMALL_BYTES = 4 << 20,
	FORMAT_HEADER_MIN_BYTES = 1 << 20,
	FORMAT_METADATA_BYTES = 16 << 10, /* of each copy; cryptsetup's default */
};

static uint64_t format_header_bytes(uint64_t target_bytes)
{
	if (target_bytes / 16 >= FORMAT_HEADER_BYTES)
		return FORMAT_HEADER_BYTES;
	return target_bytes >= (32 << 20) ? FORMAT_HEADER_SMALL_BYTES : FORMAT_HEADER_MIN_BYTES;
}

static const char *format_cipher(const struct luks_format_options *o)
{
	return o->cipher ? o->cipher : "aes-xts-plain64";
}

static uint32_t format_key_bytes(const struct luks_format_options *o)
{
	if (o->key_bits != 0)
		return o->key_bits / 8;
	return strstr(format_cipher(o), "xts") ? 64 : 32;
}

enum err luks_format_layout(const struct luks_format_options *o, struct luks_layout *out)
{
	struct luks_layout y = {.sector_bytes = o->sector_bytes};
	const uint64_t room = o->detached ? o->header_size_bytes : o->data_size_bytes;
	uint64_t keyslot_bytes = (uint64_t)LUKS_STRIPES * format_key_bytes(o);

	/* A header file has no data to leave room for. */
	y.header_bytes = o->detached && room >= FORMAT_HEADER_BYTES ? FORMAT_HEADER_BYTES
								    : format_header_bytes(room);
	keyslot_bytes = (keyslot_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
	if (2 * FORMAT_METADATA_BYTES + keyslot_bytes > y.header_bytes || room < y.header_bytes)
		return err_set_detail(ERR_NOSPC, "too small for a LUKS2 header");
	y.offset_bytes = o->detached ? 0 : y.header_bytes;
	if (o->data_size_bytes <= y.offset_bytes)
		return err_set_detail(ERR_NOSPC, "too small: the LUKS2 header leaves no room");
	y.size_bytes = o->data_size_bytes - y.offset_bytes;
	if (y.sector_bytes == 0)
		y.sector_bytes = y.size_bytes % CIPHER_SECTOR_BYTES_MAX == 0 ? 4096 : 512;
	if (y.sector_bytes < SECTOR_BYTES || y.sector_bytes > CIPHER_SECTOR_BYTES_MAX ||
		(y.sector_bytes & (y.sector_bytes - 1)) != 0)
		return err_set_detail(ERR_INVAL, "the sector size must be 512, 1024, 2048 or 4096");
	if (y.size_bytes % y.sector_bytes != 0)
		return err_set_detail(
			ERR_INVAL, "the size is not a multiple of %u bytes", y.sector_bytes);
	*out = y;
	return OK;
}

static enum err format_memfd(uint64_t size_bytes, int *out, char path[40])
{
	int fd = memfd_create("cryptfs-format", MFD_CLOEXEC);

	if (fd < 0)
		return err_from_errno(errno);
	if (ftruncate(fd, (off_t)size_bytes) != 0) {
		enum err e = err_from_errno(errno);

		close(fd);
		return e;
	}
	snprintf(path, 40, "/proc/self/fd/%d", fd);
	*out = fd;
	return OK;
}

static enum err format_new_key(uint32_t key_bytes, struct secret *key)
{
	enum err e;
	size_t done = 0;

	if (key_bytes == 0 || key_bytes > LUKS_KEY_BYTES_MAX)
		return err_set_detail(ERR_INVAL, "the key size makes no sense");
	e = secret_alloc(key, key_bytes);
	while (e == OK && done < key->len) {
		ssize_t n = getrandom(key->bytes + done, key->len - done, 0);

		if (n > 0)
			done += (size_t)n;
		else if (errno != EINTR)
			e = err_set_detail(ERR_SYSTEM, "the system gives no random numbers");
	}
	return e;
}

static enum err format_pbkdf(const struct luks_format_options *o, struct crypt_pbkdf_type *out)
{
	const char *name = o->pbkdf ? o->pbkdf : CRYPT_KDF_ARGON2ID;
	const struct crypt_pbkdf_type *defaults = crypt_get_pbkdf_type_params(name);

	if (defaults == NULL)
		return err_set_detail(ERR_INVAL,
			"pbkdf '%s' is unknown; it is pbkdf2, argon2i or argon2id", name);
	*out = *defaults;
	if (strcmp(name, CRYPT_KDF_PBKDF2) == 0 && (o->pbkdf_memory_kib || o->pbkdf_parallel))
		return err_set_detail(ERR_INVAL, "pbkdf2 takes no memory and no parallel threads");
	if (o->pbkdf_memory_kib)
		out->max_memory_kb = o->pbkdf_memory_kib;
	if (o->pbkdf_parallel)
		out->parallel_threads = o->pbkdf_parallel;
	if (o->iter_time_ms)
		out->time_ms = o->iter_time_ms;
	if (o->pbkdf_force_iterations) {
		out->iterations = o->pbkdf_force_iterations;
		out->time_ms = 0;
		out->flags |= CRYPT_PBKDF_NO_BENCHMARK;
	}
	return OK;
}

static enum err format_refused(const struct luks *l, int r)
{
	return err_set_detail(r == -ENOMEM ? ERR_NOMEM : ERR_LUKS_LIBRARY, "libcryptsetup: %s",
		l->library_says[0] ? l->library_says : strerror(-r));
}

/* Formats the memfd behind `path`. */
static enum err format_by_library(const char *path, const char *data_path,
	const struct luks_format_options *o, const struct luks_layout *y,
	const struct secret *passphrase, const struct secret *key)
{
	struct crypt_pbkdf_type pbkdf;
	struct crypt_params_luks2 parameters = {.pbkdf = &pbkdf,
		.data_device = data_path,
		.sector_size = y->sector_bytes,
		.label = o->label};
	struct luks l = {.copy_fd = -1};
	char cipher[64];
	char *mode;
	enum err e = format_pbkdf(o, &pbkdf);
	int r;

	if (e != OK)
		return e;
	snprintf(cipher, sizeof(cipher), "%s", format_cipher(o));
	mode = strchr(cipher, '-');
	if (mode == NULL)
		return err_set_detail(ERR_CIPHER_SPEC, "cipher '%s' names no mode", cipher);
	*mode++ = '\0';
	library_init();
	r = crypt_init(&l.cd, path);
	if (r == 0)
		library_capture(&l);
	if (r == 0)
		r = crypt_set_metadata_size(
			l.cd, FORMAT_METADATA_BYTES, y->header_bytes - 2 * FORMAT_METADATA_BYTES);
	if (r == 0 && !o->detached)
		r = crypt_set_data_offset(l.cd, y->offset_bytes / SECTOR_BYTES);
	if (r == 0)
		r = crypt_format(l.cd, CRYPT_LUKS2, cipher, mode, o->uuid, (const char *)key->bytes,
			key->len, &parameters);
	if (r == 0)
		r = crypt_keyslot_add_by_volume_key(
			l.cd, 0, NULL, 0, (const char *)passphrase->bytes, passphrase->len);
	if (r == 0 && crypt_get_data_offset(l.cd) != y->offset_bytes / SECTOR_BYTES)
		e = err_set_detail(ERR_LUKS_LIBRARY, "libcryptsetup chose another data offset");
	else if (r < 0)
		e = format_refused(&l, r);
	library_close(&l);
	return e;
}

/* Writes [0, bytes) of the copy to the device. */
static enum err format_write(int fd, struct dev *header, uint64_t bytes)
{
	enum { CHUNK_BYTES = 1 << 20 };
	uint8_t *chunk = NULL;
	enum err e = OK;

	if (posix_memalign((void **)&chunk, PAGE_BYTES, CHUNK_BYTES) != 0)
		return ERR_NOMEM;
	for (uint64_t at = 0; e == OK && at < bytes; at += CHUNK_BYTES) {
		const size_t n = (size_t)MIN(bytes - at, (uint64_t)CHUNK_BYTES);

		/* A memfd gives all that is asked for within its size. */
		if (pread(fd, chunk, n, (off_t)at) != (ssize_t)n)
			e = err_set_detail(ERR_SYSTEM, "the new header cannot be read back");
		else
			e = dev_write(header, chunk, n, at);
	}
	free(chunk);
	return e == OK ? dev_flush(header) : e;
}

enum err luks_format(struct dev *header, const struct luks_format_options *o,
	const struct secret *passphrase, struct secret *key)
{
	struct luks_layout y;
	struct cipher_spec spec;
	struct secret new_key = {0};
	char path[40], data_path[40];
	int fd = -1, data_fd = -1;
	enum err e = luks_format_layout(o, &y);

	if (e == OK && passphrase->len == 0)
		e = ERR_KEY_EMPTY;
	if (e == OK)
		e = cipher_spec_parse(format_cipher(o), format_key_bytes(o), y.sector_bytes, &spec);
	if (e == OK)
		e = format_new_key(format_key_bytes(o), &new_key);
	/* Behind the header there must be something, or the library sees no room for data. */
	if (e == OK)
		e = format_memfd(y.header_bytes + FORMAT_HEADER_MIN_BYTES, &fd, path);
	if (e == OK && o->detached)
		e = format_memfd(FORMAT_HEADER_MIN_BYTES, &data_fd, data_path);
	if (e == OK)
		e = format_by_library(
			path, o->detached ? data_path : NULL, o, &y, passphrase, &new_key);
	if (e == OK)
		e = format_write(fd, header, y.header_bytes);
	if (e == OK) {
		*key = new_key;
		new_key = (struct secret){0};
	}
	secret_free(&new_key);
	if (fd >= 0)
		close(fd);
	if (data_fd >= 0)
		close(data_fd);
	return e;
}
