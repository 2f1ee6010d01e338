/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commits: what lies in the log, in which order it gets there, and who shares one. */
#include "small_fs.h"

#include <unistd.h>

/* The block at a position of the log. */
static const uint8_t *log_at(struct small *s, uint32_t position)
{
	return small_home(s, log_physical(&s->journal->log, position));
}

static uint32_t type_at(struct small *s, uint32_t position, uint32_t sequence)
{
	struct disk_header h;

	memcpy(&h, log_at(s, position), sizeof(h));
	if (be32_get(h.h_magic) != (uint32_t)JBD2_MAGIC || be32_get(h.h_sequence) != sequence)
		return 0;
	return be32_get(h.h_blocktype);
}

/* --- bytes ----------------------------------------------------------------------------------- */

START_TEST(a_copy_that_starts_with_the_magic_is_escaped)
{
	static const uint8_t magic[4] = {0xc0, 0x3b, 0x39, 0x98};

	for (int version = 0; version < 4; version++) {
		struct small s;
		struct journal_handle h;
		struct cache_block *b;

		small_make(&s);
		s.config.fs_metadata_csum = false;
		small_super(&s)->s_feature_compat =
			be32_make(version == 1 ? JBD2_COMPAT_CHECKSUM : 0);
		small_super(&s)->s_feature_incompat = be32_make(
			JBD2_INCOMPAT_64BIT | (version == 2          ? JBD2_INCOMPAT_CSUM_V2
						      : version == 3 ? JBD2_INCOMPAT_CSUM_V3
								     : 0));
		small_seal(&s);
		ck_assert_int_eq(small_open(&s), OK);
		small_begin(&s, 2, &h);
		small_put(&s, &h, SMALL_FREE, 1);
		ck_assert_int_eq(cache_get(s.cache, SMALL_FREE + 1, &b), OK);
		ck_assert_int_eq(journal_write(&h, b), OK);
		memcpy(b->data, magic, 4);
		uint64_t seq = h.seq;

		ck_assert_int_eq(journal_stop(&h), OK);
		ck_assert_int_eq(journal_commit(s.journal, seq), OK);
		ck_assert_mem_eq(b->data, magic, 4);
		cache_put(s.cache, b);
		/* Descriptor, two copies, commit block. */
		ck_assert_uint_eq(type_at(&s, 1, (uint32_t)seq), JBD2_DESCRIPTOR);
		ck_assert_mem_eq(log_at(&s, 3), "\0\0\0\0", 4);
		ck_assert_mem_eq(
			log_at(&s, 3) + 4, small_home(&s, SMALL_FREE + 1) + 4, SMALL_BLOCK - 4);
		ck_assert_uint_eq(type_at(&s, 4, (uint32_t)seq), JBD2_COMMIT);
		/* The first tag ends with 16 bytes of UUID; flags end at byte 8 of a tag. */
		uint32_t tag = 12 + s.journal->log.tag_bytes + 16;

		ck_assert_uint_eq(log_at(&s, 1)[12 + 7], 0);
		ck_assert_uint_eq(log_at(&s, 1)[tag + 7],
			JBD2_TAG_ESCAPE | JBD2_TAG_SAME_UUID | JBD2_TAG_LAST);
		ck_assert_int_eq(journal_checkpoint(s.journal), OK);
		ck_assert_mem_eq(small_home(&s, SMALL_FREE + 1), magic, 4);
		small_stop(&s);
	}
}
END_TEST

START_TEST(a_transaction_of_many_blocks_has_many_descriptors)
{
	for (uint32_t count = 60; count < 66; count++) {
		struct small s;
		struct journal_handle h;

		small_start(&s);
		ck_assert_uint_eq(s.journal->tags_per_block, (1024 - 4 - 12 - 16) / 16);
		small_begin(&s, count, &h);
		for (uint32_t n = 0; n < count; n++)
			small_put(&s, &h, SMALL_FREE + n * 2, n);
		uint64_t seq = h.seq;

		ck_assert_int_eq(journal_stop(&h), OK);
		ck_assert_int_eq(journal_commit(s.journal, seq), OK);
		uint32_t descriptors = (count + 61) / 62;

		ck_assert_uint_eq(small_stats(&s).used, count + descriptors + 1);
		ck_assert_uint_eq(type_at(&s, 1, (uint32_t)seq), JBD2_DESCRIPTOR);
		if (descriptors > 1)
			ck_assert_uint_eq(type_at(&s, 64, (uint32_t)seq), JBD2_DESCRIPTOR);
		for (uint32_t n = 0; n < count; n++)
			ck_assert(small_replayed(&s, SMALL_FREE + n * 2, n));
		small_stop(&s);
	}
}
END_TEST

