/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Inodes taken and given back on disks that hold noise, judged by e2fsck. */
#include "inode_rig.h"

#include <sched.h>

static void open_noisy(struct image *im, int layout)
{
	inode_open_noisy(im, write_layouts[layout]);
}

/* Files in all groups, with names from debugfs: bitmaps, counts, tables and checksums are right. */
START_TEST(files_stay)
{
	enum { DIRS = 12, FILES = 20 };
	struct ext4_inode *root, *dir[DIRS], *file;
	struct image im;
	char *commands = calloc(DIRS * FILES + 20, 32), *at = commands;

	ensure(commands != NULL);
	open_noisy(&im, _i);
	root = inode_root(&im);
	for (int i = 0; i < 8; i++)
		at += sprintf(at, "expand_dir /\n");
	for (int i = 0; i < DIRS; i++) {
		ck_ok(inode_make(root, S_IFDIR | 0755, &dir[i]));
		ck_ok(inode_link(dir[i]));
	}
	for (int i = 0; i < DIRS * FILES; i++) {
		ck_ok(inode_make(dir[i % DIRS], S_IFREG | 0640, &file));
		ck_ok(inode_link(file));
		at += sprintf(at, "ln <%u> f%d\n", file->inum, i);
		ext4_inode_put(file);
	}
	for (int i = 0; i < DIRS; i++) {
		ck_ok(inode_delete(dir[i]));
		ext4_inode_put(dir[i]);
	}
	ext4_inode_put(root);
	write_close(&im);
	write_dump(&im, "written");
	image_close(&im);
	image_debugfs("written", commands);
	free(commands);
	write_judge("written");
	write_kernel_judges("written");
}
END_TEST

START_TEST(all_inodes_and_back)
{
	struct ext4_inode *root, *inode, **all;
	uint64_t blocks, inodes, left;
	struct image im;
	uint8_t *seen;

	open_noisy(&im, _i);
	root = inode_root(&im);
	ext4_alloc_counts(im.fs, &blocks, &inodes);
	all = calloc(inodes, sizeof(struct ext4_inode *));
	seen = calloc(1, im.fs->inodes + 1);
	ensure(all && seen);
	for (uint64_t i = 0; i < inodes; i++) {
		ck_ok(inode_make(root, i % 5 ? S_IFREG | 0600 : S_IFDIR | 0700, &all[i]));
		ck_assert_uint_ge(all[i]->inum, im.fs->first_inum);
		ck_assert_uint_le(all[i]->inum, im.fs->inodes);
		ck_assert(!seen[all[i]->inum]);
		seen[all[i]->inum] = 1;
		ck_ok(inode_link(all[i]));
	}
	ck_err(inode_make(root, S_IFREG | 0600, &inode), ERR_NOSPC);
	ext4_alloc_counts(im.fs, &blocks, &left);
	ck_assert_uint_eq(left, 0);
	for (group_t n = 0; n < im.fs->groups; n++)
		ck_assert_uint_eq(
			im.fs->group[n].flags & (EXT4_BG_INODE_UNINIT | EXT4_BG_BLOCK_UNINIT), 0);
	for (uint64_t i = 0; i < inodes; i++) {
		ck_ok(inode_delete(all[i]));
		ext4_inode_put(all[i]);
	}
	ext4_alloc_counts(im.fs, &blocks, &left);
	ck_assert_uint_eq(left, inodes);
	free(all);
	free(seen);
	ext4_inode_put(root);
	write_close_and_judge(&im);
}
END_TEST

