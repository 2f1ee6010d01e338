/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Parses the JSON text of a LUKS2 header (LUKS2 on-disk format specification 1.1, chapter 3).
 *
 * What decides whether the data can be read at all (requirements, segments, the digest of the
 * volume key) is an error of the header, by name. What only concerns one keyslot is kept with
 * that slot, so that another slot still opens the volume. Numbers of bytes are decimal text in
 * LUKS2. json-c bounds the nesting; every array is walked by its own length. Threads: no state.
 */
#include "luks_int.h"
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>

enum { LUKS2_AREA_BYTES_MAX = 128 << 20, JSON_DEPTH_MAX = 16 };

static enum err luks2_damaged(const char *what)
{
	return err_set_detail(ERR_LUKS_HEADER, "the LUKS2 header is damaged: %s", what);
}

/* --- JSON --------------------------------------------------------------------------------------
 */

static struct json_object *json_member(
	struct json_object *from, const char *name, enum json_type type)
{
	struct json_object *found = NULL;

	if (!json_object_is_type(from, json_type_object) ||
		!json_object_object_get_ex(from, name, &found) || !json_object_is_type(found, type))
		return NULL;
	return found;
}

static const char *json_text(struct json_object *from, const char *name)
{
	struct json_object *found = json_member(from, name, json_type_string);

	return found ? json_object_get_string(found) : "";
}

static bool json_copy(struct json_object *from, const char *name, char *out, size_t room)
{
	const char *text = json_text(from, name);

	if (text[0] == '\0' || strlen(text) >= room)
		return false;
	memcpy(out, text, strlen(text) + 1);
	return true;
}

static bool json_u32(struct json_object *from, const char *name, uint32_t *out)
{
	struct json_object *found = json_member(from, name, json_type_int);
	int64_t value = found ? json_object_get_int64(found) : -1;

	if (value < 0 || value > UINT32_MAX)
		return false;
	*out = (uint32_t)value;
	return true;
}

/* A number of bytes: decimal digits in a string. */
static bool json_bytes(struct json_object *from, const char *name, uint64_t *out)
{
	const char *text = json_text(from, name);
	uint64_t value = 0;

	if (text[0] == '\0')
		return false;
	for (; *text != '\0'; text++) {
		if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return false;
	}
	*out = value;
	return true;
}

/* Whether an array of strings holds the decimal name of a keyslot or segment. */
static bool json_lists(struct json_object *from, const char *name, const char *wanted)
{
	struct json_object *list = json_member(from, name, json_type_array);
	const size_t count = list ? json_object_array_length(list) : 0;

	for (size_t i = 0; i < count; i++) {
		struct json_object *one = json_object_array_get_idx(list, i);

		if (json_object_is_type(one, json_type_string) &&
			strcmp(json_object_get_string(one), wanted) == 0)
			return true;
	}
	return false;
}

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool luks_base64_decode(const char *text, uint8_t *out, size_t room, size_t *len)
{
	const size_t chars = strlen(text);
	size_t n = 0;

	if (chars == 0 || chars % 4 != 0)
		return false;
	for (size_t at = 0; at < chars; at += 4) {
		const bool last = at + 4 == chars;
		const size_t pad = !last || text[at + 3] != '=' ? 0 : text[at + 2] == '=' ? 2 : 1;
		uint32_t group = 0;

		for (size_t i = 0; i < 4; i++) {
			const int value = i >= 4 - pad ? 0 : base64_value(text[at + i]);

			if (value < 0)
				return false;
			group = group << 6 | (uint32_t)value;
		}
		if (n + 3 - pad > room)
			return false;
		for (size_t i = 0; i < 3 - pad; i++)
			out[n++] = (uint8_t)(group >> (16 - 8 * i));
	}
	*len = n;
	return true;
}

static enum err luks2_open_json(const struct luks_header *h, struct json_object **out)
{
	struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX);
	struct json_object *root;

	if (tokener == NULL)
		return ERR_NOMEM;
	/* With its NUL: a text that is cut off is then an error rather than "more to come". */
	root = json_tokener_parse_ex(tokener, h->json, (int)h->json_bytes + 1);
	json_tokener_free(tokener);
	if (!json_object_is_type(root, json_type_object)) {
		json_object_put(root);
		return luks2_damaged("its JSON does not parse");
	}
	*out = root;
	return OK;
}

