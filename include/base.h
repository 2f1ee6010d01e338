/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * base: what every layer stands on: errors, locks with ranks, thread slots, logging, checksums,
 * secrets, the relaxed counters, lists, and the types for disk bytes and units.
 *
 * Nothing here knows of a device, a cipher or a file system.
 */
#ifndef CRYPTFS_BASE_H
#define CRYPTFS_BASE_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lock.h"

/* --- attributes ------------------------------------------------------------------------------ */

#define must_check        __attribute__((warn_unused_result))
#define printf_like(f, a) __attribute__((format(printf, f, a)))
#define noreturn_fn       __attribute__((noreturn))
#define cacheline_aligned __attribute__((aligned(64)))

#define ARRAY_SIZE(a)              (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, mem) ((type *)(void *)((char *)(p)-offsetof(type, mem)))
#define MIN(a, b)                  ((a) < (b) ? (a) : (b))
#define MAX(a, b)                  ((a) > (b) ? (a) : (b))

enum {
	PAGE_BYTES = 4096,
	SECTOR_BYTES = 512, /* the unit of LUKS headers and IVs, whatever the device's own sector */
};

/*
 * ensure() stays on in release builds and is for our own bugs: it logs and aborts. Disk bytes and
 * user input never reach it; they go through a verifier and become an error.
 */
#define ensure(cond) ((cond) ? (void)0 : ensure_failed(#cond, __FILE__, __LINE__))
noreturn_fn void ensure_failed(const char *cond, const char *file, int line);

/* --- errors ----------------------------------------------------------------------------------
 * x(name, errno class, text). Each code is thrown in as few places as its meaning allows and
 * carries the errno that a program sees. A raw errno enters in dev/ (and wherever else a system
 * call is made) through err_from_errno() and leaves in front/ and cmd/ through err_errno(). The
 * text is a plain phrase that fits behind "mount.cryptfs: /dev/sdb: ".
 */
/* clang-format off */
#define ERR_TABLE(x) \
	/* base and system */ \
	x(NOMEM, ENOMEM, "out of memory") \
	x(IO, EIO, "input/output error") \
	x(NOENT, ENOENT, "no such file or directory") \
	x(ACCESS, EACCES, "permission denied") \
	x(PERM, EPERM, "operation not permitted") \
	x(NOSPC, ENOSPC, "no space left on device") \
	x(ROFS, EROFS, "read-only") \
	x(BUSY, EBUSY, "already in use") \
	x(EXIST, EEXIST, "already exists") \
	x(NOTDIR, ENOTDIR, "not a directory") \
	x(ISDIR, EISDIR, "is a directory") \
	x(NOTEMPTY, ENOTEMPTY, "directory not empty") \
	x(INVAL, EINVAL, "invalid argument") \
	x(NAMETOOLONG, ENAMETOOLONG, "file name too long") \
	x(RANGE, ERANGE, "result does not fit") \
	x(NODATA, ENODATA, "no such attribute") \
	x(NXIO, ENXIO, "no such device or address") \
	x(FBIG, EFBIG, "file too large") \
	x(MLINK, EMLINK, "too many links") \
	x(INTR, EINTR, "interrupted") \
	x(NOSYS, ENOSYS, "not supported") \
	x(OPNOTSUPP, EOPNOTSUPP, "operation not supported") \
	x(STALE, ESTALE, "stale file handle") \
	x(SYSTEM, EIO, "system error") \
	/* dev, ioq */ \
	x(DEV_TYPE, EINVAL, "neither a regular file nor a block device") \
	x(DEV_SHORT, EIO, "the device is shorter than the volume on it") \
	x(DEV_BOUNDS, EIO, "request past the end of the device") \
	/* cipher */ \
	x(CIPHER_SPEC, ENOTSUP, "cipher specification is not supported") \
	x(CIPHER_LIBRARY, EIO, "libgcrypt failed") \
	/* luks */ \
	x(LUKS_NONE, EINVAL, "not a LUKS volume") \
	x(LUKS_HEADER, EUCLEAN, "the LUKS header is damaged") \
	x(LUKS_KEY, EACCES, "no key available with this passphrase or key file") \
	x(LUKS_SLOT, ENOENT, "no such key slot") \
	x(LUKS_REENCRYPT, EBUSY, \
		"a reencryption is in progress; finish it with 'cryptsetup reencrypt " \
		"--resume-only'") \
	x(LUKS_REQUIREMENT, ENOTSUP, "the LUKS header asks for a feature that is not supported") \
	x(LUKS_INTEGRITY, ENOTSUP, \
		"LUKS2 with integrity (dm-integrity) is not supported; use cryptsetup") \
	x(LUKS_OPAL, ENOTSUP, "hardware OPAL encryption is not supported; use cryptsetup") \
	x(LUKS_LIBRARY, EIO, "libcryptsetup failed") \
	x(KEY_FILE, ENOENT, "cannot read the key file") \
	x(KEY_NO_PROMPT, ENOTTY, "no terminal and no other way to ask for a passphrase") \
	x(KEY_EMPTY, EINVAL, "no passphrase given") \
	/* cache, journal */ \
	x(CORRUPT, EUCLEAN, "the file system is damaged; run fsck.cryptfs") \
	x(CHECKSUM, EUCLEAN, "a metadata checksum does not match; run fsck.cryptfs") \
	x(JOURNAL, EUCLEAN, \
		"the journal is damaged; run fsck.cryptfs, or mount with -o ro,noload") \
	x(JOURNAL_EXTERNAL, ENOTSUP, "the journal is on another device; mount with -o ro,noload") \
	x(JOURNAL_FEATURE, ENOTSUP, \
		"the journal uses a feature that is not supported; run fsck.cryptfs, or " \
		"mount with -o ro,noload") \
	/* ext4 */ \
	x(EXT4_NONE, EINVAL, "no ext2, ext3 or ext4 file system inside") \
	x(EXT4_FEATURE, ENOTSUP, "the file system uses a feature that is not supported") \
	x(EXT4_GEOMETRY, EUCLEAN, "the superblock's geometry makes no sense; run fsck.cryptfs") \
	x(EXT4_BLOCK_SIZE, ENOTSUP, "block size is not supported") \
	x(EXT4_INDEX, EUCLEAN, "a directory's index is damaged; run fsck.cryptfs") \
	/* front, cmd */ \
	x(FUSE, EIO, "FUSE failed")
