/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Writing: what goes home and when, what stays, what is forgotten; alone and with many threads. */
#include "rig.h"
#include "rig_run.h"

enum { BLOCK = 1024 };

static void start(struct rig *r, fsblk_t blocks, uint64_t capacity_bytes)
{
	rig_start(r, BLOCK, blocks, capacity_bytes, NULL);
	ck_assert_int_eq(cache_allow_writing(r->cache), OK);
}

/* Block nr gets the content of block `content`, by transaction seq. */
static struct cache_block *change(struct rig *r, fsblk_t nr, uint64_t seq, fsblk_t content)
{
	struct cache_block *b;

	ck_assert_int_eq(cache_get(r->cache, nr, &b), OK);
	cache_pin(r->cache, b, seq);
	rig_fill(b->data, content, BLOCK);
	cache_put(r->cache, b);
	return b; /* dirty, so it stays where it is */
}

static bool at_home(const struct rig *r, fsblk_t nr, fsblk_t content)
{
	return rig_holds(r->m.bytes + nr * BLOCK, content, BLOCK);
}

static bool in_cache(struct rig *r, fsblk_t nr, fsblk_t content)
{
	struct cache_block *b;

	ck_assert_int_eq(cache_get(r->cache, nr, &b), OK);
	bool holds = rig_holds(b->data, content, BLOCK);
	cache_put(r->cache, b);
	return holds;
}

static uint64_t dirty(const struct rig *r)
{
	struct cache_stats stats;

	cache_stats(r->cache, &stats);
	return stats.dirty_blocks;
}

static uint64_t writes(const struct rig *r)
{
	return dev_fault_calls(r->m.fault, DEV_FAULT_WRITE);
}

START_TEST(a_block_goes_home_when_its_transaction_is_durable)
{
	struct rig r;
	struct cache_block *b;
	bool done = true;

	start(&r, 64, 64 * BLOCK);
	b = change(&r, 7, 10, 107);
	ck_assert_uint_eq(dirty(&r), 1);
	cache_set_durable(r.cache, 9);
	ck_assert_int_eq(cache_write_home(r.cache, &b, 1, &done), OK);
	ck_assert(!done && at_home(&r, 7, 7) && in_cache(&r, 7, 107));
	cache_set_durable(r.cache, 10);
	ck_assert_int_eq(cache_write_home(r.cache, &b, 1, &done), OK);
	ck_assert(done && at_home(&r, 7, 107) && in_cache(&r, 7, 107));
	ck_assert_uint_eq(dirty(&r), 0);
	rig_stop(&r);
}
END_TEST

START_TEST(a_block_that_a_later_transaction_pinned_waits_for_it)
{
	struct rig r;
	struct cache_block *b;
	bool done;

	start(&r, 64, 64 * BLOCK);
	b = change(&r, 7, 10, 107);
	cache_set_durable(r.cache, 10);
	ck_assert_ptr_eq(change(&r, 7, 11, 207), b);
	ck_assert_int_eq(cache_write_home(r.cache, &b, 1, &done), OK);
	ck_assert(!done && at_home(&r, 7, 7));
	ck_assert_uint_eq(dirty(&r), 1);
	cache_forget(r.cache, 7);
	rig_stop(&r);
}
END_TEST

START_TEST(adjacent_blocks_go_in_one_write_of_at_most_a_mebibyte)
{
	enum { COUNT = 1500 };
	struct rig r;
	static struct cache_block *b[COUNT + 1];
	static bool done[COUNT + 1];

	start(&r, 3000, 3000 * BLOCK);
	for (fsblk_t i = 0; i < COUNT; i++)
		b[i] = change(&r, 100 + i, 1, 5000 + i);
	b[COUNT] = change(&r, 2999, 1, 4999);
	cache_set_durable(r.cache, 1);
	ck_assert_int_eq(cache_write_home(r.cache, b, COUNT + 1, done), OK);
	ck_assert_uint_eq(writes(&r), 3); /* 1024, 476, 1 */
	for (fsblk_t i = 0; i < COUNT; i++)
		ck_assert(done[i] && at_home(&r, 100 + i, 5000 + i));
	ck_assert(done[COUNT] && at_home(&r, 2999, 4999));
	ck_assert(at_home(&r, 99, 99) && at_home(&r, 1600, 1600));
	rig_stop(&r);
}
END_TEST

