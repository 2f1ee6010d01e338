/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of cipher/volume.c: reads and writes of any sectors against a copy in clear and against the
 * device's bytes, bounds, short devices, and every I/O failing in turn.
 */
#include "cipher.h"

#include "base.h"
#include "scratch.h"

enum {
	VOLUME_BYTES = 3 << 20,
	OFFSET_BYTES = 32768,
	IV_OFFSET = 13, /* deliberately no multiple of the cipher sector */
	ROUNDS = 150,
	PIECES_MAX = 7,
};

struct rig {
	struct dev *dev, *below;
	struct ioq *ioq;
	struct volume *volume;
	struct cipher *twin; /* the same key, for looking below the volume */
};

static struct cipher *rig_cipher(uint32_t sector_bytes)
{
	struct cipher_spec spec;
	struct secret key;
	struct cipher *c;

	ck_ok(cipher_spec_parse("aes-xts-plain64", 64, sector_bytes, &spec));
	ck_ok(secret_alloc(&key, 64));
	for (int i = 0; i < 64; i++)
		key.bytes[i] = (uint8_t)(i * 3 + 1);
	ck_ok(cipher_create(&spec, &key, &c));
	secret_free(&key);
	return c;
}

static void rig_make(struct rig *r, struct dev *below, uint32_t sector_bytes)
{
	struct volume_config config = {
		.offset_bytes = OFFSET_BYTES,
		.size_bytes = VOLUME_BYTES,
		.iv_offset = IV_OFFSET,
	};

	r->below = below;
	ck_ok(dev_open_fault(below, &r->dev));
	ck_ok(ioq_create(r->dev, &r->ioq));
	config.ioq = r->ioq;
	config.cipher = rig_cipher(sector_bytes);
	ck_ok(volume_create(&config, &r->volume));
	r->twin = rig_cipher(sector_bytes);
}

static struct dev *rig_memory(void)
{
	struct dev *d;

	ck_ok(dev_open_memory(OFFSET_BYTES + VOLUME_BYTES + 512, &d));
	return d;
}

static void rig_free(struct rig *r)
{
	volume_destroy(r->volume);
	cipher_destroy(r->twin);
	ioq_destroy(r->ioq);
	dev_close(r->dev);
}

static void random_range(uint64_t *offset, size_t *len)
{
	const uint64_t most = scratch_random(8) == 0 ? VOLUME_BYTES / 512 : 40;

	*len = (size_t)(1 + scratch_random(most)) * 512;
	*offset = scratch_random((VOLUME_BYTES - *len) / 512 + 1) * 512;
}

/* Buffers for `len` bytes in the arena, some of them with gaps between. */
static int random_pieces(struct iovec iov[PIECES_MAX], uint8_t *arena, size_t len)
{
	size_t at = 0;
	int count = 0;

	for (; len > 0; count++) {
		size_t part = (size_t)(1 + scratch_random(len / 512)) * 512;

		if (count == PIECES_MAX - 1)
			part = len;
		iov[count] = (struct iovec){arena + at, part};
		at += part + 512 * scratch_random(3);
		len -= part;
	}
	return count;
}

static void write_and_model(struct volume *v, uint8_t *model, uint8_t *arena)
{
	struct iovec iov[PIECES_MAX];
	uint64_t offset;
	size_t len;

	random_range(&offset, &len);

	int count = random_pieces(iov, arena, len);
	uint64_t at = offset;

	for (int i = 0; i < count; at += iov[i++].iov_len) {
		memset(iov[i].iov_base, (int)scratch_random(256), iov[i].iov_len);
		memcpy(model + at, iov[i].iov_base, iov[i].iov_len);
	}
	ck_ok(volume_writev(v, iov, count, offset));
	for (int i = 0; i < count; offset += iov[i++].iov_len)
		ck_assert_mem_eq(iov[i].iov_base, model + offset, iov[i].iov_len);
}

static void read_and_compare(struct volume *v, const uint8_t *model, uint8_t *arena)
{
	struct iovec iov[PIECES_MAX];
	uint64_t offset;
	size_t len;

	random_range(&offset, &len);

	int count = random_pieces(iov, arena, len);

	ck_ok(volume_readv(v, iov, count, offset));
	for (int i = 0; i < count; offset += iov[i++].iov_len)
		ck_assert_mem_eq(iov[i].iov_base, model + offset, iov[i].iov_len);
}

