/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cipher: libgcrypt for the process: set-up, secure memory, and opening one handle.
 *
 * Handles hold key schedules, so they live in libgcrypt's secure memory, which is locked where the
 * limit allows it. The pool has a fixed size: a handle takes 3 KB (AES, Serpent, Camellia) to 22 KB
 * (Twofish), and each thread has one or two. When the pool is used up the handle is made in plain
 * memory, with one warning for the process, since a thread that cannot decrypt is worse.
 *
 * Threads: cipher_library_init() once, before the others; the rest from any.
 */
#include "cipher_int.h"

#include "base.h"

enum { LIBRARY_SECURE_BYTES = 2 << 20 };
#define LIBRARY_VERSION_NEEDED "1.10.0"

static atomic_bool library_locked;
static atomic_bool library_warned_full;

enum err cipher_library_error(const char *what, gcry_error_t error)
{
	return err_set_detail(ERR_CIPHER_LIBRARY, "%s: libgcrypt: %s", what, gcry_strerror(error));
}

enum err cipher_library_init(void)
{
	gcry_error_t g;

	if (!gcry_check_version(LIBRARY_VERSION_NEEDED))
		return err_set_detail(ERR_CIPHER_LIBRARY,
			"libgcrypt " LIBRARY_VERSION_NEEDED " or later is needed, this is %s",
			gcry_check_version(NULL));
	if (gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P))
		return OK;
	/* libgcrypt would print a line of its own on stderr; ours says the same once, in log.*/
	gcry_control(GCRYCTL_SUSPEND_SECMEM_WARN);
	g = gcry_control(GCRYCTL_INIT_SECMEM, LIBRARY_SECURE_BYTES, 0);
	atomic_store(&library_locked, g == 0);
	if (g != 0)
		log_warn("key schedules are not locked in memory and may reach swap "
			 "(the limit on locked memory is too low)");
	gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
	return OK;
}

bool cipher_library_locked(void)
{
	return atomic_load(&library_locked) && !atomic_load(&library_warned_full);
}

static void library_warn_full(void)
{
	if (!atomic_exchange(&library_warned_full, true))
		log_warn("secure memory for key schedules is used up; further threads keep theirs "
			 "in plain memory, which may reach swap");
}

enum err cipher_handle_open(
	int algorithm, int mode, const struct secret *key, gcry_cipher_hd_t *out)
{
	gcry_cipher_hd_t h = NULL;
	gcry_error_t g = gcry_cipher_open(&h, algorithm, mode, GCRY_CIPHER_SECURE);

	if (gcry_err_code(g) == GPG_ERR_ENOMEM) {
		library_warn_full();
		g = gcry_cipher_open(&h, algorithm, mode, 0);
	}
	if (g != 0)
		return cipher_library_error("opening the cipher", g);
	g = gcry_cipher_setkey(h, key->bytes, key->len);
	if (g != 0) {
		gcry_cipher_close(h);
		return cipher_library_error("setting the key", g);
	}
	*out = h;
	return OK;
}