/* Fails the last write of a commit: what lies where the commit block was to go is zeros. */
START_TEST(the_place_of_the_commit_block_is_zeroed_before)
{
	static const uint8_t zeros[SMALL_BLOCK];
	struct small s;
	uint64_t seq;

	small_start(&s);
	seq = small_change(&s, SMALL_FREE, 1);
	/* Superblock, log (in one piece: position 1 to 4 of the first run), commit block. */
	dev_fault_arm(s.m.fault, DEV_FAULT_WRITE, 3, false, ERR_IO);
	ck_assert_int_eq(journal_commit(s.journal, seq), ERR_IO);
	ck_assert_uint_eq(type_at(&s, 1, (uint32_t)seq), JBD2_DESCRIPTOR);
	ck_assert_mem_eq(log_at(&s, 3), zeros, SMALL_BLOCK);
	ck_assert(small_replayed(&s, SMALL_FREE, SMALL_FREE));
	ck_assert_int_eq(journal_close(s.journal), ERR_ROFS);
	small_free(&s);
}
END_TEST

START_TEST(times_of_commit_blocks_never_decrease)
{
	struct small s;
	uint64_t last = 0;

	small_start(&s);
	for (uint32_t n = 0; n < 20; n++) {
		struct disk_commit c;
		uint64_t seq = small_change(&s, SMALL_FREE, n);

		if (n == 10) /* as if the clock were set back an hour */
			s.journal->commit_sec += 3600;
		ck_assert_int_eq(journal_commit(s.journal, seq), OK);
		memcpy(&c, log_at(&s, 1 + n * 3 + 2), sizeof(c));
		ck_assert_uint_eq(be32_get(c.h_header.h_blocktype), JBD2_COMMIT);
		ck_assert_uint_ge(be64_get(c.h_commit_sec), last);
		ck_assert_uint_lt(be32_get(c.h_commit_nsec), 1000000000);
		last = be64_get(c.h_commit_sec);
		/* time() may lag behind by a tick of the kernel's clock. */
		if (n == 0)
			ck_assert_uint_le((uint64_t)time(NULL) + 1 - last, 100);
	}
	small_stop(&s);
}
END_TEST

/* --- order ----------------------------------------------------------------------------------- */

/* What a commit did to the device, one letter each. */
static char trace[64];
static size_t trace_length;

static void trace_add(char letter)
{
	if (trace_length < sizeof(trace) - 1)
		trace[trace_length++] = letter;
	trace[trace_length] = '\0';
}

static void trace_write(struct small *s, uint64_t offset_bytes, uint64_t len_bytes)
{
	fsblk_t nr = offset_bytes / SMALL_BLOCK;
	bool journal = nr >= 100 && nr < SMALL_FREE;

	trace_add(nr == s->runs[0].physical             ? 's'
		  : journal && len_bytes == SMALL_BLOCK ? 'c'
		  : journal                             ? 'l'
							: 'h');
}

static void trace_flush(struct small *s)
{
	(void)s;
	trace_add('F');
}

static void trace_start(struct small *s)
{
	trace_length = 0;
	trace_add(' ');
	trace_length = 0;
	trace[0] = '\0';
	s->hook.before_write = trace_write;
	s->hook.before_flush = trace_flush;
}

START_TEST(a_commit_is_the_log_a_flush_the_commit_block_a_flush)
{
	struct small s;
	uint64_t seq;

	small_start(&s);
	trace_start(&s);
	ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, 1)), OK);
	ck_assert_str_eq(trace, "slFcF");
	trace_start(&s);
	seq = small_change(&s, SMALL_FREE, 2);
	ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	ck_assert_str_eq(trace, "lFcF");
	trace_start(&s);
	for (uint64_t before = seq; before > seq - 2; before--)
		ck_assert_int_eq(journal_commit(s.journal, before), OK);
	ck_assert_int_eq(journal_commit(s.journal, journal_running(s.journal)), OK);
	ck_assert_str_eq(trace, ""); /* durable already */
	ck_assert_int_eq(journal_checkpoint(s.journal), OK);
	ck_assert_str_eq(trace, "hFsFsF");
	trace_start(&s);
	ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, 3)), OK);
	ck_assert_str_eq(trace, "slFcF");
	small_stop(&s);
}
END_TEST

/* --- versions -------------------------------------------------------------------------------- */

/* In the journal's thread, between the copies and the commit block: the next transaction runs. */
static void change_meanwhile(struct small *s)
{
	if (s->turn++ == 0)
		(void)small_change(s, SMALL_FREE, 2);
}