/* clang-format on */

enum err {
	OK = 0,
#define x(name, errno_class, text) ERR_##name,
	ERR_TABLE(x)
#undef x
		ERR_COUNT
};

int err_errno(enum err e);          /* positive errno class; 0 for OK */
const char *err_text(enum err e);   /* static string, never NULL */
const char *err_name(enum err e);   /* "ERR_IO"; "OK" */
enum err err_from_errno(int error); /* ERR_SYSTEM for one without a class of its own; never OK */

/*
 * Detail beside an error code, for the one line the user sees: what, where. Thread-local, at most
 * 511 bytes. Set it where the error is thrown; cmd/ prints it in place of err_text() and it is
 * empty unless err_set_detail() was called since err_clear_detail().
 */
void err_format_detail(const char *fmt, ...) printf_like(1, 2);
/*
 * enum err err_set_detail(enum err e, const char *fmt, ...) returns e. A macro, so that whoever
 * reads one file at a time, as static analysis does, sees that an error comes out of it.
 */
#define err_set_detail(e, ...) (err_format_detail(__VA_ARGS__), err_same(e))
static inline enum err err_same(enum err e)
{
	return e;
}
const char *err_detail(void); /* "" when there is none */
void err_clear_detail(void);

/* --- logging ---------------------------------------------------------------------------------
 * A message says what, where, the state and the action, once, where it is handled. Before the
 * daemon serves, messages go to stderr as "PROGRAM: TEXT"; afterwards to syslog(3) with ident
 * "cryptfs" and the mount point before the text. Thread-safe; no lock of ours is held in it.
 */
enum log_level { LOG_ERROR_, LOG_WARN_, LOG_INFO_, LOG_DEBUG_ };
void log_open_stderr(const char *program, enum log_level most);
void log_open_syslog(const char *mount_point, enum log_level most); /* connects at once */
void log_msg(enum log_level level, const char *fmt, ...) printf_like(2, 3);
#define log_error(...) log_msg(LOG_ERROR_, __VA_ARGS__)
#define log_warn(...)  log_msg(LOG_WARN_, __VA_ARGS__)
#define log_info(...)  log_msg(LOG_INFO_, __VA_ARGS__)
#define log_debug(...) log_msg(LOG_DEBUG_, __VA_ARGS__)

/* --- units -----------------------------------------------------------------------------------
 * One typedef per kind of number. Byte counts are size_t in memory and uint64_t on a device, and
 * their names end in _bytes.
 */
typedef uint64_t fsblk_t;  /* block number in the file system, in units of its block size */
typedef uint32_t lblk_t;   /* block number inside a file (ext4: 32 bits) */
typedef uint32_t inum_t;   /* inode number, from 1 */
typedef uint32_t group_t;  /* block group number, from 0 */
typedef uint64_t sector_t; /* 512-byte sector on the encrypted volume */

