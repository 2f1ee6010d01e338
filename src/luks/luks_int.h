/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Private to luks/: what its files share.
 *
 * header.c copies the header area, luks1.c and luks2.c parse the copy into struct luks, library.c
 * gives the copy to libcryptsetup, kdf.c and reader.c open a keyslot without it, luks.c has the
 * doors. Everything runs in the calling thread; only argon2 starts threads, and waits for them.
 */
#ifndef CRYPTFS_LUKS_INT_H
#define CRYPTFS_LUKS_INT_H

#include "luks.h"

struct crypt_device;
struct json_object;

enum {
	LUKS_SLOTS_MAX = 32,
	LUKS_SALT_BYTES_MAX = 256,
	LUKS_DIGEST_BYTES_MAX = 128,
	LUKS_KEY_BYTES_MAX = 512, /* libcryptsetup's own limit */
	LUKS_STRIPES = 4000,      /* the only number that any cryptsetup writes or reads */
	LUKS1_SLOTS = 8,
	LUKS2_HEADER_BYTES_MIN = 16 << 10,
	LUKS2_HEADER_BYTES_MAX = 4 << 20,
	LUKS2_BINARY_BYTES = 4096, /* the JSON text follows it */
	/* A hostile header must not take all memory or run for days (see kdf_check()). */
	LUKS_KDF_MEMORY_KIB_MAX = 4 << 20, /* cryptsetup's limit: 4 GiB */
	LUKS_KDF_LANES_MAX = 64,
};

enum luks_kdf { LUKS_KDF_PBKDF2, LUKS_KDF_ARGON2I, LUKS_KDF_ARGON2ID };

struct kdf {
	enum luks_kdf kind;
	char hash[24];       /* pbkdf2 */
	uint64_t iterations; /* argon2: passes */
	uint32_t memory_kib, lanes;
	uint8_t salt[LUKS_SALT_BYTES_MAX];
	size_t salt_bytes;
};

/* What proves that a key is the volume's: always pbkdf2. */
struct digest {
	struct kdf kdf;
	uint8_t bytes[LUKS_DIGEST_BYTES_MAX];
	size_t len;
};

struct keyslot {
	struct luks_keyslot_info info;
	struct kdf kdf;
	char af_hash[24];
	uint32_t area_key_bytes; /* of the area's cipher */
	uint64_t area_offset_bytes, area_bytes;
	enum err problem; /* OK, or why this slot alone cannot be tried */
	char why[120];    /* beside it */
};

struct luks {
	struct dev *data; /* borrowed */
	struct luks_info info;
	struct keyslot slots[LUKS_SLOTS_MAX];
	size_t slot_count;
	struct digest digest;    /* of the volume key */
	int copy_fd;             /* memfd: the header area, at the offsets it has on the source */
	struct crypt_device *cd; /* NULL: libcryptsetup cannot load this header */
	char library_says[256];  /* its last error line */
};

/* --- header.c: the private copy -------------------------------------------------------------- */

struct luks_header {
	int fd;
	int version;
	bool primary_magic;  /* the copy at offset 0 still looks like LUKS */
	uint64_t size_bytes; /* LUKS2: of one of the two copies of the header */
	uint64_t source_bytes;
	char *json; /* LUKS2: the newer valid copy's text, NUL-terminated */
	size_t json_bytes;
	char uuid[41], label[49];
	uint8_t phdr[1024]; /* LUKS1: the first bytes */
};
/* Copies both headers, but no keyslot area yet. ERR_LUKS_NONE, ERR_LUKS_HEADER, or I/O errors. */
enum err luks_header_read(struct dev *source, struct luks_header *out) must_check;
/* Copies a keyslot area to the same place of the copy, which grows as needed. */
enum err luks_header_copy(struct dev *source, int fd, uint64_t offset_bytes, uint64_t len_bytes)
	must_check;
/* The size the copy has to have at least, whatever was copied. */
enum err luks_header_extend(int fd, uint64_t size_bytes) must_check;
void luks_header_free(struct luks_header *h); /* leaves a taken fd (-1) alone */

/* --- luks1.c, luks2.c: from bytes to geometry, keyslots and digest --------------------------- */

enum err luks1_parse(const struct luks_header *h, struct luks *l) must_check;
enum err luks2_parse(const struct luks_header *h, struct luks *l) must_check;
/* Up to the end of all eight keyslot areas, in use or not (not clipped); after luks1_parse(). */
uint64_t luks1_area_bytes(const struct luks_header *h);
/* Bytes that must be copied for the two headers and the whole keyslots area (not clipped). */
enum err luks2_area_bytes(const struct luks_header *h, uint64_t *out) must_check;
/* Standard alphabet with padding, nothing else; false when it does not fit or is malformed. */
bool luks_base64_decode(const char *text, uint8_t *out, size_t room, size_t *len) must_check;

/* --- library.c ------------------------------------------------------------------------------- */

/* Once for the process: no lock files, no lines on stderr. */
void library_init(void);
/* What the library would print for l->cd goes to l->library_says from here on. */
void library_capture(struct luks *l);
/* ERR_LUKS_HEADER with what it says as detail; l->cd is set on success. */
enum err library_load(struct luks *l) must_check;
void library_close(struct luks *l);
/*
 * ERR_LUKS_KEY: tried, and it is not the passphrase. ERR_OPNOTSUPP: could not be tried, ask the
 * reader.
 */
enum err library_unlock(struct luks *l, const struct keyslot *s, const struct secret *passphrase,
	struct secret *key) must_check;
/* Whether the library has this keyslot cipher in every build (OpenSSL has no other in XTS). */
bool library_knows(const char *cipher);

/* --- kdf.c ----------------------------------------------------------------------------------- */

/* Refuses what would take all memory or practically never end: ERR_LUKS_HEADER, detail set. */
enum err kdf_check(const struct kdf *k) must_check;
/* Fills out->len bytes. A hash that libgcrypt does not have: ERR_LUKS_REQUIREMENT by name. */
enum err kdf_derive(const struct kdf *k, const void *passphrase, size_t passphrase_bytes,
	struct secret *out) must_check;
/* Anti-forensic merge (LUKS1 spec 2.4): LUKS_STRIPES x key->len bytes become the key. */
enum err kdf_af_merge(const uint8_t *stripes, const char *hash, struct secret *key) must_check;

/* --- reader.c -------------------------------------------------------------------------------- */

/* Opens one keyslot over libgcrypt alone. ERR_LUKS_KEY, ERR_CIPHER_SPEC, ... */
enum err reader_unlock(const struct luks *l, const struct keyslot *s,
	const struct secret *passphrase, struct secret *key) must_check;
/* ERR_LUKS_KEY when it is not the volume's key. */
enum err reader_verify(const struct luks *l, const struct secret *key) must_check;

#endif
