/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A block's states under threads: one reader with others waiting, failures, and a random storm. */
#include "rig.h"

enum { BLOCK = 1024, BLOCKS = 300, WAITERS = 8, STORM_THREADS = 6, STORM_STEPS = 4000 };

/* --- a device whose reads stop at a gate ----------------------------------------------------- */

struct gate {
	struct dev dev;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int reads; /* that arrived */
	bool open;
	enum err result;
};

static enum err gate_readv(struct dev *d, const struct iovec *iov, int count, uint64_t offset)
{
	struct gate *g = container_of(d, struct gate, dev);

	pthread_mutex_lock(&g->lock);
	g->reads++;
	pthread_cond_broadcast(&g->changed);
	while (!g->open)
		pthread_cond_wait(&g->changed, &g->lock);
	enum err e = g->result;
	pthread_mutex_unlock(&g->lock);
	for (int i = 0; e == OK && i < count; i++) {
		for (size_t at = 0; at < iov[i].iov_len; at += BLOCK)
			rig_fill((uint8_t *)iov[i].iov_base + at, (offset + at) / BLOCK, BLOCK);
		offset += iov[i].iov_len;
	}
	return e;
}

static void gate_close(struct dev *d)
{
	(void)d; /* lives in the test's frame */
}

static const struct dev_ops gate_ops = {.readv = gate_readv, .close = gate_close};

static void gate_wait_for_reads(struct gate *g, int reads)
{
	pthread_mutex_lock(&g->lock);
	while (g->reads < reads)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
}

