/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mount.cryptfs's command line, parsed: operands, flags and the options of -o.
 */
#ifndef CRYPTFS_CMD_MOUNT_OPTIONS_H
#define CRYPTFS_CMD_MOUNT_OPTIONS_H

#include "stack.h"
#include <sys/types.h>

enum { MOUNT_CONTEXTS_MAX = 4 };

struct mount_options {
	char *source, *dir; /* as they were given */
	bool fake, sloppy, verbose, help, version;

	struct unlock_options unlock;

	/* the mount */
	bool readonly; /* `ro` was given */
	bool noload, foreground, debug, allow_other;
	bool nosuid, nodev, noexec, nosymfollow;
	bool override_uid, override_gid;
	uint32_t uid, gid;
	uint64_t pages_bytes;                   /* the cap; 0: the default */
	char *contexts[MOUNT_CONTEXTS_MAX + 1]; /* "context=..." as given, NULL-terminated */
};

/*
 * Parses argv as mount(8) calls a helper, options before, between or after the operands. On error
 * a detail names the argument: ERR_INVAL for usage, ERR_NOMEM. *out is to be freed in any case.
 */
enum err mount_options_parse(int argc, char **argv, struct mount_options *out) must_check;
/* The part of the above for one -o argument. */
enum err mount_options_parse_list(struct mount_options *o, const char *list) must_check;
void mount_options_init(struct mount_options *o);
void mount_options_free(struct mount_options *o);

#endif
