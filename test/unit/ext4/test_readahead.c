/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Read-ahead: what starts it, what it serves, its bounds, and many readers at once. */
#include "image.h"

#include "readahead_int.h"

enum { KIB = 1024, MIB = 1024 * 1024, BIG = IMAGE_FIRST_INUM, BIG_BYTES = 24 * MIB + 4321 };

static void start(struct image *im)
{
	if (access(scratch_path("image"), R_OK)) {
		pattern_write("big", BIG, 0, BIG_BYTES);
		image_make("image", "-t ext4 -b 4096 -O ^has_journal", "64M");
		image_debugfs("image", "write big big\nwrite big two\n");
	}
	image_load(im, "image");
	ck_ok(image_mount(im));
}

static void read_checked(struct ext4_inode *inode, uint64_t offset, size_t len)
{
	uint8_t *buf = malloc(len);
	size_t got;

	ensure(buf != NULL);
	ck_ok(image_read(inode, offset, len, buf, &got));
	ck_assert_uint_eq(got, MIN((uint64_t)len, BIG_BYTES - offset));
	image_check_range(buf, BIG, offset, got, image_all_data);
	free(buf);
}

static int64_t pool_bytes(struct image *im)
{
	return atomic_load(&im->fs->readahead_pool->bytes);
}

/* Waits until no window is being read, so that the device's calls can be counted. */
static void settle(struct ext4_inode *inode)
{
	struct ext4_readahead *ra = atomic_load(&inode->readahead);
	bool busy = ra != NULL;

	while (busy) {
		busy = false;
		ioq_lock(&ra->lock);
		list_for_each (n, &ra->windows) {
			struct window *w = list_entry(n, struct window, link);
			busy |= w->state == WINDOW_QUEUED || w->state == WINDOW_READING;
		}
		ioq_unlock(&ra->lock);
		usleep(1000);
	}
}