/* --- requirements and segments -----------------------------------------------------------------
 */

/* None is supported, so the first says why the volume is refused. */
static enum err luks2_check_requirements(struct json_object *root)
{
	struct json_object *config = json_member(root, "config", json_type_object);
	struct json_object *requirements =
		config ? json_member(config, "requirements", json_type_object) : NULL;
	struct json_object *list =
		requirements ? json_member(requirements, "mandatory", json_type_array) : NULL;
	const char *name;

	if (config == NULL)
		return luks2_damaged("it has no config");
	if (list == NULL || json_object_array_length(list) == 0)
		return OK;
	name = json_object_get_string(json_object_array_get_idx(list, 0));
	if (name == NULL)
		return luks2_damaged("a requirement has no name");
	if (strncmp(name, "online-reencrypt", strlen("online-reencrypt")) == 0 ||
		strncmp(name, "offline-reencrypt", strlen("offline-reencrypt")) == 0)
		return ERR_LUKS_REENCRYPT;
	if (strcmp(name, "opal") == 0)
		return ERR_LUKS_OPAL;
	if (strcmp(name, "inline-hw-tags") == 0)
		return ERR_LUKS_INTEGRITY;
	return err_set_detail(ERR_LUKS_REQUIREMENT,
		"the LUKS header asks for '%.100s', which is not supported", name);
}

static bool segment_is_backup(struct json_object *segment)
{
	struct json_object *flags = json_member(segment, "flags", json_type_array);
	const size_t count = flags ? json_object_array_length(flags) : 0;

	for (size_t i = 0; i < count; i++) {
		const char *flag = json_object_get_string(json_object_array_get_idx(flags, i));

		if (flag != NULL && strncmp(flag, "backup-", 7) == 0)
			return true;
	}
	return false;
}

/* The one segment that holds data; *name belongs to the JSON. */
static enum err luks2_find_segment(
	struct json_object *root, struct json_object **out, const char **name)
{
	struct json_object *segments = json_member(root, "segments", json_type_object);
	unsigned found = 0;

	if (segments == NULL)
		return luks2_damaged("it has no segments");
	json_object_object_foreach(segments, key, segment)
	{
		if (segment_is_backup(segment))
			continue;
		found++;
		*out = segment;
		*name = key;
	}
	if (found == 0)
		return err_set_detail(ERR_LUKS_REQUIREMENT,
			"the LUKS2 header has no data segment (it only holds keys)");
	if (found > 1)
		return err_set_detail(ERR_LUKS_REQUIREMENT,
			"the LUKS2 header has %u data segments; only one is supported", found);
	return OK;
}

static enum err luks2_parse_segment(struct json_object *segment, struct luks_info *i)
{
	const char *type = json_text(segment, "type");
	struct json_object *integrity = NULL;

	if (strncmp(type, "hw-opal", 7) == 0)
		return ERR_LUKS_OPAL;
	if (json_object_object_get_ex(segment, "integrity", &integrity))
		return ERR_LUKS_INTEGRITY;
	if (strcmp(type, "crypt") != 0)
		return err_set_detail(ERR_LUKS_REQUIREMENT,
			"the LUKS2 header has a data segment of type '%.40s', which is not "
			"supported",
			type);
	if (!json_bytes(segment, "offset", &i->offset_bytes) || i->offset_bytes % SECTOR_BYTES != 0)
		return luks2_damaged("the segment's offset makes no sense");
	if (strcmp(json_text(segment, "size"), "dynamic") == 0)
		i->size_bytes = 0;
	else if (!json_bytes(segment, "size", &i->size_bytes) || i->size_bytes == 0)
		return luks2_damaged("the segment's size makes no sense");
	if (!json_bytes(segment, "iv_tweak", &i->iv_offset))
		return luks2_damaged("the segment's iv_tweak makes no sense");
	if (!json_copy(segment, "encryption", i->cipher, sizeof(i->cipher)))
		return luks2_damaged("the segment's cipher has no name");
	if (!json_u32(segment, "sector_size", &i->sector_bytes) || i->sector_bytes < SECTOR_BYTES ||
		i->sector_bytes > CIPHER_SECTOR_BYTES_MAX ||
		(i->sector_bytes & (i->sector_bytes - 1)) != 0 ||
		i->size_bytes % i->sector_bytes != 0)
		return luks2_damaged("the segment's sector size makes no sense");
	return OK;
}

