/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where a passphrase comes from, byte for byte as cryptsetup would take it.
 *
 * A key file that was named is used alone: if it cannot be read or does not fit, that is an error
 * at once, with no prompt and no second try. Its bytes count as they are, newlines included.
 * Without one, the first of these that is there is asked, and what a user of cryptsetup and of
 * mount(8) expects decides the order:
 *
 *   1. standard input is a terminal: a prompt on /dev/tty, without echo, ended by Enter
 *   2. CRYPTFS_ASKPASS is set: that program is run with the prompt as its argument and prints the
 *      passphrase, as ssh and sudo have it
 *   3. standard input is a pipe, a file or a socket: somebody gave us something, so its first line
 *      without the newline is the passphrase (`echo secret | mount.cryptfs ...`). This stands
 *      before 4 and 5, since a script that pipes a key must not be asked instead
 *   4. standard input is /dev/null or closed, and there is a terminal: a prompt there
 *   5. systemd runs: systemd-ask-password, which asks the boot screen or a graphical agent, with
 *      cryptsetup's key name, so that a passphrase typed for one volume opens the others; only the
 *      first try takes a cached one
 *
 * Enter alone is the empty passphrase, which cryptsetup tries too. Nothing at all (end of file, an
 * empty pipe) is ERR_KEY_EMPTY and never waits. Limits are cryptsetup's: 512 bytes typed, 8 MiB
 * from a file or pipe (more only with an explicit size).
 *
 * Threads: called in one thread, before others are started; it knows how often it has asked. A
 * signal that ends or stops the program restores the terminal first.
 */
#ifndef CRYPTFS_KEY_SOURCE_H
#define CRYPTFS_KEY_SOURCE_H

#include "base.h"

/*
 * Reads a key file: `size_bytes` bytes (0: to the end) from `offset_bytes` on. "-" is standard
 * input, all of it; where that is a terminal, a prompt. A pipe is read up to the offset and that
 * is thrown away; /dev/fd/N reads an open descriptor. ERR_KEY_FILE with the file and the reason
 * as detail, ERR_KEY_EMPTY.
 */
enum err key_source_read_file(const char *path, uint64_t offset_bytes, uint64_t size_bytes,
	struct secret *out) must_check;

/*
 * Asks for the passphrase of `source`, which the prompt names; timeout_seconds 0 waits for ever.
 * ERR_KEY_NO_PROMPT when there is nobody to ask, ERR_KEY_EMPTY, ERR_INTR. An empty passphrase
 * leaves *out empty (bytes NULL, len 0).
 */
enum err key_source_ask(const char *source, uint32_t timeout_seconds, struct secret *out)
	must_check;
/* Whether asking again could give another answer: not when standard input has been read. */
bool key_source_can_ask_again(void);
/* As key_source_ask(), for a passphrase that is being set: on a terminal it is typed twice. */
enum err key_source_ask_new(const char *target, struct secret *out) must_check;

/* --- key_prompt.c ---------------------------------------------------------------------------- */

enum { KEY_PROMPT_BYTES_MAX = 512 };

/*
 * Prompts on the terminal open at `in` (read) and `to` (written) until clock_ns() reaches the
 * deadline (0: none). ERR_KEY_EMPTY at end of file and at the deadline, ERR_INTR after a signal
 * that did not end the program, ERR_INVAL for a line that is too long.
 */
enum err key_prompt(int in, int to, const char *prompt, uint64_t deadline_ns, struct secret *out)
	must_check;

#endif
