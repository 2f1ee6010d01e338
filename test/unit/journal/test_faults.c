/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The writer when something fails: the nth read, write, flush or allocation of a run over the
 * block-level file system (block_fs.h), once or for ever. Nothing may hang (each case has a limit);
 * after a failure of the journal all is refused; what was promised is on the device, also when the
 * power is cut then. CRYPTFS_TEST_LONG=N takes every nth instead of a sample.
 */
#include "alloc_fault.h"
#include "block_fs_cuts.h"

enum { STEPS = 60, THREADS = 3, NTH_MAX = 3000 };

static const struct block_fs_row row = {"-t ext4 -b 1024 -J size=1", "4M", -1, true, true, 0, 0};

/* The next nth: all of the first ones, then about as many as there is time for. */
static uint64_t next_nth(uint64_t nth)
{
	return getenv("CRYPTFS_TEST_LONG") != NULL || nth < 24 ? nth + 1 : nth + 1 + nth / 3;
}

/* Steps, of which none gives another error than the fault's, and ERR_ROFS once it has failed. */
static void run_steps(struct block_fs *fs, uint64_t seed, unsigned steps, enum err fault)
{
	for (unsigned n = 0; n < steps; n++) {
		enum err e = block_fs_step(fs, &seed);

		if (e == OK || e == fault || (e == ERR_ROFS && journal_failed(fs->journal)))
			continue;
		(void)alloc_fault_disarm();
		ck_abort_msg("%s: %s", err_name(e), err_detail());
	}
}

static void check_refuses(struct block_fs *fs)
{
	struct journal_handle h;

	ensure(journal_start(fs->journal, 1, &h) == ERR_ROFS);
	ensure(journal_commit(fs->journal, journal_running(fs->journal)) == ERR_ROFS);
	ensure(journal_checkpoint(fs->journal) == ERR_ROFS);
}

/* The device as it is, and as a power cut now could leave it. */
static void check_device(struct block_fs *fs, uint64_t seed)
{
	for (uint64_t n = 0; n < 3; n++) {
		struct dev_cut cut = {.stamp = dev_recorder_stamp(fs->recorder),
			.seed = n == 0 ? 0 : seed + n,
			.tear_bytes = 512};

		(void)block_fs_check_cut(fs, &cut);
	}
}

struct crew {
	struct block_fs *fs;
	uint64_t seed;
	enum err fault;
};

static void crew_run(unsigned index, void *arg)
{
	struct crew *k = arg;

	run_steps(k->fs, k->seed + index, STEPS / THREADS, k->fault);
}

/* One run with a fault that is armed already or by dev_fault_arm here. Whether it struck. */
static bool run_with_fault(struct block_fs *fs, unsigned kind, uint64_t nth, bool for_ever,
	uint64_t seed, unsigned threads)
{
	struct crew k = {fs, seed, kind != 0 ? ERR_IO : ERR_NOMEM};
	uint64_t armed_at = kind != 0 ? dev_fault_calls(fs->m.fault, kind) : 0;
	bool struck, opened, failed = false;
	enum err e;

	if (kind != 0)
		dev_fault_arm(fs->m.fault, kind, nth, for_ever, ERR_IO);
	else
		alloc_fault_arm((int64_t)nth, for_ever);
	e = block_fs_open_journal(fs);
	opened = e == OK;
	fs->first_seq = opened ? journal_running(fs->journal) : JOURNAL_SEQ_BASE;
	if (opened && threads == 1)
		run_steps(fs, seed, STEPS, k.fault);
	else if (opened)
		rig_run_threads(threads, crew_run, &k);
	if (opened) {
		failed = journal_failed(fs->journal);
		if (failed)
			check_refuses(fs);
		e = journal_close(fs->journal);
	}
	struck = kind != 0 ? dev_fault_calls(fs->m.fault, kind) - armed_at >= nth
			   : alloc_fault_disarm();
	ck_assert_msg(e == OK || e == k.fault || failed, "%s: %s", err_name(e), err_detail());
	ck_assert(!failed || e != OK);
	dev_fault_arm(fs->m.fault, DEV_FAULT_DISCARD, 1, false, ERR_IO);
	check_device(fs, seed);
	return struck;
}

static const struct {
	unsigned kind; /* 0: allocations */
	bool for_ever;
	unsigned threads;
} faults[] = {
	{DEV_FAULT_READ, false, 1},
	{DEV_FAULT_READ, true, 1},
	{DEV_FAULT_WRITE, false, 1},
	{DEV_FAULT_WRITE, true, 1},
	{DEV_FAULT_WRITE, false, THREADS},
	{DEV_FAULT_FLUSH, false, 1},
	{DEV_FAULT_FLUSH, true, 1},
	{DEV_FAULT_FLUSH, false, THREADS},
	/* The last ALLOCATION_ROWS. */
	{0, false, 1},
	{0, true, 1},
};
enum { ALLOCATION_ROWS = 2 };

START_TEST(a_fault_anywhere_loses_nothing_that_was_promised)
{
	static struct block_fs fs;
	uint64_t seed = rig_seed("a_fault_anywhere");
	unsigned runs = 0;
	bool struck = true;

	block_fs_start(&fs, &row);
	fs.commit_interval_ms = 3600 * 1000;
	for (uint64_t nth = 1; struck; nth = next_nth(nth)) {
		if (runs++ > 0)
			block_fs_attach(&fs);
		struck = run_with_fault(
			&fs, faults[_i].kind, nth, faults[_i].for_ever, seed, faults[_i].threads);
		block_fs_detach(&fs);
		ck_assert_uint_lt(nth, 100 * NTH_MAX);
	}
	printf("%u runs\n", runs);
	ck_assert_uint_gt(runs, 4);
	block_fs_attach(&fs);
	block_fs_stop(&fs);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("faults");
	TCase *tc = tcase_create("faults");
	/* A sanitizer has an allocator of its own, in which nothing can be made to fail. */
	int rows = (int)ARRAY_SIZE(faults) - (alloc_fault_works() ? 0 : ALLOCATION_ROWS);

	log_open_stderr("test", LOG_ERROR_);
	tcase_set_timeout(tc, getenv("CRYPTFS_TEST_LONG") != NULL ? 3000 : 100);
	tcase_add_loop_test(tc, a_fault_anywhere_loses_nothing_that_was_promised, 0, rows);
	suite_add_tcase(suite, tc);
	return rig_run_suite(suite);
}
