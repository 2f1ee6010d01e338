/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * manifest: prints what a mounted tree shows, one line an inode name, so that two mounts of one
 * file system can be compared with diff.
 *
 * A line: path, tab, type and mode, owner, links, size, blocks, device number, inode number, the
 * three times, then as far as the type has them the content's SHA-256, the hole map, the link's
 * target and the extended attributes. The first line is statfs. Paths and values are escaped, so
 * that a line stays a line. What the caller may not see is printed as !ERRNO: the manifests of two
 * mounts are comparable when they were taken by the same user.
 *
 * The inode number of the top folder is left out (FUSE calls it 1). Files beyond HASH_WHOLE_BYTES
 * are hashed where they hold data, and read at both ends. It uses nothing of ours but base.h's
 * macros. One thread.
 */
#include "base.h"
#include <dirent.h>
#include <fcntl.h>
#include <gcrypt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
	READ_BYTES = 1 << 20,
	HASH_WHOLE_BYTES = 64 << 20,
	HASH_ENDS_BYTES = 64 << 10,
	XATTR_SHOWN_BYTES = 96,
	DEPTH_MAX = 900,
	PATH_BYTES_MAX = 300000,
};

static char path[PATH_BYTES_MAX];
static size_t path_len;
static uint8_t buffer[READ_BYTES];
static bool failed;

static void print_escaped(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)bytes[i];
		if (c <= ' ' || c >= 0x7f || c == '\\' || c == '=')
			printf("\\x%02x", c);
		else
			putchar(c);
	}
}

static void print_errno(const char *what)
{
	const char *name = strerrorname_np(errno);

	/* Refused permission is part of the picture; anything else is a finding of its own. */
	if (errno != EACCES && errno != EPERM) {
		fprintf(stderr, "manifest: %s: %s: %s\n", path, what, strerror(errno));
		failed = true;
	}
	printf(" %s=!%s", what, name ? name : "?");
}

static void print_hash(const uint8_t *digest)
{
	for (size_t i = 0; i < 32; i++)
		printf("%02x", digest[i]);
}

/* Adds [from, to) of the file to the hash; false with errno set when a read fails. */
static bool hash_range(gcry_md_hd_t md, int fd, off_t from, off_t to)
{
	while (from < to) {
		size_t want = (size_t)MIN(to - from, (off_t)sizeof(buffer));
		ssize_t got = pread(fd, buffer, want, from);
		if (got < 0)
			return false;
		if (got == 0) {
			errno = ENODATA;
			return false;
		}
		gcry_md_write(md, buffer, (size_t)got);
		from += got;
	}
	return true;
}

static bool hash_large(gcry_md_hd_t md, int fd, off_t size)
{
	off_t at = 0;

	if (!hash_range(md, fd, 0, HASH_ENDS_BYTES) ||
		!hash_range(md, fd, size - HASH_ENDS_BYTES, size))
		return false;
	while (at < size) {
		off_t data = lseek(fd, at, SEEK_DATA);
		if (data < 0)
			return errno == ENXIO;
		off_t hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0 || !hash_range(md, fd, data, hole))
			return false;
		at = hole;
	}
	return true;
}

static void print_data(int fd, off_t size)
{
	gcry_md_hd_t md;

	if (gcry_md_open(&md, GCRY_MD_SHA256, 0)) {
		fprintf(stderr, "manifest: no SHA-256\n");
		exit(2);
	}
	bool good =
		size <= HASH_WHOLE_BYTES ? hash_range(md, fd, 0, size) : hash_large(md, fd, size);
	if (good) {
		printf(" data=");
		print_hash(gcry_md_read(md, GCRY_MD_SHA256));
	} else {
		print_errno("data");
	}
	gcry_md_close(md);
	/* The file ends where stat says. */
	if (good && pread(fd, buffer, 1, size) != 0) {
		fprintf(stderr, "manifest: %s: data past the end\n", path);
		failed = true;
	}
}

