/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Images made by stock tools for the journal's suite: loaded into memory together with the runs of
 * their journal inode (from debugfs) and with what e2fsck's replay makes of a copy.
 */
#ifndef CRYPTFS_TEST_JOURNAL_IMAGE_H
#define CRYPTFS_TEST_JOURNAL_IMAGE_H

#include "journal.h"
#include "memory_volume.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IMAGE_RUNS_MAX = 64, IMAGE_SUPER_OFFSET = 1024, IMAGE_SUPER_BYTES = 1024 };

struct image {
	char dir[64];
	char path[80]; /* the image file */
	uint32_t block_bytes;
	fsblk_t blocks;
	struct journal_run runs[IMAGE_RUNS_MAX];
	struct journal_config config;
	struct memory_volume m;
	uint8_t *truth; /* after e2fsck's replay */
};

/* Runs a shell command without its output; its exit status. */
static inline int image_shell(const char *fmt, ...) printf_like(1, 2);
static inline int image_shell(const char *fmt, ...)
{
	char text[1200], command[1300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(command, sizeof(command), "{ %s ; } >/dev/null 2>&1", text);
	int status = system(command);

	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline void image_open(struct image *i)
{
	const char *tmp = getenv("TMPDIR");

	*i = (struct image){0};
	snprintf(i->dir, sizeof(i->dir), "%.40s/journal.XXXXXX", tmp != NULL ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(i->dir));
	snprintf(i->path, sizeof(i->path), "%s/image", i->dir);
}

static inline void image_close(struct image *i)
{
	if (i->m.volume != NULL)
		memory_volume_close(&i->m);
	free(i->truth);
	image_shell("rm -rf %s", i->dir);
}

static inline void image_read_file(const char *path, uint8_t *buf, uint64_t bytes)
{
	FILE *f = fopen(path, "rb");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fread(buf, 1, bytes, f), bytes);
	fclose(f);
}

/* "(0-11):594-605, (IND):606, (12):607": what has a letter is not the journal's own. */
static inline size_t image_parse_runs(
	const struct image *i, const char *file, struct journal_run runs[IMAGE_RUNS_MAX])
{
	char command[160], line[4096];
	uint32_t from, to;
	unsigned long long physical;
	bool in_map = false;
	size_t count = 0;

	snprintf(command, sizeof(command), "debugfs -R 'stat %s' %s 2>/dev/null", file, i->path);
	FILE *f = popen(command, "r");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		if (strncmp(line, "EXTENTS:", 8) == 0 || strncmp(line, "BLOCKS:", 7) == 0)
			in_map = true;
		for (char *at = in_map ? strchr(line, '(') : NULL; at != NULL;
			at = strchr(at + 1, '(')) {
			if (sscanf(at, "(%u-%u):%llu", &from, &to, &physical) != 3) {
				if (sscanf(at, "(%u):%llu", &from, &physical) != 2)
					continue;
				to = from;
			}
			ck_assert_uint_lt(count, IMAGE_RUNS_MAX);
			runs[count++] = (struct journal_run){from, to - from + 1, physical};
		}
	}
	pclose(f);
	ck_assert_uint_gt(count, 0);
	return count;
}

/* The image into memory, its geometry from its superblock, its journal's runs from debugfs. */
static inline void image_load(struct image *i)
{
	struct stat st;
	le32 word;

	ck_assert_int_eq(stat(i->path, &st), 0);
	ck_assert_int_eq(memory_volume_open((uint64_t)st.st_size, &i->m), OK);
	image_read_file(i->path, i->m.bytes, i->m.size_bytes);
	memcpy(&word, i->m.bytes + IMAGE_SUPER_OFFSET + 24, sizeof(word));
	i->block_bytes = 1024U << le32_get(word);
	memcpy(&word, i->m.bytes + IMAGE_SUPER_OFFSET + 4, sizeof(word));
	i->blocks = le32_get(word);
	i->config = (struct journal_config){.volume = i->m.volume,
		.block_bytes = i->block_bytes,
		.fs_blocks = i->blocks,
		.runs = i->runs};
	i->config.run_count = image_parse_runs(i, "<8>", i->runs);
}

