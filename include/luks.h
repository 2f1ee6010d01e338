/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * luks: from a source and a key to a volume's geometry and key; and a new volume for mkfs.
 *
 * Headers and keyslots go through libcryptsetup; what it cannot unlock without kernel crypto
 * (Serpent, Twofish, camellia-xts, ...) is unlocked by our own read-only keyslot reader over
 * libgcrypt (LUKS1: the on-disk format specification 1.2.3; LUKS2: the on-disk format 1.1.x).
 * libcryptsetup sees only a private copy of the header area in a memfd: its load repairs damaged
 * headers in place, and unlocking never writes to the source.
 *
 * It uses cipher/ for keyslot areas, so it stands above it. It runs once, at mount, in the thread
 * that calls; argon2 uses threads of its own.
 */
#ifndef CRYPTFS_LUKS_H
#define CRYPTFS_LUKS_H

#include "base.h"
#include "cipher.h"
#include "dev.h"

struct luks; /* a loaded header */

struct luks_info {
	int version; /* 1 or 2 */
	char uuid[40];
	char label[48];  /* LUKS2; "" otherwise */
	char cipher[64]; /* "aes-xts-plain64" */
	uint32_t key_bytes;
	uint32_t sector_bytes; /* of the cipher */
	uint64_t offset_bytes; /* of the segment on the data device */
	uint64_t size_bytes;   /* of the segment; to the end of the device where it is dynamic */
	uint64_t iv_offset;    /* 512-byte units */
	bool detached;
};

struct luks_keyslot_info {
	int slot;
	bool unbound;       /* LUKS2: not for the data segment */
	bool ignored;       /* LUKS2 priority "ignore" */
	bool preferred;     /* LUKS2 priority "prefer" */
	char cipher[64];    /* of the keyslot area */
	uint32_t key_bytes; /* of the key it holds */
	char kdf[16];       /* pbkdf2, argon2i, argon2id */
	char hash[24];      /* pbkdf2's, or AF's */
	uint64_t iterations;
	uint32_t memory_kib, lanes;
};

/*
 * `data` is the open data device (borrowed for the life of *out); `header` is another device with
 * the header, or NULL. Reads only. ERR_LUKS_NONE, ERR_LUKS_HEADER, ERR_LUKS_REENCRYPT,
 * ERR_LUKS_REQUIREMENT, ERR_LUKS_INTEGRITY, ERR_LUKS_OPAL, ERR_DEV_SHORT (segment past the end).
 */
enum err luks_load(struct dev *data, struct dev *header, struct luks **out) must_check;
void luks_close(struct luks *l);
void luks_info(const struct luks *l, struct luks_info *out);
/* Fills up to `room`; returns how many active slots there are. */
size_t luks_keyslots(const struct luks *l, struct luks_keyslot_info *out, size_t room);

/*
 * Tries the passphrase on one slot (>= 0) or, with -1, on every bound slot by priority (prefer,
 * normal; those marked ignore only when named), each slot by libcryptsetup first and by our
 * reader where that cannot. ERR_LUKS_KEY when no slot takes it, ERR_LUKS_SLOT when the named slot
 * is not there, ERR_CIPHER_SPEC naming a cipher that neither can do. *key is the volume key, owned
 * by the caller.
 */
enum err luks_unlock(struct luks *l, const struct secret *passphrase, int slot, struct secret *key)
	must_check;
/* By a LUKS2 token: id >= 0 or any (-1), type or NULL, pin or NULL. */
enum err luks_unlock_token(struct luks *l, int token_id, const char *type, const struct secret *pin,
	struct secret *key) must_check;

/* Puts header, key and queue together: the volume the file system lives on. */
enum err luks_volume(const struct luks *l, const struct secret *key, struct ioq *ioq,
	struct volume **out) must_check;

struct luks_format_options {
	const char *cipher;              /* NULL: aes-xts-plain64 */
	uint32_t key_bits;               /* 0: 512 for xts, else 256 */
	uint32_t sector_bytes;           /* 0: 4096 where the size allows, as cryptsetup */
	const char *label;               /* or NULL */
	const char *uuid;                /* or NULL: a new one */
	const char *pbkdf;               /* NULL: argon2id */
	uint32_t pbkdf_memory_kib;       /* 0: the library's default */
	uint32_t pbkdf_parallel;         /* 0: the library's default */
	uint32_t pbkdf_force_iterations; /* 0: by time */
	uint32_t iter_time_ms;           /* 0: the library's default */
	bool detached;                   /* the header goes to a device of its own */
	uint64_t header_size_bytes;      /* of that device; unused otherwise */
	uint64_t data_size_bytes;        /* of the data device */
};
/* What luks_format() will do; for the caller who must know the volume's size before. */
struct luks_layout {
	uint64_t header_bytes; /* headers and keyslots area: what luks_format() overwrites */
	uint64_t offset_bytes; /* of the data: header_bytes, or 0 for a detached header */
	uint64_t size_bytes;   /* of the volume in clear */
	uint32_t sector_bytes;
};
/*
 * The header takes 16 MiB as cryptsetup's own, 4 MiB where that is more than a sixteenth of the
 * target (room for 15 keyslots of 512 bits), and 1 MiB below 32 MiB. ERR_NOSPC when nothing would
 * be left, ERR_INVAL when the size is no multiple of the sector that was asked for.
 */
enum err luks_format_layout(const struct luks_format_options *options, struct luks_layout *out)
	must_check;
/*
 * Writes a new LUKS2 header to `header` (the data device itself unless detached) with `passphrase`
 * in slot 0, flushes it, and gives the volume key. libcryptsetup makes it in a private copy, so
 * the caller may hold any claim on the device, and nothing is written when it refuses.
 * ERR_CIPHER_SPEC, ERR_LUKS_LIBRARY with what the library says, ERR_NOSPC, ERR_INVAL, I/O errors.
 */
enum err luks_format(struct dev *header, const struct luks_format_options *options,
	const struct secret *passphrase, struct secret *key) must_check;

#endif