START_TEST(a_stream_is_read_ahead)
{
	struct image im;
	struct ext4_inode *inode;
	uint64_t calls;
	int64_t ahead;

	start(&im);
	ck_ok(ext4_inode_get(im.fs, BIG, &inode));
	read_checked(inode, 0, 128 * KIB);
	ck_assert_int_eq(pool_bytes(&im), 0);
	read_checked(inode, 128 * KIB, 128 * KIB);
	ahead = pool_bytes(&im);
	ck_assert_int_gt(ahead, 0);
	settle(inode);
	calls = dev_fault_calls(im.device.fault, DEV_FAULT_READ);
	/* Served from the window; whatever is read now is further ahead. */
	read_checked(inode, 256 * KIB, 4 * KIB);
	settle(inode);
	ck_assert_uint_eq(dev_fault_calls(im.device.fault, DEV_FAULT_READ), calls);
	for (uint64_t at = 260 * KIB; at < BIG_BYTES; at += 128 * KIB) {
		read_checked(inode, at, 128 * KIB);
		ck_assert_int_le(pool_bytes(&im), READAHEAD_BYTES_MAX + 2 * MIB);
	}
	settle(inode);
	ck_assert_int_eq(pool_bytes(&im), 0); /* all was consumed */
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

START_TEST(every_step_reads_right)
{
	static const size_t steps[] = {4096, 5000, 65536, 100001, 128 * KIB, 1 * MIB};
	struct image im;
	struct ext4_inode *inode;

	start(&im);
	ck_ok(ext4_inode_get(im.fs, BIG, &inode));
	for (uint64_t at = 0; at < BIG_BYTES; at += steps[_i])
		read_checked(inode, at, steps[_i]);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

START_TEST(random_reads_start_nothing)
{
	struct image im;
	struct ext4_inode *inode;

	start(&im);
	ck_ok(ext4_inode_get(im.fs, BIG, &inode));
	for (int i = 0; i < 300; i++) {
		/* Never where the one before ended. */
		uint64_t at = scratch_random(BIG_BYTES / 8192) * 8192;
		read_checked(inode, at, 4096);
	}
	ck_assert_ptr_null(atomic_load(&inode->readahead));
	ck_assert_int_eq(pool_bytes(&im), 0);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

START_TEST(slightly_out_of_order_is_still_a_stream)
{
	struct image im;
	struct ext4_inode *inode;
	uint64_t step = 128 * KIB;
	uint64_t calls;

	start(&im);
	ck_ok(ext4_inode_get(im.fs, BIG, &inode));
	calls = dev_fault_calls(im.device.fault, DEV_FAULT_READ);
	/* 1 0 3 2 5 4 ... */
	for (uint64_t n = 0; n < 96; n++)
		read_checked(inode, (n ^ 1) * step, step);
	ck_assert_ptr_nonnull(atomic_load(&inode->readahead));
	settle(inode);
	/* 12 MiB would be 96 requests one by one. */
	ck_assert_uint_lt(dev_fault_calls(im.device.fault, DEV_FAULT_READ) - calls, 48);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

START_TEST(two_streams_in_one_file)
{
	struct image im;
	struct ext4_inode *inode;
	struct ext4_readahead *ra;
	unsigned streams = 0;

	start(&im);
	ck_ok(ext4_inode_get(im.fs, BIG, &inode));
	read_checked(inode, 0, 64 * KIB);
	read_checked(inode, 64 * KIB, 64 * KIB);
	for (uint64_t at = 0; at < 6 * MIB; at += 64 * KIB) {
		read_checked(inode, 128 * KIB + at, 64 * KIB);
		read_checked(inode, 12 * MIB + at, 64 * KIB);
	}
	ra = atomic_load(&inode->readahead);
	ioq_lock(&ra->lock);
	for (int i = 0; i < READAHEAD_STREAMS; i++)
		streams += ra->stream[i].window_bytes == READAHEAD_BYTES_MAX;
	ioq_unlock(&ra->lock);
	ck_assert_uint_eq(streams, 2);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

/* What a window could not read, the reader reads, and reports. */
/*
 * The second of two device reads fails: the reader's own, or the window's, whichever helper or
 * reader the machine lets go first. False: it was the reader's own, which is not what is tested.
 */
static bool window_failed(struct image *im, struct ext4_inode *inode, uint8_t *buf)
{
	size_t got;

	read_checked(inode, 0, 128 * KIB);
	dev_fault_arm(im->device.fault, DEV_FAULT_READ, 2, true, ERR_IO);
	if (image_read(inode, 128 * KIB, 128 * KIB, buf, &got))
		return false;
	settle(inode);
	ck_err(image_read(inode, 256 * KIB, 128 * KIB, buf, &got), ERR_IO);
	dev_fault_arm(im->device.fault, 0, 1, false, ERR_IO);
	for (uint64_t at = 256 * KIB; at < 4 * MIB; at += 128 * KIB)
		read_checked(inode, at, 128 * KIB);
	return true;
}

START_TEST(a_failing_window_is_the_readers_error)
{
	uint8_t *buf = malloc(MIB);
	bool failed = false;

	ensure(buf != NULL);
	for (int i = 0; i < 50 && !failed; i++) {
		struct image im;
		struct ext4_inode *inode;

		start(&im);
		ck_ok(ext4_inode_get(im.fs, BIG, &inode));
		failed = window_failed(&im, inode, buf);
		dev_fault_arm(im.device.fault, 0, 1, false, ERR_IO);
		ext4_inode_put(inode);
		image_close(&im);
	}
	ck_assert(failed);
	free(buf);
}
END_TEST

/* Windows that nobody comes back for are given up, and the mount ends with windows about. */
START_TEST(abandoned_windows_are_given_back)
{
	struct image im;
	struct ext4_inode *inode;

	start(&im);
	ck_ok(ext4_inode_get(im.fs, BIG, &inode));
	for (uint64_t at = 0; at < MIB; at += 128 * KIB)
		read_checked(inode, at, 128 * KIB);
	ext4_inode_put(inode);
	ck_assert_int_gt(pool_bytes(&im), 0);
	for (int i = 0; i < 2000 && pool_bytes(&im) > 0; i++)
		usleep(10000);
	ck_assert_int_eq(pool_bytes(&im), 0);
	ck_ok(ext4_inode_get(im.fs, BIG, &inode));
	for (uint64_t at = MIB; at < 8 * MIB; at += 128 * KIB)
		read_checked(inode, at, 128 * KIB);
	ext4_inode_put(inode);
	image_close(&im);
}
END_TEST

/* --- many readers ---------------------------------------------------------------------------- */

enum { READERS = 6, ROUNDS = 3 };

struct reader {
	struct image *im;
	unsigned number;
	uint64_t seed;
	const char *wrong;
};

/* check's asserts are for the main thread, so a reader notes what went wrong. */
static void reader_read(struct reader *r, struct ext4_inode *inode, uint64_t at, size_t len)
{
	struct ext4_read read;
	uint64_t offset = at;

	if (ext4_read(inode, at, len, &read) != OK) {
		r->wrong = "a read failed";
		return;
	}
	if (read.bytes != MIN((uint64_t)len, BIG_BYTES - at))
		r->wrong = "a read has the wrong length";
	for (int i = 0; i < read.parts; i++)
		for (size_t j = 0; j < read.part[i].iov_len; j++, offset++)
			if (((uint8_t *)read.part[i].iov_base)[j] != pattern_byte(BIG, offset))
				r->wrong = "a read has the wrong bytes";
	ext4_read_done(&read);
}

static uint64_t reader_random(struct reader *r, uint64_t below)
{
	r->seed = r->seed * 6364136223846793005ull + 1442695040888963407ull;
	return (r->seed >> 33) % below;
}

static void *reader_run(void *arg)
{
	struct reader *r = arg;

	for (int round = 0; round < ROUNDS; round++) {
		struct ext4_inode *inode;
		uint64_t from = reader_random(r, BIG_BYTES / 2) & ~4095ull;
		size_t step = 4096u << reader_random(r, 7);

		if (ext4_inode_get(r->im->fs, BIG + r->number % 2, &inode) != OK) {
			r->wrong = "an inode failed";
			return NULL;
		}
		if (r->number < READERS / 2)
			for (uint64_t at = from; at < from + 3 * MIB; at += step)
				reader_read(r, inode, at, step);
		else
			for (int i = 0; i < 100; i++)
				reader_read(r, inode, reader_random(r, BIG_BYTES),
					1 + reader_random(r, 20000));
		ext4_inode_put(inode);
	}
	return NULL;
}

START_TEST(many_readers)
{
	struct image im;
	struct reader readers[READERS];
	pthread_t threads[READERS];

	start(&im);
	for (unsigned i = 0; i < READERS; i++) {
		readers[i] =
			(struct reader){.im = &im, .number = i, .seed = scratch_random(UINT64_MAX)};
		ck_ok(thread_start(&threads[i], "reader", reader_run, &readers[i]));
	}
	for (int i = 0; i < READERS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_msg(!readers[i].wrong, "reader %d: %s", i, readers[i].wrong);
	}
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ext4/readahead");
	TCase *tcase = tcase_create("readahead");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_stream_is_read_ahead);
	tcase_add_loop_test(tcase, every_step_reads_right, 0, 6);
	tcase_add_test(tcase, random_reads_start_nothing);
	tcase_add_test(tcase, slightly_out_of_order_is_still_a_stream);
	tcase_add_test(tcase, two_streams_in_one_file);
	tcase_add_test(tcase, a_failing_window_is_the_readers_error);
	tcase_add_test(tcase, abandoned_windows_are_given_back);
	tcase_add_test(tcase, many_readers);
	suite_add_tcase(suite, tcase);
	return scratch_main(suite);
}
