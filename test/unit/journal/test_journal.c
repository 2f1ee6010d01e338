/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Logs that others made, against what e2fsck's replay makes of them: crafted with debugfs, and left
 * by the kernel's ext4 when it was shut down under load. And damaged logs, at random.
 */
#include "image.h"
#include "log_maker.h"

#include <sys/ioctl.h>

/* Copies the seeded noise that debugfs logs; every fifth block starts with jbd2's magic. */
static void write_noise(const char *path, uint32_t block_bytes, uint32_t blocks, unsigned *seed)
{
	static const uint8_t magic[4] = {0xc0, 0x3b, 0x39, 0x98};
	FILE *f = fopen(path, "wb");

	ck_assert_ptr_nonnull(f);
	for (uint32_t b = 0; b < blocks; b++)
		for (uint32_t at = 0; at < block_bytes; at += 4) {
			uint32_t word = (uint32_t)rand_r(seed) ^ (uint32_t)rand_r(seed) << 16;

			if (at == 0 && b % 5 == 0)
				memcpy(&word, magic, 4);
			fwrite(&word, 4, 1, f);
		}
	ck_assert_int_eq(fclose(f), 0);
}

/*
 * Replayed for real, twice: every block but the file system's superblock is what the judge's
 * replay left, the number to go on with included.
 */
static void recover_and_compare(struct image *i)
{
	struct journal_info info;
	const uint8_t *super = i->m.bytes + i->runs[0].physical * i->block_bytes;
	const uint8_t *judged = i->truth + i->runs[0].physical * i->block_bytes;

	for (int time = 0; time < 2; time++) {
		ck_assert_int_eq(journal_recover(&i->config, &info), OK);
		ck_assert(info.clean == (time > 0));
		for (fsblk_t nr = 0; nr < i->blocks; nr++)
			if (nr != i->runs[0].physical && nr != IMAGE_SUPER_OFFSET / i->block_bytes)
				ck_assert_msg(memcmp(i->m.bytes + nr * i->block_bytes,
						      i->truth + nr * i->block_bytes,
						      i->block_bytes) == 0,
					"block %llu differs from the judge's replay",
					(unsigned long long)nr);
		ck_assert_mem_eq(super + offsetof(struct disk_super, s_sequence),
			judged + offsetof(struct disk_super, s_sequence), 8); /* and s_start */
	}
}

/* --- crafted with debugfs -------------------------------------------------------------------- */

struct crafted {
	const char *mkfs, *open;
	int checksum_version;
	bool has_64bit;
};
static const struct crafted crafted[] = {
	{"-t ext4 -b 4096 -O 64bit", "jo -c -v 3", 3, true},
	{"-t ext4 -b 4096 -O ^64bit", "jo -c -v 3", 3, false},
	{"-t ext4 -b 1024 -O 64bit", "jo -c -v 2", 2, true},
	{"-t ext4 -b 1024 -O ^64bit", "jo -c -v 2", 2, false},
	{"-t ext4 -b 2048 -O ^metadata_csum,64bit", "jo", 0, true},
	{"-t ext3 -b 1024", "jo", 0, false},
};

