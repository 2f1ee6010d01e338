/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * session.c: what INIT agrees on, which options libfuse is given, how a session ends.
 */
#include "fake.h"
#include <signal.h>

START_TEST(init_agrees_on_what_we_need)
{
	struct front_options options = {0};
	struct harness *h = calloc(1, sizeof(*h));
	const uint32_t wanted = FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS | FUSE_EXPORT_SUPPORT |
				FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_POSIX_ACL |
				FUSE_CACHE_SYMLINKS | FUSE_EXPLICIT_INVAL_DATA | FUSE_MAX_PAGES;
	const uint32_t unwanted = FUSE_ATOMIC_O_TRUNC | FUSE_AUTO_INVAL_DATA | FUSE_POSIX_LOCKS |
				  FUSE_FLOCK_LOCKS | FUSE_WRITEBACK_CACHE;

	harness_open(h, &options);
	ck_assert_uint_eq(h->init.flags & wanted, wanted);
	ck_assert_uint_eq(h->init.flags & unwanted, 0);
	ck_assert_uint_ge(h->init.max_background, 1024);
	ck_assert_uint_ge(h->init.max_pages, 256);
	ck_assert_uint_eq(h->init.max_readahead, 131072);
	harness_close(h);
	free(h);
}
END_TEST

START_TEST(an_option_libfuse_does_not_know_is_an_error)
{
	const char *const list[] = {"no-such-option", NULL};
	struct front_options options = {.source = "s", .dir = "/d", .kernel_options = list};
	struct front *f = NULL;

	ck_assert_int_eq(front_create(&options, &f), ERR_FUSE);
	ck_assert_ptr_null(f);
	ck_assert_ptr_nonnull(strstr(err_detail(), "no-such-option"));
}
END_TEST

START_TEST(commas_in_source_and_context_are_escaped)
{
	const char *const list[] = {"context=\"u:r:t:s0:c1,c2\"", "nosuid", NULL};
	struct front_options options = {.source = "a,b\\c", .kernel_options = list};
	struct harness *h = calloc(1, sizeof(*h));

	harness_open(h, &options); /* libfuse would refuse "c2\"" and "b\\c" as options */
	harness_close(h);
	free(h);
}
END_TEST

START_TEST(a_peer_that_says_nothing_is_an_error)
{
	struct front_options options = {.source = "s", .dir = "/d"};
	struct front *f = NULL;
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	ck_assert_int_eq(front_create(&options, &f), OK);
	ck_assert_int_eq(front_attach(f, ends[0]), OK);
	close(ends[1]);
	ck_assert_int_eq(front_handshake(f), ERR_FUSE);
	front_destroy(f);
}
END_TEST

static void note_ready(void *context)
{
	*(int *)context += 1;
	kill(getpid(), SIGTERM);
}

START_TEST(a_signal_ends_the_service)
{
	struct front_options options = {0};
	struct harness *h = calloc(1, sizeof(*h));
	sigset_t ending;
	int ready = 0;

	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	sigprocmask(SIG_BLOCK, &ending, NULL);
	harness_open(h, &options);
	/* The peer stays: the workers sit in read(2) and must be woken. */
	ck_assert_int_eq(front_serve(h->front, note_ready, &ready), OK);
	ck_assert_int_eq(ready, 1);
	harness_close(h);
	free(h);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("front/session");
	TCase *tests = tcase_create("session");

	tcase_add_test(tests, init_agrees_on_what_we_need);
	tcase_add_test(tests, an_option_libfuse_does_not_know_is_an_error);
	tcase_add_test(tests, commas_in_source_and_context_are_escaped);
	tcase_add_test(tests, a_peer_that_says_nothing_is_an_error);
	tcase_add_test(tests, a_signal_ends_the_service);
	suite_add_tcase(suite, tests);
	return harness_run(suite);
}
