/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the suites about names and attributes share: an image made by stock tools, held in memory
 * so that bytes can be changed, and mounted; directories filled by debugfs and indexed by e2fsck;
 * whole listings. Included by tests only, by one thread.
 */
#ifndef CRYPTFS_TEST_DIR_RIG_H
#define CRYPTFS_TEST_DIR_RIG_H

#include "scratch.h"
#include "memory_volume.h"
#include "ext4.h"
#include "dir_int.h"

#include <stdarg.h>
#include <sys/stat.h>

struct rig {
	struct memory_volume disk;
	struct pages *pages;
	struct ext4 *fs;
};

/* Runs a shell command made by a format, in the scratch folder; a failure ends the test. */
__attribute__((unused)) static void rig_shell(const char *fmt, ...) printf_like(1, 2);
__attribute__((unused)) static void rig_shell(const char *fmt, ...)
{
	char text[2048], command[2600];
	va_list args;

	va_start(args, fmt);
	ensure((size_t)vsnprintf(text, sizeof(text), fmt, args) < sizeof(text));
	va_end(args);
	snprintf(command, sizeof(command), "exec >/dev/null 2>&1; cd '%s' && { %s; }", scratch_dir,
		text);
	ck_assert_msg(system(command) == 0, "failed: %s", text);
}

/* Reads an image of the scratch folder into memory. */
static inline void rig_load(struct rig *r, const char *image)
{
	const char *path = scratch_path(image);
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	*r = (struct rig){0};
	ensure(fd >= 0 && fstat(fd, &st) == 0);
	ck_ok(memory_volume_open((uint64_t)st.st_size, &r->disk));
	for (off_t at = 0; at < st.st_size;) {
		off_t data = lseek(fd, at, SEEK_DATA), hole;
		ssize_t n;

		if (data < 0)
			break;
		hole = lseek(fd, data, SEEK_HOLE);
		n = pread(fd, r->disk.bytes + data, (size_t)(hole - data), data);
		ensure(n > 0);
		at = data + n;
	}
	close(fd);
	ck_ok(pages_create(&(struct pages_config){0}, &r->pages));
}

static inline void rig_mount(struct rig *r)
{
	ck_ok(ext4_mount(
		&(struct ext4_options){.volume = r->disk.volume, .pages = r->pages}, &r->fs));
}
static inline void rig_unmount(struct rig *r)
{
	if (r->fs)
		ext4_unmount(r->fs);
	r->fs = NULL;
}
static inline void rig_close(struct rig *r)
{
	rig_unmount(r);
	pages_destroy(r->pages);
	memory_volume_close(&r->disk);
}

/* Follows a path from the root: "a/b". */
static inline enum err rig_find(struct rig *r, const char *path, struct ext4_inode **out)
{
	struct ext4_inode *here = NULL;
	enum err e = ext4_inode_get(r->fs, EXT4_ROOT_INUM, &here);

	while (!e && *path) {
		size_t len = strcspn(path, "/");
		inum_t inum = 0;

		e = ext4_lookup(here, path, len, &inum);
		ext4_inode_put(here);
		here = NULL;
		if (!e)
			e = ext4_inode_get(r->fs, inum, &here);
		path += len + (path[len] == '/');
	}
	if (!e)
		*out = here;
	return e;
}
static inline struct ext4_inode *rig_get(struct rig *r, const char *path)
{
	struct ext4_inode *inode = NULL;

	ck_ok(rig_find(r, path, &inode));
	return inode;
}

/* The bytes of a directory's (or any inode's) block, on the disk in memory. */
static inline uint8_t *rig_block(struct rig *r, struct ext4_inode *inode, lblk_t block)
{
	struct ext4_run run = {0};

	ck_ok(ext4_map(inode, block, 1, &run));
	ck_assert_uint_ne(run.physical, 0);
	return r->disk.bytes + run.physical * r->fs->block_bytes;
}
/* The bytes of an inode in its table. */
static inline uint8_t *rig_inode_bytes(struct rig *r, inum_t inum)
{
	const struct ext4_group *g = &r->fs->group[(inum - 1) / r->fs->inodes_per_group];

	return r->disk.bytes + g->inode_table * r->fs->block_bytes +
	       (uint64_t)((inum - 1) % r->fs->inodes_per_group) * r->fs->inode_bytes;
}

/* --- listings -------------------------------------------------------------------------------- */
struct listed {
	char name[EXT4_NAME_BYTES_MAX + 1];
	size_t len;
	inum_t inum;
	uint8_t type;
	uint64_t cookie;
};
struct listing {
	struct listed *entry;
	size_t count, room;
	size_t stop; /* refuse at this count */
};

