/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The ext4 file system inside a new volume: mke2fs on a sparse temporary file, then the ranges of
 * that file that are not holes, encrypted, to the volume.
 *
 * What stays a hole is never written to the target, where it decrypts to noise. Two things make
 * that right. No group may claim that its inode table is zeroed: lazy_itable_init=1 stands last
 * among the extended options. And whatever mke2fs means to be zero must be data, not a hole:
 * UNIX_IO_NOZEROOUT makes it write zeros instead of punching, which matters for file systems
 * without group checksums (ext2), whose inode tables have no lazy form. The journal may stay noise
 * behind its superblock (lazy_journal_init=1): the volume key is new, so that no old block of a
 * journal can show.
 *
 * A block is 4096 bytes unless the user says otherwise: for a small volume mke2fs would take 1024,
 * and no kernel mounts an ext4 whose block is smaller than the sector of the device below, which is
 * the LUKS sector. With -b the LUKS sector follows (mkfs.c); the result is checked all the same.
 *
 * Threads: none. One child runs mke2fs.
 */
#include "mkfs.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	EXT4_SUPER_OFFSET = 1024,
	EXT4_SUPER_MAGIC = 0xef53,
	COPY_CHUNK_BYTES = 1 << 20,
	COPY_ALIGN_BYTES = 4096, /* a multiple of every LUKS sector */
};

struct ext4_disk_super { /* the start of struct ext4_super_block, kernel's ext4 documentation */
	uint8_t counts[24];
	le32 log_block_size; /* block = 1024 << this */
	uint8_t unused[28];
	le16 magic;
};
static_assert(offsetof(struct ext4_disk_super, log_block_size) == 24, "s_log_block_size");
static_assert(offsetof(struct ext4_disk_super, magic) == 56, "s_magic");

/* --- the user's arguments ----------------------------------------------------------------------
 */

static enum err ext4_add(struct mkfs_ext4_options *o, const char *argument)
{
	if (o->count == MKFS_ARGUMENTS_MAX)
		return err_set_detail(ERR_INVAL, "too many arguments for mke2fs");
	o->arguments[o->count++] = argument;
	return OK;
}

static enum err ext4_add_extended(struct mkfs_ext4_options *o, const char *text)
{
	const size_t used = strlen(o->extended);
	const int n = snprintf(o->extended + used, sizeof(o->extended) - used, ",%s", text);

	if (n < 0 || (size_t)n >= sizeof(o->extended) - used)
		return err_set_detail(ERR_INVAL, "the options behind -E are too long");
	return OK;
}

/* 1024, 4k: as mke2fs reads it. A negative number is a lower bound, which we always keep. */
static enum err ext4_block_size(const char *text, uint32_t *out)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (value < 0)
		value = -value;
	if (*end == 'k' || *end == 'K') {
		value *= 1024;
		end++;
	}
	if (*end != '\0' || value < 1024 || value > 65536 || (value & (value - 1)) != 0)
		return err_set_detail(ERR_INVAL, "mke2fs -b %s: no block size", text);
	*out = (uint32_t)value;
	return OK;
}

/*
 * mke2fs takes the last -E alone, so all are collected. Its own letters are needed to tell an
 * option from the argument of another.
 */
enum err mkfs_ext4_parse(int argc, char **argv, struct mkfs_ext4_options *out)
{
	static const char letters[] =
		"+:b:ce:g:i:jl:m:no:qr:s:t:d:vC:DE:FG:I:J:KL:M:N:O:R:ST:U:Vz:";
	static char flags[128][3]; /* "-x", made once a letter */
	struct mkfs_ext4_options o = {.label = out->label};
	enum err e = OK;
	int letter;

	optind = 0;
	opterr = 0;
	while (e == OK && (letter = getopt(argc, argv, letters)) != -1) {
		if (letter == '?' || letter == ':') {
			e = err_set_detail(
				ERR_INVAL, "mke2fs option -%c is unknown or incomplete", optopt);
		} else if (letter == 'E') {
			e = ext4_add_extended(&o, optarg);
		} else {
			char *flag = flags[letter & 127];

			flag[0] = '-';
			flag[1] = (char)letter;
			e = ext4_add(&o, flag);
			if (e == OK && optarg)
				e = ext4_add(&o, optarg);
			if (e == OK && letter == 'b' && optarg)
				e = ext4_block_size(optarg, &o.block_bytes);
		}
	}
	if (e == OK && optind < argc)
		e = err_set_detail(
			ERR_INVAL, "'%s': mke2fs gets its file and size from us", argv[optind]);
	if (e == OK)
		*out = o;
	return e;
}