/* The lowest free number; no slot behind the mark shows what the disk held. */
START_TEST(slots_are_zeroed_as_they_come)
{
	struct ext4_inode *root, *inode;
	struct image im;

	open_noisy(&im, _i);
	root = inode_root(&im);
	for (int i = 0; i < 100; i++) {
		uint32_t offset, per_block = im.fs->block_bytes / im.fs->inode_bytes, index;
		struct cache_block *b;

		ck_ok(inode_make(root, S_IFREG | 0600, &inode));
		ck_ok(inode_link(inode));
		index = (inode->inum - 1) % im.fs->inodes_per_group;
		ck_ok(cache_get(
			im.fs->cache, ext4_inode_table_block(im.fs, inode->inum, &offset), &b));
		for (uint32_t at = offset + im.fs->inode_bytes; at < per_block * im.fs->inode_bytes;
			at++)
			ck_assert_msg(index < 11 || b->data[at] == 0, "inode %u, byte %u",
				inode->inum, at);
		cache_put(im.fs->cache, b);
		ck_assert_uint_le(im.fs->group[0].inodes_unused, im.fs->inodes_per_group);
		ext4_inode_put(inode);
	}
	ext4_inode_put(root);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* A number is used again at once, by another inode with the next generation. */
START_TEST(a_number_is_used_again)
{
	const struct ext4_new_inode want = {.mode = S_IFREG | 0600};
	struct ext4_inode *root, *old, *new, *found;
	struct journal_handle h;
	struct image im;

	open_noisy(&im, 0);
	root = inode_root(&im);
	ck_ok(inode_make(root, S_IFREG | 0600, &old));
	ck_ok(inode_link(old));
	ck_ok(ext4_inode_get(im.fs, old->inum, &found));
	ck_assert_ptr_eq(found, old);
	ext4_inode_put(found);
	h = write_start(&im, EXT4_CREDITS_INODE_FREE + EXT4_CREDITS_INODE_ALLOC);
	inode_lock(&old->lock);
	old->attr.nlink = 0;
	ck_ok(ext4_inode_free(&h, old));
	ck_err(ext4_inode_free(&h, old), ERR_CORRUPT);
	inode_unlock(&old->lock);
	ck_err(ext4_inode_get(im.fs, old->inum, &found), ERR_STALE);
	ck_ok(ext4_inode_alloc(&h, root, &want, &new));
	inode_unlock_second(&new->lock);
	ck_ok(journal_stop(&h));
	ck_assert_uint_eq(new->inum, old->inum);
	ck_assert_ptr_ne(new, old);
	ck_assert_uint_eq(new->attr.generation, old->attr.generation + 1);
	ck_ok(inode_link(new));
	ck_ok(ext4_inode_get(im.fs, old->inum, &found));
	ck_assert_ptr_eq(found, new);
	ext4_inode_put(found);
	ext4_inode_put(old);
	ck_ok(inode_delete(new));
	ext4_inode_put(new);
	ext4_inode_put(root);
	write_close_and_judge(&im);
}
END_TEST

START_TEST(what_a_new_inode_is)
{
	const struct ext4_new_inode device = {
		.mode = S_IFCHR | 0600, .rdev_major = _i ? 300 : 8, .rdev_minor = _i ? 70000 : 17};
	struct ext4_inode *root, *inode;
	struct journal_handle h;
	struct image im;
	inum_t inum;

	open_noisy(&im, _i ? 0 : 2);
	root = inode_root(&im);
	inode_lock(&root->lock);
	root->attr.flags |= EXT4_NOATIME_FL | EXT4_DIRSYNC_FL | EXT4_SYNC_FL | EXT4_APPEND_FL;
	inode_unlock(&root->lock);
	ck_ok(inode_make(root, S_IFREG | 04751, &inode));
	ck_assert_uint_eq(inode->attr.mode, S_IFREG | 04751);
	ck_assert_uint_eq(inode->attr.nlink, 0);
	ck_assert_uint_eq(inode->attr.flags, EXT4_EXTENTS_FL | EXT4_NOATIME_FL | EXT4_SYNC_FL);
	ck_assert_uint_eq(inode->extra_bytes, _i ? 32 : 0);
	ck_assert_int_eq(inode->attr.mtime.sec, inode->attr.crtime.sec);
	ck_assert_int_gt(inode->attr.mtime.sec, 1600000000);
	ck_ok(inode_delete(inode));
	ext4_inode_put(inode);
	ck_ok(inode_make(root, S_IFDIR | 0700, &inode));
	ck_assert_uint_eq(inode->attr.flags,
		EXT4_EXTENTS_FL | EXT4_NOATIME_FL | EXT4_SYNC_FL | EXT4_DIRSYNC_FL);
	ck_ok(inode_delete(inode));
	ext4_inode_put(inode);

	h = write_start(&im, EXT4_CREDITS_INODE_ALLOC);
	ck_ok(ext4_inode_alloc(&h, root, &device, &inode));
	inode_unlock_second(&inode->lock);
	ck_ok(journal_stop(&h));
	ck_ok(inode_link(inode));
	ck_assert_uint_eq(inode->attr.flags, EXT4_NOATIME_FL);
	inum = inode->inum;
	ext4_inode_put(inode);
	ext4_inode_put(root);
	write_close(&im);
	write_open(&im);
	ck_ok(ext4_inode_get(im.fs, inum, &inode));
	ck_assert_uint_eq(inode->attr.mode, S_IFCHR | 0600);
	ck_assert_uint_eq(inode->attr.rdev_major, device.rdev_major);
	ck_assert_uint_eq(inode->attr.rdev_minor, device.rdev_minor);
	ck_ok(inode_delete(inode));
	ext4_inode_put(inode);
	write_close_and_judge(&im);
}
END_TEST

START_TEST(reserved_inodes_stay)
{
	struct ext4_inode *inode;
	struct image im;

	open_noisy(&im, 0);
	ck_ok(ext4_inode_get_special(im.fs, EXT4_INUM_JOURNAL, &inode));
	ck_err(inode_delete(inode), ERR_CORRUPT);
	inode->attr.nlink = 1;
	ext4_inode_put(inode);
	write_close_and_judge(&im);
}
END_TEST

/* The bitmap has a living inode as free: nothing is made in that group, others are used. */
START_TEST(a_living_inode_is_not_overwritten)
{
	struct ext4_inode *root, *inode;
	struct ext4_disk_group *d;
	uint32_t offset, crc;
	struct image im;
	uint8_t *bitmap;

	image_make("image", write_layouts[_i], "24M");
	image_load(&im, "image");
	write_open(&im);
	root = inode_root(&im);
	bitmap = image_block(&im, im.fs->group[0].inode_bitmap);
	d = (void *)(image_block(&im, ext4_group_desc_block(im.fs, 0, &offset)) + offset);
	bitmap_fill(bitmap, 10, 1, false); /* lost+found */
	d->bg_free_inodes_count_lo =
		le16_make((uint16_t)(le16_get(d->bg_free_inodes_count_lo) + 1));
	crc = ext4_csum_bitmap(im.fs, bitmap, im.fs->inodes_per_group);
	d->bg_inode_bitmap_csum_lo = le16_make((uint16_t)crc);
	if (im.fs->desc_bytes >= EXT4_DESC_BYTES_64BIT)
		d->bg_inode_bitmap_csum_hi = le16_make((uint16_t)(crc >> 16));
	ext4_csum_group_set(im.fs, 0, d);
	ck_ok(inode_make(root, S_IFREG | 0600, &inode));
	ck_assert_uint_gt(inode->inum, im.fs->inodes_per_group);
	ext4_inode_put(inode);
	ck_ok(ext4_inode_get(im.fs, 11, &inode));
	ck_assert(S_ISDIR(inode->attr.mode));
	ext4_inode_put(inode);
	ext4_inode_put(root);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* A bit behind the mark, a wrong checksum, a table block that cannot be read: the same. */
START_TEST(damaged_groups_are_left_alone)
{
	struct ext4_inode *root, *inode;
	struct image im;

	open_noisy(&im, 0);
	root = inode_root(&im);
	if (_i == 0)
		image_block(&im, im.fs->group[0].inode_bitmap)[3] ^= 1;
	else
		dev_fault_arm(im.device.fault, DEV_FAULT_READ, 1, false, ERR_IO);
	ck_ok(inode_make(root, S_IFREG | 0600, &inode));
	ck_assert_uint_gt(inode->inum, im.fs->inodes_per_group);
	ck_ok(inode_delete(inode));
	ext4_inode_put(inode);
	ext4_inode_put(root);
	write_close(&im);
	image_close(&im);
}
END_TEST

/* --- many threads ---------------------------------------------------------------------------- */

enum { THREADS = 8, HELD = 40 };
struct worker {
	pthread_t thread;
	struct ext4 *fs;
	struct ext4_inode *root;
	uint64_t random;
	bool looks;
	enum err error;
	struct ext4_inode *held[HELD];
};

static uint64_t worker_random(struct worker *w, uint64_t below)
{
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return (w->random * 2685821657736338717ull >> 11) % below;
}

/* Asks for numbers that come and go: a living inode, or a stale number, and nothing else. */
static enum err worker_look(struct worker *w)
{
	struct ext4_inode *inode;
	struct ext4_attr attr;
	inum_t inum = w->fs->first_inum + (inum_t)worker_random(w, 400);
	enum err e = ext4_inode_get(w->fs, inum, &inode);

	if (e)
		return e == ERR_STALE ? OK : e;
	e = ext4_getattr(inode, &attr);
	if (!e && (attr.inum != inum || (attr.mode & 07777) != 0640))
		e = inum == 11 ? OK : ERR_CORRUPT;
	ext4_inode_put(inode);
	return e;
}

static enum err worker_change(struct worker *w)
{
	struct ext4_inode **held = &w->held[worker_random(w, HELD)];
	enum err e;

	if (*held) {
		e = inode_delete(*held);
		ext4_inode_put(*held);
		*held = NULL;
		return e;
	}
	e = inode_make(w->root, (worker_random(w, 4) ? S_IFREG : S_IFDIR) | 0640, held);
	return e ? e : inode_link(*held);
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < 1500 && !w->error; i++)
		w->error = w->looks ? worker_look(w) : worker_change(w);
	return NULL;
}

START_TEST(many_threads)
{
	struct worker w[THREADS] = {{0}};
	uint64_t blocks, before, after;
	struct image im;

	open_noisy(&im, _i);
	ext4_alloc_counts(im.fs, &blocks, &before);
	for (int i = 0; i < THREADS; i++) {
		w[i].fs = im.fs;
		w[i].root = inode_root(&im);
		w[i].random = scratch_random(UINT64_MAX >> 1) | 1;
		w[i].looks = i < 2;
		ck_ok(thread_start(&w[i].thread, "worker", worker_run, &w[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		ck_assert_msg(!w[i].error, "thread %d: %s", i, err_name(w[i].error));
		for (int j = 0; j < HELD; j++) {
			if (!w[i].held[j])
				continue;
			ck_ok(inode_delete(w[i].held[j]));
			ext4_inode_put(w[i].held[j]);
		}
		ext4_inode_put(w[i].root);
	}
	ext4_alloc_counts(im.fs, &blocks, &after);
	ck_assert_uint_eq(before, after);
	write_close_and_judge(&im);
}
END_TEST

/* --- readers that are overtaken -------------------------------------------------------------- */

enum { OWNED = 2, OWNERS = 2, CHANGES = 20000 };

/* Changes the owner of one of its inodes; nobody keeps a reference in between. */
static enum err owner_change(struct worker *w, inum_t inum, uint32_t before, uint32_t after)
{
	struct ext4_inode *inode;
	struct journal_handle h;
	enum err e = ext4_inode_get(w->fs, inum, &inode), stop;

	if (e)
		return e;
	e = journal_start(w->fs->journal, EXT4_CREDITS_INODE, &h);
	if (!e) {
		inode_lock(&inode->lock);
		extent_lock(&inode->map_lock);
		if (inode->attr.uid != before)
			e = ERR_STALE;
		inode->attr.uid = after;
		if (!e)
			e = ext4_inode_log(&h, inode);
		extent_unlock(&inode->map_lock);
		inode_unlock(&inode->lock);
		stop = journal_stop(&h);
		e = e ? e : stop;
	}
	ext4_inode_put(inode);
	return e;
}

static void *owner_run(void *arg)
{
	struct worker *w = arg;
	uint32_t uid[OWNED];
	inum_t inum[OWNED];

	for (int i = 0; i < OWNED; i++) {
		inum[i] = w->held[i]->inum;
		uid[i] = w->held[i]->attr.uid;
		ext4_inode_put(w->held[i]);
		w->held[i] = NULL;
	}
	for (int i = 0; i < CHANGES && !w->error; i++) {
		uint64_t at = worker_random(w, OWNED);
		w->error = owner_change(w, inum[at], uid[at], uid[at] + 1);
		uid[at]++;
	}
	for (int i = 0; i < OWNED && !w->error; i++) {
		w->error = ext4_inode_get(w->fs, inum[i], &w->held[i]);
		if (w->error || w->held[i]->attr.uid == uid[i])
			continue;
		w->error = ERR_STALE;
	}
	return NULL;
}

static void *looker_run(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < CHANGES && !w->error; i++) {
		struct ext4_inode *inode;
		w->error = ext4_inode_get(
			w->fs, 12 + (inum_t)worker_random(w, OWNERS * OWNED), &inode);
		/* Held for a while, so that the owner meets what was brought back. */
		if (w->error)
			break;
		for (int j = 0; j < 20; j++)
			(void)sched_yield();
		ext4_inode_put(inode);
	}
	return NULL;
}

/*
 * Inodes change, and leave memory at once since the maps are made out to be crowded, while others
 * read them: what was read before a change must not be what is found after it.
 */
START_TEST(readers_do_not_bring_back_the_past)
{
	struct worker w[THREADS] = {{0}};
	struct image im;

	open_noisy(&im, 0);
	for (int i = 0; i < THREADS; i++) {
		w[i].fs = im.fs;
		w[i].root = inode_root(&im);
		w[i].random = scratch_random(UINT64_MAX >> 1) | 1;
		for (int j = 0; i < OWNERS && j < OWNED; j++) {
			ck_ok(inode_make(w[i].root, S_IFREG | 0640, &w[i].held[j]));
			ck_assert_uint_eq(w[i].held[j]->inum, (unsigned)(12 + i * OWNED + j));
			ck_ok(inode_link(w[i].held[j]));
		}
	}
	atomic_fetch_add(&im.fs->map_runs, 1 << 30);
	for (int i = 0; i < THREADS; i++)
		ck_ok(thread_start(
			&w[i].thread, "worker", i < OWNERS ? owner_run : looker_run, &w[i]));
	for (int i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	atomic_fetch_sub(&im.fs->map_runs, 1 << 30);
	for (int i = 0; i < THREADS; i++) {
		ck_assert_msg(!w[i].error, "thread %d: %s", i, err_name(w[i].error));
		for (int j = 0; i < OWNERS && j < OWNED; j++) {
			ck_ok(inode_delete(w[i].held[j]));
			ext4_inode_put(w[i].held[j]);
		}
		ext4_inode_put(w[i].root);
	}
	write_close_and_judge(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("inode_alloc");
	TCase *tc = tcase_create("inode_alloc");
	int layouts = (int)ARRAY_SIZE(write_layouts);

	tcase_set_timeout(tc, 100);
	tcase_add_loop_test(tc, files_stay, 0, layouts);
	tcase_add_loop_test(tc, all_inodes_and_back, 0, layouts);
	tcase_add_loop_test(tc, slots_are_zeroed_as_they_come, 0, layouts);
	tcase_add_test(tc, a_number_is_used_again);
	tcase_add_loop_test(tc, what_a_new_inode_is, 0, 2);
	tcase_add_test(tc, reserved_inodes_stay);
	tcase_add_loop_test(tc, a_living_inode_is_not_overwritten, 0, layouts);
	tcase_add_loop_test(tc, damaged_groups_are_left_alone, 0, 2);
	tcase_add_loop_test(tc, many_threads, 0, 3);
	tcase_add_test(tc, readers_do_not_bring_back_the_past);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
