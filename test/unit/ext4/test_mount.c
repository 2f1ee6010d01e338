/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Mounting: the journal in its states, replay behind the overlay, failures at every step. */
#include "image.h"

enum { KIB = 1024, FILE_INUM = IMAGE_FIRST_INUM };

static bool has_reason(struct image *im, const char *part)
{
	struct ext4_info info;

	ext4_info(im->fs, &info);
	for (size_t i = 0; i < info.reason_count; i++)
		if (strstr(info.reasons[i], part))
			return info.must_be_readonly;
	return false;
}

/*
 * A file whose first block, and a superblock whose label, are only in the journal: written there
 * by debugfs as a transaction that was not replayed.
 */
static void make_dirty(const char *options)
{
	struct image im;
	char line[256], command[400];

	image_run("rm -f old new super");
	pattern_write("old", FILE_INUM, 0, 8 * KIB);
	pattern_write("new", FILE_INUM + 1, 0, KIB);
	image_make("image", options, "16M");
	image_debugfs("image", "write old old\n");
	snprintf(command, sizeof(command), "debugfs -R 'bmap <12> 0' '%s' 2>/dev/null",
		scratch_path("image"));
	ck_assert(scratch_run(command, line));
	/* The superblock as it will be after the transaction. */
	image_run("cp image changed && tune2fs -L replayed changed >/dev/null && "
		  "debugfs -w -R 'feature needs_recovery' changed >/dev/null 2>&1 && "
		  "dd if=changed of=super bs=1024 skip=1 count=1 2>/dev/null");
	snprintf(command, sizeof(command), "jo -c -v %d\njw -b %s new\njw -b 1 super\njc\n",
		strstr(options, "^metadata_csum") ? 2 : 3, line);
	image_debugfs("image", command);
	image_load(&im, "image");
	ck_assert(le32_get(image_super(&im)->s_feature_incompat) & EXT4_INCOMPAT_RECOVER);
	image_close(&im);
}

static const char *const dirty_rows[] = {
	"-t ext4 -b 1024", "-t ext3 -b 1024", "-t ext4 -b 1024 -O ^metadata_csum"};

START_TEST(a_dirty_journal_is_replayed_in_memory)
{
	struct image im;
	struct ext4_info info;
	struct ext4_inode *inode;
	uint8_t buf[2 * KIB], *before;
	size_t got;

	make_dirty(dirty_rows[_i]);
	image_load(&im, "image");
	before = malloc(im.device.size_bytes);
	ensure(before != NULL);
	memcpy(before, im.device.bytes, im.device.size_bytes);

	ck_ok(image_mount(&im));
	ext4_info(im.fs, &info);
	ck_assert(info.needs_recovery);
	ck_assert_uint_eq(info.replayed_transactions, 2); /* one for each jw */
	ck_assert_uint_eq(info.replayed_blocks, 2);
	ck_assert_str_eq(info.label, "replayed");
	ck_ok(ext4_inode_get(im.fs, FILE_INUM, &inode));
	ck_ok(image_read(inode, 0, sizeof(buf), buf, &got));
	image_check_range(buf, FILE_INUM + 1, 0, KIB, image_all_data);
	image_check_range(buf + KIB, FILE_INUM, KIB, KIB, image_all_data);
	ext4_inode_put(inode);
	image_unmount(&im);

	/* noload shows what is on the disk and says why it must not be written. */
	ck_ok(image_mount_with(&im, true));
	ck_assert(has_reason(&im, "noload"));
	ck_ok(ext4_inode_get(im.fs, FILE_INUM, &inode));
	ck_ok(image_read(inode, 0, sizeof(buf), buf, &got));
	image_check_range(buf, FILE_INUM, 0, sizeof(buf), image_all_data);
	ext4_inode_put(inode);
	image_unmount(&im);

	ck_assert(memcmp(before, im.device.bytes, im.device.size_bytes) == 0);
	free(before);
	image_close(&im);
}
END_TEST

