/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Promises: exact refusal, reserved blocks, freed blocks that come back when they are durable. */
#include "write_rig.h"

static const char small[] = "-t ext4 -b 1024 -g 1024 -J size=1 -E lazy_itable_init=1";

static void open_small(struct image *im, const char *size)
{
	image_make("image", small, size);
	image_load(im, "image");
	write_open(im);
}

static uint64_t free_blocks(struct image *im)
{
	uint64_t blocks, inodes;

	ext4_alloc_counts(im->fs, &blocks, &inodes);
	return blocks;
}

/* Blocks that the superblock reserves are for the privileged, and only the last ones. */
START_TEST(reserved_blocks)
{
	struct image im;
	uint32_t kept, plain;

	open_small(&im, "8M");
	kept = le32_get(im.fs->super.s_r_blocks_count_lo);
	ck_assert_uint_gt(kept, 100);
	plain = (uint32_t)free_blocks(&im) - kept;
	ck_ok(ext4_reserve(im.fs, plain, false));
	ck_err(ext4_reserve(im.fs, 1, false), ERR_NOSPC);
	ck_err(ext4_reserve(im.fs, kept + 1, true), ERR_NOSPC);
	ck_ok(ext4_reserve(im.fs, kept - 10, true));
	ck_err(ext4_reserve(im.fs, 11, true), ERR_NOSPC);
	ck_ok(ext4_reserve(im.fs, 10, true));
	ck_err(ext4_reserve(im.fs, 1, true), ERR_NOSPC);
	/* What comes back fills them up first. */
	ext4_unreserve(im.fs, kept);
	ck_err(ext4_reserve(im.fs, 1, false), ERR_NOSPC);
	ext4_unreserve(im.fs, 1);
	ck_err(ext4_reserve(im.fs, 2, false), ERR_NOSPC);
	ck_ok(ext4_reserve(im.fs, 1, false));
	ext4_unreserve(im.fs, plain);
	write_close_and_judge(&im);
}
END_TEST

/* A privileged promise over the border leaves nothing of the reserved blocks to others. */
START_TEST(over_the_border)
{
	struct image im;
	uint32_t kept, plain;

	open_small(&im, "8M");
	kept = le32_get(im.fs->super.s_r_blocks_count_lo);
	plain = (uint32_t)free_blocks(&im) - kept;
	ck_ok(ext4_reserve(im.fs, plain - 5, false));
	ck_ok(ext4_reserve(im.fs, 8, true));
	ck_err(ext4_reserve(im.fs, 1, false), ERR_NOSPC);
	ck_ok(ext4_reserve(im.fs, kept - 3, true));
	ck_err(ext4_reserve(im.fs, 1, true), ERR_NOSPC);
	ext4_unreserve(im.fs, plain + kept);
	ck_assert_uint_eq(free_blocks(&im), plain + kept);
	write_close_and_judge(&im);
}
END_TEST

/* A freed block stays as used in memory until its transaction is durable. */
START_TEST(freed_blocks_wait_for_their_transaction)
{
	struct image im;
	struct ext4_take take;
	struct journal_handle h;
	uint32_t rest;
	uint64_t seq;

	open_small(&im, "8M");
	take = write_take(&im, 0, 20);
	ck_assert_uint_eq(take.count, 20);
	write_commit(&im);
	rest = (uint32_t)free_blocks(&im);
	ck_ok(ext4_reserve(im.fs, rest, true));
	ck_err(ext4_reserve(im.fs, 1, true), ERR_NOSPC);
	/* In a handle that is still open: not even a commit could bring it back. */
	h = write_start(&im, 2);
	seq = h.seq;
	ck_ok(ext4_alloc_free(&h, im.fs, take.first, take.count, true));
	ck_assert_uint_eq(free_blocks(&im), 20);
	ext4_alloc_settle(im.fs);
	ck_assert_int_eq(im.fs->alloc->freed_blocks, 20);
	ck_ok(journal_stop(&h));
	ext4_alloc_settle(im.fs);
	ck_assert_int_eq(im.fs->alloc->freed_blocks, 20);
	/* Nothing else is free: the promise commits. */
	ck_assert_uint_lt(journal_durable(im.fs->journal), seq);
	ck_ok(ext4_reserve(im.fs, 20, true));
	ck_assert_uint_ge(journal_durable(im.fs->journal), seq);
	ck_assert_int_eq(im.fs->alloc->freed_blocks, 0);
	ck_err(ext4_reserve(im.fs, 1, true), ERR_NOSPC);
	ext4_unreserve(im.fs, rest + 20);
	write_close_and_judge(&im);
}
END_TEST

