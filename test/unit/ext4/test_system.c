/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The file system's own blocks, beside what dumpe2fs says of them; none of them can be freed. */
#include "write_rig.h"

static const char *const more_layouts[] = {
	"-t ext4 -b 1024 -g 256 -J size=4 -O meta_bg,^resize_inode",
	"-t ext4 -b 1024 -g 4096 -J size=4 -O ^sparse_super,^resize_inode",
};
enum { WRITE_LAYOUTS = ARRAY_SIZE(write_layouts) };

static const char *layout(int i)
{
	return i < WRITE_LAYOUTS ? write_layouts[i] : more_layouts[i - WRITE_LAYOUTS];
}

/* dumpe2fs' "A-B" or "A". */
static bool parse_range(const char *text, unsigned long long *first, unsigned long long *last)
{
	int n = sscanf(text, "%llu-%llu", first, last);

	if (n == 1)
		*last = *first;
	return n >= 1;
}

START_TEST(everything_that_dumpe2fs_names)
{
	static const char *const names[] = {"superblock at ", "Group descriptors at ",
		"Group descriptor at ", "Reserved GDT blocks at ", "Block bitmap at ",
		"Inode bitmap at ", "Inode table at "};
	unsigned long long first, last, seen = 0, ours = 0;
	struct image im;
	char line[512];
	uint8_t *named;
	FILE *f;

	image_make("image", layout(_i), "24M");
	image_load(&im, "image");
	write_open(&im);
	named = calloc(1, im.fs->blocks);
	ensure(named != NULL);
	image_run("dumpe2fs image > dump 2>/dev/null");
	f = fopen(scratch_path("dump"), "r");
	ensure(f != NULL);
	while (fgets(line, sizeof(line), f))
		for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
			const char *at = strstr(line, names[i]);
			if (!at || !parse_range(at + strlen(names[i]), &first, &last))
				continue;
			for (; first <= last; first++)
				named[first] = 1;
		}
	fclose(f);
	image_run("debugfs -R 'blocks <8>' image 2>/dev/null | tr ' ' '\\n' | grep . > journal");
	f = fopen(scratch_path("journal"), "r");
	ensure(f != NULL);
	while (fscanf(f, "%llu", &first) == 1)
		named[first] = 1;
	fclose(f);
	/* Block 0 of 1 KiB blocks is before the file system. */
	for (fsblk_t nr = im.fs->first_data_block; nr < im.fs->blocks; nr++) {
		bool own = alloc_system_overlaps(im.fs, nr, 1);
		if (named[nr] && !own)
			ck_abort_msg("block %llu", (unsigned long long)nr);
		seen += named[nr];
		ours += own;
	}
	/* debugfs lists the journal's extent blocks too, if there are any: there are none here. */
	ck_assert_uint_eq(seen, ours);
	ck_assert_uint_gt(seen, 0);
	free(named);
	write_close(&im);
	image_close(&im);
}
END_TEST

START_TEST(none_of_them_is_freed)
{
	struct image im;
	const struct alloc_run *run;

	image_make("image", layout(_i), "24M");
	image_load(&im, "image");
	write_open(&im);
	for (size_t n = 0; n < im.fs->alloc->system_count; n++) {
		run = &im.fs->alloc->system[n];
		ck_err(write_free(&im, run->first, 1, false), ERR_CORRUPT);
		ck_err(write_free(&im, run->first + run->count - 1, 1, true), ERR_CORRUPT);
		if (run->first > im.fs->first_data_block)
			ck_err(write_free(&im, run->first - 1, 2, false), ERR_CORRUPT);
	}
	ck_err(write_free(&im, im.fs->blocks - 1, 2, false), ERR_CORRUPT);
	ck_err(write_free(&im, im.fs->blocks, 1, false), ERR_CORRUPT);
	ck_err(write_free(&im, 1ull << 47, 1, false), ERR_CORRUPT);
	write_close_and_judge(&im);
}
END_TEST

START_TEST(overlaps_and_marks_agree)
{
	struct image im;
	uint8_t *bytes;

	image_make("image", layout(_i), "24M");
	image_load(&im, "image");
	write_open(&im);
	bytes = malloc(im.fs->block_bytes);
	ensure(bytes != NULL);
	for (group_t n = 0; n < im.fs->groups; n++) {
		fsblk_t first = ext4_group_first_block(im.fs, n);

		memset(bytes, 0, im.fs->block_bytes);
		alloc_system_mark(im.fs, n, bytes);
		for (uint32_t i = 0; i < ext4_group_blocks(im.fs, n); i++)
			if (bitmap_is(bytes, i, 1, true) !=
				alloc_system_overlaps(im.fs, first + i, 1))
				ck_abort_msg("group %u, bit %u", n, i);
	}
	free(bytes);
	write_close(&im);
	image_close(&im);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("system");
	TCase *tc = tcase_create("system");
	int layouts = WRITE_LAYOUTS + (int)ARRAY_SIZE(more_layouts);

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, everything_that_dumpe2fs_names, 0, layouts);
	tcase_add_loop_test(tc, none_of_them_is_freed, 0, WRITE_LAYOUTS);
	tcase_add_loop_test(tc, overlaps_and_marks_agree, 0, layouts);
	suite_add_tcase(suite, tc);
	return scratch_main(suite);
}
