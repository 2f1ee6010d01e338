/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of dev/file.c: transfers on files and block devices are held to a copy in memory, aligned
 * or not, with O_DIRECT or without; errors of the host reach the caller.
 */
#include "dev_int.h"

#include "base.h"
#include "scratch.h"

#include <sched.h>
#include <sys/mount.h>

enum { FILE_BYTES = 2 << 20, ROUNDS = 300, IOV_MAX_TEST = 9 };

static char loop_device[256];
static bool loop_there;

static struct dev *open_rw(const char *path, bool no_direct)
{
	struct dev_open_options options = {.no_direct = no_direct};
	struct dev *d = NULL;

	ck_ok(dev_open(path, &options, &d));
	return d;
}

/* Cuts a random request, often off any alignment, into buffers that lie anywhere in `arena`. */
static int random_iov(
	struct iovec iov[IOV_MAX_TEST], uint8_t *arena, uint64_t size, uint64_t *offset)
{
	const uint64_t unit = scratch_random(3) == 0 ? 4096 : scratch_random(2) == 0 ? 512 : 1;
	const int count = 1 + (int)scratch_random(IOV_MAX_TEST);
	uint64_t at = unit == 1 ? scratch_random(8) : 0, len = 0;

	for (int i = 0; i < count; i++) {
		uint64_t part = scratch_random(40000 / unit) * unit;

		iov[i] = (struct iovec){.iov_base = arena + at, .iov_len = part};
		at += part + (unit == 1 ? scratch_random(100) : 4096 - part % 4096);
		len += part;
	}
	*offset = scratch_random((size - len) / unit) * unit;
	return count;
}

static void check_against_model(struct dev *d)
{
	const uint64_t size = MIN(d->size_bytes, (uint64_t)FILE_BYTES);
	uint8_t *model = malloc(size), *arena = NULL;
	struct iovec iov[IOV_MAX_TEST];

	ensure(model && posix_memalign((void **)&arena, 4096, 1 << 20) == 0);
	scratch_fill(model, size);
	ck_ok(dev_write(d, model, size, 0));
	for (int r = 0; r < ROUNDS; r++) {
		uint64_t offset, at;
		int count = random_iov(iov, arena, size, &offset);

		at = offset;
		if (scratch_random(2) == 0) {
			for (int i = 0; i < count; at += iov[i++].iov_len) {
				memset(iov[i].iov_base, (int)scratch_random(256), iov[i].iov_len);
				memcpy(model + at, iov[i].iov_base, iov[i].iov_len);
			}
			ck_ok(dev_writev(d, iov, count, offset));
			continue;
		}
		memset(arena, 0xee, 1 << 20);
		ck_ok(dev_readv(d, iov, count, offset));
		for (int i = 0; i < count; at += iov[i++].iov_len)
			ck_assert_mem_eq(iov[i].iov_base, model + at, iov[i].iov_len);
	}
	ck_ok(dev_flush(d));
	ck_ok(dev_read(d, arena, 1 << 20, 0));
	ck_assert_mem_eq(arena, model, 1 << 20);
	free(arena);
	free(model);
}

START_TEST(test_model_direct)
{
	struct dev *d = open_rw(scratch_file("direct", FILE_BYTES), false);

	if (!d->direct)
		printf("SKIP: test_model_direct: the folder for temporary files has no O_DIRECT\n");
	check_against_model(d);
	dev_close(d);
}
END_TEST

START_TEST(test_model_buffered)
{
	struct dev *d = open_rw(scratch_file("buffered", FILE_BYTES), true);

	ck_assert(!d->direct);
	ck_assert_uint_eq(d->align_bytes, 1);
	check_against_model(d);
	dev_close(d);
}
END_TEST

START_TEST(test_model_tmpfs)
{
	struct dev *d;
	char path[] = "/dev/shm/cryptfs-unit-XXXXXX";
	int fd = mkstemp(path);

	if (fd < 0) {
		printf("SKIP: test_model_tmpfs: /dev/shm cannot be written\n");
		return;
	}
	ensure(ftruncate(fd, FILE_BYTES) == 0);
	close(fd);
	d = open_rw(path, false);
	unlink(path);
	check_against_model(d);
	dev_close(d);
}
END_TEST

