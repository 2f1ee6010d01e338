/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Images for the suites of ext4: made by the stock mke2fs and debugfs in the scratch folder,
 * loaded into memory behind the identity cipher, mounted there, and damaged at will.
 *
 * Files hold a pattern that follows from their number and the offset, so that any range can be
 * checked without the file. debugfs gives inode numbers in order, from 12 on.
 */
#ifndef CRYPTFS_TEST_EXT4_IMAGE_H
#define CRYPTFS_TEST_EXT4_IMAGE_H

#include "ext4_int.h"
#include "memory_volume.h"
#include "scratch.h"

enum { IMAGE_FIRST_INUM = 12 };

struct image {
	struct memory_volume device;
	struct pages *pages;
	struct ext4 *fs;
};

/* Eight bytes of the pattern, none of them 0, so that a hole shows. */
static uint64_t pattern_word(unsigned file, uint64_t word)
{
	uint64_t x = (word + 1) * 0x9e3779b97f4a7c15ull + file * 0xc2b2ae3d27d4eb4full;

	return (x ^ x >> 29) | 0x0101010101010101ull;
}

__attribute__((unused)) static uint8_t pattern_byte(unsigned file, uint64_t offset)
{
	return (uint8_t)(pattern_word(file, offset / 8) >> (offset % 8 * 8));
}

