/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An image that is written: mounted, with its journal and its allocator open, and closed as a clean
 * volume that e2fsck judges. Included by tests only, after image.h.
 */
#ifndef CRYPTFS_TEST_EXT4_WRITE_RIG_H
#define CRYPTFS_TEST_EXT4_WRITE_RIG_H

#include "image.h"
#include "alloc_int.h"

#include <sys/stat.h>

/* What mke2fs makes that is written; lazy tables, so that a group may be uninitialised. */
static const char *const write_layouts[] __attribute__((unused)) = {
	"-t ext4 -b 4096 -g 1024 -J size=4 -E lazy_itable_init=1",
	"-t ext4 -b 1024 -g 1024 -J size=4 -G 4 -E lazy_itable_init=1",
	"-t ext4 -b 1024 -J size=4 -I 128 -E lazy_itable_init=1",
	"-t ext4 -b 4096 -g 1024 -J size=4 -O ^64bit -E lazy_itable_init=1",
	"-t ext4 -b 1024 -g 2048 -J size=4 -O ^metadata_csum,uninit_bg -E lazy_itable_init=1",
	"-t ext4 -b 1024 -g 2048 -J size=4 -O ^metadata_csum,^uninit_bg,^64bit",
	"-t ext4 -b 1024 -g 2048 -J size=4 -O ^flex_bg,metadata_csum_seed -E lazy_itable_init=1",
	"-t ext4 -b 2048 -g 2048 -J size=4 -O ^resize_inode,sparse_super2 -E lazy_itable_init=1",
};

/* Whether the volume asks for recovery, as the layer above says before and after. */
__attribute__((unused)) static void write_mark(struct image *im, bool recover)
{
	struct ext4_super *s = image_super(im);
	uint32_t bits = le32_get(s->s_feature_incompat) & ~(uint32_t)EXT4_INCOMPAT_RECOVER;

	s->s_feature_incompat = le32_make(bits | (recover ? EXT4_INCOMPAT_RECOVER : 0));
	if (im->fs->csum)
		image_seal_super(im);
}

__attribute__((unused)) static enum err write_open_journal(struct image *im)
{
	struct ext4 *fs = im->fs;
	struct ext4_inode *inode;
	struct journal_run *runs;
	struct journal_open_config config = {.cache = fs->cache,
		.fs_64bit = ext4_has_incompat(fs, EXT4_INCOMPAT_64BIT),
		.fs_metadata_csum = fs->csum};
	uint32_t blocks;
	enum err e = ext4_inode_get_special(fs, EXT4_INUM_JOURNAL, &inode);

	if (e)
		return e;
	blocks = (uint32_t)(inode->attr.size_bytes >> fs->block_bits);
	runs = calloc(blocks, sizeof(*runs));
	ensure(runs != NULL);
	config.log = (struct journal_config){.volume = im->device.volume,
		.block_bytes = fs->block_bytes,
		.fs_blocks = fs->blocks,
		.runs = runs};
	for (lblk_t at = 0; at < blocks && !e;) {
		struct ext4_run run;

		e = ext4_map(inode, at, blocks - at, &run);
		if (e)
			break;
		runs[config.log.run_count++] = (struct journal_run){
			.logical = at, .count = run.count, .physical = run.physical};
		at += run.count;
	}
	ext4_inode_put(inode);
	if (!e)
		e = journal_open(&config, &fs->journal);
	free(runs);
	return e;
}

__attribute__((unused)) static void write_open(struct image *im)
{
	ck_ok(image_mount(im));
	write_mark(im, true);
	ck_ok(write_open_journal(im));
	ck_ok(ext4_alloc_open(im->fs));
}

/* As an unmount does it; the counts go to the superblock. */
__attribute__((unused)) static void write_close(struct image *im)
{
	struct ext4 *fs = im->fs;
	struct ext4_super *s = image_super(im);

	ck_ok(journal_commit(fs->journal, journal_running(fs->journal)));
	ext4_alloc_close(fs);
	ck_ok(journal_close(fs->journal));
	fs->journal = NULL;
	s->s_free_blocks_count_lo = le32_make((uint32_t)fs->free_clusters);
	s->s_free_blocks_count_hi = le32_make((uint32_t)(fs->free_clusters >> 32));
	s->s_free_inodes_count = le32_make((uint32_t)fs->free_inodes);
	write_mark(im, false);
	image_unmount(im);
}