START_TEST(what_is_changed_while_a_commit_is_under_way_is_the_next_s)
{
	struct small s;
	uint64_t seq;

	small_start(&s);
	seq = small_change(&s, SMALL_FREE, 1);
	s.hook.before_flush = change_meanwhile;
	ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	ck_assert(small_cached(&s, SMALL_FREE, 2));
	ck_assert(small_replayed(&s, SMALL_FREE, 1));
	ck_assert_int_eq(journal_commit(s.journal, seq + 1), OK);
	ck_assert(small_replayed(&s, SMALL_FREE, 2));
	small_stop(&s);
}
END_TEST

/* The block is freed, and used again against the rules of allocation, while its freeing commits. */
static void write_again_meanwhile(struct small *s)
{
	if (s->turn++ == 0)
		(void)small_change(s, SMALL_FREE, 3);
}

START_TEST(a_block_taken_back_while_its_revoke_commits_is_kept)
{
	struct small s;
	uint64_t seq;

	small_start(&s);
	ck_assert_int_eq(journal_commit(s.journal, small_change(&s, SMALL_FREE, 1)), OK);
	seq = small_forget(&s, SMALL_FREE, 1);
	s.hook.before_flush = write_again_meanwhile;
	ck_assert_int_eq(journal_commit(s.journal, seq), OK);
	ck_assert(small_cached(&s, SMALL_FREE, 3));
	ck_assert_int_eq(journal_commit(s.journal, seq + 1), OK);
	ck_assert(small_replayed(&s, SMALL_FREE, 3));
	small_stop(&s);
}
END_TEST

/* --- who shares one -------------------------------------------------------------------------- */

enum { SHARERS = 8 };

struct sharers {
	struct small s;
	uint64_t seq;
	_Atomic bool opened;
	_Atomic int waiting;
};

static void sharer_run(unsigned index, void *arg)
{
	struct sharers *k = arg;
	struct journal_handle h;

	if (index < SHARERS) {
		small_wait(atomic_load(&k->opened));
		atomic_fetch_add(&k->waiting, 1);
		ck_assert_int_eq(journal_commit(k->s.journal, k->seq), OK);
		ck_assert_uint_ge(journal_durable(k->s.journal), k->seq);
		return;
	}
	/* The last one keeps the transaction open until all others wait for it. */
	small_begin(&k->s, 1, &h);
	ck_assert_uint_eq(h.seq, k->seq);
	small_put(&k->s, &h, SMALL_FREE, 1);
	atomic_store(&k->opened, true);
	small_wait(atomic_load(&k->waiting) == SHARERS);
	ck_assert_int_eq(journal_stop(&h), OK);
}

START_TEST(callers_that_come_together_share_a_commit)
{
	static struct sharers k;

	small_start(&k.s);
	k.seq = small_change(&k.s, SMALL_FREE + 1, 2);
	rig_run_threads(SHARERS + 1, sharer_run, &k);
	ck_assert_uint_eq(small_stats(&k.s).commits, 1);
	ck_assert_uint_eq(small_flushes(&k.s), 2);
	ck_assert(small_replayed(&k.s, SMALL_FREE, 1));
	ck_assert(small_replayed(&k.s, SMALL_FREE + 1, 2));
	small_stop(&k.s);
}
END_TEST

START_TEST(a_commit_comes_by_itself)
{
	struct small s;
	uint64_t seq;

	small_make(&s);
	s.config.commit_interval_ms = 20;
	ck_assert_int_eq(small_open(&s), OK);
	for (uint64_t n = 0; n < 3; n++) {
		seq = small_change(&s, SMALL_FREE, n);
		small_wait(journal_durable(s.journal) >= seq);
		ck_assert(small_replayed(&s, SMALL_FREE, n));
	}
	small_stop(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("commit");
	TCase *tc = rig_case(suite, "commit");

	tcase_add_test(tc, a_copy_that_starts_with_the_magic_is_escaped);
	tcase_add_test(tc, a_transaction_of_many_blocks_has_many_descriptors);
	tcase_add_test(tc, the_place_of_the_commit_block_is_zeroed_before);
	tcase_add_test(tc, times_of_commit_blocks_never_decrease);
	tcase_add_test(tc, a_commit_is_the_log_a_flush_the_commit_block_a_flush);
	tcase_add_test(tc, what_is_changed_while_a_commit_is_under_way_is_the_next_s);
	tcase_add_test(tc, a_block_taken_back_while_its_revoke_commits_is_kept);
	tcase_add_test(tc, callers_that_come_together_share_a_commit);
	tcase_add_test(tc, a_commit_comes_by_itself);
	return rig_run_suite(suite);
}
