/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Finds and checks what a mount needs, with one clear line for each thing that is missing.
 *
 * The checks are for the message only: whoever changes the world between a check and its use meets
 * the error of the use itself.
 *
 * Threads: none.
 */
#include "source.h"
#include <blkid/blkid.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

enum {
	BUSY_TRIES = 20,
	BUSY_INTERVAL_NS = 50 * 1000 * 1000,
};

enum err source_resolve(const char *source, char **path)
{
	static const char *const tags[] = {"UUID", "LABEL", "PARTUUID", "PARTLABEL"};
	const char *equals = strchr(source, '=');
	const char *value;
	char *found = NULL;

	for (size_t i = 0; equals && i < ARRAY_SIZE(tags); i++) {
		size_t len = strlen(tags[i]);

		if ((size_t)(equals - source) != len || strncmp(source, tags[i], len) != 0)
			continue;
		value = equals + 1;
		found = *value ? blkid_evaluate_tag(tags[i], value, NULL) : NULL;
		if (!found)
			return err_set_detail(ERR_NOENT, "no device has this %s", tags[i]);
		*path = found;
		return OK;
	}
	*path = strdup(source);
	return *path ? OK : ERR_NOMEM;
}

enum err source_name(const char *path, char **name)
{
	static const char *const own[] = {"/dev/fd/", "/proc/"}; /* other processes see others */
	bool absolute = *path == '/';
	char *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		absolute = absolute && strncmp(path, own[i], strlen(own[i])) != 0;
	if (!absolute)
		found = realpath(path, NULL);
	*name = found ? found : strdup(path);
	return *name ? OK : ERR_NOMEM;
}

/* One source may have many names. */
static bool is_same_source(const char *a, const char *b)
{
	struct stat sa, sb;

	if (strcmp(a, b) == 0)
		return true;
	if (*a != '/' || stat(a, &sa) || stat(b, &sb))
		return false;
	if (S_ISBLK(sa.st_mode) && S_ISBLK(sb.st_mode))
		return sa.st_rdev == sb.st_rdev;
	return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/*
 * The next field of a line of the mount table, with the kernel's \040 and the like decoded in
 * place. getmntent(3) will not do: it leaves \043, which the kernel writes in a source, and cuts
 * long lines.
 */
static char *next_field(char **line)
{
	char *field = strsep(line, " "), *to = field;

	for (const char *from = field; from && (*to = *from); from++, to++)
		if (*from == '\\' && strspn(from + 1, "01234567") >= 3) {
			*to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 3;
		}
	return field;
}

/*
 * Looks for a cryptfs mount of this source: on `dir`, as the topmost mount there, or, when dir is
 * NULL, anywhere; then its place goes to `where`.
 */
static bool is_mounted(const char *name, const char *dir, char *where, size_t room)
{
	FILE *mounts = fopen("/proc/self/mounts", "re");
	char *line = NULL;
	size_t line_room = 0;
	bool found = false;

	while (mounts && (dir || !found) && getline(&line, &line_room, mounts) > 0) {
		char *rest = line;
		const char *shown = next_field(&rest), *on = next_field(&rest);
		const char *type = next_field(&rest);

		if (!type || (dir && strcmp(on, dir) != 0))
			continue;
		found = strcmp(type, "fuse.cryptfs") == 0 && is_same_source(shown, name);
		if (found && where)
			snprintf(where, room, "%s", on);
	}
	free(line);
	if (mounts)
		(void)fclose(mounts);
	return found;
}

/* Asked by statfs(2), which is not answered from the kernel's cache as stat(2) may be. */
static bool has_no_daemon(const char *dir)
{
	struct statfs fs;

	return statfs(dir, &fs) && errno == ENOTCONN;
}

enum err source_check_not_mounted(const char *name, const char *dir)
{
	char *resolved = realpath(dir, NULL);
	enum err e = OK;

	/* A mount whose daemon has died is told by source_check_mount_point(). */
	if (resolved && !has_no_daemon(dir) && is_mounted(name, resolved, NULL, 0))
		e = err_set_detail(ERR_BUSY, "already mounted on %s", resolved);
	free(resolved);
	return e;
}

enum err source_open(const char *name, const char *path, struct dev **out)
{
	const struct dev_open_options options = {.readonly = true, .claim = true};
	const struct timespec pause = {.tv_nsec = BUSY_INTERVAL_NS};
	char where[256];
	enum err e;

	for (int tries = 0;; tries++) {
		e = dev_open(path, &options, out);
		if (e != ERR_BUSY)
			return e;
		if (is_mounted(name, NULL, where, sizeof(where)))
			return err_set_detail(ERR_BUSY, "already mounted on %s", where);
		if (tries == BUSY_TRIES)
			return e;
		/* After umount(8) of a plain fuse mount the daemon is still about to end. */
		nanosleep(&pause, NULL);
	}
}

enum err source_check_mount_point(const char *dir, char **absolute)
{
	struct stat st;
	char *resolved;

	if (has_no_daemon(dir))
		return err_set_detail(ERR_BUSY,
			"mount point %s holds a mount whose daemon has died; unmount it first",
			dir);
	if (stat(dir, &st)) {
		if (errno == ENOENT)
			return err_set_detail(ERR_NOENT, "mount point %s does not exist", dir);
		return err_set_detail(
			err_from_errno(errno), "mount point %s: %s", dir, strerror(errno));
	}
	if (!S_ISDIR(st.st_mode))
		return err_set_detail(ERR_NOTDIR, "mount point %s is not a directory", dir);
	/* As fusermount3 will judge it. */
	if (geteuid() != 0 && access(dir, W_OK))
		return err_set_detail(ERR_ACCESS, "mount point %s: you may not write to it", dir);
	if (geteuid() != 0 && (st.st_mode & S_ISVTX) && st.st_uid != geteuid())
		return err_set_detail(ERR_ACCESS, "mount point %s belongs to somebody else", dir);
	resolved = realpath(dir, NULL);
	if (!resolved)
		return err_set_detail(
			err_from_errno(errno), "mount point %s: %s", dir, strerror(errno));
	*absolute = resolved;
	return OK;
}

/* fusermount3's rule: a line of /etc/fuse.conf that is exactly this word. */
static bool user_may_allow_other(void)
{
	FILE *conf = fopen("/etc/fuse.conf", "re");
	char line[256], word[256], rest[2];
	bool found = false;

	if (!conf)
		return false;
	while (!found && fgets(line, sizeof(line), conf))
		found = sscanf(line, " %255s %1s", word, rest) == 1 &&
			strcmp(word, "user_allow_other") == 0;
	(void)fclose(conf);
	return found;
}

enum err source_check_fuse(bool allow_other)
{
	if (access("/dev/fuse", R_OK | W_OK)) {
		if (errno == ENOENT)
			return err_set_detail(ERR_NOENT,
				"/dev/fuse does not exist: is the kernel's fuse module loaded?");
		return err_set_detail(
			ERR_ACCESS, "/dev/fuse may not be opened: %s", strerror(errno));
	}
	if (allow_other && geteuid() != 0 && !user_may_allow_other())
		return err_set_detail(
			ERR_PERM, "option 'allow_other' needs user_allow_other in /etc/fuse.conf");
	return OK;
}
