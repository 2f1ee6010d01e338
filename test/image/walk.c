/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * walk: mounts a plain image (identity cipher, no FUSE) and touches everything in it that a reader
 * can reach: every name, every inode number, all data, attributes and links.
 *
 *     walk IMAGE                  says what the mount or the walk met; exit 0 either way
 *     walk IMAGE flips SEED N     N times: damages a copy in memory by the seed, walks it in a
 * child
 *
 * A damaged image may be refused or give errors; what it may not do is crash, hang or make us read
 * out of bounds, so the walk runs under an alarm and is meant for the sanitizers' build. The last
 * line names the outcome: "refused: ERR_X", "errors: N" or "clean".
 *
 * The damage goes where bytes are not zero, since most of an image is empty. One thread.
 */
#include "base.h"
#include "cipher.h"
#include "dev.h"
#include "ext4.h"
#include "ioq.h"
#include "page.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	ALARM_SECONDS = 60,
	INODES_MAX = 20000,
	FIRST_INUM = 11, /* below: reserved */
	READ_HEAD_BYTES = 4 << 20,
	SEGMENTS_MAX = 200,
	NAMES_MAX = 40000,
	LOOKUPS_MAX = 300,
	CHUNK_BYTES = 128 << 10,
};

struct walk {
	struct ext4 *fs;
	uint8_t *seen; /* one byte an inode number */
	uint64_t inodes;
	inum_t *stack;
	size_t depth;
	uint64_t names, bytes, errors;
	uint8_t sum; /* of all data, so that every byte is really read */
	bool by_error[ERR_COUNT];
};

struct listing {
	struct walk *w;
	uint64_t count;
	uint64_t last_cookie;
};

struct names {
	size_t count;
	char *name[LOOKUPS_MAX];
	size_t len[LOOKUPS_MAX];
};

static void note(struct walk *w, enum err e)
{
	if (e == OK)
		return;
	w->errors++;
	w->by_error[e] = true;
	err_clear_detail();
}

static void push(struct walk *w, inum_t inum)
{
	if (inum < w->inodes && inum < INODES_MAX && !w->seen[inum]) {
		w->seen[inum] = 1;
		w->stack[w->depth++] = inum;
	}
}

static bool take_entry(void *context, const struct ext4_dirent *entry)
{
	struct listing *l = context;

	for (size_t i = 0; i < entry->len; i++)
		l->w->sum ^= (uint8_t)entry->name[i];
	l->w->names++;
	l->last_cookie = entry->cookie;
	push(l->w, entry->inum);
	/* A part at a time, so that continuing after a cookie is walked too. */
	return ++l->count % 100 != 0;
}

/* Copies a name: the directory's lock is held here, so that looking it up must wait. */
static bool take_name(void *context, const struct ext4_dirent *entry)
{
	struct names *n = context;

	if (n->count == LOOKUPS_MAX)
		return false;
	/* A buffer of its own length each, so that the sanitizer sees a read past its end. */
	n->name[n->count] = malloc(entry->len + 1);
	ensure(n->name[n->count]);
	memcpy(n->name[n->count], entry->name, entry->len);
	n->len[n->count++] = entry->len;
	return true;
}

static void look_up_names(struct walk *w, struct ext4_inode *dir)
{
	struct names n = {.count = 0};
	inum_t found;

	note(w, ext4_readdir(dir, 0, take_name, &n));
	for (size_t i = 0; i < n.count; i++) {
		note(w, ext4_lookup(dir, n.name[i], n.len[i], &found));
		free(n.name[i]);
	}
	enum err e = ext4_lookup(dir, "there is no such name", 21, &found);
	if (e != ERR_NOENT)
		note(w, e);
}

static void walk_directory(struct walk *w, struct ext4_inode *dir)
{
	struct listing l = {.w = w};
	uint64_t before;

	do {
		before = l.last_cookie;
		uint64_t count = l.count;
		enum err e = ext4_readdir(dir, before, take_entry, &l);
		note(w, e);
		if (e != OK || l.count == count)
			break;
	} while (l.count < NAMES_MAX && l.last_cookie != before);
	look_up_names(w, dir);
}

static void read_range(struct walk *w, struct ext4_inode *inode, uint64_t from, uint64_t to)
{
	while (from < to) {
		struct ext4_read r;
		enum err e = ext4_read(inode, from, (size_t)MIN(to - from, CHUNK_BYTES), &r);
		if (e != OK) {
			note(w, e);
			from += CHUNK_BYTES;
			continue;
		}
		size_t bytes = 0;
		for (int i = 0; i < r.parts; i++) {
			const uint8_t *p = r.part[i].iov_base;
			for (size_t k = 0; k < r.part[i].iov_len; k++)
				w->sum ^= p[k];
			bytes += r.part[i].iov_len;
		}
		ensure(bytes == r.bytes);
		ext4_read_done(&r);
		w->bytes += bytes;
		if (bytes == 0)
			break;
		from += bytes;
	}
}