/* "0-4096,8192-9000": where there is data. */
static void print_holes(int fd, off_t size)
{
	off_t at = 0;

	printf(" map=");
	while (at < size) {
		off_t data = lseek(fd, at, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break;
		off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
		if (data < at || hole <= data) {
			print_errno("seek");
			return;
		}
		printf("%jd-%jd,", (intmax_t)data, (intmax_t)hole);
		at = hole;
	}
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void print_xattr_value(const char *self, const char *name)
{
	static char value[1 << 17];
	ssize_t len = getxattr(self, name, value, sizeof(value));

	printf(" ");
	print_escaped(name, strlen(name));
	if (len < 0) {
		print_errno("xattr");
		return;
	}
	printf("=%zd:", len);
	if (len <= XATTR_SHOWN_BYTES) {
		print_escaped(value, (size_t)len);
	} else {
		uint8_t digest[32];
		gcry_md_hash_buffer(GCRY_MD_SHA256, digest, value, (size_t)len);
		print_hash(digest);
	}
	if (getxattr(self, name, NULL, 0) != len) {
		fprintf(stderr, "manifest: %s: %s: two lengths\n", path, name);
		failed = true;
	}
}

static void print_xattrs(int fd)
{
	static char names[1 << 16];
	const char *sorted[4096];
	size_t count = 0;
	char self[64];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	ssize_t len = listxattr(self, names, sizeof(names));
	if (len < 0) {
		if (errno != ENOTSUP)
			print_errno("xattrs");
		return;
	}
	for (ssize_t at = 0; at < len && count < ARRAY_SIZE(sorted);) {
		sorted[count++] = names + at;
		at += (ssize_t)strlen(names + at) + 1;
	}
	qsort(sorted, count, sizeof(sorted[0]), compare_names);
	for (size_t i = 0; i < count; i++)
		print_xattr_value(self, sorted[i]);
	/* Where the list is empty, a get must not find anything either. */
	if (count == 0 && (getxattr(self, "user.there-is-none", NULL, 0) != -1 || errno == 0)) {
		fprintf(stderr, "manifest: %s: an attribute that is not there\n", path);
		failed = true;
	}
}

static void print_time(const char *name, struct timespec t)
{
	printf(" %s=%jd.%09ld", name, (intmax_t)t.tv_sec, t.tv_nsec);
}

static char type_letter(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return 'f';
	case S_IFDIR:
		return 'd';
	case S_IFLNK:
		return 'l';
	case S_IFIFO:
		return 'p';
	case S_IFSOCK:
		return 's';
	case S_IFCHR:
		return 'c';
	case S_IFBLK:
		return 'b';
	default:
		return '?';
	}
}

static void print_inode(int dir_fd, const char *name, int fd, const struct stat *st, int depth)
{
	static char target[8192];

	print_escaped(path, path_len);
	printf("\t%c%04o %u:%u n=%ju s=%jd b=%jd r=%u:%u i=%ju", type_letter(st->st_mode),
		st->st_mode & 07777, st->st_uid, st->st_gid, (uintmax_t)st->st_nlink,
		(intmax_t)st->st_size, (intmax_t)st->st_blocks, major(st->st_rdev),
		minor(st->st_rdev), depth ? (uintmax_t)st->st_ino : 0);
	print_time("a", st->st_atim);
	print_time("m", st->st_mtim);
	print_time("c", st->st_ctim);
	if (S_ISREG(st->st_mode)) {
		int data_fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		if (data_fd < 0) {
			print_errno("data");
		} else {
			/* First: pages that were read count as data where a block is unwritten. */
			print_holes(data_fd, st->st_size);
			print_data(data_fd, st->st_size);
			close(data_fd);
		}
	} else if (S_ISLNK(st->st_mode)) {
		ssize_t len = readlinkat(fd, "", target, sizeof(target));
		if (len < 0) {
			print_errno("link");
		} else {
			printf(" link=");
			print_escaped(target, (size_t)len);
		}
	}
	print_xattrs(fd);
	putchar('\n');
}

/* All names but "." and "..", sorted; NULL with errno set on failure. */
static char **read_names(int fd, size_t *count)
{
	DIR *dir = fdopendir(fd);
	char **names = NULL;
	size_t room = 0;

	*count = 0;
	if (!dir) {
		close(fd);
		return NULL;
	}
	for (;;) {
		errno = 0;
		struct dirent *e = readdir(dir);
		if (!e)
			break;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (*count == room) {
			room = room ? room * 2 : 64;
			names = realloc(names, room * sizeof(*names));
			ensure(names);
		}
		names[*count] = strdup(e->d_name);
		ensure(names[*count]);
		(*count)++;
	}
	int error = errno;
	closedir(dir);
	if (error) {
		for (size_t i = 0; i < *count; i++)
			free(names[i]);
		free(names);
		errno = error;
		return NULL;
	}
	if (!names)
		names = calloc(1, sizeof(*names));
	else
		qsort(names, *count, sizeof(*names), compare_names);
	return names;
}

static void walk(int dir_fd, const char *name, int depth)
{
	struct stat st;
	size_t count = 0, own_len = path_len;
	int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstatat(fd, "", &st, AT_EMPTY_PATH)) {
		print_escaped(path, path_len);
		print_errno("stat");
		putchar('\n');
		if (fd >= 0)
			close(fd);
		return;
	}
	print_inode(dir_fd, name, fd, &st, depth);
	if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
		int list_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		char **names = list_fd < 0 ? NULL : read_names(list_fd, &count);
		if (!names) {
			print_escaped(path, path_len);
			print_errno("list");
			putchar('\n');
		}
		for (size_t i = 0; i < count; i++) {
			size_t len = strlen(names[i]);
			if (own_len + len + 2 < sizeof(path)) {
				path[own_len] = '/';
				memcpy(path + own_len + 1, names[i], len + 1);
				path_len = own_len + 1 + len;
				walk(fd, names[i], depth + 1);
			}
			free(names[i]);
		}
		free(names);
		path_len = own_len;
		path[own_len] = 0;
	}
	close(fd);
}

/* ensure() is the library's; this program stands alone, so that it can judge any mount. */
void ensure_failed(const char *cond, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s\n", file, line, cond);
	abort();
}

int main(int argc, char **argv)
{
	struct rlimit files;
	struct statvfs v;

	if (argc != 2) {
		fprintf(stderr, "usage: manifest DIR\n");
		return 2;
	}
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	if (!gcry_check_version(NULL) || statvfs(argv[1], &v)) {
		fprintf(stderr, "manifest: %s: %s\n", argv[1], strerror(errno));
		return 2;
	}
	gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
	printf("statfs block=%lu blocks=%ju free=%ju avail=%ju files=%ju ffree=%ju name=%lu\n",
		v.f_frsize, (uintmax_t)v.f_blocks, (uintmax_t)v.f_bfree, (uintmax_t)v.f_bavail,
		(uintmax_t)v.f_files, (uintmax_t)v.f_ffree, v.f_namemax);
	path[0] = '.';
	path_len = 1;
	walk(AT_FDCWD, argv[1], 0);
	if (fflush(stdout))
		return 2;
	return failed ? 1 : 0;
}
