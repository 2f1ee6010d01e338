/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the suites of luks/ share: volumes made by the stock cryptsetup with cheap key derivation,
 * their keys as cryptsetup dumps them, and their checksums.
 *
 * Does not do: anything without the cryptsetup command, whose lack aborts the test.
 */
#ifndef CRYPTFS_LUKS_RIG_H
#define CRYPTFS_LUKS_RIG_H

#include "luks_int.h"
#include "scratch.h"

#define RIG_PASSPHRASE "correct horse"
#define RIG_CHEAP      "--pbkdf pbkdf2 --pbkdf-force-iterations 1000"

__attribute__((unused)) static void rig_shell(const char *format, ...) printf_like(1, 2);
__attribute__((unused)) static void rig_shell(const char *format, ...)
{
	char command[1500], line[256];
	int n = snprintf(command, sizeof(command), "cd '%s' && { ", scratch_dir);
	va_list args;

	va_start(args, format);
	n += vsnprintf(command + n, sizeof(command) - (size_t)n, format, args);
	va_end(args);
	ensure(n < (int)sizeof(command) - 16);
	strcat(command, "; } 2>&1");
	ck_assert_msg(scratch_run(command, line), "%s: %s", command, line);
}

/* Key files key (RIG_PASSPHRASE) and wrong; once a suite is enough. */
__attribute__((unused)) static void rig_setup(void)
{
	ck_ok(cipher_library_init());
	rig_shell("printf %%s '%s' >key; printf %%s 'second one' >key2", RIG_PASSPHRASE);
}

__attribute__((unused)) static const char *rig_volume(
	const char *name, unsigned mebibytes, const char *arguments)
{
	const char *path = scratch_file(name, (uint64_t)mebibytes << 20);

	rig_shell("cryptsetup -q luksFormat --key-file key %s %s", arguments, name);
	return path;
}

__attribute__((unused)) static void rig_secret(const char *text, struct secret *out)
{
	ck_ok(secret_copy(out, text, strlen(text)));
}

__attribute__((unused)) static struct dev *rig_dev(const char *path)
{
	struct dev_open_options options = {.readonly = true, .claim = true};
	struct dev *d = NULL;

	ck_ok(dev_open(path, &options, &d));
	return d;
}

__attribute__((unused)) static void rig_sum(const char *path, char out[256])
{
	char command[500];

	snprintf(command, sizeof(command), "sha256sum < '%s'", path);
	ck_assert(scratch_run(command, out));
}

/* The volume key as cryptsetup itself unlocks it. */
__attribute__((unused)) static size_t rig_dumped_key(
	const char *name, const char *more, uint8_t out[LUKS_KEY_BYTES_MAX])
{
	FILE *f;
	size_t n;

	rig_shell("rm -f vk; cryptsetup -q luksDump --dump-volume-key --volume-key-file vk "
		  "--key-file key %s %s",
		more, name);
	f = fopen(scratch_path("vk"), "rb");
	ck_assert_ptr_nonnull(f);
	n = fread(out, 1, LUKS_KEY_BYTES_MAX, f);
	fclose(f);
	return n;
}

#endif
