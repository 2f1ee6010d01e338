/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Allocations that fail: the nth from now, in whatever thread, once or for ever. Included by one
 * file of a test program, whose allocator's entry points it takes the place of. Under a sanitizer,
 * which brings its own, it is not there: alloc_fault_works() says so.
 */
#ifndef CRYPTFS_RIG_ALLOC_FAULT_H
#define CRYPTFS_RIG_ALLOC_FAULT_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static _Atomic int64_t alloc_fault_left; /* 0: none is armed; n: the nth from now fails */
static _Atomic bool alloc_fault_for_ever;

static inline void alloc_fault_arm(int64_t nth, bool for_ever)
{
	atomic_store(&alloc_fault_for_ever, for_ever);
	atomic_store(&alloc_fault_left, nth);
}

/* Whether it has struck; nothing fails from now on. */
static inline bool alloc_fault_disarm(void)
{
	return atomic_exchange(&alloc_fault_left, 0) < 1;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOC_FAULT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ALLOC_FAULT_SANITIZED 1
#endif
#endif

#ifdef ALLOC_FAULT_SANITIZED
static inline bool alloc_fault_works(void)
{
	return false;
}
#else
static inline bool alloc_fault_works(void)
{
	return true;
}

/* glibc's own names for its allocator. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *at, size_t size);
void *__libc_memalign(size_t align, size_t size);
void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *at, size_t size);
void *aligned_alloc(size_t align, size_t size);
int posix_memalign(void **out, size_t align, size_t size);

static inline bool alloc_fault_strikes(void)
{
	int64_t left = atomic_load_explicit(&alloc_fault_left, memory_order_relaxed);

	/* 0 is off; from 1 it counts down to the strike, which leaves -1. */
	while (left != 0) {
		if (left < 0) {
			if (!atomic_load(&alloc_fault_for_ever))
				return false;
			errno = ENOMEM;
			return true;
		}
		if (!atomic_compare_exchange_weak(
			    &alloc_fault_left, &left, left == 1 ? -1 : left - 1))
			continue;
		if (left > 1)
			return false;
		errno = ENOMEM;
		return true;
	}
	return false;
}

void *malloc(size_t size)
{
	return alloc_fault_strikes() ? NULL : __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
	return alloc_fault_strikes() ? NULL : __libc_calloc(count, size);
}
void *realloc(void *at, size_t size)
{
	return alloc_fault_strikes() ? NULL : __libc_realloc(at, size);
}
void *aligned_alloc(size_t align, size_t size)
{
	return alloc_fault_strikes() ? NULL : __libc_memalign(align, size);
}
int posix_memalign(void **out, size_t align, size_t size)
{
	void *at = alloc_fault_strikes() ? NULL : __libc_memalign(align, size);

	if (at == NULL)
		return ENOMEM;
	*out = at;
	return 0;
}
#endif

#endif