START_TEST(every_block_size_goes_home)
{
	for (uint32_t bytes = 1024; bytes <= 65536; bytes *= 2) {
		struct rig r;
		struct cache_block *b[30];
		bool done[30];

		rig_start(&r, bytes, 40, 40 * (uint64_t)bytes, NULL);
		ck_assert_int_eq(cache_allow_writing(r.cache), OK);
		for (fsblk_t i = 0; i < 30; i++) {
			ck_assert_int_eq(cache_get(r.cache, i, &b[i]), OK);
			cache_pin(r.cache, b[i], 1);
			rig_fill(b[i]->data, 100 + i, bytes);
			cache_put(r.cache, b[i]);
		}
		cache_set_durable(r.cache, 1);
		ck_assert_int_eq(cache_write_home(r.cache, b, 30, done), OK);
		for (fsblk_t i = 0; i < 30; i++)
			ck_assert(done[i] && rig_holds(r.m.bytes + i * bytes, 100 + i, bytes));
		rig_stop(&r);
	}
}
END_TEST

START_TEST(what_a_failed_write_left_stays_dirty)
{
	struct rig r;
	struct cache_block *b[3];
	bool done[3];

	start(&r, 64, 64 * BLOCK);
	for (fsblk_t i = 0; i < 3; i++)
		b[i] = change(&r, 10 * i, 1, 100 + i);
	cache_set_durable(r.cache, 1);
	dev_fault_arm(r.m.fault, DEV_FAULT_WRITE, 2, false, ERR_IO);
	ck_assert_int_eq(cache_write_home(r.cache, b, 3, done), ERR_IO);
	ck_assert(done[0] && !done[1] && !done[2]);
	ck_assert_uint_eq(dirty(&r), 2);
	ck_assert(in_cache(&r, 10, 101));
	ck_assert_int_eq(cache_write_home(r.cache, b + 1, 2, done), OK);
	for (fsblk_t i = 0; i < 3; i++)
		ck_assert(at_home(&r, 10 * i, 100 + i));
	ck_assert_uint_eq(dirty(&r), 0);
	rig_stop(&r);
}
END_TEST

START_TEST(dirty_blocks_are_never_evicted)
{
	struct rig r;
	struct cache_stats stats;
	struct cache_block *b[200];
	bool done[200];

	start(&r, 3000, 64 * BLOCK);
	for (fsblk_t i = 0; i < 200; i++)
		b[i] = change(&r, i, 1, 5000 + i);
	for (fsblk_t nr = 200; nr < 3000; nr++)
		ck_assert(in_cache(&r, nr, nr));
	for (fsblk_t i = 0; i < 200; i++)
		ck_assert(in_cache(&r, i, 5000 + i));
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.dirty_blocks, 200);
	ck_assert_uint_eq(stats.pinned_blocks, 0);
	ck_assert_uint_le(stats.resident_bytes, (200 + 64) * BLOCK);
	ck_assert_uint_ge(stats.resident_bytes, (200 + 64 / 4) * BLOCK);
	cache_set_durable(r.cache, 1);
	ck_assert_int_eq(cache_write_home(r.cache, b, 200, done), OK);
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.dirty_blocks, 0);
	ck_assert_uint_le(stats.resident_bytes, 64 * BLOCK);
	for (fsblk_t nr = 0; nr < 3000; nr++)
		ck_assert(in_cache(&r, nr, nr < 200 ? 5000 + nr : nr));
	rig_stop(&r);
}
END_TEST

