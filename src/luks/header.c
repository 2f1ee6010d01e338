/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Finds the LUKS header on a source and copies it into a memfd.
 *
 * Nothing else of luks/ reads the source: libcryptsetup repairs a damaged header in place when it
 * loads one, and must do that to the copy only. The memfd is sparse and keeps the source's
 * offsets: both headers and the keyslot areas in use, no more.
 *
 * LUKS1 has one header of 592 bytes (on-disk format 1.2.3). LUKS2 (on-disk format 1.1) has two
 * copies, a binary part of 4096 bytes followed by JSON, with a SHA-256 checksum over both; the
 * valid one with the higher sequence number counts. The second stands behind the first, so when
 * the first is lost it is looked for at the nine places that the format allows.
 *
 * Does not do: repair, and any check of the JSON text (luks2.c).
 */
#include "luks_int.h"
#include <gcrypt.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct luks2_disk_header {
	uint8_t magic[6];
	be16 version;
	be64 header_bytes;
	be64 sequence;
	char label[48];
	char checksum_name[32];
	uint8_t salt[64];
	char uuid[40];
	char subsystem[48];
	be64 offset_bytes;
	uint8_t unused[184];
	uint8_t checksum[64];
	uint8_t padding[7 * 512];
};
static_assert(sizeof(struct luks2_disk_header) == LUKS2_BINARY_BYTES, "LUKS2 binary header");
static_assert(offsetof(struct luks2_disk_header, offset_bytes) == 256, "LUKS2 header offset");
static_assert(offsetof(struct luks2_disk_header, checksum) == 448, "LUKS2 header checksum");

static const uint8_t magic_first[6] = {'L', 'U', 'K', 'S', 0xba, 0xbe};
static const uint8_t magic_second[6] = {'S', 'K', 'U', 'L', 0xba, 0xbe};

enum { COPY_CHUNK_BYTES = 1 << 20, LUKS2_SHA256_BYTES = 32 };

static enum err copy_write(int fd, const uint8_t *bytes, size_t len, uint64_t offset_bytes)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, bytes, len, (off_t)offset_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set_detail(n < 0 ? err_from_errno(errno) : ERR_SYSTEM,
				"cannot copy the LUKS header into memory");
		bytes += n;
		len -= (size_t)n;
		offset_bytes += (uint64_t)n;
	}
	return OK;
}

enum err luks_header_extend(int fd, uint64_t size_bytes)
{
	off_t now = lseek(fd, 0, SEEK_END);

	if (now < 0 || size_bytes > INT64_MAX)
		return ERR_SYSTEM;
	if ((uint64_t)now < size_bytes && ftruncate(fd, (off_t)size_bytes) != 0)
		return err_from_errno(errno);
	return OK;
}

enum err luks_header_copy(struct dev *source, int fd, uint64_t offset_bytes, uint64_t len_bytes)
{
	uint8_t *chunk = NULL;
	uint64_t end;
	enum err e = OK;

	if (__builtin_add_overflow(offset_bytes, len_bytes, &end) || end > source->size_bytes)
		return err_set_detail(ERR_LUKS_HEADER, "the LUKS header area is cut short");
	if (posix_memalign((void **)&chunk, PAGE_BYTES, COPY_CHUNK_BYTES) != 0)
		return ERR_NOMEM;
	while (e == OK && offset_bytes < end) {
		size_t n = (size_t)MIN(end - offset_bytes, (uint64_t)COPY_CHUNK_BYTES);

		e = dev_read(source, chunk, n, offset_bytes);
		if (e == OK)
			e = copy_write(fd, chunk, n, offset_bytes);
		offset_bytes += n;
	}
	free(chunk);
	return e;
}

static bool luks2_size_allowed(uint64_t bytes)
{
	return bytes >= LUKS2_HEADER_BYTES_MIN && bytes <= LUKS2_HEADER_BYTES_MAX &&
	       (bytes & (bytes - 1)) == 0;
}

static bool luks2_checksum_ok(uint8_t *bytes, size_t len)
{
	struct luks2_disk_header *d = (struct luks2_disk_header *)(void *)bytes;
	uint8_t stored[sizeof(d->checksum)], got[LUKS2_SHA256_BYTES];
	bool same;

	if (strncmp(d->checksum_name, "sha256", sizeof(d->checksum_name)) != 0)
		return false;
	memcpy(stored, d->checksum, sizeof(stored));
	memset(d->checksum, 0, sizeof(d->checksum));
	gcry_md_hash_buffer(GCRY_MD_SHA256, got, bytes, len);
	memcpy(d->checksum, stored, sizeof(stored));
	same = memcmp(stored, got, sizeof(got)) == 0;
	return same;
}

/*
 * Reads one copy of a LUKS2 header. *out is NULL when there is no valid one at this place; it is
 * the caller's to free otherwise. Only errors of the device are errors.
 */
static enum err luks2_read_copy(
	struct dev *source, uint64_t offset_bytes, uint8_t **out, uint64_t *size_bytes)
{
	const uint8_t *magic = offset_bytes == 0 ? magic_first : magic_second;
	const struct luks2_disk_header *d;
	uint8_t *bytes = NULL;
	uint64_t size;
	enum err e;