static void gate_open(struct gate *g, enum err result)
{
	pthread_mutex_lock(&g->lock);
	g->open = true;
	g->result = result;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

struct waiter {
	struct cache *cache;
	enum err result;
	bool right;
};

static void *waiter_run(void *arg)
{
	struct waiter *w = arg;
	struct cache_block *b;

	w->result = cache_get(w->cache, 3, &b);
	if (w->result == OK) {
		w->right = rig_holds(b->data, 3, BLOCK);
		cache_put(w->cache, b);
	}
	return NULL;
}

/* Waiters count as misses when they start to wait, which is how the test sees that they do. */
static void wait_for_misses(struct cache *c, uint64_t misses)
{
	struct cache_stats stats;

	do {
		cache_stats(c, &stats);
		sched_yield();
	} while (stats.misses < misses);
}

static void crowd(enum err result, bool by_prefetch)
{
	struct gate g = {.dev = {.ops = &gate_ops,
				 .kind = DEV_MEMORY,
				 .size_bytes = BLOCKS * BLOCK,
				 .align_bytes = 1},
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER};
	struct memory_volume m = {0};
	struct waiter waiters[WAITERS];
	pthread_t threads[WAITERS];
	struct cache *c;
	struct cache_block *b;
	struct cache_stats stats;

	ck_assert_int_eq(memory_volume_open_over(&g.dev, BLOCKS * BLOCK, &m), OK);
	ck_assert_int_eq(cache_create(&(struct cache_config){.volume = m.volume,
					      .block_bytes = BLOCK,
					      .blocks = BLOCKS,
					      .capacity_bytes = 64 * BLOCK},
				 &c),
		OK);
	for (int i = 0; i < WAITERS; i++) {
		waiters[i] = (struct waiter){.cache = c};
		ck_assert_int_eq(thread_start(&threads[i], "waiter", waiter_run, &waiters[i]), OK);
	}
	gate_wait_for_reads(&g, 1);
	wait_for_misses(c, WAITERS);
	ck_assert_int_eq(g.reads, 1);
	if (by_prefetch) /* skips the block that is being read, and does not wait for it */
		cache_prefetch(c, 3, 1);
	gate_open(&g, result);
	for (int i = 0; i < WAITERS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(waiters[i].result, result);
		ck_assert(waiters[i].right == (result == OK));
	}
	cache_stats(c, &stats);
	ck_assert_uint_eq(stats.pinned_blocks, 0);
	ck_assert_uint_eq(stats.resident_bytes, result == OK ? BLOCK : 0);
	gate_open(&g, OK);
	ck_assert_int_eq(cache_get(c, 3, &b), OK);
	ck_assert(rig_holds(b->data, 3, BLOCK));
	cache_put(c, b);
	ck_assert_int_eq(g.reads, result == OK ? 1 : 2);
	cache_destroy(c);
	memory_volume_close(&m);
}

START_TEST(one_reads_and_the_others_wait)
{
	crowd(OK, false);
	crowd(OK, true);
}
END_TEST

START_TEST(every_waiter_gets_the_error_and_the_next_get_tries_again)
{
	crowd(ERR_IO, false);
}
END_TEST

/* --- storm ----------------------------------------------------------------------------------- */

struct storm {
	struct rig *rig;
	unsigned seed;
	int wrong;
	uint64_t errors;
};

static void *storm_run(void *arg)
{
	struct storm *s = arg;
	struct cache *c = s->rig->cache;

	for (int step = 0; step < STORM_STEPS; step++) {
		fsblk_t nr = (unsigned)rand_r(&s->seed) % BLOCKS;
		struct cache_block *b[3] = {NULL};

		if (rand_r(&s->seed) % 8 == 0)
			cache_prefetch(c, nr, (unsigned)rand_r(&s->seed) % 20);
		for (int i = 0; i < 3; i++) {
			fsblk_t want = (nr + (unsigned)i * 7) % BLOCKS;
			enum err e = cache_get(c, want, &b[i]);

			if (e != OK) {
				s->errors++;
				s->wrong += e != ERR_IO;
				continue;
			}
			s->wrong += b[i]->nr != want ||
				    !rig_holds(b[i]->data, want == 5 ? 200 : want, BLOCK);
			atomic_store(&b[i]->verified, 1);
		}
		for (int i = 0; i < 3; i++)
			cache_put(c, b[i]);
	}
	return NULL;
}

static void storm(uint64_t capacity_blocks, bool faults)
{
	static const struct overlay_entry entry = {.block = 5, .log = 200};
	struct storm storms[STORM_THREADS];
	pthread_t threads[STORM_THREADS];
	struct cache_stats stats;
	struct overlay *o;
	struct rig r;

	ck_assert_int_eq(overlay_create(&entry, 1, &o), OK);
	rig_start(&r, BLOCK, BLOCKS, capacity_blocks * BLOCK, o);
	for (unsigned i = 0; i < STORM_THREADS; i++) {
		storms[i] = (struct storm){.rig = &r, .seed = 1000 + i};
		ck_assert_int_eq(thread_start(&threads[i], "storm", storm_run, &storms[i]), OK);
	}
	for (int i = 0; faults && i < 50; i++) {
		dev_fault_arm(r.m.fault, DEV_FAULT_READ, 20, false, ERR_IO);
		sched_yield();
	}
	for (unsigned i = 0; i < STORM_THREADS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(storms[i].wrong, 0);
		if (!faults)
			ck_assert_uint_eq(storms[i].errors, 0);
	}
	cache_stats(r.cache, &stats);
	ck_assert_uint_eq(stats.pinned_blocks, 0);
	ck_assert_uint_le(stats.resident_bytes, capacity_blocks * BLOCK);
	rig_stop(&r);
}

START_TEST(a_storm_reads_right)
{
	storm(1, false);
	storm(40, false);
	storm(1000, false);
}
END_TEST

START_TEST(a_storm_with_faults_reads_right)
{
	storm(20, true);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("shard");
	TCase *t = tcase_create("shard");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, one_reads_and_the_others_wait);
	tcase_add_test(t, every_waiter_gets_the_error_and_the_next_get_tries_again);
	tcase_add_test(t, a_storm_reads_right);
	tcase_add_test(t, a_storm_with_faults_reads_right);
	suite_add_tcase(s, t);

	SRunner *sr = srunner_create(s);

	srunner_run_all(sr, CK_ENV);
	int failed = srunner_ntests_failed(sr);

	srunner_free(sr);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