START_TEST(a_forgotten_block_never_goes_home)
{
	struct rig r;
	struct cache_block *held;

	start(&r, 64, 64 * BLOCK);
	(void)change(&r, 3, 1, 103);
	(void)change(&r, 4, 1, 104);
	ck_assert_int_eq(cache_get(r.cache, 4, &held), OK);
	ck_assert(in_cache(&r, 5, 5));
	for (fsblk_t nr = 3; nr < 7; nr++)
		cache_forget(r.cache, nr); /* dirty, dirty and held, clean, absent */
	ck_assert_uint_eq(dirty(&r), 0);
	ck_assert(rig_holds(held->data, 104, BLOCK));
	ck_assert(in_cache(&r, 3, 3) && in_cache(&r, 4, 4) && in_cache(&r, 5, 5));
	(void)change(&r, 4, 2, 204); /* beside the copy that is still held */
	cache_put(r.cache, held);
	ck_assert(in_cache(&r, 4, 204));
	cache_forget(r.cache, 4);
	ck_assert_uint_eq(writes(&r), 0);
	rig_stop(&r);
}
END_TEST

START_TEST(a_new_block_is_zeroed_and_not_read)
{
	struct rig r;
	struct cache_block *b;

	start(&r, 64, 64 * BLOCK);
	dev_fault_arm(r.m.fault, DEV_FAULT_READ, 1, true, ERR_IO);
	ck_assert_int_eq(cache_get_new(r.cache, 3, &b), OK);
	for (int i = 0; i < BLOCK; i++)
		ck_assert_uint_eq(b->data[i], 0);
	b->verified = 9;
	cache_pin(r.cache, b, 1);
	rig_fill(b->data, 103, BLOCK);
	cache_put(r.cache, b);
	ck_assert_uint_eq(rig_reads(&r), 0);
	ck_assert_int_eq(cache_get_new(r.cache, 3, &b), OK); /* dirty: it stays */
	ck_assert(rig_holds(b->data, 103, BLOCK));
	ck_assert_uint_eq(b->verified, 9);
	cache_put(r.cache, b);
	cache_forget(r.cache, 3);
	ck_assert_int_eq(cache_get_new(r.cache, 64, &b), ERR_CORRUPT);
	rig_stop(&r);
}
END_TEST

START_TEST(a_new_block_that_is_cached_clean_is_zeroed_too)
{
	struct rig r;
	struct cache_block *b;

	start(&r, 64, 64 * BLOCK);
	ck_assert_int_eq(cache_get(r.cache, 3, &b), OK);
	b->verified = 9;
	cache_put(r.cache, b);
	ck_assert_int_eq(cache_get_new(r.cache, 3, &b), OK);
	ck_assert_uint_eq(b->verified, 0);
	for (int i = 0; i < BLOCK; i++)
		ck_assert_uint_eq(b->data[i], 0);
	cache_put(r.cache, b);
	rig_stop(&r);
}
END_TEST

START_TEST(file_data_is_written_past_the_cache)
{
	struct rig r;
	uint8_t data[4 * BLOCK];
	struct iovec iov[2] = {{data, 512}, {data + 512, sizeof(data) - 512}};
	struct cache_stats stats;

	start(&r, 64, 64 * BLOCK);
	for (fsblk_t i = 0; i < 4; i++)
		rig_fill(data + i * BLOCK, 900 + i, BLOCK);
	ck_assert_int_eq(cache_write_past(r.cache, 20, 4, iov, 2), OK);
	ck_assert_int_eq(cache_write_past(r.cache, 61, 4, iov, 2), ERR_CORRUPT);
	ck_assert_int_eq(cache_write_past(r.cache, UINT64_MAX - 1, 4, iov, 2), ERR_CORRUPT);
	dev_fault_arm(r.m.fault, DEV_FAULT_WRITE, 1, false, ERR_NOSPC);
	ck_assert_int_eq(cache_write_past(r.cache, 40, 4, iov, 2), ERR_NOSPC);
	for (fsblk_t i = 0; i < 4; i++)
		ck_assert(at_home(&r, 20 + i, 900 + i));
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.resident_bytes, 0);
	rig_stop(&r);
}
END_TEST

