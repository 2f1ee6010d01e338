/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * dir.c: READDIR and READDIRPLUS in pieces, whole, and over damage.
 */
#include "fake.h"

static struct harness *h;

static void open_default(void)
{
	struct front_options options = {0};

	h = calloc(1, sizeof(*h));
	harness_open(h, &options);
	harness_serve(h);
}

static void close_default(void)
{
	harness_close(h);
	free(h);
}

/* Lists the directory of many entries with replies of `room` bytes. */
static void list_many(uint32_t opcode, uint32_t room)
{
	struct fuse_read_in in = {.size = room};
	size_t seen = 0;

	for (;;) {
		size_t at = 0;

		ck_assert_int_eq(harness_ask(h, opcode, 17, &in, sizeof(in)), 0);
		ck_assert_uint_le(h->reply_bytes, room);
		if (h->reply_bytes == 0)
			break;
		while (at < h->reply_bytes) {
			const struct fuse_direntplus *plus = (const void *)(h->reply + at);
			const struct fuse_dirent *d = opcode == FUSE_READDIRPLUS
							      ? &plus->dirent
							      : (const void *)(h->reply + at);
			char expected[32];

			snprintf(expected, sizeof(expected), "entry-%zu", seen);
			ck_assert_uint_eq(d->namelen, strlen(expected));
			ck_assert_mem_eq(d->name, expected, d->namelen);
			ck_assert_uint_eq(d->ino, 18 + seen);
			if (opcode == FUSE_READDIRPLUS) {
				bool exists = 18 + seen <= 17 + FAKE_MANY;

				ck_assert_uint_eq(plus->entry_out.nodeid, exists ? 18 + seen : 0);
				at += FUSE_DIRENTPLUS_SIZE(plus);
			} else {
				ck_assert_uint_eq(d->type, DT_REG);
				at += FUSE_DIRENT_SIZE(d);
			}
			in.offset = d->off;
			seen++;
		}
	}
	ck_assert_uint_eq(seen, FAKE_MANY);
}

START_TEST(readdir_in_pieces)
{
	list_many(FUSE_READDIR, 4096);
	list_many(FUSE_READDIR, 256);
	list_many(FUSE_READDIR, 65536);
}
END_TEST

START_TEST(readdirplus_in_pieces)
{
	list_many(FUSE_READDIRPLUS, 4096);
	list_many(FUSE_READDIRPLUS, 65536);
}
END_TEST

START_TEST(readdirplus_lists_what_it_cannot_read_without_attributes)
{
	struct fuse_read_in in = {.size = 4096};
	size_t at = 0, count = 0;

	ck_assert_int_eq(harness_ask(h, FUSE_READDIRPLUS, 1, &in, sizeof(in)), 0);
	for (; at < h->reply_bytes; count++) {
		const struct fuse_direntplus *p = (const void *)(h->reply + at);
		bool has_attributes =
			!strncmp(p->dirent.name, "file", 4) || !strncmp(p->dirent.name, "dir", 3) ||
			!strncmp(p->dirent.name, "link", 4) ||
			!strncmp(p->dirent.name, "slow", 4) || !strncmp(p->dirent.name, "many", 4);

		ck_assert_int_eq(p->entry_out.nodeid != 0, has_attributes);
		ck_assert_uint_ne(
			p->entry_out.nodeid, 1); /* "." and ".." must not count as lookups */
		ck_assert_uint_eq(p->dirent.ino, fake_names[count].inum);
		if (!has_attributes)
			ck_assert_uint_eq(p->dirent.type, fake_names[count].type);
		at += FUSE_DIRENTPLUS_SIZE(p);
	}
	ck_assert_uint_eq(count, ARRAY_SIZE(fake_names));
}
END_TEST

START_TEST(damage_is_an_error)
{
	struct fuse_read_in in = {.size = 4096};

	ck_assert_int_eq(harness_ask(h, FUSE_READDIR, 13, &in, sizeof(in)), EUCLEAN);
	ck_assert_int_eq(harness_ask(h, FUSE_READDIRPLUS, 13, &in, sizeof(in)), EUCLEAN);
	ck_assert_int_eq(harness_ask(h, FUSE_READDIR, 5, &in, sizeof(in)), ESTALE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("front/dir");
	TCase *tests = tcase_create("dir");

	tcase_add_checked_fixture(tests, open_default, close_default);
	tcase_add_test(tests, readdir_in_pieces);
	tcase_add_test(tests, readdirplus_in_pieces);
	tcase_add_test(tests, readdirplus_lists_what_it_cannot_read_without_attributes);
	tcase_add_test(tests, damage_is_an_error);
	suite_add_tcase(suite, tests);
	return harness_run(suite);
}
