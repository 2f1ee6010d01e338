/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dev: an array of bytes that can be read, written and flushed: a block device or a regular file,
 * and for tests memory and a fault injector over another device.
 *
 * Offsets and lengths are bytes. Requests need not be aligned: where the handle is O_DIRECT and a
 * request is not aligned to `align_bytes` in memory, offset and length, the implementation bounces
 * it through an aligned buffer of its own, so that a caller only loses speed. Short transfers are
 * completed inside; a read past the end is ERR_DEV_BOUNDS and never partly done.
 *
 * Threads: every call may run in parallel with every other on the same device. Calls block until
 * the device has answered. EINTR is retried inside. Nothing is written by dev_open().
 */
#ifndef CRYPTFS_DEV_H
#define CRYPTFS_DEV_H

#include "base.h"
#include <sys/types.h>
#include <sys/uio.h>

struct dev;

enum dev_kind { DEV_FILE, DEV_BLOCK, DEV_MEMORY, DEV_FAULT, DEV_RECORDER };

/* The contract between dev.c's checked entry points and an implementation. All sizes are checked.
 */
struct dev_ops {
	enum err (*readv)(struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes);
	enum err (*writev)(
		struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes);
	enum err (*flush)(struct dev *d);
	enum err (*discard)(struct dev *d, uint64_t offset_bytes, uint64_t len_bytes);
	void (*close)(struct dev *d); /* frees d */
};
struct dev {
	const struct dev_ops *ops;
	enum dev_kind kind;
	uint64_t size_bytes;
	uint32_t align_bytes; /* what O_DIRECT wants: a power of two from 512; 1 without it */
	bool readonly;
	bool direct; /* O_DIRECT is in use */
};

struct dev_open_options {
	bool readonly;
	bool no_direct; /* tests: force the buffered path */
	/*
	 * Claim the source for as long as the device is open: O_EXCL on a block device; on a
	 * regular file an OFD lock on its first byte (F_OFD_SETLK, never flock), shared when
	 * readonly and exclusive otherwise. Refused: ERR_BUSY at once.
	 */
	bool claim;
};

/*
 * ERR_NOENT, ERR_ACCESS, ERR_PERM, ERR_ROFS (asked rw, medium or file system is read-only),
 * ERR_BUSY, ERR_DEV_TYPE, ERR_NXIO (no medium), ERR_IO, with detail set to one line naming what is
 * missing.
 */
enum err dev_open(const char *path, const struct dev_open_options *options, struct dev **out)
	must_check;
/*
 * Gives up the claim and keeps the device open, for a fuseblk mount, where the kernel claims the
 * device itself. Only for what dev_open() made.
 */
enum err dev_drop_claim(struct dev *d) must_check;
enum err dev_open_memory(uint64_t size_bytes, struct dev **out) must_check; /* zeroed; tests */
uint8_t *dev_memory_bytes(struct dev *d);                                   /* tests */

/*
 * Fault injector over `below` (owned by it from then on). The nth call from now (1 = the next) of
 * one of the operations in `mask` fails with `error`, once or for ever. Tests only.
 */
enum { DEV_FAULT_READ = 1, DEV_FAULT_WRITE = 2, DEV_FAULT_FLUSH = 4, DEV_FAULT_DISCARD = 8 };
enum err dev_open_fault(struct dev *below, struct dev **out) must_check;
void dev_fault_arm(struct dev *d, unsigned mask, uint64_t nth, bool for_ever, enum err error);
uint64_t dev_fault_calls(struct dev *d, unsigned mask); /* calls seen since it was opened */

/*
 * Crash recorder over `below` (owned by it from then on): see src/dev/recorder.c for the model.
 * Holds a copy of the device and of everything written. Tests only.
 */
enum err dev_open_recorder(struct dev *below, struct dev **out) must_check;
/* A claim of the layer above; *stamp is its time: it must hold in every cut at a later stamp. */
enum err dev_recorder_mark(struct dev *d, uint64_t mark_id, uint64_t *stamp) must_check;
uint64_t dev_recorder_stamp(struct dev *d); /* now: cuts are made at 1 .. this */
size_t dev_recorder_flushes(struct dev *d, uint64_t *stamps, size_t room); /* start stamps */
/*
 * One cut, which names its image completely: the time, the seed that decides the fate of what was
 * not flushed (0: all of it survives), and the size of the pieces that a write may tear into (the
 * larger of the cipher sector and the disk's physical sector).
 */
struct dev_cut {
	uint64_t stamp, seed;
	uint32_t tear_bytes;
};
/* Fills image, size_bytes long. */
void dev_recorder_image(struct dev *d, const struct dev_cut *cut, uint8_t *image);

enum err dev_read(struct dev *d, void *buf, size_t len_bytes, uint64_t offset_bytes) must_check;
enum err dev_readv(struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
	must_check;
enum err dev_write(struct dev *d, const void *buf, size_t len_bytes, uint64_t offset_bytes)
	must_check;
enum err dev_writev(struct dev *d, const struct iovec *iov, int count, uint64_t offset_bytes)
	must_check;
enum err dev_flush(struct dev *d) must_check; /* fdatasync; never skipped, the error is returned */
enum err dev_discard(struct dev *d, uint64_t offset_bytes, uint64_t len_bytes) must_check;
void dev_close(struct dev *d); /* NULL is fine; does not flush */

#endif