static void check_against_model(struct rig *r, uint32_t sector_bytes)
{
	uint8_t *model = malloc(VOLUME_BYTES), *arena = NULL;
	const size_t arena_bytes = VOLUME_BYTES + 512 * 3 * PIECES_MAX;
	uint64_t offset;

	ensure(model && posix_memalign((void **)&arena, 4096, arena_bytes) == 0);
	scratch_fill(model, VOLUME_BYTES);
	ck_ok(volume_write(r->volume, model, VOLUME_BYTES, 0));
	for (int i = 0; i < ROUNDS; i++) {
		if (scratch_random(2) == 0)
			write_and_model(r->volume, model, arena);
		else
			read_and_compare(r->volume, model, arena);
	}
	ck_ok(volume_flush(r->volume));
	for (offset = 0; offset < VOLUME_BYTES; offset += sector_bytes) {
		ck_ok(dev_read(r->below, arena, sector_bytes, OFFSET_BYTES + offset));
		ck_ok(cipher_decrypt(
			r->twin, arena, arena, sector_bytes, IV_OFFSET + offset / 512));
		ck_assert_mem_eq(arena, model + offset, sector_bytes);
	}
	free(arena);
	free(model);
}

START_TEST(test_model_memory)
{
	static const uint8_t zeros[OFFSET_BYTES];
	const uint32_t sector = 512u << _i;
	struct rig r;

	rig_make(&r, rig_memory(), sector);
	ck_assert_uint_eq(volume_size_bytes(r.volume), VOLUME_BYTES);
	ck_assert_uint_eq(volume_sector_bytes(r.volume), sector);
	ck_assert(!volume_readonly(r.volume));
	ck_assert_ptr_eq(volume_ioq(r.volume), r.ioq);
	check_against_model(&r, sector);
	ck_assert_mem_eq(dev_memory_bytes(r.below), zeros, OFFSET_BYTES);
	ck_assert_mem_eq(dev_memory_bytes(r.below) + OFFSET_BYTES + VOLUME_BYTES, zeros, 512);
	rig_free(&r);
}
END_TEST

/* Through a file, and so through O_DIRECT where there is one. */
START_TEST(test_model_file)
{
	const uint32_t sector = _i ? 4096 : 512;
	const struct dev_open_options options = {.claim = true};
	struct rig r;
	struct dev *d;

	ck_ok(dev_open(scratch_file("volume", OFFSET_BYTES + VOLUME_BYTES), &options, &d));
	rig_make(&r, d, sector);
	check_against_model(&r, sector);
	rig_free(&r);
}
END_TEST

START_TEST(test_bounds)
{
	struct rig r;
	static uint8_t a[8192];
	struct iovec huge[2] = {{a, SIZE_MAX - 511}, {a, 512}};

	rig_make(&r, rig_memory(), 4096);
	ck_ok(volume_read(r.volume, a, 512, VOLUME_BYTES - 512));
	ck_err(volume_read(r.volume, a, 1024, VOLUME_BYTES - 512), ERR_DEV_BOUNDS);
	ck_detail("past the end of the volume");
	ck_err(volume_read(r.volume, a, 512, UINT64_MAX - 511), ERR_DEV_BOUNDS);
	ck_err(volume_write(r.volume, a, 512, VOLUME_BYTES), ERR_DEV_BOUNDS);
	ck_err(volume_readv(r.volume, huge, 2, 0), ERR_DEV_BOUNDS);
	ck_ok(volume_read(r.volume, a, 0, VOLUME_BYTES));
	ck_ok(volume_write(r.volume, a, 0, VOLUME_BYTES));
	rig_free(&r);
}
END_TEST

static void refuse_config(
	struct ioq *q, struct cipher *c, uint64_t offset, uint64_t size, enum err e)
{
	struct volume_config config = {
		.ioq = q, .cipher = c, .offset_bytes = offset, .size_bytes = size};
	struct volume *v = NULL;

	ck_err(volume_create(&config, &v), e);
	ck_assert_ptr_null(v);
}

