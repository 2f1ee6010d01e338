/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What stands under a file system: source, header, key, queue, volume; opened in that order and
 * closed in reverse. For the commands that read a volume.
 */
#ifndef CRYPTFS_CMD_STACK_H
#define CRYPTFS_CMD_STACK_H

#include "luks.h"

struct unlock_options {
	char *key_file; /* NULL: ask; "-": standard input */
	uint64_t keyfile_offset_bytes;
	uint64_t keyfile_size_bytes; /* 0: to its end */
	char *header;                /* detached, or NULL */
	int32_t key_slot;            /* -1: any */
	uint32_t tries;              /* 0: without end */
	uint32_t timeout_seconds;    /* of the prompt; 0: none */
	bool use_token;
	int32_t token_id; /* -1: any */
	char *token_type; /* NULL: any */
	uint32_t token_timeout_seconds;
};

struct stack {
	struct dev *dev, *header;
	struct luks *luks;
	struct luks_info info;
	struct ioq *ioq;
	struct volume *volume;
};

void unlock_options_init(struct unlock_options *o);
void unlock_options_free(struct unlock_options *o);

/* Takes over the open source (s->dev) and reads the header. Sets libgcrypt up for the process. */
enum err stack_load(struct stack *s, const struct unlock_options *options) must_check;
/* Whether we can do the header's cipher: ERR_CIPHER_SPEC. Nobody should be asked for a key else. */
enum err stack_check(const struct stack *s) must_check;
/*
 * Gets the key as the options say and makes the volume. A wrong key file is an error at once; a
 * wrong passphrase is asked for again while there are tries, with a line for each. `source` is
 * what messages and the prompt call the volume.
 */
enum err stack_unlock(struct stack *s, const struct unlock_options *options, const char *source)
	must_check;
void stack_close(struct stack *s); /* whatever is open */

#endif