/* Runs that continue each other are one, either way; those of two transactions are not. */
START_TEST(freed_runs_merge)
{
	struct image im;
	struct ext4_take take;
	const struct alloc_freed *node;

	open_small(&im, "8M");
	take = write_take(&im, 0, 40);
	ck_assert_uint_eq(take.count, 40);
	for (uint32_t i = 20; i > 10; i--)
		ck_ok(write_free(&im, take.first + i - 1, 1, false));
	for (uint32_t i = 20; i < 30; i++)
		ck_ok(write_free(&im, take.first + i, 1, false));
	journal_lock(&im.fs->alloc->freed_lock);
	node = list_entry(im.fs->alloc->freed.next, struct alloc_freed, link);
	ck_assert_ptr_eq(node->link.next, &im.fs->alloc->freed);
	ck_assert_uint_eq(node->first, take.first + 10);
	ck_assert_uint_eq(node->count, 20);
	journal_unlock(&im.fs->alloc->freed_lock);
	write_commit(&im);
	ck_assert_int_eq(im.fs->alloc->freed_blocks, 0);
	ck_ok(write_free(&im, take.first, 10, false));
	ck_ok(write_free(&im, take.first + 30, 10, false));
	write_close_and_judge(&im);
}
END_TEST

/* --- many threads ---------------------------------------------------------------------------- */

enum { THREADS = 8 };
struct worker {
	pthread_t thread;
	struct ext4 *fs;
	uint64_t random, taken, rounds;
	struct ext4_take *take;
	size_t count;
	bool stop_when_full;
	enum err error;
};

static uint64_t worker_random(struct worker *w, uint64_t below)
{
	w->random ^= w->random >> 12;
	w->random ^= w->random << 25;
	w->random ^= w->random >> 27;
	return (w->random * 2685821657736338717ull >> 11) % below;
}

static void worker_fail(struct worker *w, enum err e)
{
	if (e && !w->error)
		w->error = e;
}

/*
 * Promised, taken to the last block. Unless the volume is to be filled, one in four gives a part of
 * the promise back, and one take in eight is not committed.
 */
static enum err worker_take(struct worker *w, uint32_t want)
{
	enum err e = ext4_reserve(w->fs, want, false);

	if (e)
		return e;
	if (!w->stop_when_full && want > 1 && worker_random(w, 4) == 0) {
		uint32_t back = (uint32_t)worker_random(w, want);
		ext4_unreserve(w->fs, back);
		want -= back;
	}
	while (want > 0 && !e) {
		struct ext4_take *take = &w->take[w->count];
		struct journal_handle h;

		e = ext4_alloc_take(w->fs, worker_random(w, w->fs->blocks), want, take);
		if (e)
			break;
		want -= take->count;
		if (!w->stop_when_full && worker_random(w, 8) == 0) {
			ext4_alloc_untake(w->fs, take);
			continue;
		}
		e = journal_start(w->fs->journal, 2, &h);
		if (e)
			break;
		e = ext4_alloc_commit(&h, w->fs, take);
		worker_fail(w, journal_stop(&h));
		w->taken += take->count;
		w->count++;
	}
	return e;
}

static void worker_give(struct worker *w)
{
	struct journal_handle h;
	size_t at = worker_random(w, w->count);
	struct ext4_take take = w->take[at];
	enum err e = journal_start(w->fs->journal, 2, &h);

	if (!e) {
		e = ext4_alloc_free(&h, w->fs, take.first, take.count, take.count % 2);
		worker_fail(w, journal_stop(&h));
	}
	worker_fail(w, e);
	w->taken -= take.count;
	w->take[at] = w->take[--w->count];
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;

	for (uint64_t i = 0; i < w->rounds && !w->error; i++) {
		enum err e = worker_take(w, 1 + (uint32_t)worker_random(w, 16));

		if (e == ERR_NOSPC && w->stop_when_full)
			e = worker_take(w, 1);
		if (e == ERR_NOSPC && w->stop_when_full)
			return NULL;
		if (e != ERR_NOSPC)
			worker_fail(w, e);
		while (!w->stop_when_full && w->count > 0 && worker_random(w, 2) == 0)
			worker_give(w);
	}
	return NULL;
}

