/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cipher: sectors in clear above, encrypted below, with libgcrypt.
 *
 * Three doors. A cipher_spec is the parsed text ("aes-xts-plain64", "capi:xts(aes)-plain64") with
 * sector size. A cipher is a spec with a key: it encrypts and decrypts whole sectors in place and
 * has one libgcrypt handle for each thread slot, made at first use. A volume is a range of a
 * device behind a cipher: what the file system reads and writes.
 *
 * IVs (dm-crypt's documentation and cryptsetup's crypto_storage.c): the sector number s is counted
 * in 512-byte units plus the volume's iv_offset, also with larger cipher sectors. null: zeros;
 * plain: le32(s); plain64: le64(s); plain64be: be64(s) in the last 8 bytes; essiv:H:
 * E_{H(key)}(le64(s)); benbi: be64((s << (9 - log2 of the cipher block)) + 1) in the last 8;
 * eboiv: a block of zeros encrypted in the volume's own mode with le64(s * the cipher sector size)
 * as its IV (in CBC that is E_key of it), as dm-crypt and cryptsetup compute it.
 *
 * Threads: every call may run in parallel with every other.
 */
#ifndef CRYPTFS_CIPHER_H
#define CRYPTFS_CIPHER_H

#include "base.h"
#include "ioq.h"

enum { CIPHER_SECTOR_BYTES_MAX = 4096 };

enum cipher_iv {
	CIPHER_IV_NULL,
	CIPHER_IV_PLAIN,
	CIPHER_IV_PLAIN64,
	CIPHER_IV_PLAIN64BE,
	CIPHER_IV_ESSIV,
	CIPHER_IV_BENBI,
	CIPHER_IV_EBOIV,
};
enum cipher_mode {
	CIPHER_MODE_XTS,
	CIPHER_MODE_CBC,
	CIPHER_MODE_CTR,
	CIPHER_MODE_ECB, /* has no IV */
	CIPHER_MODE_IDENTITY,
};

struct cipher_spec {
	int algorithm; /* GCRY_CIPHER_*, for the key size that was given */
	enum cipher_mode mode;
	enum cipher_iv iv;
	int essiv_hash;        /* GCRY_MD_* */
	uint32_t sector_bytes; /* 512, 1024, 2048, 4096 */
	uint32_t key_bytes;    /* both halves for XTS */
	uint32_t block_bytes;  /* the cipher's block: 8 or 16 */
	char text[64];         /* as it was given, for messages */
};

/*
 * Sets libgcrypt up for the process: version check, secure memory of a size for our handles.
 * Call once before anything else here, in the process that will serve. A failure to lock memory
 * is warned of, not an error. ERR_CIPHER_LIBRARY.
 */
enum err cipher_library_init(void) must_check;
bool cipher_library_locked(void); /* libgcrypt's secure memory is really locked */

/*
 * `text` is cipher-mode-iv as in cryptsetup, or capi:. ERR_CIPHER_SPEC with a detail that names
 * the part that is not supported.
 */
enum err cipher_spec_parse(const char *text, uint32_t key_bytes, uint32_t sector_bytes,
	struct cipher_spec *out) must_check;

struct cipher;

/* Copies the key into secret memory. ERR_CIPHER_LIBRARY, ERR_NOMEM; a weak key is the former. */
enum err cipher_create(
	const struct cipher_spec *spec, const struct secret *key, struct cipher **out) must_check;
/* Leaves bytes as they are. For tests, whose recorded images are then plain ext4. */
enum err cipher_create_identity(uint32_t sector_bytes, struct cipher **out) must_check;
void cipher_destroy(struct cipher *c);
const struct cipher_spec *cipher_spec(const struct cipher *c);

/*
 * In place (in == out) or not; len is a multiple of the spec's sector; `sector` is the first
 * sector's number in 512-byte units, iv_offset included.
 */
enum err cipher_decrypt(
	struct cipher *c, void *out, const void *in, size_t len_bytes, sector_t sector) must_check;
enum err cipher_encrypt(
	struct cipher *c, void *out, const void *in, size_t len_bytes, sector_t sector) must_check;

/* --- volume ----------------------------------------------------------------------------------
 * Offset 0 is the first byte in clear. Offsets and lengths are multiples of 512; where they are
 * not multiples of the cipher sector, the ends are read (and for a write read first, under the
 * caller's exclusion) through a bounce buffer.
 */
struct volume;

struct volume_config {
	struct ioq *ioq;       /* borrowed */
	struct cipher *cipher; /* owned from volume_create's success on */
	uint64_t offset_bytes; /* where the encrypted segment starts on the device */
	uint64_t size_bytes;   /* its length */
	uint64_t iv_offset;    /* 512-byte units */
};
/* ERR_DEV_SHORT (the device ends before the volume), ERR_INVAL (a range of no whole sectors). */
enum err volume_create(const struct volume_config *config, struct volume **out) must_check;
void volume_destroy(struct volume *v);
uint64_t volume_size_bytes(const struct volume *v);
uint32_t volume_sector_bytes(const struct volume *v); /* the cipher sector: the atomic unit */
bool volume_readonly(const struct volume *v);
struct ioq *volume_ioq(struct volume *v);

/* ERR_DEV_BOUNDS past the end (detail set), ERR_IO, ERR_CIPHER_LIBRARY. On error buf is undefined.
 */
enum err volume_read(struct volume *v, void *buf, size_t len_bytes, uint64_t offset_bytes)
	must_check;
/* Scatters one contiguous range of the volume over count buffers, each a multiple of 512. */
enum err volume_readv(struct volume *v, const struct iovec *iov, int count, uint64_t offset_bytes)
	must_check;
/* Encrypts through a bounce buffer; `buf` is not changed. */
enum err volume_write(struct volume *v, const void *buf, size_t len_bytes, uint64_t offset_bytes)
	must_check;
/* Gathers count buffers into one contiguous range of the volume, in requests of up to 1 MiB. */
enum err volume_writev(struct volume *v, const struct iovec *iov, int count, uint64_t offset_bytes)
	must_check;
enum err volume_flush(struct volume *v) must_check;

#endif