/* --- mke2fs ------------------------------------------------------------------------------------
 */

/* On disk when the volume is larger than half of the memory; else, or where that fails, memory. */
static enum err ext4_temporary(uint64_t size_bytes, const char *beside, int *out)
{
	struct sysinfo memory;
	int fd = -1;

	if (sysinfo(&memory) == 0 && size_bytes > (uint64_t)memory.totalram * memory.mem_unit / 2)
		fd = open(beside, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 && ftruncate(fd, (off_t)size_bytes) != 0) {
		close(fd); /* the host's files may not get that large */
		fd = -1;
	}
	if (fd < 0) {
		fd = memfd_create("cryptfs-ext4", MFD_CLOEXEC);
		if (fd < 0)
			return err_from_errno(errno);
		if (ftruncate(fd, (off_t)size_bytes) != 0) {
			enum err e = err_from_errno(errno);

			close(fd);
			return e;
		}
	}
	*out = fd;
	return OK;
}

static noreturn_fn void ext4_exec(char *const argv[], int fd)
{
	static const char *const places[] = {
		"/sbin/mke2fs", "/usr/sbin/mke2fs", "/usr/local/sbin/mke2fs"};
	const int null = open("/dev/null", O_RDWR);

	(void)fcntl(fd, F_SETFD, 0);
	if (null >= 0) {
		(void)dup2(null, STDIN_FILENO);
		(void)dup2(STDERR_FILENO, STDOUT_FILENO);
	}
	if (setenv("UNIX_IO_NOZEROOUT", "1", 1) == 0) {
		for (size_t i = 0; i < ARRAY_SIZE(places); i++)
			(void)execv(places[i], argv);
		(void)execvp("mke2fs", argv);
	}
	_exit(127);
}

static enum err ext4_run(char *const argv[], int fd)
{
	int status = 0;
	pid_t child;

	(void)fflush(NULL);
	child = fork();
	if (child == 0)
		ext4_exec(argv, fd);
	if (child < 0)
		return err_set_detail(ERR_SYSTEM, "cannot start mke2fs");
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return err_from_errno(errno);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return OK;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return err_set_detail(ERR_NOENT, "mke2fs is not installed (package e2fsprogs)");
	return err_set_detail(ERR_SYSTEM, "mke2fs failed; nothing was written");
}

static enum err ext4_check(int fd, uint32_t sector_bytes)
{
	struct ext4_disk_super super;
	uint32_t log;

	if (pread(fd, &super, sizeof(super), EXT4_SUPER_OFFSET) != (ssize_t)sizeof(super) ||
		le16_get(super.magic) != EXT4_SUPER_MAGIC)
		return err_set_detail(ERR_SYSTEM, "mke2fs made no file system");
	log = le32_get(super.log_block_size);
	if (log > 6 || (1024U << log) < sector_bytes)
		return err_set_detail(ERR_INVAL,
			"the file system's block (%u) is smaller than the sector (%u); no kernel "
			"would mount it",
			1024U << (log & 7), sector_bytes);
	return OK;
}

enum err mkfs_ext4_make(const struct mkfs_ext4_options *o, uint64_t size_bytes,
	uint32_t sector_bytes, const char *beside, int *out)
{
	/* By this name mke2fs makes ext4 unless a -t says otherwise; it takes only one -t. */
	const char *argv[MKFS_ARGUMENTS_MAX + 16] = {
		"mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-E"};
	size_t n = 8;
	char extended[1200], path[40];
	int fd = -1;
	enum err e = ext4_temporary(size_bytes, beside, &fd);

	if (e != OK)
		return e;
	snprintf(extended, sizeof(extended),
		"root_owner=%u:%u%s,nodiscard,lazy_itable_init=1,lazy_journal_init=1", getuid(),
		getgid(), o->extended);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	argv[n++] = extended;
	if (o->label) {
		argv[n++] = "-L";
		argv[n++] = o->label;
	}
	/* The user's own come later and win. */
	for (size_t i = 0; i < o->count; i++)
		argv[n++] = o->arguments[i];
	argv[n++] = path;
	argv[n] = NULL;
	e = ext4_run((char *const *)(uintptr_t)argv, fd);
	if (e == OK)
		e = ext4_check(fd, sector_bytes);
	if (e == OK)
		*out = fd;
	else
		close(fd);
	return e;
}