/* Our own bugs end the program at once. */
static void pin_backwards(struct rig *r)
{
	(void)change(r, 1, 5, 101);
	(void)change(r, 1, 4, 101);
}
static void pin_behind_durable(struct rig *r)
{
	cache_set_durable(r->cache, 5);
	(void)change(r, 1, 5, 101);
}
static void durable_backwards(struct rig *r)
{
	cache_set_durable(r->cache, 5);
	cache_set_durable(r->cache, 4);
}
static void destroy_dirty(struct rig *r)
{
	(void)change(r, 1, 5, 101);
	cache_destroy(r->cache);
}
static void home_unsorted(struct rig *r)
{
	struct cache_block *b[2] = {change(r, 2, 5, 102), change(r, 1, 5, 101)};
	bool done[2];

	cache_set_durable(r->cache, 5);
	(void)!cache_write_home(r->cache, b, 2, done);
}
static void (*const bugs[])(struct rig *) = {
	pin_backwards, pin_behind_durable, durable_backwards, destroy_dirty, home_unsorted};

START_TEST(our_own_bugs_abort)
{
	struct rig r;

	start(&r, 64, 64 * BLOCK);
	bugs[_i](&r);
}
END_TEST

/* --- threads --------------------------------------------------------------------------------- */

enum { CHANGERS = 3, SHARED = 24, TURNS = 3000 };

/*
 * Threads change blocks, each in a transaction of its own number, as if a journal made each
 * durable at once; one thread writes home all the time. Every home block must be whole: one
 * version of the block, and never an older one after a newer one.
 */
struct contest {
	struct rig r;
	pthread_mutex_t lock[SHARED]; /* the layer above: one changes a block at a time */
	pthread_mutex_t order;
	uint64_t next, made[SHARED], seen[SHARED];
	struct cache_block *b[SHARED];
	_Atomic unsigned running;
	uint64_t seed;
};

static void fill_version(uint8_t *data, uint64_t version)
{
	for (size_t at = 0; at < BLOCK; at += sizeof(version))
		memcpy(data + at, &version, sizeof(version));
}

static void contest_change(struct contest *k, unsigned i)
{
	struct cache_block *b;

	pthread_mutex_lock(&k->lock[i]);
	ck_assert_int_eq(cache_get(k->r.cache, i * 2, &b), OK);
	/* Numbers rise and are durable in order, so number and durability are one step here. */
	pthread_mutex_lock(&k->order);
	uint64_t seq = ++k->next;
	cache_pin(k->r.cache, b, seq);
	fill_version(b->data, seq);
	k->made[i] = seq;
	cache_set_durable(k->r.cache, seq);
	pthread_mutex_unlock(&k->order);
	cache_put(k->r.cache, b);
	pthread_mutex_unlock(&k->lock[i]);
}

static void contest_home(struct contest *k, bool last)
{
	bool done[SHARED];

	/* Only dirty blocks may be given; here a block is dirty when it was changed since. */
	struct cache_block *list[SHARED];
	unsigned at[SHARED];
	size_t count = 0;

	for (unsigned i = 0; i < SHARED; i++) {
		pthread_mutex_lock(&k->lock[i]);
		if (k->made[i] > k->seen[i]) {
			at[count] = i;
			list[count++] = k->b[i];
		}
		pthread_mutex_unlock(&k->lock[i]);
	}
	ck_assert_int_eq(cache_write_home(k->r.cache, list, count, done), OK);
	for (size_t n = 0; n < count; n++) {
		const uint8_t *home = k->r.m.bytes + (size_t)at[n] * 2 * BLOCK;
		uint64_t version, word;

		/* Pinned again, and at that moment not durable: its turn comes. */
		if (!done[n] && !last)
			continue;
		ck_assert(done[n]);
		memcpy(&version, home, sizeof(version));
		for (size_t w = 0; w < BLOCK; w += sizeof(word)) {
			memcpy(&word, home + w, sizeof(word));
			ck_assert_uint_eq(word, version);
		}
		ck_assert_uint_gt(version, k->seen[at[n]]);
		k->seen[at[n]] = version;
		if (last)
			ck_assert_uint_eq(version, k->made[at[n]]);
	}
}