/* --- disk bytes ------------------------------------------------------------------------------
 * Numbers on disk are byte arrays in a struct, so that mixing them with numbers in memory does
 * not compile and no alignment is assumed. get/make compile to one move (and a swap).
 */
typedef struct {
	uint8_t b[2];
} le16;
typedef struct {
	uint8_t b[4];
} le32;
typedef struct {
	uint8_t b[8];
} le64;
typedef struct {
	uint8_t b[2];
} be16;
typedef struct {
	uint8_t b[4];
} be32;
typedef struct {
	uint8_t b[8];
} be64;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ || __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__,
	"a known byte order");
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define ENDIAN_TO_LE(n, v) (v)
#define ENDIAN_TO_BE(n, v) __builtin_bswap##n(v)
#else
#define ENDIAN_TO_LE(n, v) __builtin_bswap##n(v)
#define ENDIAN_TO_BE(n, v) (v)
#endif
#define ENDIAN_PAIR(type, n, swap)                    \
	static inline uint##n##_t type##_get(type d)  \
	{                                             \
		uint##n##_t v;                        \
		memcpy(&v, d.b, sizeof(v));           \
		return swap(n, v);                    \
	}                                             \
	static inline type type##_make(uint##n##_t v) \
	{                                             \
		type d;                               \
		v = swap(n, v);                       \
		memcpy(d.b, &v, sizeof(v));           \
		return d;                             \
	}
ENDIAN_PAIR(le16, 16, ENDIAN_TO_LE)
ENDIAN_PAIR(le32, 32, ENDIAN_TO_LE)
ENDIAN_PAIR(le64, 64, ENDIAN_TO_LE)
ENDIAN_PAIR(be16, 16, ENDIAN_TO_BE)
ENDIAN_PAIR(be32, 32, ENDIAN_TO_BE)
ENDIAN_PAIR(be64, 64, ENDIAN_TO_BE)

/* --- checksums -------------------------------------------------------------------------------
 * crc32c (Castagnoli, reflected 0x82f63b78) without pre- or post-inversion, as ext4 and jbd2 use
 * it: crc32c(~0, data) is the seed step. crc32c uses the CPU's instruction where it has one.
 * crc16 is the ANSI one (reflected 0xa001) of ext4's uninit_bg, crc32_be the Ethernet one
 * (0x04c11db7, most significant bit first) of jbd2's old COMPAT_CHECKSUM feature.
 */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);
uint16_t crc16(uint16_t crc, const void *data, size_t len);
uint32_t crc32_be(uint32_t crc, const void *data, size_t len);

/* --- secrets ---------------------------------------------------------------------------------
 * Key material lives only here: own pages, locked where the limit allows it, not dumped, not
 * inherited by a child's pages (MADV_WIPEONFORK), wiped when freed. mlock is not inherited by
 * fork: make secrets in the process that will serve. When locking fails, one warning is logged
 * for the process and the secret is used all the same.
 */
struct secret {
	uint8_t *bytes; /* NULL when empty */
	size_t len;
	size_t mapped_bytes; /* private to base */
};
enum err secret_alloc(struct secret *out, size_t len) must_check; /* zeroed; len > 0 */
enum err secret_copy(struct secret *out, const void *bytes, size_t len) must_check;
void secret_shrink(struct secret *s, size_t len); /* the cut tail is wiped */
void secret_free(struct secret *s);               /* wipes; leaves an empty secret; empty is fine */
bool secret_all_locked(void);                     /* false once any lock has failed */

/* --- lists -----------------------------------------------------------------------------------
 * Circular, doubly linked, the head is a node. A node that is on no list points at itself.
 */
struct list {
	struct list *next, *prev;
};
static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}
static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}
static inline void list_insert_after(struct list *at, struct list *n)
{
	n->next = at->next;
	n->prev = at;
	at->next->prev = n;
	at->next = n;
}
static inline void list_push_front(struct list *head, struct list *n)
{
	list_insert_after(head, n);
}
static inline void list_push_back(struct list *head, struct list *n)
{
	list_insert_after(head->prev, n);
}
static inline void list_remove(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}
#define list_entry(n, type, mem) container_of(n, type, mem)
#define list_for_each(n, head)   for (struct list *n = (head)->next; n != (head); n = n->next)
#define list_for_each_safe(n, head)                                           \
	for (struct list *n = (head)->next, *n##_next = n->next; n != (head); \
		n = n##_next, n##_next = n->next)

/* --- thread slots ----------------------------------------------------------------------------
 * A small number that belongs to one living thread, taken at the first call and given back when
 * the thread ends. What a layer keeps per thread (page pools, cipher handles, counter slots) is
 * an array indexed by it, so that the fast path needs no lock, and the next thread with the slot
 * inherits what is there. More than THREAD_SLOTS living threads is our own bug (ensure).
 */
enum { THREAD_SLOTS = 1024 };
unsigned thread_slot(void);

/* Names the thread in ps and gdb (15 bytes), and starts it with all signals blocked. */
enum err thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg) must_check;