static void craft(struct image *i, const struct crafted *row, unsigned seed)
{
	char script[96], noise[96];
	uint32_t block_bytes = strstr(row->mkfs, "4096")   ? 4096
			       : strstr(row->mkfs, "2048") ? 2048
							   : 1024;

	image_open(i);
	snprintf(script, sizeof(script), "%s/script", i->dir);
	ck_assert_int_eq(image_shell("mke2fs -q -F %s %s 24M", row->mkfs, i->path), 0);
	FILE *f = fopen(script, "w");

	ck_assert_ptr_nonnull(f);
	fprintf(f, "%s\n", row->open);
	for (int t = 0; t < 12; t++) {
		uint32_t blocks = 1 + (unsigned)rand_r(&seed) % 12;

		snprintf(noise, sizeof(noise), "%s/noise%d", i->dir, t);
		write_noise(noise, block_bytes, blocks, &seed);
		fprintf(f, "jw -b ");
		for (uint32_t b = 0; b < blocks; b++)
			fprintf(f, "%s%u", b == 0 ? "" : ",", 4000 + (unsigned)rand_r(&seed) % 60);
		fprintf(f, " %s\n", noise);
		if (t % 3 == 2)
			fprintf(f, "jw -r %u,%u,%u\n", 4000 + (unsigned)rand_r(&seed) % 60,
				4000 + (unsigned)rand_r(&seed) % 60,
				4000 + (unsigned)rand_r(&seed) % 60);
	}
	fprintf(f, "jc\n");
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(image_shell("debugfs -w -f %s %s", script, i->path), 0);
	image_load(i);
}

START_TEST(debugfs_s_logs_replay_as_e2fsck_does)
{
	uint32_t revoked = 0;

	for (unsigned seed = 1; seed <= 3; seed++) {
		struct image i;
		struct image_figures got;

		craft(&i, &crafted[_i], seed);
		image_compare(&i, JUDGE_E2FSCK, &got);
		ck_assert_int_eq(got.info.checksum_version, crafted[_i].checksum_version);
		ck_assert(got.info.has_64bit == crafted[_i].has_64bit);
		ck_assert_uint_eq(got.info.transactions, 16);
		ck_assert_uint_gt(got.changed, 10);
		ck_assert_uint_eq(got.changed, got.info.blocks);
		revoked += got.info.revoked;
		recover_and_compare(&i);
		image_close(&i);
	}
	ck_assert_uint_gt(revoked, 0);
}
END_TEST

/* --- left by the kernel ---------------------------------------------------------------------- */

enum { EXT4_SHUTDOWN_LOG_FLUSH = 1, EXT4_SHUTDOWN_NO_FLUSH = 2 };
#define EXT4_SHUTDOWN 0x8004587dUL /* EXT4_IOC_SHUTDOWN, the kernel's fs/ext4/ext4.h */

struct kernel_row {
	const char *mkfs, *options;
	int checksum_version;
	bool has_64bit;
};
static const struct kernel_row kernel_rows[] = {
	{"-t ext4 -b 4096", "data=ordered", 3, true},
	{"-t ext4 -b 1024 -J size=1", "data=ordered", 3, true},
	{"-t ext4 -b 1024 -O ^64bit -J size=1", "data=ordered", 3, false},
	{"-t ext4 -b 1024 -O ^metadata_csum,^64bit -J size=1", "journal_checksum", 1, false},
	{"-t ext4 -b 4096 -O ^metadata_csum -J size=4", "data=writeback,journal_async_commit", 1,
		true},
	{"-t ext4 -b 1024 -J size=1", "data=writeback,journal_async_commit", 3, true},
	{"-t ext4 -b 1024 -J size=1", "data=journal", 3, true},
	{"-t ext3 -b 1024 -J size=1", "data=journal", 0, false},
	{"-t ext3 -b 4096", "data=ordered", 0, false},
};

/*
 * Directories made, filled, synced and removed, so that blocks are logged, freed (revoked) and
 * used again; file data that starts with jbd2's magic. Returns false when a call failed.
 */
static bool work(const char *mount, int steps)
{
	char path[160], block[4096];
	bool good = true;

	memset(block, 0x33, sizeof(block));
	for (uint32_t at = 0; at < sizeof(block); at += 1024)
		memcpy(block + at, "\xc0\x3b\x39\x98", 4);
	for (int s = 0; s < steps && good; s++) {
		snprintf(path, sizeof(path), "%s/d%d", mount, s % 7);
		(void)mkdir(path, 0755);
		snprintf(path, sizeof(path), "%s/d%d/e%d", mount, s % 7, s);
		good = mkdir(path, 0755) == 0;
		snprintf(path, sizeof(path), "%s/d%d/e%d/file", mount, s % 7, s);
		int fd = open(path, O_CREAT | O_WRONLY, 0644);

		good = good && fd >= 0 && write(fd, block, sizeof(block)) == sizeof(block) &&
		       fsync(fd) == 0;
		if (fd >= 0)
			close(fd);
		if (s % 5 == 4)
			good = good && image_shell("rm -rf %s/d%d", mount, (s + 3) % 7) == 0;
	}
	return good;
}