/* --- copy --------------------------------------------------------------------------------------
 */

/* The next range with data at or behind *at, widened to whole sectors; false when there is none. */
static enum err ext4_next(int fd, uint64_t size_bytes, uint64_t *at, uint64_t *end, bool *found)
{
	off_t data = lseek(fd, (off_t)*at, SEEK_DATA), hole;

	*found = false;
	if (data < 0)
		return errno == ENXIO ? OK : err_from_errno(errno);
	hole = lseek(fd, data, SEEK_HOLE);
	if (hole < 0)
		return err_from_errno(errno);
	*at = MAX(*at, (uint64_t)data / COPY_ALIGN_BYTES * COPY_ALIGN_BYTES);
	*end = ((uint64_t)hole + COPY_ALIGN_BYTES - 1) / COPY_ALIGN_BYTES * COPY_ALIGN_BYTES;
	*end = MIN(*end, size_bytes);
	*found = *at < *end;
	return OK;
}

static enum err ext4_copy_range(int fd, struct volume *v, uint8_t *chunk, uint64_t at, uint64_t end)
{
	enum err e = OK;

	while (e == OK && at < end) {
		const size_t len = (size_t)MIN(end - at, (uint64_t)COPY_CHUNK_BYTES);
		ssize_t n = pread(fd, chunk, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n != (ssize_t)len)
			return err_set_detail(n < 0 ? err_from_errno(errno) : ERR_SYSTEM,
				"cannot read the new file system back");
		e = volume_write(v, chunk, len, at);
		at += len;
	}
	return e;
}

/* Bytes that are going to be written. */
static enum err ext4_total(int fd, uint64_t size_bytes, uint64_t *out)
{
	uint64_t at = 0, end = 0, total = 0;
	bool found = true;
	enum err e;

	for (;;) {
		e = ext4_next(fd, size_bytes, &at, &end, &found);
		if (e != OK || !found)
			break;
		total += end - at;
		at = end;
	}
	*out = total;
	return e;
}

static void ext4_show(uint64_t done, uint64_t total, uint64_t *shown_ns)
{
	const uint64_t now = clock_ns(), second_ns = 1000000000;

	if (done < total && now - *shown_ns < second_ns)
		return;
	if (done == total && *shown_ns == 0)
		return; /* nothing was shown, so there is nothing to finish */
	fprintf(stderr, "\rwriting the file system: %3u%%%s",
		total ? (unsigned)(done * 100 / total) : 100, done == total ? "\n" : "");
	*shown_ns = now;
}

enum err mkfs_ext4_copy(int fd, struct volume *v, bool progress)
{
	const uint64_t size_bytes = volume_size_bytes(v);
	uint64_t at = 0, end = 0, done = 0, total = 0, shown_ns = clock_ns();
	const uint64_t started_ns = shown_ns;
	uint8_t *chunk = NULL;
	enum err e = ext4_total(fd, size_bytes, &total);
	bool found = true;

	if (posix_memalign((void **)&chunk, PAGE_BYTES, COPY_CHUNK_BYTES) != 0)
		return ERR_NOMEM;
	while (e == OK) {
		e = ext4_next(fd, size_bytes, &at, &end, &found);
		if (e != OK || !found)
			break;
		end = MIN(end, at + COPY_CHUNK_BYTES);
		e = ext4_copy_range(fd, v, chunk, at, end);
		done += end - at;
		at = end;
		if (progress && done < total)
			ext4_show(done, total, &shown_ns);
	}
	if (progress && shown_ns != started_ns)
		ext4_show(total, total, &shown_ns);
	free(chunk);
	return e == OK ? volume_flush(v) : e;
}