static void contest_run(unsigned index, void *arg)
{
	struct contest *k = arg;
	uint64_t random = k->seed + index;

	if (index == CHANGERS) {
		while (atomic_load(&k->running) > 0)
			contest_home(k, false);
		return;
	}
	for (int turn = 0; turn < TURNS; turn++)
		contest_change(k, (unsigned)(rig_random(&random) % SHARED));
	atomic_fetch_sub(&k->running, 1);
}

START_TEST(a_home_block_is_always_one_whole_version)
{
	static struct contest k;

	k = (struct contest){.seed = rig_seed("a_home_block_is_always_one_whole_version")};
	start(&k.r, 64, 64 * BLOCK);
	pthread_mutex_init(&k.order, NULL);
	for (unsigned i = 0; i < SHARED; i++) {
		pthread_mutex_init(&k.lock[i], NULL);
		ck_assert_int_eq(cache_get(k.r.cache, i * 2, &k.b[i]), OK);
	}
	k.running = CHANGERS;
	rig_run_threads(CHANGERS + 1, contest_run, &k);
	contest_home(&k, true);
	ck_assert_uint_eq(dirty(&k.r), 0);
	for (unsigned i = 0; i < SHARED; i++)
		cache_put(k.r.cache, k.b[i]);
	rig_stop(&k.r);
}
END_TEST

static void forget_run(unsigned index, void *arg)
{
	struct rig *r = arg;
	struct cache_block *b;

	for (int turn = 0; turn < 4 * TURNS; turn++) {
		fsblk_t nr = (fsblk_t)turn % 5;

		if (index == 0) {
			cache_forget(r->cache, nr);
		} else if (index == 1) {
			cache_prefetch(r->cache, nr, 3);
		} else if (index == 2) {
			ck_assert_int_eq(cache_get(r->cache, nr, &b), OK);
			ck_assert(rig_holds(b->data, nr, BLOCK));
			cache_put(r->cache, b);
		} else {
			ck_assert_int_eq(cache_get_new(r->cache, 10 + nr, &b), OK);
			cache_put(r->cache, b);
			cache_forget(r->cache, 10 + nr);
		}
	}
}

START_TEST(forgetting_while_others_read)
{
	struct rig r;
	struct cache_stats stats;

	start(&r, 64, 8 * BLOCK);
	rig_run_threads(4, forget_run, &r);
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.pinned_blocks, 0);
	ck_assert_uint_eq(stats.dirty_blocks, 0);
	rig_stop(&r);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("write");
	TCase *tc = rig_case(suite, "alone");

	tcase_add_test(tc, a_block_goes_home_when_its_transaction_is_durable);
	tcase_add_test(tc, a_block_that_a_later_transaction_pinned_waits_for_it);
	tcase_add_test(tc, adjacent_blocks_go_in_one_write_of_at_most_a_mebibyte);
	tcase_add_test(tc, every_block_size_goes_home);
	tcase_add_test(tc, what_a_failed_write_left_stays_dirty);
	tcase_add_test(tc, dirty_blocks_are_never_evicted);
	tcase_add_test(tc, a_forgotten_block_never_goes_home);
	tcase_add_test(tc, a_new_block_is_zeroed_and_not_read);
	tcase_add_test(tc, a_new_block_that_is_cached_clean_is_zeroed_too);
	tcase_add_test(tc, file_data_is_written_past_the_cache);
	tc = rig_case(suite, "bugs");
	tcase_add_loop_test_raise_signal(tc, our_own_bugs_abort, 6, 0, (int)ARRAY_SIZE(bugs));
	tc = rig_case(suite, "threads");
	tcase_add_test(tc, a_home_block_is_always_one_whole_version);
	tcase_add_test(tc, forgetting_while_others_read);
	return rig_run_suite(suite);
}