/*
 * The image as a power cut would leave it: copied from under the mounted file system after it was
 * shut down, since unmounting still writes the blocks home. NULL, or what did not work.
 */
static const char *crash(struct image *i, const struct kernel_row *row, int steps, uint32_t flag)
{
	char mount[96];
	const char *wrong = NULL;

	image_open(i);
	snprintf(mount, sizeof(mount), "%s/mnt", i->dir);
	ck_assert_int_eq(mkdir(mount, 0755), 0);
	ck_assert_int_eq(image_shell("mke2fs -q -F %s %s.live 48M", row->mkfs, i->path), 0);
	if (image_shell("mount -o loop,%s %s.live %s", row->options, i->path, mount) != 0)
		return "the kernel does not mount through loop";
	if (!work(mount, steps))
		wrong = "work on the mounted file system failed";
	int fd = open(mount, O_RDONLY | O_DIRECTORY);

	if (wrong == NULL && (fd < 0 || ioctl(fd, EXT4_SHUTDOWN, &flag) != 0))
		wrong = "EXT4_IOC_SHUTDOWN failed";
	if (fd >= 0)
		close(fd);
	if (wrong == NULL && image_shell("cp --sparse=always %s.live %s", i->path, i->path) != 0)
		wrong = "copying failed";
	if (image_shell("umount %s", mount) != 0)
		wrong = "umount failed";
	image_shell("rm -f %s.live", i->path);
	return wrong;
}

/* Without root or loop devices there is no kernel to ask. */
static bool kernel_is_missing(const char *name)
{
	struct image i;
	bool missing = geteuid() != 0;

	if (!missing) {
		image_open(&i);
		ck_assert_int_eq(
			image_shell("mke2fs -q -F -t ext4 %s 8M; mkdir %s/mnt", i.path, i.dir), 0);
		missing = image_shell("mount -o loop %s %s/mnt", i.path, i.dir) != 0;
		if (!missing)
			ck_assert_int_eq(image_shell("umount %s/mnt", i.dir), 0);
		image_close(&i);
	}
	if (missing)
		printf("SKIP: %s: needs root and loop devices\n", name);
	return missing;
}

START_TEST(the_kernel_s_logs_replay_as_e2fsck_does)
{
	const struct kernel_row *row = &kernel_rows[_i];
	static const int steps[] = {5, 90};
	uint32_t changed = 0;

	if (kernel_is_missing("the_kernel_s_logs_replay_as_e2fsck_does"))
		return;
	for (size_t n = 0; n < ARRAY_SIZE(steps); n++) {
		struct image i;
		struct image_figures got;
		const char *wrong = crash(&i, row, steps[n],
			n % 2 == 0 ? EXT4_SHUTDOWN_LOG_FLUSH : EXT4_SHUTDOWN_NO_FLUSH);

		if (wrong != NULL)
			image_shell("rm -rf %s", i.dir);
		ck_assert_msg(wrong == NULL, "%s: %s", row->mkfs, wrong);
		image_load(&i);
		image_compare(&i, JUDGE_E2FSCK, &got);
		printf("%s, %s, %d steps: %u transactions, %u blocks, %u revoked, %u changed%s\n",
			row->mkfs, row->options, steps[n], got.info.transactions, got.info.blocks,
			got.info.revoked, got.changed, got.wrapped ? ", wrapped" : "");
		ck_assert_int_eq(got.info.checksum_version, row->checksum_version);
		ck_assert(got.info.has_64bit == row->has_64bit);
		ck_assert_uint_gt(got.info.transactions, 0);
		changed += got.changed;
		recover_and_compare(&i);
		image_close(&i);
	}
	ck_assert_uint_gt(changed, 0);
}
END_TEST

