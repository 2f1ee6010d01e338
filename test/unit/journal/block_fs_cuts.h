/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cuts of the block-level file system's device (block_fs.h): held against the model, and against
 * what debugfs, e2fsck and the kernel make of them.
 */
#ifndef CRYPTFS_TEST_BLOCK_FS_CUTS_H
#define CRYPTFS_TEST_BLOCK_FS_CUTS_H

#include "block_fs.h"

/* What must be in the image at a cut: the newest transaction that was known to be durable. */
static inline uint64_t block_fs_promised(const struct block_fs *fs, uint64_t stamp)
{
	uint64_t seq = fs->first_seq - 1;

	for (size_t i = 0; i < fs->mark_count; i++)
		if (fs->marks[i].stamp <= stamp)
			seq = MAX(seq, fs->marks[i].seq);
	return seq;
}

/* Whether the content may be that at the cut, when transactions up to seq are there. */
static inline bool area_may_hold(const struct area_block *b, const uint8_t *data,
	uint32_t block_bytes, uint64_t seq, uint64_t stamp)
{
	const struct event *now = &b->events[0], *last_data = NULL;
	size_t at = 0;

	for (size_t i = 1; i < b->count; i++)
		if (b->events[i].kind != EVENT_DATA && b->events[i].seq <= seq)
			at = i;
	now = &b->events[at];
	if (now->kind == EVENT_META)
		return area_holds(data, now->value, block_bytes);
	for (size_t i = at + 1; i < b->count && b->events[i].kind == EVENT_DATA; i++)
		if (b->events[i].issued < stamp)
			last_data = &b->events[i];
	if (last_data == NULL || last_data->durable > stamp)
		return true;
	return area_holds(data, last_data->value, block_bytes);
}

/*
 * The blocks of an image, read through `c` or as they lie there, are those of one transaction, and
 * not of one before the promise. Returns its number.
 */
static inline uint64_t block_fs_check_area(struct block_fs *fs, struct cache *c,
	const uint8_t *bytes, uint64_t stamp, const char *what)
{
	uint32_t block_bytes = fs->i.block_bytes;
	uint64_t seq = 0;

	for (int n = 0; n < AREA; n++) {
		const struct area_block *b = &fs->area[n];
		struct cache_block *cached = NULL;
		const uint8_t *data = bytes + b->nr * block_bytes;

		if (c != NULL) {
			ck_assert_int_eq(cache_get(c, b->nr, &cached), OK);
			data = cached->data;
		}
		if (n == 0)
			memcpy(&seq, data + 8, 8);
		if (n == 0 && seq == 0)
			seq = fs->first_seq - 1;
		bool good = area_may_hold(b, data, block_bytes, seq, stamp);

		ck_assert_msg(good, "%s: block %d of the area is not that of transaction %llu",
			what, n, (unsigned long long)seq);
		cache_put(c, cached);
	}
	ck_assert_msg(seq >= block_fs_promised(fs, stamp),
		"%s: transaction %llu is there and %llu was durable", what, (unsigned long long)seq,
		(unsigned long long)block_fs_promised(fs, stamp));
	return seq;
}

static inline const char *block_fs_cut_name(const struct dev_cut *cut)
{
	static char name[80];

	snprintf(name, sizeof(name), "cut %llu/%llu/%u", (unsigned long long)cut->stamp,
		(unsigned long long)cut->seed, cut->tear_bytes);
	return name;
}

/* The image of a cut is in fs->cut; replayed in memory it is right. Returns its transaction. */
static inline uint64_t block_fs_check_cut(struct block_fs *fs, const struct dev_cut *cut)
{
	struct journal_config config = fs->config;
	struct journal_info info;
	struct overlay *o = NULL;
	struct cache *c;
	const char *name = block_fs_cut_name(cut);

	dev_recorder_image(fs->recorder, cut, fs->cut.bytes);
	config.volume = fs->cut.volume;
	enum err e = journal_scan(&config, &o, &info);

	ck_assert_msg(e == OK, "%s: %s: %s", name, err_name(e), err_detail());
	ck_assert_int_eq(cache_create(&(struct cache_config){.volume = fs->cut.volume,
					      .block_bytes = fs->i.block_bytes,
					      .blocks = fs->i.blocks,
					      .capacity_bytes = 1 << 20,
					      .overlay = o},
				 &c),
		OK);
	uint64_t seq = block_fs_check_area(fs, c, fs->cut.bytes, cut->stamp, name);

	if (info.transactions > 0)
		ck_assert_msg((uint32_t)seq == info.sequence - 1,
			"%s: the log ends at transaction %u and the blocks are of %u", name,
			info.sequence - 1, (uint32_t)seq);
	cache_destroy(c);
	return seq;
}

static inline void block_fs_save_cut(struct block_fs *fs)
{
	FILE *f = fopen(fs->i.path, "wb");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(fs->cut.bytes, 1, fs->cut.size_bytes, f), fs->cut.size_bytes);
	ck_assert_int_eq(fclose(f), 0);
}

static inline void block_fs_check_file(
	struct block_fs *fs, const struct dev_cut *cut, uint64_t want_seq, const char *judge)
{
	uint8_t *bytes = malloc(fs->cut.size_bytes);
	char what[160];

	ck_assert_ptr_nonnull(bytes);
	image_read_file(fs->i.path, bytes, fs->cut.size_bytes);
	snprintf(what, sizeof(what), "%s after %s", block_fs_cut_name(cut), judge);
	ck_assert_uint_eq(block_fs_check_area(fs, NULL, bytes, cut->stamp, what), want_seq);
	free(bytes);
}

/* e2fsck's replay of the cut in fs->cut makes the same of it, and finds nothing to repair. */
static inline void block_fs_judge_e2fsck(
	struct block_fs *fs, const struct dev_cut *cut, uint64_t seq)
{
	block_fs_save_cut(fs);
	ck_assert_msg(image_shell("debugfs -R 'logdump -a' %s > %s/log 2>&1 && "
				  "! grep -i -e checksum.mismatch -e corrupt %s/log",
			      fs->i.path, fs->i.dir, fs->i.dir) == 0,
		"%s: debugfs finds fault with the log", block_fs_cut_name(cut));
	ck_assert_msg(image_shell("e2fsck -fy -E journal_only %s", fs->i.path) <= 1,
		"%s: e2fsck does not replay", block_fs_cut_name(cut));
	block_fs_check_file(fs, cut, seq, "e2fsck");
	ck_assert_msg(image_shell("e2fsck -fn %s", fs->i.path) == 0, "%s: e2fsck is not content",
		block_fs_cut_name(cut));
}

/* The kernel mounts the cut in fs->cut for writing and makes the same of it. */
static inline void block_fs_judge_kernel(
	struct block_fs *fs, const struct dev_cut *cut, uint64_t seq)
{
	block_fs_save_cut(fs);
	ck_assert_msg(image_shell("mkdir -p %s/mnt && mount -o loop %s %s/mnt && umount %s/mnt",
			      fs->i.dir, fs->i.path, fs->i.dir, fs->i.dir) == 0,
		"%s: the kernel does not mount it", block_fs_cut_name(cut));
	ck_assert_msg(image_shell("e2fsck -fn %s", fs->i.path) == 0,
		"%s: e2fsck is not content after the kernel", block_fs_cut_name(cut));
	block_fs_check_file(fs, cut, seq, "the kernel");
}

#endif