/* The device as a file of the scratch folder. */
__attribute__((unused)) static void write_dump(struct image *im, const char *name)
{
	const uint8_t *bytes = im->device.bytes;
	int fd = open(scratch_path(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ensure(fd >= 0 && ftruncate(fd, (off_t)im->device.size_bytes) == 0);
	for (uint64_t at = 0; at < im->device.size_bytes; at += PAGE_BYTES) {
		static const uint8_t zeros[PAGE_BYTES];
		size_t len = (size_t)MIN(im->device.size_bytes - at, (uint64_t)PAGE_BYTES);

		if (memcmp(bytes + at, zeros, len))
			ensure(pwrite(fd, bytes + at, len, (off_t)at) == (ssize_t)len);
	}
	close(fd);
}

/* e2fsck must find nothing at all; what it says goes with a failure. */
__attribute__((unused)) static void write_judge(const char *name)
{
	char command[700], said[4096];
	FILE *p;
	size_t n;

	snprintf(command, sizeof(command), "cd '%s' && e2fsck -fn '%s' 2>&1", scratch_dir, name);
	p = popen(command, "r");
	ensure(p != NULL);
	n = fread(said, 1, sizeof(said) - 1, p);
	said[n] = '\0';
	ck_assert_msg(pclose(p) == 0, "e2fsck: %s", said);
}

__attribute__((unused)) static void write_close_and_judge(struct image *im)
{
	write_close(im);
	write_dump(im, "written");
	image_close(im);
	write_judge("written");
}

/*
 * The kernel mounts it, reads every file, deletes some and makes others where we have allocated;
 * then e2fsck must find nothing again. Needs root.
 */
__attribute__((unused)) static void write_kernel_judges(const char *name)
{
	char device[256];

	if (!scratch_loop_attach("", scratch_path(name), device)) {
		printf("SKIP: the kernel on %s: %s\n", name, device);
		return;
	}
	image_run("unshare -m sh -ec 'mkdir -p mnt; mount -t ext4 -o errors=remount-ro %s mnt; "
		  "cat mnt/f* >/dev/null; rm mnt/f*[13579]; mkdir mnt/d mnt/d/e; "
		  "for i in 1 2 3 4 5 6 7 8 9; do echo $i >mnt/d/new$i; done; "
		  "head -c 300000 /dev/urandom >mnt/d/e/more; rm mnt/f*2; umount mnt'",
		device);
	scratch_loop_detach(device);
	write_judge(name);
}

/* --- steps that most tests take -------------------------------------------------------------- */

__attribute__((unused)) static struct journal_handle write_start(struct image *im, uint32_t credits)
{
	struct journal_handle h;

	ck_ok(journal_start(im->fs->journal, credits, &h));
	return h;
}

/* Promised, taken and committed. */
__attribute__((unused)) static struct ext4_take write_take(
	struct image *im, fsblk_t goal, uint32_t want)
{
	struct ext4_take take;
	struct journal_handle h;

	ck_ok(ext4_reserve(im->fs, want, true));
	ck_ok(ext4_alloc_take(im->fs, goal, want, &take));
	ext4_unreserve(im->fs, want - take.count);
	h = write_start(im, 2);
	ck_ok(ext4_alloc_commit(&h, im->fs, &take));
	ck_ok(journal_stop(&h));
	return take;
}

__attribute__((unused)) static enum err write_free(
	struct image *im, fsblk_t first, uint32_t count, bool metadata)
{
	uint32_t groups = count / im->fs->blocks_per_group + 2;
	struct journal_handle h = write_start(im, 2 * groups);
	enum err e = ext4_alloc_free(&h, im->fs, first, count, metadata);

	ck_ok(journal_stop(&h));
	return e;
}

__attribute__((unused)) static void write_commit(struct image *im)
{
	ck_ok(journal_commit(im->fs->journal, journal_running(im->fs->journal)));
	ext4_alloc_settle(im->fs);
}

/* Each loaded group's memory view against its bitmap and descriptor on disk, while it is quiet. */
__attribute__((unused)) static NO_LOCK_ANALYSIS void write_compare_views(struct image *im)
{
	struct ext4 *fs = im->fs;

	for (group_t n = 0; n < fs->groups; n++) {
		struct cache_block *bitmap, *desc;
		const struct ext4_disk_group *d;
		uint32_t offset, blocks = ext4_group_blocks(fs, n);

		if (!fs->alloc->group[n].used)
			continue;
		ck_ok(cache_get(fs->cache, ext4_group_desc_block(fs, n, &offset), &desc));
		d = (const void *)(desc->data + offset);
		ck_assert_uint_eq(group_desc_free_blocks(fs, d), fs->alloc->hint[n].available);
		ck_assert_uint_eq(bitmap_count_clear(fs->alloc->group[n].used, blocks),
			fs->alloc->hint[n].available);
		ck_assert(ext4_csum_group_valid(fs, n, d));
		if (!(fs->group[n].flags & EXT4_BG_BLOCK_UNINIT)) {
			ck_ok(cache_get(fs->cache, fs->group[n].block_bitmap, &bitmap));
			ck_assert_int_eq(
				memcmp(bitmap->data, fs->alloc->group[n].used, blocks / 8), 0);
			ck_assert(group_desc_bitmap_valid(fs, d, false, bitmap->data));
			cache_put(fs->cache, bitmap);
		}
		cache_put(fs->cache, desc);
	}
}

#endif