	*out = NULL;
	if (offset_bytes > source->size_bytes ||
		source->size_bytes - offset_bytes < LUKS2_HEADER_BYTES_MIN)
		return OK;
	if (posix_memalign((void **)&bytes, PAGE_BYTES, LUKS2_HEADER_BYTES_MAX) != 0)
		return ERR_NOMEM;
	d = (const struct luks2_disk_header *)(const void *)bytes;
	e = dev_read(source, bytes, LUKS2_BINARY_BYTES, offset_bytes);
	if (e != OK)
		goto out;
	size = be64_get(d->header_bytes);
	if (memcmp(d->magic, magic, sizeof(d->magic)) != 0 || be16_get(d->version) != 2 ||
		be64_get(d->offset_bytes) != offset_bytes || !luks2_size_allowed(size) ||
		(offset_bytes != 0 && offset_bytes != size) ||
		size > source->size_bytes - offset_bytes)
		goto out;
	e = dev_read(source, bytes, (size_t)size, offset_bytes);
	if (e == OK && luks2_checksum_ok(bytes, (size_t)size)) {
		*out = bytes;
		*size_bytes = size;
		bytes = NULL;
	}
out:
	free(bytes);
	return e;
}

/* The second copy stands at the size of the first; where that is not known, at one of nine. */
static enum err luks2_find_second(struct dev *source, uint8_t **out, uint64_t *size_bytes)
{
	enum err e = OK;

	*out = NULL;
	for (uint64_t at = LUKS2_HEADER_BYTES_MIN;
		e == OK && *out == NULL && at <= LUKS2_HEADER_BYTES_MAX; at *= 2)
		e = luks2_read_copy(source, at, out, size_bytes);
	return e;
}

static enum err luks2_take(const uint8_t *bytes, uint64_t size_bytes, struct luks_header *h)
{
	const struct luks2_disk_header *d = (const struct luks2_disk_header *)(const void *)bytes;
	const char *text = (const char *)bytes + LUKS2_BINARY_BYTES;

	h->json_bytes = strnlen(text, (size_t)size_bytes - LUKS2_BINARY_BYTES);
	h->json = malloc(h->json_bytes + 1);
	if (h->json == NULL)
		return ERR_NOMEM;
	memcpy(h->json, text, h->json_bytes);
	h->json[h->json_bytes] = '\0';
	memcpy(h->uuid, d->uuid, sizeof(d->uuid));
	memcpy(h->label, d->label, sizeof(d->label));
	h->version = 2;
	h->size_bytes = size_bytes;
	return OK;
}

static uint64_t luks2_sequence(const uint8_t *bytes)
{
	return be64_get(((const struct luks2_disk_header *)(const void *)bytes)->sequence);
}

static enum err luks2_read(struct dev *source, struct luks_header *h)
{
	uint8_t *first = NULL, *second = NULL;
	uint64_t first_bytes = 0, second_bytes = 0;
	enum err e = luks2_read_copy(source, 0, &first, &first_bytes);

	if (e == OK && first != NULL)
		e = luks2_read_copy(source, first_bytes, &second, &second_bytes);
	else if (e == OK)
		e = luks2_find_second(source, &second, &second_bytes);
	if (e != OK)
		goto out;
	if (first == NULL && second == NULL) {
		e = h->primary_magic ? err_set_detail(ERR_LUKS_HEADER,
					       "both copies of the LUKS2 header are damaged")
				     : ERR_LUKS_NONE;
		goto out;
	}
	if (first == NULL || (second != NULL && luks2_sequence(second) > luks2_sequence(first)))
		e = luks2_take(second, second_bytes, h);
	else
		e = luks2_take(first, first_bytes, h);
	if (e == OK)
		e = luks_header_copy(source, h->fd, 0, MIN(2 * h->size_bytes, source->size_bytes));
out:
	free(first);
	free(second);
	return e;
}

enum err luks_header_read(struct dev *source, struct luks_header *out)
{
	struct luks_header h = {.fd = -1, .source_bytes = source->size_bytes};
	unsigned version = 0;
	enum err e;

	if (source->size_bytes < sizeof(h.phdr))
		return ERR_LUKS_NONE;
	e = dev_read(source, h.phdr, sizeof(h.phdr), 0);
	if (e != OK)
		return e;
	h.fd = memfd_create("cryptfs-header", MFD_CLOEXEC);
	if (h.fd < 0)
		return err_from_errno(errno);
	h.primary_magic = memcmp(h.phdr, magic_first, sizeof(magic_first)) == 0;
	if (h.primary_magic)
		version = (unsigned)(h.phdr[6] << 8 | h.phdr[7]);
	if (version == 1) {
		h.version = 1;
		e = luks_header_copy(source, h.fd, 0, sizeof(h.phdr));
	} else if (version == 2 || !h.primary_magic) {
		e = luks2_read(source, &h);
	} else {
		e = err_set_detail(
			ERR_LUKS_HEADER, "the LUKS header has the unknown version %u", version);
	}
	if (e == OK)
		*out = h;
	else
		luks_header_free(&h);
	return e;
}

void luks_header_free(struct luks_header *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
	free(h->json);
	h->json = NULL;
}