/* A loop device with sectors of 4096 bytes refuses requests of 512. */
START_TEST(test_model_block)
{
	struct dev *d;

	if (!loop_there) {
		printf("SKIP: test_model_block: %s\n", loop_device);
		return;
	}
	d = open_rw(loop_device, false);
	ck_assert_int_eq(d->kind, DEV_BLOCK);
	ck_assert_uint_eq(d->size_bytes, FILE_BYTES);
	ck_assert(d->direct);
	ck_assert_uint_eq(d->align_bytes, 4096);
	check_against_model(d);
	dev_close(d);
}
END_TEST

START_TEST(test_block_discard)
{
	static uint8_t bytes[16384], zeros[8192];
	struct dev *d;

	if (!loop_there) {
		printf("SKIP: test_block_discard: %s\n", loop_device);
		return;
	}
	d = open_rw(loop_device, false);
	memset(bytes, 0x5a, sizeof(bytes));
	ck_ok(dev_write(d, bytes, sizeof(bytes), 0));
	/* Widest whole sectors inside [100, 13000) are [4096, 12288). */
	ck_ok(dev_discard(d, 100, 12900));
	ck_ok(dev_read(d, bytes, sizeof(bytes), 0));
	ck_assert_mem_eq(bytes + 4096, zeros, 8192);
	ck_assert_int_eq(bytes[4095], 0x5a);
	ck_assert_int_eq(bytes[12288], 0x5a);
	ck_ok(dev_discard(d, 100, 200));
	dev_close(d);
}
END_TEST

START_TEST(test_file_discard)
{
	static uint8_t bytes[16384], zeros[8192];
	struct dev *d = open_rw(scratch_file("hole", sizeof(bytes)), false);
	enum err e;

	memset(bytes, 0x5a, sizeof(bytes));
	ck_ok(dev_write(d, bytes, sizeof(bytes), 0));
	e = dev_discard(d, 4096, 8192);
	if (e == ERR_OPNOTSUPP) {
		printf("SKIP: test_file_discard: the host's file system punches no holes\n");
	} else {
		ck_ok(e);
		ck_ok(dev_read(d, bytes, sizeof(bytes), 0));
		ck_assert_mem_eq(bytes + 4096, zeros, 8192);
		ck_assert_int_eq(bytes[4095], 0x5a);
		ck_assert_int_eq(bytes[12288], 0x5a);
	}
	dev_close(d);
}
END_TEST

START_TEST(test_many_buffers)
{
	enum { COUNT = 700, EACH = 512 };
	static uint8_t out[COUNT * EACH] __attribute__((aligned(4096)));
	static uint8_t in[COUNT * EACH] __attribute__((aligned(4096)));
	struct dev *d = open_rw(scratch_file("many", sizeof(out)), false);
	struct iovec iov[COUNT];

	scratch_fill(out, sizeof(out));
	for (int i = 0; i < COUNT; i++)
		iov[i] = (struct iovec){out + (size_t)i * EACH, EACH};
	ck_ok(dev_writev(d, iov, COUNT, 0));
	for (int i = 0; i < COUNT; i++)
		iov[i] = (struct iovec){in + (size_t)i * EACH, EACH};
	ck_ok(dev_readv(d, iov, COUNT, 0));
	ck_assert_mem_eq(in, out, sizeof(out));
	dev_close(d);
}
END_TEST

struct neighbour {
	struct dev *d;
	unsigned number;
};

enum { NEIGHBOURS = 8, NEIGHBOUR_BYTES = 100, NEIGHBOUR_ROUNDS = 60 };

static void *neighbour_run(void *arg)
{
	struct neighbour *n = arg;
	uint8_t bytes[NEIGHBOUR_BYTES];

	for (unsigned r = 0; r < NEIGHBOUR_ROUNDS; r++) {
		memset(bytes, (int)(n->number + r), sizeof(bytes));
		if (dev_write(n->d, bytes, sizeof(bytes), n->number * NEIGHBOUR_BYTES) != OK)
			return arg;
	}
	return NULL;
}