/* Writes [first, end) of a pattern file in the scratch folder; a hole is left before it. */
__attribute__((unused)) static void pattern_write(
	const char *name, unsigned file, uint64_t first, uint64_t end)
{
	size_t len = (size_t)(end - first);
	uint8_t *bytes = malloc(len ? len : 1);
	int fd = open(scratch_path(name), O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	ensure(bytes && fd >= 0);
	for (size_t i = 0; i < len; i++)
		bytes[i] = pattern_byte(file, first + i);
	ensure(pwrite(fd, bytes, len, (off_t)first) == (ssize_t)len);
	close(fd);
	free(bytes);
}

/* Runs a command line made of printf's arguments in the scratch folder; it must succeed. */
__attribute__((unused, format(printf, 1, 2))) static void image_run(const char *fmt, ...)
{
	char command[2048];
	int n = snprintf(command, sizeof(command), "cd '%s' && ", scratch_dir);
	va_list args;

	va_start(args, fmt);
	vsnprintf(command + n, sizeof(command) - (size_t)n, fmt, args);
	va_end(args);
	if (!scratch_run(command, NULL)) {
		fprintf(stderr, "failed: %s\n", command);
		abort();
	}
}

/* A file system without a journal's noise in its output: SIZE as mke2fs takes it. */
__attribute__((unused)) static void image_make(
	const char *name, const char *options, const char *size)
{
	image_run("rm -f %s && MKE2FS_SYNC=0 mke2fs -q -F -m 5 -U "
		  "6c1d5a50-92c8-4c4f-8a30-1f2e3d4c5b6a -E hash_seed="
		  "11111111-2222-3333-4444-555555555555 %s %s %s",
		name, options, name, size);
}

/* debugfs commands, one a line; its errors do not show in its status, so look at its output. */
__attribute__((unused)) static void image_debugfs(const char *name, const char *commands)
{
	FILE *f = fopen(scratch_path("commands"), "w");

	ensure(f != NULL);
	fputs(commands, f);
	fclose(f);
	image_run("debugfs -w -f commands %s > debugfs.out 2>&1", name);
}

__attribute__((unused)) static void image_load(struct image *im, const char *name)
{
	struct stat st;
	int fd = open(scratch_path(name), O_RDONLY | O_CLOEXEC);

	*im = (struct image){0};
	ensure(fd >= 0 && fstat(fd, &st) == 0);
	ensure(memory_volume_open((uint64_t)st.st_size, &im->device) == OK);
	for (off_t at = 0; at < st.st_size;) {
		ssize_t n = pread(fd, im->device.bytes + at, (size_t)(st.st_size - at), at);
		ensure(n > 0);
		at += n;
	}
	close(fd);
	ensure(pages_create(&(struct pages_config){0}, &im->pages) == OK);
}

__attribute__((unused)) static enum err image_mount_with(struct image *im, bool noload)
{
	err_clear_detail();
	return ext4_mount(&(struct ext4_options){.volume = im->device.volume,
				  .pages = im->pages,
				  .noload = noload,
				  .cache_bytes = 4 << 20},
		&im->fs);
}

__attribute__((unused)) static enum err image_mount(struct image *im)
{
	return image_mount_with(im, false);
}

__attribute__((unused)) static void image_unmount(struct image *im)
{
	ext4_unmount(im->fs);
	im->fs = NULL;
}

__attribute__((unused)) static void image_close(struct image *im)
{
	image_unmount(im);
	memory_volume_close(&im->device);
	pages_destroy(im->pages);
}

/* --- damage ---------------------------------------------------------------------------------- */

__attribute__((unused)) static struct ext4_super *image_super(struct image *im)
{
	return (struct ext4_super *)(void *)(im->device.bytes + EXT4_SUPER_OFFSET_BYTES);
}

/* Another byte, or one bit of it. */
__attribute__((unused)) static void image_spoil(uint8_t *at)
{
	if (scratch_random(2))
		*at = (uint8_t)scratch_random(256);
	else
		*at = (uint8_t)(*at ^ 1u << scratch_random(8));
}

/* Makes the superblock's checksum right again, so that the damage behind it is what is met. */
__attribute__((unused)) static void image_seal_super(struct image *im)
{
	struct ext4_super *s = image_super(im);

	s->s_checksum = le32_make(ext4_csum_super(s));
}

__attribute__((unused)) static uint32_t image_block_bytes(struct image *im)
{
	return 1024u << le32_get(image_super(im)->s_log_block_size);
}

__attribute__((unused)) static uint8_t *image_block(struct image *im, fsblk_t nr)
{
	return im->device.bytes + nr * image_block_bytes(im);
}

/* Group descriptor 0, of an image without meta_bg. */
__attribute__((unused)) static struct ext4_disk_group *image_group0(struct image *im)
{
	return (void *)image_block(im, EXT4_SUPER_OFFSET_BYTES / image_block_bytes(im) + 1);
}

/* An inode of group 0. */
__attribute__((unused)) static struct ext4_disk_inode *image_inode(struct image *im, inum_t inum)
{
	uint32_t bytes = le16_get(image_super(im)->s_inode_size);

	if (le32_get(image_super(im)->s_rev_level) == 0)
		bytes = EXT4_INODE_BYTES_OLD;
	return (void *)(image_block(im, le32_get(image_group0(im)->bg_inode_table_lo)) +
			(inum - 1) * (size_t)bytes);
}

/* --- reading --------------------------------------------------------------------------------- */

/* What a read gave, in one piece; the bytes of the parts one after another. */
__attribute__((unused)) static enum err image_read(
	struct ext4_inode *inode, uint64_t offset, size_t len, uint8_t *buf, size_t *got)
{
	struct ext4_read r;
	enum err e = ext4_read(inode, offset, len, &r);

	*got = 0;
	if (e)
		return e;
	for (int i = 0; i < r.parts; i++) {
		memcpy(buf + *got, r.part[i].iov_base, r.part[i].iov_len);
		*got += r.part[i].iov_len;
	}
	ck_assert_uint_eq(*got, r.bytes);
	ext4_read_done(&r);
	return OK;
}

/* Whether a byte of a test file is data; the rest are zeros. */
typedef bool image_is_data(uint64_t offset);

__attribute__((unused)) static bool image_all_data(uint64_t offset)
{
	(void)offset;
	return true;
}

/* Data and holes take turns at multiples of 8 bytes. */
__attribute__((unused)) static void image_check_range(
	const uint8_t *buf, unsigned file, uint64_t offset, size_t len, image_is_data *is_data)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t at = offset + i;
		uint64_t word = is_data(at) ? pattern_word(file, at / 8) : 0;

		if (at % 8 == 0 && len - i >= 8 && memcmp(buf + i, &word, 8) == 0) {
			i += 7;
			continue;
		}
		if (buf[i] != (uint8_t)(word >> (at % 8 * 8)))
			ck_abort_msg("file %u differs at %llu: %02x, not %02x", file,
				(unsigned long long)at, buf[i], (uint8_t)(word >> (at % 8 * 8)));
	}
}

/* Reads a whole file in steps and compares it with its pattern. */
__attribute__((unused)) static void image_check_file(
	struct image *im, inum_t inum, unsigned file, size_t step, image_is_data *is_data)
{
	struct ext4_inode *inode;
	struct ext4_attr attr;
	uint8_t *buf = malloc(step);
	uint64_t at = 0;

	ensure(buf != NULL);
	ck_ok(ext4_inode_get(im->fs, inum, &inode));
	ck_ok(ext4_getattr(inode, &attr));
	for (;;) {
		size_t got, want = (size_t)MIN((uint64_t)step, attr.size_bytes - at);
		ck_ok(image_read(inode, at, step, buf, &got));
		ck_assert_uint_eq(got, want);
		if (got == 0)
			break;
		image_check_range(buf, file, at, got, is_data);
		at += got;
	}
	ext4_inode_put(inode);
	free(buf);
}

#endif
