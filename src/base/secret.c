/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * base/secret: memory for keys and passphrases.
 *
 * Each secret has pages of its own, so that locking and wiping never touch a neighbour. The pages
 * are locked, left out of core dumps and read as zeros in a forked child. Where the system refuses
 * one of these the secret is used all the same, and the first refusal in the process is logged:
 * a user whose limit is low still gets at the data, and knows. Any thread may use any secret; one
 * secret belongs to one thread at a time.
 */
#include "base.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic bool unprotected; /* some secret is not fully protected */
static _Atomic bool unlocked;    /* some secret could reach swap */

static void secret_warn(const char *what)
{
	if (!atomic_exchange(&unprotected, true))
		log_warn(
			"key memory could not be %s (%s); going on without", what, strerror(errno));
}

enum err secret_alloc(struct secret *out, size_t len)
{
	ensure(len > 0);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t mapped;
	if (__builtin_add_overflow(len, page - 1, &mapped))
		return ERR_NOMEM;
	mapped -= mapped % page;
	void *p = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return ERR_NOMEM;
	/* mlock2 without flags is mlock; the sanitizers turn the latter into nothing. */
	if (mlock2(p, mapped, 0) != 0) {
		atomic_store(&unlocked, true);
		secret_warn("locked into memory and may reach swap");
	}
	if (madvise(p, mapped, MADV_DONTDUMP) != 0)
		secret_warn("kept out of core dumps");
	if (madvise(p, mapped, MADV_WIPEONFORK) != 0)
		secret_warn("kept from child processes");
	*out = (struct secret){.bytes = p, .len = len, .mapped_bytes = mapped};
	return OK;
}

enum err secret_copy(struct secret *out, const void *bytes, size_t len)
{
	struct secret s;
	enum err e = secret_alloc(&s, len);
	if (e != OK)
		return e;
	memcpy(s.bytes, bytes, len);
	*out = s;
	return OK;
}

void secret_shrink(struct secret *s, size_t len)
{
	ensure(len <= s->len);
	if (len == s->len)
		return;
	explicit_bzero(s->bytes + len, s->len - len);
	s->len = len;
}

void secret_free(struct secret *s)
{
	if (s->bytes == NULL)
		return;
	explicit_bzero(s->bytes, s->mapped_bytes);
	ensure(munmap(s->bytes, s->mapped_bytes) == 0);
	*s = (struct secret){0};
}

bool secret_all_locked(void)
{
	return !atomic_load(&unlocked);
}