START_TEST(fast_commits_are_refused_and_an_empty_area_is_not)
{
	static const struct kernel_row row = {
		"-t ext4 -b 4096 -O fast_commit -J size=8", "data=ordered", 3, true};

	if (kernel_is_missing("fast_commits_are_refused_and_an_empty_area_is_not"))
		return;
	for (int full = 0; full < 2; full++) {
		struct image i;
		struct image_figures got;
		struct journal_info info;
		struct overlay *o = NULL;
		const char *wrong =
			crash(&i, &row, 6, full ? EXT4_SHUTDOWN_LOG_FLUSH : EXT4_SHUTDOWN_NO_FLUSH);

		ck_assert_msg(wrong == NULL, "%s", wrong);
		image_load(&i);
		if (full) {
			image_compare(&i, JUDGE_KERNEL, &got);
			ck_assert(got.info.fast_commit);
			ck_assert_uint_gt(got.info.transactions, 0);
		} else {
			ck_assert_int_eq(journal_scan(&i.config, &o, &info), ERR_JOURNAL_FEATURE);
			ck_assert_ptr_null(o);
			ck_assert_ptr_nonnull(strstr(err_detail(), "fast commits"));
		}
		image_close(&i);
	}
}
END_TEST

/* --- fast commits in a log of ours ----------------------------------------------------------- */

START_TEST(a_head_for_this_transaction_is_refused)
{
	for (uint32_t at = 0; at < 3; at++) {
		for (uint32_t number = 7; number <= 9; number++) {
			struct maker k;
			struct disk_fast_commit_head *head;

			maker_start(&k, 3, JBD2_INCOMPAT_FAST_COMMIT, MAKER_BLOCKS - 12, 7);
			k.last = MAKER_BLOCKS - 10;
			maker_super(&k)->s_num_fc_blks = be32_make(10);
			maker_seal_super(&k);
			maker_transaction(&k, 500, 1, 100); /* wraps before the area */
			head = (void *)maker_block(&k, k.last + at);
			head->fc_tag = le16_make(FAST_COMMIT_TAG_HEAD);
			head->fc_len = le16_make(8);
			head->fc_tid = le32_make(number);
			maker_expect_scan(&k, number == 8 && at < 2 ? ERR_JOURNAL_FEATURE : OK, 1);
			maker_stop(&k);
		}
	}
}
END_TEST

/* --- damaged at random ----------------------------------------------------------------------- */

static long fuzz_rounds(long usual)
{
	const char *text = getenv("FUZZ_ROUNDS");

	return text != NULL ? strtol(text, NULL, 10) : usual;
}

/* Scans, and reads all that the overlay has: it must end, with any result, inside all bounds. */
static void scan_whatever(const struct journal_config *config)
{
	struct journal_info info;
	struct overlay *o = NULL;
	const struct overlay_entry *entry;
	static uint8_t buf[65536];
	fsblk_t at = 0;

	if (journal_scan(config, &o, &info) != OK || o == NULL)
		return;
	while ((entry = overlay_find(o, at, UINT64_MAX)) != NULL) {
		ck_assert_uint_lt(entry->block, config->fs_blocks);
		ck_assert_uint_lt(entry->log, config->fs_blocks);
		ck_assert_int_eq(overlay_read(entry, config->volume, config->block_bytes, buf), OK);
		at = entry->block + 1;
	}
	overlay_destroy(o);
}