static inline bool listing_take(void *context, const struct ext4_dirent *d)
{
	struct listing *l = context;
	struct listed *e;

	if (l->count == l->stop)
		return false;
	if (l->count == l->room) {
		l->room = MAX(l->room * 2, (size_t)64);
		l->entry = realloc(l->entry, l->room * sizeof(*l->entry));
		ensure(l->entry != NULL);
	}
	e = &l->entry[l->count++];
	ck_assert_uint_le(d->len, EXT4_NAME_BYTES_MAX);
	memcpy(e->name, d->name, d->len);
	e->name[d->len] = 0;
	e->len = d->len;
	e->inum = d->inum;
	e->type = d->type;
	e->cookie = d->cookie;
	ck_assert_uint_ne(d->cookie, 0);
	ck_assert_uint_le(d->cookie, INT64_MAX);
	return true;
}
static inline void listing_free(struct listing *l)
{
	free(l->entry);
	*l = (struct listing){0};
}
/* Lists in calls of at most `step` entries. */
static inline enum err listing_read(struct ext4_inode *dir, size_t step, struct listing *l)
{
	uint64_t cookie = 0;
	size_t before;

	*l = (struct listing){0};
	do {
		enum err e;

		before = l->count;
		l->stop = step == SIZE_MAX ? SIZE_MAX : before + step;
		e = ext4_readdir(dir, cookie, listing_take, l);
		if (e)
			return e;
		if (l->count > before)
			cookie = l->entry[l->count - 1].cookie;
	} while (l->count > before);
	return OK;
}
static inline int listed_compare(const void *a, const void *b)
{
	const struct listed *x = a, *y = b;

	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return memcmp(x->name, y->name, x->len);
}
/* Sorted by name for listing_find. */
static inline void listing_sort(struct listing *l)
{
	qsort(l->entry, l->count, sizeof(*l->entry), listed_compare);
}

/* --- directories ----------------------------------------------------------------------------- */
/* The nth name of a directory: a printf format with one %u. */
static inline size_t rig_name(const char *format, unsigned n, char name[512])
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	return (size_t)snprintf(name, 512, format, n);
#pragma GCC diagnostic pop
}

enum { RIG_TARGET = 12, RIG_DIR = 13 }; /* inodes of what rig_fill makes */

static inline void rig_put_dirent(uint8_t *block, size_t at, size_t rec_len, inum_t inum,
	const char *name, size_t len, uint8_t type)
{
	struct ext4_disk_dirent *d = (void *)(block + at);

	d->inode = le32_make(inum);
	d->rec_len = le16_make((uint16_t)(rec_len >= 65536 ? 0 : rec_len));
	d->name_len = (uint8_t)len;
	d->file_type = type;
	memcpy(d->name, name, len);
}

/*
 * Makes a directory "dir" of `count` links to the file "target" without root or a mount: as a file
 * of entries that becomes a directory. e2fsck, which judges the entries, sets all that goes with
 * them: checksums, links, the entry in the root.
 */
__attribute__((unused)) static void rig_fill(
	const char *image, const char *format, unsigned count, size_t block_bytes)
{
	FILE *f = fopen(scratch_path("entries"), "w");
	uint8_t *block = calloc(1, block_bytes);
	size_t room = block_bytes - sizeof(struct ext4_dir_tail), at = 24, last = 12;
	char name[512];

	ensure(f != NULL && block != NULL);
	rig_put_dirent(block, 0, 12, RIG_DIR, ".", 1, EXT4_FT_DIR);
	rig_put_dirent(block, 12, 12, EXT4_ROOT_INUM, "..", 2, EXT4_FT_DIR);
	for (unsigned i = 0; i <= count; i++) {
		size_t len = i < count ? rig_name(format, i, name) : 0;
		size_t need = (sizeof(struct ext4_disk_dirent) + len + 3) & ~(size_t)3;

		if (i == count || at + need > room) {
			struct ext4_disk_dirent *d = (void *)(block + last);

			d->rec_len = le16_make((uint16_t)(room - last));
			rig_put_dirent(block, room, sizeof(struct ext4_dir_tail), 0, "", 0,
				EXT4_DIR_TAIL_TYPE);
			ensure(fwrite(block, block_bytes, 1, f) == 1);
			memset(block, 0, block_bytes);
			at = 0;
		}
		if (i == count)
			break;
		rig_put_dirent(block, at, need, RIG_TARGET, name, len, 1);
		last = at;
		at += need;
	}
	ensure(fclose(f) == 0);
	free(block);
	rig_shell("printf '%%s\\n' 'write /dev/null target' 'write entries dir' "
		  "'sif dir mode 040755' 'sif target links_count 2' >cmd; debugfs -w -f cmd %s",
		image);
	rig_shell("e2fsck -fy %s || [ $? -le 1 ]", image);
	rig_shell("e2fsck -fn %s", image);
}
/* Rebuilds every directory with an index; e2fsck answers 0 or 1. */
__attribute__((unused)) static void rig_index(const char *image)
{
	rig_shell("e2fsck -fyD %s || [ $? -le 1 ]", image);
}

#endif