static void workers_run(struct image *im, struct worker *w, uint64_t rounds, bool stop_when_full)
{
	for (int i = 0; i < THREADS; i++) {
		w[i].fs = im->fs;
		w[i].rounds = rounds;
		w[i].random = scratch_random(UINT64_MAX >> 1) | 1;
		w[i].stop_when_full = stop_when_full;
		if (!w[i].take)
			w[i].take = calloc(im->fs->blocks, sizeof(*w[i].take));
		ensure(w[i].take != NULL);
		ck_ok(thread_start(&w[i].thread, "worker", worker_run, &w[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		ck_assert_msg(!w[i].error, "thread %d: %s", i, err_name(w[i].error));
	}
}

/* Each thread is refused one block; by then all are out but the reserved ones. */
START_TEST(refusal_is_exact)
{
	struct worker w[THREADS] = {{0}};
	struct image im;
	uint64_t before, sum = 0, kept;

	open_small(&im, "8M");
	before = free_blocks(&im);
	kept = le32_get(im.fs->super.s_r_blocks_count_lo);
	/* First everything moves about, so that blocks are freed, waiting and taken. */
	workers_run(&im, w, 2000, false);
	for (int i = 0; i < THREADS; i++)
		sum += w[i].taken;
	ck_assert_uint_eq(free_blocks(&im), before - sum);
	workers_run(&im, w, UINT64_MAX, true);
	sum = 0;
	for (int i = 0; i < THREADS; i++)
		sum += w[i].taken;
	ck_assert_uint_eq(sum, before - kept);
	ck_assert_uint_eq(free_blocks(&im), kept);
	write_compare_views(&im);
	for (int i = 0; i < THREADS; i++)
		while (w[i].count > 0)
			worker_give(&w[i]);
	ck_assert_uint_eq(free_blocks(&im), before);
	write_commit(&im);
	write_compare_views(&im);
	for (int i = 0; i < THREADS; i++)
		free(w[i].take);
	write_close_and_judge(&im);
}
END_TEST

/* On a full volume, what one thread frees the other gets, however often. */
START_TEST(freed_space_is_never_refused)
{
	struct image im;
	struct ext4_take take;
	uint32_t rest;

	open_small(&im, "8M");
	take = write_take(&im, 0, 8);
	rest = (uint32_t)free_blocks(&im);
	ck_ok(ext4_reserve(im.fs, rest, true));
	for (int i = 0; i < 50; i++) {
		ck_ok(write_free(&im, take.first, take.count, i % 2));
		ck_ok(ext4_reserve(im.fs, 8, true));
		ck_err(ext4_reserve(im.fs, 1, true), ERR_NOSPC);
		ext4_unreserve(im.fs, 8);
		take = write_take(&im, take.first, 8);
		ck_assert_uint_eq(take.count, 8);
	}
	ck_ok(write_free(&im, take.first, take.count, false));
	ext4_unreserve(im.fs, rest);
	write_close_and_judge(&im);
}
END_TEST

START_TEST(a_failed_journal_refuses)
{
	struct image im;
	struct ext4_take take;

	open_small(&im, "8M");
	take = write_take(&im, 0, 8);
	ck_ok(write_free(&im, take.first, take.count, false));
	ck_ok(ext4_reserve(im.fs, (uint32_t)free_blocks(&im) - 8, true));
	journal_fail(im.fs->journal, ERR_IO, "the test says so");
	ck_err(ext4_reserve(im.fs, 1, true), ERR_ROFS);
	ext4_alloc_close(im.fs);
	ck_assert_int_ne(journal_close(im.fs->journal), OK);
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reserve");
	TCase *tc = tcase_create("reserve");

	tcase_set_timeout(tc, 100);
	tcase_add_test(tc, reserved_blocks);
	tcase_add_test(tc, over_the_border);
	tcase_add_test(tc, freed_blocks_wait_for_their_transaction);
	tcase_add_test(tc, freed_runs_merge);
	tcase_add_test(tc, refusal_is_exact);
	tcase_add_test(tc, freed_space_is_never_refused);
	tcase_add_test(tc, a_failed_journal_refuses);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
