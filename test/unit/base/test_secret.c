/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tests of base/secret.c: what the kernel says about the pages, and that refusals do no harm.
 */
#include "base.h"
#include "rig_run.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The VmFlags line of the mapping that holds p; "" when there is none. */
static void vm_flags(const void *p, char *out, size_t size)
{
	char line[512];
	bool inside = false;
	out[0] = '\0';
	FILE *f = fopen("/proc/self/smaps", "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		unsigned long from, to;
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			inside = (uintptr_t)p >= from && (uintptr_t)p < to;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			(void)snprintf(out, size, "%s", line);
	}
	ck_assert_int_eq(fclose(f), 0);
}

START_TEST(pages_are_locked_undumped_and_wiped_on_fork)
{
	struct secret s;
	char flags[512];
	ck_assert_int_eq(secret_alloc(&s, 64), OK);
	vm_flags(s.bytes, flags, sizeof(flags));
	ck_assert_ptr_nonnull(strstr(flags, " dd"));
	ck_assert_ptr_nonnull(strstr(flags, " wf"));
	if (secret_all_locked())
		ck_assert_ptr_nonnull(strstr(flags, " lo"));
	else
		printf("SKIP: locked: RLIMIT_MEMLOCK allows no locked memory here\n");
	secret_free(&s);
}
END_TEST

START_TEST(contents_zeroed_copied_shrunk_freed)
{
	static const uint8_t zeros[5000];
	struct secret s, c;
	ck_assert_int_eq(secret_alloc(&s, sizeof(zeros)), OK);
	ck_assert_uint_eq(s.len, sizeof(zeros));
	ck_assert_mem_eq(s.bytes, zeros, sizeof(zeros));
	memset(s.bytes, 0xa5, s.len);
	ck_assert_int_eq(secret_copy(&c, s.bytes, s.len), OK);
	ck_assert_mem_eq(c.bytes, s.bytes, s.len);
	secret_shrink(&c, 16);
	ck_assert_uint_eq(c.len, 16);
	ck_assert_mem_eq(c.bytes, s.bytes, 16);
	ck_assert_mem_eq(c.bytes + 16, zeros, sizeof(zeros) - 16);
	secret_free(&c);
	secret_free(&s);
	ck_assert_ptr_null(s.bytes);
	ck_assert_uint_eq(s.len, 0);
	secret_free(&s);
}
END_TEST

START_TEST(a_child_reads_zeros)
{
	struct secret s;
	ck_assert_int_eq(secret_copy(&s, "passphrase", 10), OK);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		static const uint8_t zeros[10];
		_exit(memcmp(s.bytes, zeros, sizeof(zeros)) == 0 ? 0 : 1);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_mem_eq(s.bytes, "passphrase", 10);
	secret_free(&s);
}
END_TEST

START_TEST(a_refused_lock_warns_once_and_works)
{
	int fds[2];
	char text[1000];
	struct secret a, b;
	/* Root without the limit's exemption is an ordinary user. */
	const struct rlimit none = {0, 0};
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &none), 0);
	uid_t user = geteuid();
	if (user == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
	ck_assert_int_eq(secret_copy(&a, "abc", 3), OK);
	ck_assert_int_eq(secret_copy(&b, "def", 3), OK);
	ck_assert(!secret_all_locked());
	ck_assert_mem_eq(a.bytes, "abc", 3);
	ssize_t n = read(fds[0], text, sizeof(text) - 1);
	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	ck_assert_ptr_nonnull(strstr(text, "locked"));
	ck_assert_ptr_eq(strchr(text, '\n'), text + n - 1);
	secret_free(&a);
	secret_free(&b);
	/* The leak checker must be able to trace this process as it ends. */
	ck_assert_int_eq(seteuid(user), 0);
	ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
}
END_TEST

START_TEST(no_memory_is_an_error)
{
	struct secret s = {.len = 77};
	ck_assert_int_eq(secret_alloc(&s, SIZE_MAX), ERR_NOMEM);
	ck_assert_int_eq(secret_alloc(&s, SIZE_MAX / 2), ERR_NOMEM);
	ck_assert_uint_eq(s.len, 77);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("base/secret");
	TCase *tc = rig_case(s, "secret");
	tcase_add_test(tc, pages_are_locked_undumped_and_wiped_on_fork);
	tcase_add_test(tc, contents_zeroed_copied_shrunk_freed);
	tcase_add_test(tc, a_child_reads_zeros);
	tcase_add_test(tc, a_refused_lock_warns_once_and_works);
	tcase_add_test(tc, no_memory_is_an_error);
	return rig_run_suite(s);
}