START_TEST(a_dirty_journal_that_nobody_asks_for)
{
	struct image im;
	struct ext4_super *s;
	struct ext4_inode *inode;
	uint8_t buf[KIB];
	size_t got;

	make_dirty("-t ext4 -b 1024");
	image_load(&im, "image");
	s = image_super(&im);
	s->s_feature_incompat =
		le32_make(le32_get(s->s_feature_incompat) & ~(uint32_t)EXT4_INCOMPAT_RECOVER);
	image_seal_super(&im);
	ck_ok(image_mount(&im));
	ck_assert(has_reason(&im, "no recovery is asked for"));
	ck_ok(ext4_inode_get(im.fs, FILE_INUM, &inode));
	ck_ok(image_read(inode, 0, KIB, buf, &got));
	image_check_range(buf, FILE_INUM, 0, KIB, image_all_data);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

START_TEST(a_superblock_in_the_log_is_verified_too)
{
	static const uint8_t magic[] = {0x53, 0xef};
	struct image im;
	uint8_t *at;

	/* Without checksums, so that only the geometry in the copy is wrong. */
	make_dirty("-t ext4 -b 1024 -O ^metadata_csum,^64bit");
	image_load(&im, "image");
	/* The copy in the log is the other place with this magic and the label. */
	at = memmem(im.device.bytes + 4096, im.device.size_bytes - 4096, "replayed", 8);
	ensure(at && memcmp(at - 0x78 + 0x38, magic, 2) == 0);
	memset(at - 0x78 + 0x20, 0, 4); /* blocks per group; jbd2 v2 has a checksum of it */
	ck_assert_int_ne(image_mount(&im), OK);
	image_close(&im);
}
END_TEST

/* An online resize that is only in the log: blocks past the end that the disk still knows. */
START_TEST(a_file_system_that_grows_in_its_log)
{
	struct image im;
	struct ext4_info info;
	bool moved = false;

	image_make("image", "-t ext4 -b 1024 -N 512", "8M");
	image_run("truncate -s 12M image && cp image grown && resize2fs grown 12M >/dev/null 2>&1 "
		  "&& debugfs -w -R 'feature needs_recovery' grown >/dev/null 2>&1 && "
		  "dd if=grown of=super bs=1024 skip=1 count=1 2>/dev/null && "
		  "dd if=grown of=descs bs=1024 skip=2 count=1 2>/dev/null");
	image_run("dd if=grown of=block bs=1024 skip=8000 count=1 2>/dev/null");
	image_debugfs("image", "jo\njw -b 1 super\njw -b 2 descs\njw -b 8000 block\njc\n");
	image_load(&im, "image");
	/* debugfs logs nothing past the end, so the third tag is changed to do so. */
	for (fsblk_t nr = 0; nr < 8192 && !moved; nr++) {
		be32 *words = (void *)image_block(&im, nr);
		moved = be32_get(words[0]) == 0xc03b3998 && be32_get(words[1]) == 1 &&
			be32_get(words[3]) == 8000;
		if (moved)
			words[3] = be32_make(8300);
	}
	ck_assert(moved);
	ck_ok(image_mount(&im));
	ext4_info(im.fs, &info);
	ck_assert_uint_eq(info.replayed_blocks, 3);
	ck_assert_uint_eq(info.blocks, 12288);
	image_close(&im);
}
END_TEST

START_TEST(an_external_journal_needs_noload)
{
	struct image im;
	struct ext4_super *s;

	image_make("image", "-t ext4 -b 1024", "8M");
	image_load(&im, "image");
	s = image_super(&im);
	s->s_journal_inum = le32_make(0);
	s->s_journal_dev = le32_make(0x801);
	image_seal_super(&im);
	ck_err(image_mount(&im), ERR_JOURNAL_EXTERNAL);
	ck_ok(image_mount_with(&im, true));
	ck_assert(has_reason(&im, "on another device"));
	image_close(&im);
}
END_TEST

static void journal_inode_out_of_range(struct image *im)
{
	image_super(im)->s_journal_inum = le32_make(UINT32_MAX);
}
static void journal_inode_deleted(struct image *im)
{
	image_inode(im, EXT4_INUM_JOURNAL)->i_links_count = le16_make(0);
}
static void journal_inode_no_file(struct image *im)
{
	image_inode(im, EXT4_INUM_JOURNAL)->i_mode = le16_make(S_IFDIR | 0600);
}
static void journal_inode_map(struct image *im)
{
	memset(image_inode(im, EXT4_INUM_JOURNAL)->i_block, 0, EXT4_I_BLOCK_BYTES);
}
static void journal_inode_hole(struct image *im)
{
	struct ext4_extent_header *h = (void *)image_inode(im, EXT4_INUM_JOURNAL)->i_block;

	h->eh_entries = le16_make(0);
}
static void journal_inode_empty(struct image *im)
{
	image_inode(im, EXT4_INUM_JOURNAL)->i_size_lo = le32_make(0);
}
static void (*const journal_damages[])(struct image *im) = {journal_inode_out_of_range,
	journal_inode_deleted, journal_inode_no_file, journal_inode_map, journal_inode_hole,
	journal_inode_empty};

START_TEST(a_damaged_journal_inode)
{
	struct image im;

	image_make("image", "-t ext4 -b 1024 -O ^metadata_csum", "8M");
	image_load(&im, "image");
	journal_damages[_i](&im);
	ck_err(image_mount(&im), ERR_JOURNAL);
	ck_detail("noload");
	ck_ok(image_mount_with(&im, true));
	image_close(&im);
}
END_TEST

static void group_itable_zero(struct image *im)
{
	image_group0(im)->bg_inode_table_lo = le32_make(0);
}
static void group_itable_outside(struct image *im)
{
	image_group0(im)->bg_inode_table_lo = le32_make(8191);
}
static void group_bitmap_outside(struct image *im)
{
	image_group0(im)->bg_block_bitmap_lo = le32_make(8192);
}
static void group_inode_bitmap_outside(struct image *im)
{
	image_group0(im)->bg_inode_bitmap_lo = le32_make(UINT32_MAX);
}
static void root_gone(struct image *im)
{
	memset(image_inode(im, EXT4_ROOT_INUM), 0, 128);
}
static void root_no_directory(struct image *im)
{
	image_inode(im, EXT4_ROOT_INUM)->i_mode = le16_make(S_IFREG | 0755);
}
static void (*const damages[])(struct image *im) = {group_itable_zero, group_itable_outside,
	group_bitmap_outside, group_inode_bitmap_outside, root_gone, root_no_directory};

START_TEST(a_damaged_start)
{
	struct image im;

	image_make("image", "-t ext4 -b 1024 -O ^metadata_csum,^has_journal", "8M");
	image_load(&im, "image");
	damages[_i](&im);
	ck_err(image_mount(&im), ERR_CORRUPT);
	image_close(&im);
}
END_TEST

START_TEST(descriptors_have_checksums)
{
	static const char *options[] = {"-t ext4 -b 1024",
		"-t ext4 -b 1024 -O ^metadata_csum,uninit_bg",
		"-t ext4 -b 1024 -O 64bit,^metadata_csum,uninit_bg"};
	struct image im;

	image_make("image", options[_i], "40M");
	image_load(&im, "image");
	for (int i = 0; i < 60; i++) {
		size_t bytes = _i == 1 ? 32 : 64;
		uint8_t *at = (uint8_t *)image_group0(&im) + scratch_random(5 * bytes);
		enum err e;
		*at ^= 1;
		e = image_mount_with(&im, true);
		ck_assert_msg(e == ERR_CHECKSUM, "%s", err_name(e));
		*at ^= 1;
	}
	ck_ok(image_mount(&im));
	image_close(&im);
}
END_TEST

START_TEST(a_block_smaller_than_a_sector)
{
	struct image im;
	struct cipher *cipher;
	struct volume *volume, *whole;

	image_make("image", "-t ext4 -b 1024", "8M");
	image_load(&im, "image");
	whole = im.device.volume;
	ck_ok(cipher_create_identity(4096, &cipher));
	ck_ok(volume_create(
		&(struct volume_config){
			.ioq = im.device.ioq, .cipher = cipher, .size_bytes = im.device.size_bytes},
		&volume));
	im.device.volume = volume;
	ck_ok(image_mount(&im));
	ck_assert(has_reason(&im, "smaller than the encryption sector 4096"));
	image_unmount(&im);
	volume_destroy(volume);
	im.device.volume = whole;
	image_close(&im);
}
END_TEST

START_TEST(every_read_of_a_mount_may_fail)
{
	struct image im;
	unsigned errors = 0;

	make_dirty("-t ext4 -b 1024");
	image_load(&im, "image");
	for (uint64_t nth = 1; nth < 60; nth++) {
		enum err e;
		dev_fault_arm(im.device.fault, DEV_FAULT_READ, nth, false, ERR_IO);
		e = image_mount(&im);
		/* A prefetch that fails is read again, so not every failure shows. */
		ck_assert_msg(e == OK || e == ERR_IO, "%s", err_name(e));
		errors += e == ERR_IO;
		image_unmount(&im);
	}
	ck_assert_uint_gt(errors, 3);
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/mount");
	TCase *tcase = tcase_create("mount");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(
		tcase, a_dirty_journal_is_replayed_in_memory, 0, (int)ARRAY_SIZE(dirty_rows));
	tcase_add_test(tcase, a_dirty_journal_that_nobody_asks_for);
	tcase_add_test(tcase, a_superblock_in_the_log_is_verified_too);
	tcase_add_test(tcase, a_file_system_that_grows_in_its_log);
	tcase_add_test(tcase, an_external_journal_needs_noload);
	tcase_add_loop_test(tcase, a_damaged_journal_inode, 0, (int)ARRAY_SIZE(journal_damages));
	tcase_add_loop_test(tcase, a_damaged_start, 0, (int)ARRAY_SIZE(damages));
	tcase_add_loop_test(tcase, descriptors_have_checksums, 0, 3);
	tcase_add_test(tcase, a_block_smaller_than_a_sector);
	tcase_add_test(tcase, every_read_of_a_mount_may_fail);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
