/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The writer as a whole: threads at random over a block-level file system (block_fs.h), cut at
 * every flush and between, every image held against the model; a sample against e2fsck, debugfs
 * and the kernel. CRYPTFS_TEST_LONG=N makes N times as many operations, cuts and samples.
 */
#include "block_fs_cuts.h"

enum { THREADS = 4, STEPS = 150 };

static unsigned long_factor(void)
{
	const char *text = getenv("CRYPTFS_TEST_LONG");
	unsigned long factor = text != NULL ? strtoul(text, NULL, 10) : 1;

	return factor > 0 && factor < 1000 ? (unsigned)factor : 1;
}

static const struct block_fs_row rows[] = {
	{"-t ext4 -b 1024 -J size=1", "4M", -1, true, true, 0, 0},
	{"-t ext4 -b 4096 -O ^64bit -J size=4", "24M", -1, false, true, UINT32_MAX - 20, 0},
	{"-t ext3 -b 1024 -J size=1", "4M", -1, false, false, 0, 20 << 10},
	{"-t ext4 -b 1024 -O ^metadata_csum -J size=1", "4M", 2, true, false, UINT32_MAX - 3, 0},
	{"-t ext4 -b 2048 -O ^metadata_csum,^64bit -J size=2", "8M", 1, false, false, 0, 0},
	{"-t ext4 -b 1024 -O ^metadata_csum,^64bit -J size=1", "4M", 2, false, false, 0, 20 << 10},
};

struct crowd {
	struct block_fs fs;
	uint64_t seed;
	unsigned steps;
};

static void crowd_run(unsigned index, void *arg)
{
	struct crowd *k = arg;
	uint64_t random = k->seed + index;

	for (unsigned n = 0; n < k->steps; n++)
		ck_assert_int_eq(block_fs_step(&k->fs, &random), OK);
}

/* Cuts at the start of every flush, just after its end, and anywhere. */
static uint64_t crowd_cut_at(const struct crowd *k, const uint64_t *flushes, size_t flush_count,
	size_t n, uint64_t *random)
{
	uint64_t all = dev_recorder_stamp(k->fs.recorder);

	if (n < 2 * flush_count)
		return flushes[n / 2] + n % 2 * 2;
	return 1 + rig_random(random) % all;
}

static void crowd_check_cuts(struct crowd *k, bool kernel)
{
	static uint64_t flushes[100000];
	uint64_t random = k->seed ^ 0xc0ffee;
	size_t count = dev_recorder_flushes(k->fs.recorder, flushes, ARRAY_SIZE(flushes));
	size_t cuts = 400 * long_factor(), samples = 5 * long_factor();
	uint64_t first = UINT64_MAX, last = 0;

	ck_assert_uint_le(count, ARRAY_SIZE(flushes));
	for (size_t n = 0; n < cuts; n++) {
		/* Spread over the run where there are more flushes than cuts. */
		size_t which = 2 * count > cuts ? (size_t)(rig_random(&random) % (3 * count)) : n;
		struct dev_cut cut = {
			.stamp = crowd_cut_at(k, flushes, count, which, &random),
			.seed = n % 4 == 0 ? 0 : rig_random(&random),
			.tear_bytes = n % 3 == 0 ? 4096 : 512,
		};
		uint64_t seq = block_fs_check_cut(&k->fs, &cut);

		first = MIN(first, seq);
		last = MAX(last, seq);
		if (n % (cuts / samples) != 0)
			continue;
		block_fs_judge_e2fsck(&k->fs, &cut, seq);
		if (kernel)
			block_fs_judge_kernel(&k->fs, &cut, seq);
	}
	ck_assert_uint_gt(last, first + 3);
}

/* Closed: the log is empty, every block is home, and everybody is content. */
static void crowd_check_closed(struct crowd *k, bool kernel)
{
	struct dev_cut cut = {.stamp = dev_recorder_stamp(k->fs.recorder), .tear_bytes = 512};
	uint64_t seq = block_fs_check_cut(&k->fs, &cut);
	struct image cleaned = k->fs.i;

	ck_assert_uint_eq(seq, area_last(&k->fs.area[0])->seq);
	ck_assert_uint_eq(
		block_fs_check_area(&k->fs, NULL, k->fs.cut.bytes, cut.stamp, "closed"), seq);
	block_fs_save_cut(&k->fs);
	ck_assert_int_eq(image_shell("debugfs -w -R 'feature ^needs_recovery' %s && e2fsck -fn %s",
				 cleaned.path, cleaned.path),
		0);
	if (kernel)
		block_fs_judge_kernel(&k->fs, &cut, seq);
}

static bool have_kernel(void)
{
	static int known = -1;
	struct image i;

	if (known < 0) {
		image_open(&i);
		known = image_shell("mke2fs -q -F -t ext4 %s 8M && mkdir %s/mnt && "
				    "mount -o loop %s %s/mnt && umount %s/mnt",
				i.path, i.dir, i.path, i.dir, i.dir) == 0;
		image_close(&i);
	}
	return known == 1;
}

START_TEST(every_cut_is_a_transaction_and_none_is_lost)
{
	static struct crowd k;
	const struct block_fs_row *row = &rows[_i];
	struct journal_stats stats;
	bool kernel = have_kernel();

	if (!kernel)
		printf("SKIP: the_kernel_mounts_the_cuts: needs root and loop devices\n");
	k = (struct crowd){
		.seed = rig_seed("every_cut_is_a_transaction"), .steps = STEPS * long_factor()};
	block_fs_start(&k.fs, row);
	block_fs_open(&k.fs);
	rig_run_threads(THREADS, crowd_run, &k);
	journal_stats(k.fs.journal, &stats);
	ck_assert_int_eq(journal_close(k.fs.journal), OK);
	printf("%s: %llu commits, %llu logged, %llu revoked, %llu checkpoints, %llu home, "
	       "%llu flushes\n",
		row->mkfs, (unsigned long long)stats.commits,
		(unsigned long long)stats.logged_blocks, (unsigned long long)stats.revoked_blocks,
		(unsigned long long)stats.checkpoints, (unsigned long long)stats.home_blocks,
		(unsigned long long)stats.flushes);
	ck_assert_uint_gt(stats.commits, 5);
	ck_assert_uint_gt(stats.logged_blocks, 1100); /* round the log */
	ck_assert_uint_gt(stats.revoked_blocks, 0);
	ck_assert_uint_gt(stats.checkpoints, 0);
	crowd_check_cuts(&k, kernel);
	crowd_check_closed(&k, kernel);
	block_fs_stop(&k.fs);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("writer");
	TCase *t = tcase_create("writer");

	log_open_stderr("test", LOG_WARN_);
	tcase_set_timeout(t, 100 * long_factor());
	tcase_add_loop_test(t, every_cut_is_a_transaction_and_none_is_lost, 0, ARRAY_SIZE(rows));
	suite_add_tcase(s, t);
	return rig_run_suite(s);
}
