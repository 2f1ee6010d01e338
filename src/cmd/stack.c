/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Opens a volume for reading, step by step, and asks for its key.
 *
 * Runs in the process that will serve: secrets are made here and the terminal is still ours.
 *
 * Threads: none of its own (argon2 has some while it runs).
 */
#include "stack.h"
#include "cmd.h"
#include "key_source.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void unlock_options_init(struct unlock_options *o)
{
	memset(o, 0, sizeof(*o));
	o->key_slot = -1;
	o->token_id = -1;
	o->tries = 3;
}

void unlock_options_free(struct unlock_options *o)
{
	free(o->key_file);
	free(o->header);
	free(o->token_type);
	unlock_options_init(o);
}

/* The subject of the line is the source, so the detail must name the header's file. */
static enum err open_header(const char *path, struct dev **out)
{
	const struct dev_open_options options = {.readonly = true};
	enum err e = dev_open(path, &options, out);
	char why[256];

	if (e == OK)
		return OK;
	snprintf(why, sizeof(why), "%s", cmd_error_text(e));
	return err_set_detail(e, "header %s: %s", path, why);
}

enum err stack_load(struct stack *s, const struct unlock_options *options)
{
	enum err e = cipher_library_init();

	if (!e && options->header)
		e = open_header(options->header, &s->header);
	if (!e)
		e = luks_load(s->dev, s->header, &s->luks);
	if (!e)
		luks_info(s->luks, &s->info);
	return e;
}

enum err stack_check(const struct stack *s)
{
	struct cipher_spec spec;

	return cipher_spec_parse(s->info.cipher, s->info.key_bytes, s->info.sector_bytes, &spec);
}

/* A token may have to be plugged in first: it is looked for once a second until the time is up. */
static enum err unlock_by_token(struct stack *s, const struct unlock_options *o, struct secret *key)
{
	const struct timespec second = {.tv_sec = 1};
	enum err e;

	for (uint32_t waited = 0;; waited++) {
		e = luks_unlock_token(s->luks, o->token_id, o->token_type, NULL, key);
		if (e == OK || e == ERR_INTR || waited >= o->token_timeout_seconds)
			return e;
		nanosleep(&second, NULL);
	}
}

static enum err unlock_by_key_file(
	struct stack *s, const struct unlock_options *o, struct secret *key)
{
	struct secret passphrase = {0};
	enum err e = key_source_read_file(
		o->key_file, o->keyfile_offset_bytes, o->keyfile_size_bytes, &passphrase);

	if (e == OK)
		e = luks_unlock(s->luks, &passphrase, o->key_slot, key);
	secret_free(&passphrase);
	if (e == ERR_LUKS_KEY)
		return err_set_detail(e, "wrong key file: no key available with it");
	return e;
}

static enum err unlock_by_passphrase(
	struct stack *s, const struct unlock_options *o, const char *source, struct secret *key)
{
	enum err e;

	for (uint32_t tried = 1;; tried++) {
		struct secret passphrase = {0};

		e = key_source_ask(source, o->timeout_seconds, &passphrase);
		if (e == OK)
			e = luks_unlock(s->luks, &passphrase, o->key_slot, key);
		secret_free(&passphrase);
		if (e != ERR_LUKS_KEY)
			return e;
		if ((o->tries && tried >= o->tries) || !key_source_can_ask_again())
			return err_set_detail(e, "wrong passphrase");
		err_clear_detail();
		if (!o->tries)
			log_error("%s: wrong passphrase", source);
		else
			log_error("%s: wrong passphrase (%u %s left)", source, o->tries - tried,
				o->tries - tried == 1 ? "try" : "tries");
	}
}

enum err stack_unlock(struct stack *s, const struct unlock_options *o, const char *source)
{
	struct secret key = {0};
	enum err e = ERR_LUKS_KEY;

	if (o->use_token)
		e = unlock_by_token(s, o, &key);
	if (o->use_token && e && e != ERR_INTR) {
		log_warn("%s: no token unlocks it: %s", source, cmd_error_text(e));
		err_clear_detail();
	}
	if (e && e != ERR_INTR)
		e = o->key_file ? unlock_by_key_file(s, o, &key)
				: unlock_by_passphrase(s, o, source, &key);
	if (e == OK)
		e = ioq_create(s->dev, &s->ioq);
	if (e == OK)
		e = luks_volume(s->luks, &key, s->ioq, &s->volume);
	secret_free(&key);
	return e;
}

void stack_close(struct stack *s)
{
	if (s->volume)
		volume_destroy(s->volume);
	if (s->ioq)
		ioq_destroy(s->ioq);
	if (s->luks)
		luks_close(s->luks);
	dev_close(s->header);
	dev_close(s->dev);
	memset(s, 0, sizeof(*s));
}
