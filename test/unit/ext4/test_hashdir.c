/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Whole directories, made by debugfs and indexed by e2fsck or the kernel: every name is found and
 * no other, listings are complete in calls of any size, and go on where they were when names have
 * come and gone.
 */
#include "dir_rig.h"

#include <dirent.h>

enum { FILL_LARGE = 6000, FILL_SMALL = 40 };

struct shape {
	const char *name, *options;
	unsigned count;
	bool index;
	const char *format; /* NULL: "name%u" */
	const char *after;  /* a debugfs command on the image before it is indexed */
};
#define FIFTY "xxxxxxxxxxyyyyyyyyyyzzzzzzzzzzttttttttttuuuuuuuuuu"
static const struct shape shapes[] = {
	{"linear", "-b 1024 -O ^dir_index", FILL_LARGE, false, NULL, NULL},
	{"not-indexed", "-b 1024 -O ^dir_index", FILL_LARGE, false, NULL, NULL},
	{"one-block", "-b 1024", FILL_SMALL, false, NULL, NULL},
	{"indexed", "-b 1024", FILL_LARGE, true, NULL, NULL},
	{"indexed-4k", "-b 4096", FILL_LARGE, true, NULL, NULL},
	{"indexed-64k", "-b 65536", FILL_LARGE, true, NULL, NULL},
	{"linear-64k", "-b 65536", FILL_LARGE, false, NULL, NULL},
	{"no-checksums", "-b 1024 -O ^metadata_csum", FILL_LARGE, true, NULL, NULL},
	{"ext2", "-t ext2 -b 1024", FILL_LARGE, true, NULL, NULL},
	{"ext3", "-t ext3 -b 1024", FILL_LARGE, true, NULL, NULL},
	{"no-filetype", "-b 1024 -O ^filetype", FILL_LARGE, true, NULL, NULL},
	{"legacy", "-b 1024", FILL_LARGE, true, NULL, "ssv def_hash_version legacy"},
	{"tea", "-b 1024", FILL_LARGE, true, NULL, "ssv def_hash_version tea"},
	{"unsigned", "-b 1024", FILL_LARGE, true, "n\xc3\xa4m\xff%u", "ssv flags 2"},
	{"signed", "-b 1024", FILL_LARGE, true, "n\xc3\xa4m\xff%u", "ssv flags 1"},
	{"long-names", "-b 1024", 1500, true, "%05u" FIFTY FIFTY FIFTY FIFTY FIFTY, NULL},
	{"three-levels", "-b 1024 -O large_dir", 50000, true,
		"%05u" FIFTY FIFTY FIFTY FIFTY "abcdefghijabcdefghijabcdefghijabcdefghijabcdef",
		NULL},
};

static const char *shape_format(const struct shape *s)
{
	return s->format ? s->format : "name%u";
}

static void shape_make(struct rig *r, const struct shape *s)
{
	size_t block_bytes = strtoul(strstr(s->options, "-b ") + 3, NULL, 10);

	rig_shell("rm -f img; mke2fs %s -q -F -N 64 %s img %s",
		strstr(s->options, "-t ") ? "" : "-t ext4", s->options,
		s->count > FILL_LARGE ? "48M" : "16M");
	if (s->after)
		rig_shell("debugfs -w -R '%s' img", s->after);
	rig_fill("img", shape_format(s), s->count, block_bytes);
	if (s->index)
		rig_index("img");
	if (strcmp(s->name, "not-indexed") == 0)
		rig_shell("debugfs -w -R 'feature dir_index' img");
	rig_load(r, "img");
	rig_mount(r);
}

static void check_lookups(struct ext4_inode *dir, const struct shape *s, inum_t want)
{
	char name[512];
	inum_t inum = 0;

	for (unsigned i = 0; i < s->count; i++) {
		(void)rig_name(shape_format(s), i, name);
		ck_ok(ext4_lookup(dir, name, strlen(name), &inum));
		ck_assert_uint_eq(inum, want);
		strcat(name, "!");
		ck_err(ext4_lookup(dir, name, strlen(name), &inum),
			strlen(name) > EXT4_NAME_BYTES_MAX ? ERR_NAMETOOLONG : ERR_NOENT);
	}
	ck_ok(ext4_lookup(dir, ".", 1, &inum));
	ck_assert_uint_eq(inum, dir->inum);
	ck_ok(ext4_lookup(dir, "..", 2, &inum));
	ck_assert_uint_eq(inum, EXT4_ROOT_INUM);
	ck_err(ext4_lookup(dir, "", 0, &inum), ERR_NOENT);
}