static void walk_file(struct walk *w, struct ext4_inode *inode, uint64_t size)
{
	uint64_t at = 0;

	read_range(w, inode, 0, MIN(size, (uint64_t)READ_HEAD_BYTES));
	if (size > CHUNK_BYTES)
		read_range(w, inode, size - CHUNK_BYTES, size);
	for (int i = 0; i < SEGMENTS_MAX && at < size; i++) {
		uint64_t data, hole;
		enum err e = ext4_seek(inode, at, SEEK_DATA, &data);
		if (e == ERR_NXIO)
			break;
		note(w, e);
		if (e != OK)
			break;
		e = ext4_seek(inode, data, SEEK_HOLE, &hole);
		note(w, e);
		if (e != OK)
			break;
		ensure(data >= at && hole > data && hole <= size);
		if (hole > READ_HEAD_BYTES)
			read_range(w, inode, data, MIN(hole, data + CHUNK_BYTES));
		at = hole;
	}
}

static void walk_xattrs(struct walk *w, struct ext4_inode *inode)
{
	static char names[1 << 16];
	size_t len, value_len;

	enum err e = ext4_xattr_list(inode, true, names, sizeof(names), &len);
	note(w, e);
	if (e != OK)
		return;
	for (size_t at = 0; at < len; at += strlen(names + at) + 1) {
		uint8_t *value = malloc(1 << 16);
		ensure(value);
		e = ext4_xattr_get(inode, names + at, value, 1 << 16, &value_len);
		note(w, e);
		if (e == OK)
			for (size_t i = 0; i < value_len; i++)
				w->sum ^= value[i];
		free(value);
	}
	e = ext4_xattr_get(inode, "user.there-is-none", NULL, 0, &value_len);
	if (e != ERR_NODATA)
		note(w, e);
}

static void walk_inode(struct walk *w, inum_t inum)
{
	struct ext4_inode *inode;
	struct ext4_attr attr;
	size_t len;

	enum err e = ext4_inode_get(w->fs, inum, &inode);
	if (e != OK) {
		note(w, e);
		return;
	}
	e = ext4_getattr(inode, &attr);
	note(w, e);
	if (e == OK) {
		if (S_ISDIR(attr.mode)) {
			walk_directory(w, inode);
		} else if (S_ISREG(attr.mode)) {
			walk_file(w, inode, attr.size_bytes);
		} else if (S_ISLNK(attr.mode)) {
			char *target = malloc(4096);
			ensure(target);
			note(w, ext4_readlink(inode, target, 4096, &len));
			free(target);
		}
		walk_xattrs(w, inode);
	}
	ext4_inode_put(inode);
}

static void walk_all(struct walk *w)
{
	struct ext4_statfs v;

	note(w, ext4_statfs(w->fs, &v));
	push(w, EXT4_ROOT_INUM);
	while (w->depth)
		walk_inode(w, w->stack[--w->depth]);
	/*
	 * What no name leads to: most numbers are free, and the reserved ones hold what is no file;
	 * neither is an error of the image.
	 */
	for (inum_t inum = 0; inum < MIN(w->inodes + 10, (uint64_t)INODES_MAX); inum++) {
		if (w->seen[inum])
			continue;
		uint64_t errors = w->errors;
		bool stale = w->by_error[ERR_STALE];
		bool corrupt = w->by_error[ERR_CORRUPT];
		walk_inode(w, inum);
		if (w->by_error[ERR_STALE] != stale || inum < FIRST_INUM) {
			w->by_error[ERR_STALE] = stale;
			w->by_error[ERR_CORRUPT] = corrupt;
			w->errors = errors;
		}
	}
}

static void print_outcome(const struct walk *w)
{
	printf("%llu names, %llu bytes (%02x)", (unsigned long long)w->names,
		(unsigned long long)w->bytes, w->sum);
	for (int e = 1; e < ERR_COUNT; e++)
		if (w->by_error[e])
			printf(" %s", err_name((enum err)e));
	if (w->errors)
		printf("\nerrors: %llu\n", (unsigned long long)w->errors);
	else
		printf("\nclean\n");
}

