/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The doors of luks/: load, unlock, volume.
 *
 * A header is parsed by us first, which names what we refuse and says what to copy; then
 * libcryptsetup loads the copy and has a say. Where it refuses a LUKS1 header that passed our
 * checks (a hash its build does not have), the reader alone serves it. A LUKS2 header it refuses
 * is refused, as is one found only by its second copy on a source whose start is no LUKS any more:
 * the library knows whether something else lives there now.
 *
 * Threads: the caller's; a struct luks is used by one at a time.
 */
#include "luks_int.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* --- load --------------------------------------------------------------------------------------
 */

/* Where the data is on the data device, checked against what there is. */
static enum err luks_set_geometry(struct luks *l, uint64_t header_bytes)
{
	struct luks_info *i = &l->info;
	const uint64_t device_bytes = l->data->size_bytes;
	uint64_t end;

	if (!i->detached && i->offset_bytes < header_bytes)
		return err_set_detail(ERR_LUKS_HEADER,
			i->offset_bytes == 0
				? "this is a detached header; give it as the header of its data "
				  "device"
				: "the LUKS header is damaged: data and header overlap");
	if (i->offset_bytes >= device_bytes)
		return ERR_DEV_SHORT;
	if (i->size_bytes == 0) {
		i->size_bytes = device_bytes - i->offset_bytes;
		i->size_bytes -= i->size_bytes % i->sector_bytes;
	}
	if (i->size_bytes == 0 || __builtin_add_overflow(i->offset_bytes, i->size_bytes, &end) ||
		end > device_bytes)
		return ERR_DEV_SHORT;
	return OK;
}

/* A slot whose area is not there cannot be tried, and that is all. */
static enum err luks_copy_areas(struct dev *source, struct luks *l)
{
	for (size_t n = 0; n < l->slot_count; n++) {
		struct keyslot *s = &l->slots[n];
		enum err e;

		if (s->problem != OK)
			continue;
		e = luks_header_copy(source, l->copy_fd, s->area_offset_bytes, s->area_bytes);
		if (e == ERR_LUKS_HEADER) {
			s->problem = e;
			snprintf(s->why, sizeof(s->why), "its area is cut off");
			err_clear_detail();
		} else if (e != OK) {
			return e;
		}
	}
	return OK;
}

static enum err luks_load_copy(struct luks *l, struct dev *source, struct luks_header *h)
{
	uint64_t header_bytes = 0;
	enum err e = h->version == 1 ? luks1_parse(h, l) : luks2_parse(h, l);

	if (e != OK)
		return e;
	if (h->version == 2)
		e = luks2_area_bytes(h, &header_bytes);
	else
		header_bytes = sizeof(h->phdr);
	if (e == OK)
		e = luks_set_geometry(l, header_bytes);
	l->copy_fd = h->fd;
	h->fd = -1;
	if (e == OK)
		e = luks_copy_areas(source, l);
	/* The library wants room for all areas, also for those that are not in use. */
	if (h->version == 1)
		header_bytes = luks1_area_bytes(h);
	header_bytes = MIN(header_bytes, source->size_bytes);
	if (e == OK)
		e = luks_header_extend(l->copy_fd, header_bytes);
	if (e != OK)
		return e;
	e = library_load(l);
	if (e != OK && l->info.version == 1) {
		log_debug("%s; reading its key slots without it", err_detail());
		err_clear_detail();
		return OK;
	}
	return e;
}

enum err luks_load(struct dev *data, struct dev *header, struct luks **out)
{
	struct dev *source = header ? header : data;
	struct luks_header h = {.fd = -1};
	struct luks *l = calloc(1, sizeof(*l));
	enum err e;

	if (l == NULL)
		return ERR_NOMEM;
	l->copy_fd = -1;
	l->data = data;
	l->info.detached = header != NULL;
	e = luks_header_read(source, &h);
	if (e == OK)
		e = luks_load_copy(l, source, &h);
	luks_header_free(&h);
	if (e == OK)
		*out = l;
	else
		luks_close(l);
	return e;
}

void luks_close(struct luks *l)
{
	if (l == NULL)
		return;
	library_close(l);
	if (l->copy_fd >= 0)
		close(l->copy_fd);
	free(l);
}

void luks_info(const struct luks *l, struct luks_info *out)
{
	*out = l->info;
}