static void check_listing(
	struct ext4_inode *dir, const struct shape *s, size_t step, inum_t want, struct listing *l)
{
	bool types = ext4_has_incompat(dir->fs, EXT4_INCOMPAT_FILETYPE);
	char name[512];

	ck_ok(listing_read(dir, step, l));
	ck_assert_uint_eq(l->count, s->count + 2);
	ck_assert_str_eq(l->entry[0].name, ".");
	ck_assert_str_eq(l->entry[1].name, "..");
	ck_assert_uint_eq(l->entry[0].inum, dir->inum);
	ck_assert_uint_eq(l->entry[1].inum, EXT4_ROOT_INUM);
	ck_assert_uint_eq(l->entry[0].type, types ? DT_DIR : DT_UNKNOWN);
	for (size_t i = 1; i < l->count; i++)
		ck_assert_uint_lt(l->entry[i - 1].cookie, l->entry[i].cookie);
	listing_sort(l);
	for (unsigned i = 0; i < s->count; i++) {
		struct listed key = {0}, *found;

		(void)rig_name(shape_format(s), i, name);
		key.len = strlen(name);
		memcpy(key.name, name, key.len);
		found = bsearch(&key, l->entry, l->count, sizeof(key), listed_compare);
		ck_assert_msg(found != NULL, "%s is not listed", name);
		ck_assert_uint_eq(found->inum, want);
		ck_assert_uint_eq(found->type, types ? DT_REG : DT_UNKNOWN);
	}
	listing_free(l);
}

static void check_index(struct ext4_inode *dir, const struct shape *s)
{
	struct htree_path path;

	ck_assert_int_eq(ext4_dir_is_indexed(dir), s->index);
	if (!s->index)
		return;
	ck_ok(htree_check(dir));
	ck_ok(htree_open(dir, &path));
	if (strcmp(s->name, "three-levels") == 0)
		ck_assert_uint_eq(path.levels, 3);
	htree_close(&path);
}

START_TEST(test_shape)
{
	const struct shape *s = &shapes[_i];
	struct ext4_inode *dir, *target;
	struct listing l;
	struct rig r;

	shape_make(&r, s);
	dir = rig_get(&r, "dir");
	target = rig_get(&r, "target");
	check_index(dir, s);
	check_lookups(dir, s, target->inum);
	check_listing(dir, s, SIZE_MAX, target->inum, &l);
	check_listing(dir, s, 97, target->inum, &l);
	check_listing(dir, s, s->count > FILL_LARGE ? 13 : 1, target->inum, &l);
	ext4_inode_put(target);
	ext4_inode_put(dir);
	rig_close(&r);
}
END_TEST

/* --- many threads, and a cache that holds less than the directory -------------------------------
 */

enum { THREADS = 4, THREAD_LOOKUPS = 3000 };

struct worker {
	struct rig *r;
	unsigned seed;
	unsigned found, listed;
	enum err error;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct ext4_inode *dir = NULL;
	struct listing l = {0};
	unsigned state = w->seed;
	char name[512];
	inum_t inum;

	w->error = rig_find(w->r, "dir", &dir);
	for (int i = 0; !w->error && i < THREAD_LOOKUPS; i++) {
		state = state * 1103515245u + 12345u;
		w->error = ext4_lookup(
			dir, name, rig_name("name%u", state / 65536 % FILL_LARGE, name), &inum);
		w->found += !w->error;
	}
	if (!w->error)
		w->error = listing_read(dir, 200, &l);
	w->listed = (unsigned)l.count;
	listing_free(&l);
	ext4_inode_put(dir);
	return NULL;
}

START_TEST(test_threads)
{
	const struct shape shape = {"threads", "-b 1024", FILL_LARGE, true, NULL, NULL};
	struct worker worker[THREADS];
	pthread_t thread[THREADS];
	struct rig r;

	shape_make(&r, &shape);
	rig_unmount(&r);
	ck_ok(ext4_mount(
		&(struct ext4_options){
			.volume = r.disk.volume, .pages = r.pages, .cache_bytes = 64 << 10},
		&r.fs));
	for (unsigned i = 0; i < THREADS; i++) {
		worker[i] = (struct worker){.r = &r, .seed = i};
		ck_ok(thread_start(&thread[i], "test", work, &worker[i]));
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		ck_assert_int_eq(worker[i].error, OK);
		ck_assert_uint_eq(worker[i].found, THREAD_LOOKUPS);
		ck_assert_uint_eq(worker[i].listed, FILL_LARGE + 2);
	}
	rig_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hashdir");
	TCase *c = tcase_create("shapes");

	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, test_shape, 0, (int)ARRAY_SIZE(shapes));
	tcase_add_test(c, test_threads);
	suite_add_tcase(s, c);
	return scratch_main(s);
}