/* Takes over the device. */
static void walk_device(struct dev *d)
{
	struct ioq *q;
	struct cipher *c;
	struct volume *v;
	struct pages *p;
	struct ext4_info info;
	struct pages_config pages_config = {.cap_bytes = 0};
	struct walk w = {0};

	ensure(ioq_create(d, &q) == OK);
	ensure(cipher_create_identity(512, &c) == OK);
	struct volume_config volume_config = {
		.ioq = q,
		.cipher = c,
		.size_bytes = d->size_bytes / SECTOR_BYTES * SECTOR_BYTES,
	};
	ensure(volume_create(&volume_config, &v) == OK);
	ensure(pages_create(&pages_config, &p) == OK);
	struct ext4_options options = {.volume = v, .pages = p};
	enum err e = ext4_mount(&options, &w.fs);
	if (e == OK) {
		ext4_info(w.fs, &info);
		w.inodes = info.inodes;
		w.seen = calloc(INODES_MAX, 1);
		w.stack = calloc(INODES_MAX, sizeof(*w.stack));
		ensure(w.seen && w.stack);
		walk_all(&w);
		ext4_unmount(w.fs);
		free(w.seen);
		free(w.stack);
		print_outcome(&w);
	} else {
		printf("%s\nrefused: %s\n", *err_detail() ? err_detail() : err_text(e),
			err_name(e));
	}
	volume_destroy(v);
	pages_destroy(p);
	ioq_destroy(q);
	dev_close(d);
}

/* --- damage by seed -------------------------------------------------------------------------- */
static uint64_t random_next(uint64_t *state)
{
	/* xorshift64*: the same numbers on every machine. */
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dULL;
}

static void damage(uint8_t *bytes, uint64_t size, uint64_t seed)
{
	static const uint8_t telling[] = {0, 1, 2, 4, 8, 0x7f, 0x80, 0xfe, 0xff};
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
	unsigned count = 1 + (unsigned)(random_next(&state) % 6);

	while (count) {
		uint64_t at = random_next(&state) % size;
		/* Every other one goes near the start, where the superblock and the tables are. */
		if (random_next(&state) % 2)
			at %= MIN(size, (uint64_t)600 << 10);
		if (!bytes[at])
			continue;
		uint64_t r = random_next(&state);
		bytes[at] = r % 2 ? telling[(r >> 8) % sizeof(telling)] : (uint8_t)(r >> 16);
		if (r % 5 == 0 && at + 4 < size)
			memset(bytes + at, 0xff, 4);
		count--;
	}
}

static uint8_t *read_file(const char *name, uint64_t *size)
{
	struct stat st;
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st)) {
		fprintf(stderr, "walk: %s: %s\n", name, strerror(errno));
		exit(2);
	}
	*size = (uint64_t)st.st_size;
	uint8_t *bytes = malloc(*size);
	ensure(bytes);
	for (uint64_t at = 0; at < *size;) {
		ssize_t got = pread(fd, bytes + at, *size - at, (off_t)at);
		ensure(got > 0);
		at += (uint64_t)got;
	}
	close(fd);
	return bytes;
}

static int walk_flips(const char *name, uint64_t first, uint64_t count)
{
	uint64_t size, bad = 0;
	uint8_t *bytes = read_file(name, &size);

	for (uint64_t seed = first; seed < first + count; seed++) {
		int status;
		fflush(stdout);
		pid_t child = fork();
		ensure(child >= 0);
		if (child == 0) {
			struct dev *d;
			alarm(ALARM_SECONDS);
			ensure(dev_open_memory(size, &d) == OK);
			memcpy(dev_memory_bytes(d), bytes, size);
			damage(dev_memory_bytes(d), size, seed);
			free(bytes);
			/* Only what the sanitizers say is of interest. */
			ensure(freopen("/dev/null", "w", stdout));
			walk_device(d);
			exit(0);
		}
		ensure(waitpid(child, &status, 0) == child);
		if (status != 0) {
			printf("FAIL: %s: seed %llu: %s %d\n", name, (unsigned long long)seed,
				WIFSIGNALED(status) ? "signal" : "exit status",
				WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
			bad++;
		}
	}
	free(bytes);
	printf("%llu damaged copies from seed %llu, %llu bad\n", (unsigned long long)count,
		(unsigned long long)first, (unsigned long long)bad);
	return bad ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct dev *d;
	struct dev_open_options options = {.readonly = true};

	log_open_stderr("walk", LOG_ERROR_);
	if (argc == 5 && !strcmp(argv[2], "flips"))
		return walk_flips(
			argv[1], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
	if (argc != 2) {
		fprintf(stderr, "usage: walk IMAGE [flips SEED N]\n");
		return 2;
	}
	if (dev_open(argv[1], &options, &d) != OK) {
		fprintf(stderr, "walk: %s: %s\n", argv[1], err_detail());
		return 2;
	}
	alarm(ALARM_SECONDS);
	walk_device(d);
	return 0;
}