START_TEST(real_logs_damaged_at_random)
{
	struct image i;
	unsigned seed = 90210 + (unsigned)_i;
	long rounds = fuzz_rounds(300);

	printf("seed %u\n", seed);
	craft(&i, &crafted[_i], 1);
	uint8_t *whole = malloc(i.m.size_bytes);

	ck_assert_ptr_nonnull(whole);
	memcpy(whole, i.m.bytes, i.m.size_bytes);
	for (long round = 0; round < rounds; round++) {
		int hits = 1 + rand_r(&seed) % 8;

		for (int h = 0; h < hits; h++) {
			/* The blocks in use are the journal's first; their heads matter most. */
			uint64_t block = i.runs[0].physical +
					 (unsigned)rand_r(&seed) % MIN(i.runs[0].count, 100U);
			uint64_t at =
				block * i.block_bytes +
				(unsigned)rand_r(&seed) % (rand_r(&seed) % 2 ? 96 : i.block_bytes);

			i.m.bytes[at] = rand_r(&seed) % 4 == 0 ? 0xff : (uint8_t)rand_r(&seed);
		}
		scan_whatever(&i.config);
		for (size_t r = 0; r < i.config.run_count; r++)
			memcpy(i.m.bytes + i.runs[r].physical * i.block_bytes,
				whole + i.runs[r].physical * i.block_bytes,
				(size_t)i.runs[r].count * i.block_bytes);
	}
	free(whole);
	image_close(&i);
}
END_TEST

/* Behind good checksums: superblock, descriptor, revoke and commit block are sealed again. */
START_TEST(sealed_logs_damaged_at_random)
{
	unsigned seed = 4242 + (unsigned)_i;
	long rounds = fuzz_rounds(1500);

	printf("seed %u\n", seed);
	for (long round = 0; round < rounds; round++) {
		struct maker k;
		const fsblk_t revoked[] = {501, 502, 503};

		maker_start(&k, _i, (uint32_t)rand_r(&seed) % 8 & ~1U,
			1 + (unsigned)rand_r(&seed) % (MAKER_BLOCKS - 1), (uint32_t)rand_r(&seed));
		maker_transaction(&k, 500, 1, 100);
		maker_revoke(&k, revoked, ARRAY_SIZE(revoked));
		maker_begin(&k);
		for (fsblk_t b = 0; b < 5; b++)
			maker_log(&k, 500 + b, 2 + b, b == 3);
		maker_end(&k);
		maker_commit(&k, 101);
		uint32_t targets[] = {0, k.revoke_at, k.descriptor_at, k.commit_at};

		for (int h = rand_r(&seed) % 6; h >= 0; h--)
			maker_block(&k, targets[rand_r(&seed) % 4])[(unsigned)rand_r(&seed) % 120] =
				rand_r(&seed) % 4 == 0 ? 0xff : (uint8_t)rand_r(&seed);
		memcpy(k.uuid, maker_super(&k)->s_uuid, sizeof(k.uuid));
		maker_seal_super(&k);
		maker_seal_tail(&k, k.revoke_at);
		maker_seal_tail(&k, k.descriptor_at);
		maker_seal_commit(&k, k.commit_at);
		scan_whatever(&k.config);
		maker_stop(&k);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("journal");
	TCase *t = tcase_create("journal");

	tcase_set_timeout(t, 110);
	tcase_add_loop_test(t, debugfs_s_logs_replay_as_e2fsck_does, 0, ARRAY_SIZE(crafted));
	tcase_add_loop_test(t, the_kernel_s_logs_replay_as_e2fsck_does, 0, ARRAY_SIZE(kernel_rows));
	tcase_add_test(t, fast_commits_are_refused_and_an_empty_area_is_not);
	tcase_add_test(t, a_head_for_this_transaction_is_refused);
	tcase_add_loop_test(t, real_logs_damaged_at_random, 0, ARRAY_SIZE(crafted));
	tcase_add_loop_test(t, sealed_logs_damaged_at_random, 0, 4);
	suite_add_tcase(s, t);
	return maker_run(s);
}
