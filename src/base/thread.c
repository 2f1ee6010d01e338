/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * base/thread: thread slots, starting threads, the monotonic clock.
 *
 * A slot is a bit in an atomic bitmap; the lowest free one is taken, so that arrays indexed by
 * slot stay dense. The number is cached in thread-local memory and a pthread key's destructor
 * gives the slot back, with release order: the next owner, who takes the bit with acquire order,
 * sees all that the last one left there. A forked child keeps the slot of the thread that forked.
 */
#include "base.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WORD_BITS = 64, NAME_BYTES = 16 };

static _Atomic uint64_t slot_words[THREAD_SLOTS / WORD_BITS];
static _Thread_local unsigned slot_plus_one; /* 0: this thread has none */
static pthread_once_t slot_key_once = PTHREAD_ONCE_INIT;
static pthread_key_t slot_key;

static void slot_give_back(void *key_value)
{
	unsigned slot = (unsigned)(uintptr_t)key_value - 1;
	/* Another key's destructor may still ask for a slot: it then takes a new one. */
	slot_plus_one = 0;
	atomic_fetch_and_explicit(&slot_words[slot / WORD_BITS], ~(UINT64_C(1) << slot % WORD_BITS),
		memory_order_release);
}

static void slot_key_create(void)
{
	ensure(pthread_key_create(&slot_key, slot_give_back) == 0);
}

static unsigned slot_take(void)
{
	for (unsigned w = 0; w < ARRAY_SIZE(slot_words); w++) {
		uint64_t taken = atomic_load_explicit(&slot_words[w], memory_order_relaxed);
		while (~taken != 0) {
			unsigned bit = (unsigned)__builtin_ctzll(~taken);
			if (atomic_compare_exchange_weak_explicit(&slot_words[w], &taken,
				    taken | UINT64_C(1) << bit, memory_order_acquire,
				    memory_order_relaxed))
				return w * WORD_BITS + bit;
		}
	}
	return THREAD_SLOTS;
}

unsigned thread_slot(void)
{
	if (slot_plus_one == 0) {
		ensure(pthread_once(&slot_key_once, slot_key_create) == 0);
		unsigned slot = slot_take();
		ensure(slot < THREAD_SLOTS);
		slot_plus_one = slot + 1;
		ensure(pthread_setspecific(slot_key, (void *)(uintptr_t)slot_plus_one) == 0);
	}
	return slot_plus_one - 1;
}

struct thread_birth {
	void *(*run)(void *);
	void *arg;
	char name[NAME_BYTES];
};

static void *thread_start_run(void *arg)
{
	struct thread_birth birth = *(struct thread_birth *)arg;
	free(arg);
	/* The name is for people who look at ps; a kernel that refuses it changes nothing. */
	(void)pthread_setname_np(pthread_self(), birth.name);
	return birth.run(birth.arg);
}

enum err thread_start(pthread_t *out, const char *name, void *(*run)(void *), void *arg)
{
	struct thread_birth *birth = malloc(sizeof(*birth));
	if (birth == NULL)
		return ERR_NOMEM;
	birth->run = run;
	birth->arg = arg;
	(void)snprintf(birth->name, sizeof(birth->name), "%.15s", name);

	/* The new thread inherits the mask, so there is no moment in which it takes a signal. */
	sigset_t all, old;
	sigfillset(&all);
	ensure(pthread_sigmask(SIG_SETMASK, &all, &old) == 0);
	pthread_t thread;
	int error = pthread_create(&thread, NULL, thread_start_run, birth);
	ensure(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
	if (error != 0) {
		free(birth);
		return err_set_detail(error == EAGAIN ? ERR_NOMEM : err_from_errno(error),
			"cannot start thread %s: %s", name, strerror(error));
	}
	*out = thread;
	return OK;
}

uint64_t clock_ns(void)
{
	struct timespec now;
	ensure(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