size_t luks_keyslots(const struct luks *l, struct luks_keyslot_info *out, size_t room)
{
	for (size_t n = 0; n < l->slot_count && n < room; n++)
		out[n] = l->slots[n].info;
	return l->slot_count;
}

/* --- unlock ------------------------------------------------------------------------------------
 */

/*
 * One slot by the library and by the reader. The library runs the key derivation before it finds
 * that it lacks the area's cipher, so the reader goes first where that is to be expected.
 */
static enum err luks_try_slot(struct luks *l, const struct keyslot *s,
	const struct secret *passphrase, struct secret *key)
{
	const bool library_first = library_knows(s->info.cipher);
	enum err e = ERR_OPNOTSUPP;

	if (s->problem != OK)
		return err_set_detail(s->problem, "key slot %d: %s", s->info.slot, s->why);
	if (library_first)
		e = library_unlock(l, s, passphrase, key);
	if (e == ERR_OPNOTSUPP)
		e = reader_unlock(l, s, passphrase, key);
	if (e != OK && e != ERR_LUKS_KEY && !library_first) {
		enum err second = library_unlock(l, s, passphrase, key);

		if (second != ERR_OPNOTSUPP)
			e = second;
	}
	return e;
}

static enum err luks_unlock_named(
	struct luks *l, const struct secret *passphrase, int slot, struct secret *key)
{
	for (size_t n = 0; n < l->slot_count; n++) {
		const struct keyslot *s = &l->slots[n];

		if (s->info.slot != slot)
			continue;
		if (s->info.unbound)
			return err_set_detail(
				ERR_LUKS_SLOT, "key slot %d does not hold this volume's key", slot);
		return luks_try_slot(l, s, passphrase, key);
	}
	return err_set_detail(ERR_LUKS_SLOT, "key slot %d is not in use", slot);
}

struct unlock_tally {
	unsigned rejected; /* slots that were tried and refused the passphrase */
	enum err problem;  /* the first that could not be tried, and why */
	char why[200];
};

static enum err luks_unlock_class(struct luks *l, const struct secret *passphrase, bool preferred,
	struct unlock_tally *tally, struct secret *key)
{
	for (size_t n = 0; n < l->slot_count; n++) {
		const struct keyslot *s = &l->slots[n];
		enum err e;

		if (s->info.unbound || s->info.ignored || s->info.preferred != preferred)
			continue;
		e = luks_try_slot(l, s, passphrase, key);
		if (e == OK)
			return OK;
		if (e == ERR_LUKS_KEY) {
			tally->rejected++;
		} else if (tally->problem == OK) {
			const char *detail = err_detail();

			tally->problem = e;
			snprintf(tally->why, sizeof(tally->why), "%s",
				*detail ? detail : err_text(e));
		}
		err_clear_detail();
	}
	return ERR_LUKS_KEY;
}

enum err luks_unlock(struct luks *l, const struct secret *passphrase, int slot, struct secret *key)
{
	struct unlock_tally tally = {.problem = OK};

	if (slot >= 0)
		return luks_unlock_named(l, passphrase, slot, key);
	if (luks_unlock_class(l, passphrase, true, &tally, key) == OK ||
		luks_unlock_class(l, passphrase, false, &tally, key) == OK)
		return OK;
	if (tally.rejected == 0 && tally.problem == OK)
		return err_set_detail(ERR_LUKS_SLOT, "the LUKS header has no key slot to unlock");
	if (tally.rejected == 0)
		return err_set_detail(tally.problem, "%s", tally.why);
	if (tally.problem != OK)
		return err_set_detail(ERR_LUKS_KEY, "%s (not every slot could be tried: %s)",
			err_text(ERR_LUKS_KEY), tally.why);
	return ERR_LUKS_KEY;
}

/* --- volume ------------------------------------------------------------------------------------
 */

enum err luks_volume(
	const struct luks *l, const struct secret *key, struct ioq *ioq, struct volume **out)
{
	struct volume_config config = {.ioq = ioq,
		.offset_bytes = l->info.offset_bytes,
		.size_bytes = l->info.size_bytes,
		.iv_offset = l->info.iv_offset};
	struct cipher_spec spec;
	enum err e =
		cipher_spec_parse(l->info.cipher, (uint32_t)key->len, l->info.sector_bytes, &spec);

	if (e == OK)
		e = cipher_create(&spec, key, &config.cipher);
	if (e != OK)
		return e;
	e = volume_create(&config, out);
	if (e != OK)
		cipher_destroy(config.cipher);
	return e;
}