START_TEST(test_config)
{
	struct dev *d;
	struct ioq *q;
	struct cipher *c = rig_cipher(4096);
	struct volume_config config = {.cipher = c, .offset_bytes = 4096, .size_bytes = 61440};
	struct volume *v;

	ck_ok(dev_open_memory(65536, &d));
	ck_ok(ioq_create(d, &q));
	refuse_config(q, c, 4096, 65536, ERR_DEV_SHORT);
	ck_detail("truncated");
	refuse_config(q, c, 61440 + 512, 4096, ERR_DEV_SHORT);
	refuse_config(q, c, UINT64_MAX - 4095, 8192, ERR_DEV_SHORT);
	refuse_config(q, c, 4096, 0, ERR_INVAL);
	refuse_config(q, c, 4096, 4096 + 512, ERR_INVAL);
	ck_detail("whole number of its sectors");
	refuse_config(q, c, 100, 4096, ERR_INVAL);
	d->readonly = true;
	config.ioq = q;
	ck_ok(volume_create(&config, &v));
	ck_assert(volume_readonly(v));
	ck_err(volume_write(v, dev_memory_bytes(d), 4096, 0), ERR_ROFS);
	volume_destroy(v);
	volume_destroy(NULL);
	ioq_destroy(q);
	dev_close(d);
}
END_TEST

/* Every I/O of an unaligned write and read fails in turn, until one round has none that fails. */
START_TEST(test_faults)
{
	static uint8_t a[12288], b[12288];
	struct rig r;
	uint64_t nth;

	rig_make(&r, rig_memory(), 4096);
	memset(a, 0x77, sizeof(a));
	ck_ok(volume_write(r.volume, a, 12288, 0));
	for (nth = 1;; nth++) {
		enum err e;

		dev_fault_arm(r.dev, DEV_FAULT_READ | DEV_FAULT_WRITE | DEV_FAULT_FLUSH, nth, false,
			ERR_IO);
		e = volume_write(r.volume, a, 8192, 512);
		if (e == OK)
			e = volume_read(r.volume, b, 1024, 512);
		if (e == OK)
			e = volume_read(r.volume, b, 4096, 4096);
		if (e == OK)
			e = volume_flush(r.volume);
		if (e == OK)
			break;
		ck_assert_int_eq(e, ERR_IO);
		/* A write that failed may have changed nothing but what it covers. */
		dev_fault_arm(r.dev, 0, 1, false, ERR_IO);
		ck_ok(volume_read(r.volume, b, 12288, 0));
		ck_assert_mem_eq(a, b, 12288);
	}
	/* Two reads of partial sectors, the write, two reads, the flush. */
	ck_assert_uint_eq(nth, 7);
	rig_free(&r);
}
END_TEST

enum { THREADS = 6, THREAD_BYTES = 64 << 10, THREAD_ROUNDS = 30 };

struct thread_work {
	struct volume *v;
	unsigned number;
};

static void *thread_run(void *arg)
{
	struct thread_work *w = arg;
	static _Thread_local uint8_t in[THREAD_BYTES], out[THREAD_BYTES];
	const uint64_t at = (uint64_t)w->number * THREAD_BYTES;

	for (unsigned r = 0; r < THREAD_ROUNDS; r++) {
		memset(out, (int)(w->number * 31 + r), sizeof(out));
		if (volume_write(w->v, out, THREAD_BYTES, at) != OK ||
			volume_read(w->v, in, THREAD_BYTES, at) != OK ||
			memcmp(in, out, THREAD_BYTES) != 0)
			return arg;
		if (volume_read(w->v, in, 1536, at + 512 * (r % 100)) != OK ||
			memcmp(in, out, 1536) != 0)
			return arg;
	}
	return NULL;
}

START_TEST(test_threads)
{
	struct rig r;
	struct thread_work work[THREADS];
	pthread_t threads[THREADS];
	struct ioq_stats s;

	rig_make(&r, rig_memory(), 4096);
	for (unsigned i = 0; i < THREADS; i++) {
		work[i] = (struct thread_work){r.volume, i};
		ck_ok(thread_start(&threads[i], "volume", thread_run, &work[i]));
	}
	for (unsigned i = 0; i < THREADS; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		ck_assert_ptr_null(failed);
	}
	ioq_stats(r.ioq, &s);
	ck_assert_uint_eq(s.class[IOQ_READ].requests, 2 * THREADS * THREAD_ROUNDS);
	ck_assert_uint_eq(s.class[IOQ_SYNC_WRITE].requests, THREADS * THREAD_ROUNDS);
	rig_free(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cipher/volume");
	TCase *t = tcase_create("volume");

	ensure(cipher_library_init() == OK);
	tcase_set_timeout(t, 100);
	tcase_add_loop_test(t, test_model_memory, 0, 4);
	tcase_add_loop_test(t, test_model_file, 0, 2);
	tcase_add_test(t, test_bounds);
	tcase_add_test(t, test_config);
	tcase_add_test(t, test_faults);
	tcase_add_test(t, test_threads);
	suite_add_tcase(s, t);
	return scratch_main(s);
}
