/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Parses a LUKS1 header (LUKS1 on-disk format specification 1.2.3, section 3; the checks are those
 * of cryptsetup, whose hash names are taken without regard to case).
 *
 * All eight keyslots share the volume's cipher, hash and key size. Sizes are in 512-byte sectors.
 * A field that makes no sense refuses the header, not only its slot: nothing else in it is better
 * protected. Threads: no state.
 */
#include "luks_int.h"
#include <ctype.h>
#include <stdio.h>

struct luks1_disk_slot {
	be32 active;
	be32 iterations;
	uint8_t salt[32];
	be32 material_offset_sectors;
	be32 stripes;
};
struct luks1_disk_header {
	uint8_t magic[6];
	be16 version;
	char cipher_name[32];
	char cipher_mode[32];
	char hash[32];
	be32 payload_offset_sectors;
	be32 key_bytes;
	uint8_t digest[20];
	uint8_t digest_salt[32];
	be32 digest_iterations;
	char uuid[40];
	struct luks1_disk_slot slots[LUKS1_SLOTS];
};
static_assert(sizeof(struct luks1_disk_slot) == 48, "LUKS1 keyslot");
static_assert(sizeof(struct luks1_disk_header) == 592, "LUKS1 header");
static_assert(offsetof(struct luks1_disk_header, digest) == 112, "LUKS1 digest");

static const uint32_t slot_active = 0x00ac71f3, slot_inactive = 0x0000dead;

static enum err luks1_damaged(const char *what)
{
	return err_set_detail(ERR_LUKS_HEADER, "the LUKS1 header is damaged: %s", what);
}

static bool text_ok(const char *text, size_t room)
{
	return text[0] != '\0' && strnlen(text, room) < room;
}

static void copy_hash(char out[24], const char *from)
{
	size_t i = 0;

	for (; i < 23 && from[i] != '\0'; i++)
		out[i] = (char)tolower((unsigned char)from[i]);
	out[i] = '\0';
}

static enum err luks1_parse_slot(
	const struct luks1_disk_header *d, int number, struct luks *l, uint64_t payload_bytes)
{
	const struct luks1_disk_slot *from = &d->slots[number];
	const uint32_t state = be32_get(from->active);
	struct keyslot s = {.area_key_bytes = l->info.key_bytes};

	if (state == slot_inactive)
		return OK;
	if (state != slot_active)
		return luks1_damaged("a keyslot is neither on nor off");
	if (be32_get(from->stripes) != LUKS_STRIPES)
		return luks1_damaged("a keyslot has an unusual number of stripes");
	s.area_offset_bytes = (uint64_t)be32_get(from->material_offset_sectors) * SECTOR_BYTES;
	s.area_bytes = ((uint64_t)LUKS_STRIPES * l->info.key_bytes + SECTOR_BYTES - 1) /
		       SECTOR_BYTES * SECTOR_BYTES;
	if (s.area_offset_bytes < sizeof(*d) ||
		(payload_bytes != 0 && s.area_offset_bytes + s.area_bytes > payload_bytes))
		return luks1_damaged("a keyslot lies outside the header area");
	s.kdf = (struct kdf){.kind = LUKS_KDF_PBKDF2, .iterations = be32_get(from->iterations)};
	copy_hash(s.kdf.hash, d->hash);
	memcpy(s.kdf.salt, from->salt, sizeof(from->salt));
	s.kdf.salt_bytes = sizeof(from->salt);
	memcpy(s.af_hash, s.kdf.hash, sizeof(s.af_hash));
	s.info = (struct luks_keyslot_info){.slot = number,
		.key_bytes = l->info.key_bytes,
		.iterations = s.kdf.iterations,
		.kdf = "pbkdf2"};
	memcpy(s.info.cipher, l->info.cipher, sizeof(s.info.cipher));
	memcpy(s.info.hash, s.kdf.hash, sizeof(s.info.hash));
	s.problem = kdf_check(&s.kdf);
	if (s.problem != OK) {
		snprintf(s.why, sizeof(s.why), "%s", err_detail());
		err_clear_detail();
	}
	l->slots[l->slot_count++] = s;
	return OK;
}

enum err luks1_parse(const struct luks_header *h, struct luks *l)
{
	const struct luks1_disk_header *d = (const struct luks1_disk_header *)(const void *)h->phdr;
	struct luks_info *i = &l->info;
	uint64_t payload_bytes;
	enum err e = OK;

	if (!text_ok(d->cipher_name, sizeof(d->cipher_name)) ||
		!text_ok(d->cipher_mode, sizeof(d->cipher_mode)) ||
		!text_ok(d->hash, sizeof(d->hash)))
		return luks1_damaged("its cipher has no name");
	i->version = 1;
	i->sector_bytes = SECTOR_BYTES;
	i->key_bytes = be32_get(d->key_bytes);
	if (i->key_bytes == 0 || i->key_bytes > LUKS_KEY_BYTES_MAX)
		return luks1_damaged("the key size makes no sense");
	if (snprintf(i->cipher, sizeof(i->cipher), "%s-%s", d->cipher_name, d->cipher_mode) >=
		(int)sizeof(i->cipher))
		return luks1_damaged("the cipher's name is too long");
	snprintf(i->uuid, sizeof(i->uuid), "%.39s", d->uuid);
	payload_bytes = (uint64_t)be32_get(d->payload_offset_sectors) * SECTOR_BYTES;
	i->offset_bytes = payload_bytes;
	l->digest.len = sizeof(d->digest);
	memcpy(l->digest.bytes, d->digest, sizeof(d->digest));
	l->digest.kdf = (struct kdf){.kind = LUKS_KDF_PBKDF2,
		.iterations = be32_get(d->digest_iterations),
		.salt_bytes = sizeof(d->digest_salt)};
	copy_hash(l->digest.kdf.hash, d->hash);
	memcpy(l->digest.kdf.salt, d->digest_salt, sizeof(d->digest_salt));
	e = kdf_check(&l->digest.kdf);
	/* A detached header's payload offset is the data device's and bounds no keyslot. */
	for (int n = 0; e == OK && n < LUKS1_SLOTS; n++)
		e = luks1_parse_slot(d, n, l, i->detached ? 0 : payload_bytes);
	return e;
}

uint64_t luks1_area_bytes(const struct luks_header *h)
{
	const struct luks1_disk_header *d = (const struct luks1_disk_header *)(const void *)h->phdr;
	const uint64_t area_bytes = (uint64_t)LUKS_STRIPES * be32_get(d->key_bytes);
	uint64_t most = sizeof(h->phdr);

	for (size_t n = 0; n < LUKS1_SLOTS; n++) {
		const uint64_t start =
			(uint64_t)be32_get(d->slots[n].material_offset_sectors) * SECTOR_BYTES;

		most = MAX(most,
			start + (area_bytes + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES);
	}
	return most;
}
