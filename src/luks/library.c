/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libcryptsetup over the private copy of the header.
 *
 * It gets /proc/self/fd/N of the memfd, never a name of the source. Its lock files are switched
 * off: they need root on block devices, and nobody else sees the copy. What it would print is kept
 * and becomes the detail of our error. Each slot is asked for alone: with CRYPT_ANY_SLOT the
 * library stops at the first slot that fails otherwise than by a wrong passphrase.
 *
 * Threads: one at a time for each struct luks.
 */
#include "luks_int.h"
#include <libcryptsetup.h>
#include <stdio.h>

static void library_log(int level, const char *text, void *context)
{
	struct luks *l = context;

	if (l == NULL || level != CRYPT_LOG_ERROR)
		return;
	snprintf(l->library_says, sizeof(l->library_says), "%s", text);
	l->library_says[strcspn(l->library_says, "\n")] = '\0';
}

void library_init(void)
{
	(void)crypt_metadata_locking(NULL, 0); /* it can only be switched off, and is */
	crypt_set_log_callback(NULL, library_log, NULL);
}

void library_capture(struct luks *l)
{
	crypt_set_log_callback(l->cd, library_log, l);
}

enum err library_load(struct luks *l)
{
	char path[40];
	int r;

	library_init();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", l->copy_fd);
	r = crypt_init(&l->cd, path);
	if (r == 0) {
		library_capture(l);
		r = crypt_load(l->cd, l->info.version == 1 ? CRYPT_LUKS1 : CRYPT_LUKS2, NULL);
	}
	if (r < 0) {
		library_close(l);
		return err_set_detail(ERR_LUKS_HEADER, "libcryptsetup refuses the LUKS header: %s",
			l->library_says[0] ? l->library_says : strerror(-r));
	}
	return OK;
}

void library_close(struct luks *l)
{
	crypt_free(l->cd);
	l->cd = NULL;
}

bool library_knows(const char *cipher)
{
	return strncmp(cipher, "aes-", 4) == 0 && strncmp(cipher, "aes-lrw", 7) != 0;
}

enum err library_unlock(struct luks *l, const struct keyslot *s, const struct secret *passphrase,
	struct secret *key)
{
	struct secret got = {0};
	size_t len = s->info.key_bytes;
	enum err e;
	int r;

	if (l->cd == NULL)
		return ERR_OPNOTSUPP;
	e = secret_alloc(&got, len);
	if (e != OK)
		return e;
	l->library_says[0] = '\0';
	r = crypt_volume_key_get(l->cd, s->info.slot, (char *)got.bytes, &len,
		passphrase->bytes ? (const char *)passphrase->bytes : "", passphrase->len);
	if (r >= 0 && len == got.len) {
		*key = got;
		return OK;
	}
	secret_free(&got);
	return r == -EPERM ? ERR_LUKS_KEY : ERR_OPNOTSUPP;
}

/* A token's passphrase is asked for by the library's handlers, which also open the keyslot. */
enum err luks_unlock_token(struct luks *l, int token_id, const char *type, const struct secret *pin,
	struct secret *key)
{
	struct crypt_keyslot_context *context = NULL;
	struct secret got = {0};
	size_t len = l->info.key_bytes;
	enum err e;
	int r;

	if (l->info.version != 2)
		return err_set_detail(ERR_LUKS_SLOT, "a LUKS1 header has no tokens");
	if (l->cd == NULL || len == 0)
		return err_set_detail(ERR_LUKS_LIBRARY, "libcryptsetup cannot use this header");
	e = secret_alloc(&got, len);
	if (e != OK)
		return e;
	l->library_says[0] = '\0';
	r = crypt_keyslot_context_init_by_token(l->cd, token_id < 0 ? CRYPT_ANY_TOKEN : token_id,
		type, pin && pin->len ? (const char *)pin->bytes : NULL, pin ? pin->len : 0, NULL,
		&context);
	if (r >= 0)
		r = crypt_volume_key_get_by_keyslot_context(
			l->cd, CRYPT_ANY_SLOT, (char *)got.bytes, &len, context);
	crypt_keyslot_context_free(context);
	if (r >= 0 && len == got.len && reader_verify(l, &got) == OK) {
		*key = got;
		return OK;
	}
	secret_free(&got);
	if (r == -ENOANO)
		return err_set_detail(ERR_LUKS_KEY, "the token wants a PIN");
	if (r == -ENOENT || r == -EINVAL)
		return err_set_detail(ERR_LUKS_SLOT, "no usable token in the LUKS header");
	if (r == -EPERM || r >= 0)
		return err_set_detail(ERR_LUKS_KEY, "the token's passphrase opens no key slot");
	return err_set_detail(ERR_LUKS_LIBRARY, "the token does not unlock the volume: %s",
		l->library_says[0] ? l->library_says : strerror(-r));
}