/* --- keyslots and digests ----------------------------------------------------------------------
 */

static bool luks2_parse_kdf(struct json_object *from, struct kdf *k, char name[16])
{
	uint32_t iterations = 0;

	if (!json_copy(from, "type", name, 16) || !luks_base64_decode(json_text(from, "salt"),
							  k->salt, sizeof(k->salt), &k->salt_bytes))
		return false;
	if (strcmp(name, "pbkdf2") == 0) {
		k->kind = LUKS_KDF_PBKDF2;
		if (!json_copy(from, "hash", k->hash, sizeof(k->hash)) ||
			!json_u32(from, "iterations", &iterations))
			return false;
	} else {
		k->kind = strcmp(name, "argon2i") == 0 ? LUKS_KDF_ARGON2I : LUKS_KDF_ARGON2ID;
		if ((k->kind == LUKS_KDF_ARGON2ID && strcmp(name, "argon2id") != 0) ||
			!json_u32(from, "time", &iterations) ||
			!json_u32(from, "memory", &k->memory_kib) ||
			!json_u32(from, "cpus", &k->lanes))
			return false;
	}
	k->iterations = iterations;
	return true;
}

static bool luks2_parse_area(struct json_object *slot, struct keyslot *s)
{
	struct json_object *area = json_member(slot, "area", json_type_object);
	struct json_object *af = json_member(slot, "af", json_type_object);
	uint64_t needed = (uint64_t)LUKS_STRIPES * s->info.key_bytes, end;
	uint32_t stripes;

	if (area == NULL || af == NULL || strcmp(json_text(area, "type"), "raw") != 0 ||
		strcmp(json_text(af, "type"), "luks1") != 0)
		return false;
	needed = (needed + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
	return json_u32(af, "stripes", &stripes) && stripes == LUKS_STRIPES &&
	       json_copy(af, "hash", s->af_hash, sizeof(s->af_hash)) &&
	       json_bytes(area, "offset", &s->area_offset_bytes) &&
	       json_bytes(area, "size", &s->area_bytes) && s->area_bytes <= LUKS2_AREA_BYTES_MAX &&
	       needed <= s->area_bytes &&
	       !__builtin_add_overflow(s->area_offset_bytes, s->area_bytes, &end) &&
	       json_copy(area, "encryption", s->info.cipher, sizeof(s->info.cipher)) &&
	       json_u32(area, "key_size", &s->area_key_bytes) && s->area_key_bytes > 0 &&
	       s->area_key_bytes <= LUKS_KEY_BYTES_MAX;
}

static void slot_refuse(struct keyslot *s, enum err e, const char *why)
{
	s->problem = e;
	snprintf(s->why, sizeof(s->why), "%s", why);
}

/* A slot that cannot be used is kept with the reason, and the others are tried. */
static void luks2_parse_slot(
	struct json_object *slot, const char *name, struct json_object *digest, struct luks *l)
{
	struct keyslot s = {.info = {.slot = atoi(name), .unbound = true}};
	struct json_object *kdf = json_member(slot, "kdf", json_type_object);
	uint32_t priority = 1;

	if (strcmp(json_text(slot, "type"), "luks2") != 0)
		return; /* reencryption's own; without its requirement it is a leftover */
	(void)json_u32(slot, "priority", &priority);
	s.info.ignored = priority == 0;
	s.info.preferred = priority == 2;
	s.info.unbound = !json_lists(digest, "keyslots", name);
	if (!json_u32(slot, "key_size", &s.info.key_bytes) || s.info.key_bytes == 0 ||
		s.info.key_bytes > LUKS_KEY_BYTES_MAX || kdf == NULL ||
		!luks2_parse_kdf(kdf, &s.kdf, s.info.kdf) || !luks2_parse_area(slot, &s)) {
		slot_refuse(&s, ERR_LUKS_HEADER, "its description makes no sense");
	} else {
		enum err e = kdf_check(&s.kdf);

		if (e != OK)
			slot_refuse(&s, e, err_detail());
		err_clear_detail();
	}
	memcpy(s.info.hash, s.kdf.kind == LUKS_KDF_PBKDF2 ? s.kdf.hash : s.af_hash,
		sizeof(s.info.hash));
	s.info.iterations = s.kdf.iterations;
	s.info.memory_kib = s.kdf.memory_kib;
	s.info.lanes = s.kdf.lanes;
	if (!s.info.unbound)
		l->info.key_bytes = s.info.key_bytes;
	l->slots[l->slot_count++] = s;
}

static enum err luks2_parse_slots(
	struct json_object *root, struct json_object *digest, struct luks *l)
{
	struct json_object *slots = json_member(root, "keyslots", json_type_object);

	if (slots == NULL)
		return luks2_damaged("it has no keyslots");
	for (int n = 0; n < LUKS_SLOTS_MAX; n++) {
		struct json_object *slot;
		char name[12];

		snprintf(name, sizeof(name), "%d", n);
		slot = json_member(slots, name, json_type_object);
		if (slot != NULL)
			luks2_parse_slot(slot, name, digest, l);
	}
	return OK;
}

static enum err luks2_parse_digest(
	struct json_object *root, const char *segment, struct json_object **out, struct digest *d)
{
	struct json_object *digests = json_member(root, "digests", json_type_object);
	char kind[16];

	*out = NULL;
	if (digests == NULL)
		return luks2_damaged("it has no digests");
	json_object_object_foreach(digests, key, one)
	{
		(void)key;
		if (json_lists(one, "segments", segment)) {
			*out = one;
			break;
		}
	}
	if (*out == NULL)
		return luks2_damaged("no digest is for the data segment");
	if (!luks2_parse_kdf(*out, &d->kdf, kind) || d->kdf.kind != LUKS_KDF_PBKDF2 ||
		!luks_base64_decode(json_text(*out, "digest"), d->bytes, sizeof(d->bytes), &d->len))
		return luks2_damaged("the volume key's digest makes no sense");
	return kdf_check(&d->kdf);
}

enum err luks2_area_bytes(const struct luks_header *h, uint64_t *out)
{
	struct json_object *root = NULL, *config;
	uint64_t keyslots;
	enum err e = luks2_open_json(h, &root);

	if (e != OK)
		return e;
	config = json_member(root, "config", json_type_object);
	if (config == NULL || !json_bytes(config, "keyslots_size", &keyslots) ||
		keyslots > LUKS2_AREA_BYTES_MAX)
		e = luks2_damaged("the size of its keyslots area makes no sense");
	else
		*out = 2 * h->size_bytes + keyslots;
	json_object_put(root);
	return e;
}

enum err luks2_parse(const struct luks_header *h, struct luks *l)
{
	struct json_object *root = NULL, *segment = NULL, *digest = NULL;
	const char *segment_name = NULL;
	enum err e = luks2_open_json(h, &root);

	if (e != OK)
		return e;
	l->info.version = 2;
	snprintf(l->info.uuid, sizeof(l->info.uuid), "%.39s", h->uuid);
	snprintf(l->info.label, sizeof(l->info.label), "%.47s", h->label);
	e = luks2_check_requirements(root);
	if (e == OK)
		e = luks2_find_segment(root, &segment, &segment_name);
	if (e == OK)
		e = luks2_parse_segment(segment, &l->info);
	if (e == OK)
		e = luks2_parse_digest(root, segment_name, &digest, &l->digest);
	if (e == OK)
		e = luks2_parse_slots(root, digest, l);
	json_object_put(root);
	return e;
}