/* Writers of one device sector's parts must not undo each other. */
START_TEST(test_unaligned_neighbours)
{
	struct dev *d = open_rw(scratch_file("neighbours", 8192), false);
	struct neighbour n[NEIGHBOURS];
	pthread_t threads[NEIGHBOURS];
	uint8_t bytes[NEIGHBOURS * NEIGHBOUR_BYTES];

	for (unsigned i = 0; i < NEIGHBOURS; i++) {
		n[i] = (struct neighbour){d, i};
		ck_ok(thread_start(&threads[i], "neighbour", neighbour_run, &n[i]));
	}
	for (unsigned i = 0; i < NEIGHBOURS; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		ck_assert_ptr_null(failed);
	}
	ck_ok(dev_read(d, bytes, sizeof(bytes), 0));
	for (unsigned i = 0; i < sizeof(bytes); i++)
		ck_assert_uint_eq(bytes[i], i / NEIGHBOUR_BYTES + NEIGHBOUR_ROUNDS - 1);
	dev_close(d);
}
END_TEST

START_TEST(test_shortened_file)
{
	static uint8_t bytes[65536] __attribute__((aligned(4096)));
	const char *path = scratch_file("short", sizeof(bytes));
	struct dev *d = open_rw(path, _i != 0);

	ensure(truncate(path, 16384) == 0);
	ck_err(dev_read(d, bytes, sizeof(bytes), 0), ERR_DEV_SHORT);
	ck_detail("ends at byte 16384");
	ck_err(dev_read(d, bytes + 1, 512, 32768), ERR_DEV_SHORT);
	ck_ok(dev_read(d, bytes, 16384, 0));
	dev_close(d);
}
END_TEST

/* A sparse file on a host file system that is full: the errno enters here. */
START_TEST(test_host_is_full)
{
	static uint8_t bytes[1 << 20] __attribute__((aligned(4096)));
	struct dev *d;

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("none", scratch_dir, "tmpfs", 0, "size=256k") < 0) {
		printf("SKIP: test_host_is_full: no mount namespace of our own\n");
		return;
	}
	d = open_rw(scratch_file("full", 4 << 20), _i != 0);
	ck_err(dev_write(d, bytes, sizeof(bytes), 4096), ERR_NOSPC);
	ck_detail("No space left");
	ck_detail("writing");
	dev_close(d);
}
END_TEST

/* A descriptor that cannot do what is asked: the errno of each system call comes back. */
START_TEST(test_system_call_errors)
{
	static uint8_t bytes[512] __attribute__((aligned(512)));
	struct dev *d = open_rw(scratch_file("swapped", 4096), true);
	const int fd = container_of(d, struct dev_file, base)->fd;
	int ends[2];

	ensure(pipe(ends) == 0 && dup2(ends[0], fd) == fd);
	ck_err(dev_flush(d), ERR_INVAL);
	ck_detail("flushing the device");
	ck_assert_int_ne(dev_read(d, bytes, 512, 0), OK);
	ck_detail("reading 512 bytes at byte 0");
	ck_assert_int_ne(dev_write(d, bytes, 512, 0), OK);
	ck_detail("writing 512 bytes at byte 0");
	ck_assert_int_ne(dev_discard(d, 0, 512), OK);
	ck_detail("discarding");
	close(ends[0]);
	close(ends[1]);
	dev_close(d);
}
END_TEST

static void loop_setup(void)
{
	loop_there = scratch_loop_attach(
		"--sector-size 4096", scratch_file("loop.img", FILE_BYTES), loop_device);
}

static void loop_teardown(void)
{
	if (loop_there)
		scratch_loop_detach(loop_device);
}

int main(void)
{
	Suite *s = suite_create("dev/file");
	TCase *t = tcase_create("file");
	TCase *b = tcase_create("block");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, test_model_direct);
	tcase_add_test(t, test_model_buffered);
	tcase_add_test(t, test_model_tmpfs);
	tcase_add_test(t, test_file_discard);
	tcase_add_test(t, test_many_buffers);
	tcase_add_test(t, test_system_call_errors);
	tcase_add_test(t, test_unaligned_neighbours);
	tcase_add_loop_test(t, test_shortened_file, 0, 2);
	tcase_add_loop_test(t, test_host_is_full, 0, 2);
	suite_add_tcase(s, t);
	tcase_set_timeout(b, 60);
	tcase_add_unchecked_fixture(b, loop_setup, loop_teardown);
	tcase_add_test(b, test_model_block);
	tcase_add_test(b, test_block_discard);
	suite_add_tcase(s, b);
	return scratch_main(s);
}