/* e2fsck 1.47 fails on the kernel's logs with the fast commit bit: the kernel is their judge, which
 * replays for a read-only mount of a writable device. */
enum image_judge { JUDGE_E2FSCK, JUDGE_KERNEL };

static inline void image_replay_copy(struct image *i, enum image_judge judge)
{
	char copy[96];

	snprintf(copy, sizeof(copy), "%s.truth", i->path);
	ck_assert_int_eq(image_shell("cp --sparse=always %s %s", i->path, copy), 0);
	if (judge == JUDGE_E2FSCK)
		ck_assert_int_le(image_shell("e2fsck -y -E journal_only %s", copy), 1);
	else
		ck_assert_int_eq(
			image_shell("loop=$(losetup -f --show %s) || exit 1; "
				    "mount -o ro $loop %s/mnt && umount %s/mnt; status=$?; "
				    "losetup -d $loop; exit $status",
				copy, i->dir, i->dir),
			0);
	i->truth = malloc(i->m.size_bytes);
	ck_assert_ptr_nonnull(i->truth);
	image_read_file(copy, i->truth, i->m.size_bytes);
	image_shell("rm -f %s", copy);
}

struct image_figures {
	struct journal_info info;
	uint32_t changed; /* blocks that the judge's replay changed, and so did ours */
	bool wrapped;
};

/*
 * Every block of the file system, read through a cache with our overlay, is what the judge's
 * replay left; except for the file system's superblock and the journal's, which it writes anew.
 */
static inline void image_compare(struct image *i, enum image_judge judge, struct image_figures *out)
{
	struct overlay *o = NULL;
	struct cache *c;
	be32 start;

	*out = (struct image_figures){0};
	image_replay_copy(i, judge);
	enum err e = journal_scan(&i->config, &o, &out->info);

	ck_assert_msg(e == OK, "%s: %s", err_name(e), err_detail());
	ck_assert_uint_eq(o == NULL ? 0 : overlay_count(o), out->info.blocks);
	memcpy(&start, i->m.bytes + i->runs[0].physical * i->block_bytes + 0x1c, 4);
	for (size_t r = 0; o != NULL && r < i->config.run_count; r++)
		for (uint32_t b = 0; b < i->runs[r].count; b++) {
			fsblk_t at = 0;
			const struct overlay_entry *entry;

			if (i->runs[r].logical + b >= be32_get(start))
				break;
			while ((entry = overlay_find(o, at, UINT64_MAX)) != NULL) {
				out->wrapped |= entry->log == i->runs[r].physical + b;
				at = entry->block + 1;
			}
		}
	ck_assert_int_eq(cache_create(&(struct cache_config){.volume = i->m.volume,
					      .block_bytes = i->block_bytes,
					      .blocks = i->blocks,
					      .capacity_bytes = 1 << 20,
					      .overlay = o},
				 &c),
		OK);
	for (fsblk_t nr = 0; nr < i->blocks; nr++) {
		const uint8_t *home = i->m.bytes + nr * i->block_bytes;
		const uint8_t *truth = i->truth + nr * i->block_bytes;
		struct cache_block *b;

		if (nr == i->runs[0].physical || nr == IMAGE_SUPER_OFFSET / i->block_bytes)
			continue;
		ck_assert_int_eq(cache_get(c, nr, &b), OK);
		ck_assert_msg(memcmp(b->data, truth, i->block_bytes) == 0,
			"block %llu differs from the judge's replay", (unsigned long long)nr);
		cache_put(c, b);
		out->changed += memcmp(home, truth, i->block_bytes) != 0;
	}
	cache_destroy(c);
}

#endif