uint64_t clock_ns(void); /* CLOCK_MONOTONIC */

/* --- the relaxed counters --------------------------------------------------------------------
 * Two counters for two promises (the design's §5). The fast path of both touches the thread's own
 * slot and lines that nobody writes, nothing else; `slot` is thread_slot() modulo the counter's
 * slots, tests pass their own. Threads may share a slot, it is only slower then.
 *
 * cap_counter: "about how many are out". A thread adds to its own slot and folds into the global
 * value when the slot reaches +-CAP_BATCH; the check comes with the fold and reads the global
 * value only. Error, stated: at most (CAP_BATCH - 1 + largest claim) x threads are out beyond the
 * cap. A claim that finds the cap reached makes the counter `full`: all slots are folded once,
 * and until an eighth of the cap is free again claims and releases go to the global value. So
 * what other threads released cannot lie unseen in their slots while somebody waits for it: who
 * was refused may wait for the next release, and every release is seen by the claims after it.
 *
 * credit_counter: "never more than there are". A slot holds credit already taken from the global
 * value in batches of CREDIT_BATCH, so overcommit is impossible by construction. Below
 * low_watermark (a fraction of the total that does not depend on the number of slots) slots are
 * closed, claims are single and releases go to the global value. The first claim to find too
 * little drains every open slot once; a slot opens again only above open_watermark, so the cost
 * per claim does not grow with the number of slots. A refusal is exact: there is an instant during
 * the call at which fewer than n units were free anywhere, other threads' hands included.
 *
 * Claims and releases may be made with any lock held except the log's; a slow path takes the
 * counter's own mutex for a short time. Both structs are aligned to a cache line, so what holds one
 * comes from aligned_alloc().
 */
enum { CAP_BATCH = 32, CREDIT_BATCH = 32 };

struct counter_slot {
	_Atomic int64_t value;
	bool listed GUARDED_BY(counter_token); /* credit_counter: in its list of open slots */
} cacheline_aligned;

struct cap_counter {
	_Atomic int64_t global cacheline_aligned;
	struct mutex turn; /* entering and leaving `full`, and refusing */
	/* From here on written rarely: every claim reads this line. */
	int64_t cap cacheline_aligned;
	_Atomic bool full;
	unsigned slots;
	struct counter_slot *slot;
};
enum err cap_counter_init(struct cap_counter *c, int64_t cap, unsigned slots) must_check;
void cap_counter_destroy(struct cap_counter *c);
bool cap_counter_claim(struct cap_counter *c, unsigned slot, int64_t n); /* false: at the cap */
void cap_counter_add(struct cap_counter *c, unsigned slot, int64_t n); /* no check; n may be < 0 */
int64_t cap_counter_read(const struct cap_counter *c);                 /* the global value */
int64_t cap_counter_sum(const struct cap_counter *c); /* exact when quiet; for status and tests */

struct credit_counter {
	_Atomic int64_t global cacheline_aligned;  /* free units not in any slot */
	struct mutex turn;                         /* opening slots, draining, refusing */
	unsigned listed GUARDED_BY(counter_token); /* slots opened since the last drain */
	/* From here on written only at init: every claim reads this line. */
	int64_t low_watermark cacheline_aligned;
	int64_t open_watermark;
	unsigned slots;
	struct counter_slot *slot; /* credit held, or a negative state */
	unsigned *list PT_GUARDED_BY(counter_token);
};
enum err credit_counter_init(struct credit_counter *c, int64_t units, unsigned slots) must_check;
void credit_counter_destroy(struct credit_counter *c);
bool credit_counter_claim(struct credit_counter *c, unsigned slot, int64_t n); /* exact refusal */
void credit_counter_release(struct credit_counter *c, unsigned slot, int64_t n);
int64_t credit_counter_sum(const struct credit_counter *c); /* exact when quiet */

/*
 * Operations on cache lines that threads share (atomics on shared lines, locks), counted per
 * thread in builds with -DCRYPTFS_COUNT_SHARED and compiled out otherwise.
 */
#ifdef CRYPTFS_COUNT_SHARED
extern _Thread_local uint64_t shared_line_ops;
#define SHARED_LINE_OP() ((void)shared_line_ops++)
#else
#define SHARED_LINE_OP() ((void)0)
#endif

#endif
