/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Directories, symlinks, attributes and ACLs that the kernel's ext4 made, read as it reads them:
 * what its system calls say while the volume is mounted through a loop device is compared with
 * what we say of the image afterwards.
 *
 * Needs root and loop devices; says SKIP otherwise.
 */
#include "dir_rig.h"
#include "xattr_int.h"

#include <dirent.h>
#include <sys/xattr.h>

struct volume_kind {
	const char *name, *options;
};
static const struct volume_kind kinds[] = {
	{"ext4", "-t ext4 -b 4096"},
	{"ext4-1k", "-t ext4 -b 1024"},
	{"no checksums", "-t ext4 -b 1024 -O ^metadata_csum"},
	{"inline", "-t ext4 -b 4096 -O inline_data"},
	{"inline-1k-512", "-t ext4 -b 1024 -I 512 -O inline_data"},
	{"ea_inode", "-t ext4 -b 1024 -O ea_inode"},
	{"ea_inode-inline", "-t ext4 -b 4096 -O ea_inode,inline_data,metadata_csum_seed"},
	{"ea_inode, no checksums", "-t ext4 -b 1024 -O ea_inode,^metadata_csum"},
	{"small inodes", "-t ext4 -b 1024 -I 128"},
	{"ext2", "-t ext2 -b 1024"},
	{"ext3", "-t ext3 -b 2048"},
	{"large_dir", "-t ext4 -b 1024 -O large_dir"},
};

/* What was compared, so that a tree that the kernel could not make is no success. */
static struct {
	unsigned names, links, values, acls, in_inode, in_block, inodes, inline_dirs, inline_tails,
		indexed;
} seen;

static char mount_dir[300], loop_device[256];

static bool kernel_mount(const char *image)
{
	snprintf(mount_dir, sizeof(mount_dir), "%s", scratch_path("mnt"));
	ensure(mkdir(mount_dir, 0755) == 0 || errno == EEXIST);
	if (!scratch_loop_attach("", scratch_path(image), loop_device)) {
		printf("SKIP: %s\n", loop_device);
		return false;
	}
	rig_shell("mount -t ext4 %s %s", loop_device, mount_dir);
	/* From now on the device lives as long as the mount, whatever becomes of the test. */
	scratch_loop_detach(loop_device);
	return true;
}
static void kernel_unmount(void)
{
	rig_shell("umount %s", mount_dir);
}

/* What the kernel is asked to make; /bin/sh, in the mounted root. What does not fit is left out. */
static const char make_tree[] =
	"set +e\n"
	"mkdir empty two few grown shrunk big\n"
	"touch two/a two/bb\n"
	"for i in 1 2 3 4 5 6 7; do touch few/n$i; done\n"
	"mkdir few/sub\n"
	"for i in $(seq 30); do touch grown/name$i; done\n"
	"for i in $(seq 400); do echo $i; done | (cd shrunk; xargs touch)\n"
	"for i in $(seq 30 400); do echo $i; done | (cd shrunk; xargs rm)\n"
	"for i in $(seq 4000); do echo some-longer-name-$i; done | (cd big; xargs touch)\n"
	"for i in $(seq 1 3 4000); do echo some-longer-name-$i; done | (cd big; xargs rm)\n"
	"printf 'x' | tee \"$(printf 'high\\377\\200byte')\" \"$(printf 'new\\nline')\" "
	">/dev/null\n"
	"for n in 1 2 58 59 60 61 62 100 119 120 200 500 900 1000 1023 1024 2000 4000 4095; do\n"
	"  ln -s \"$(head -c $n /dev/zero | tr '\\0' L)\" link$n\n"
	"done\n"
	"touch plain many shared1 shared2 big-value acl; mkdir acl-dir\n"
	"setfattr -n user.a -v 1 plain; setfattr -n user.empty plain\n"
	"setfattr -n trusted.t -v secret plain; setfattr -n security.s -v label plain\n"
	"for i in $(seq 12); do setfattr -n user.name-of-number-$i -v value$i many; done\n"
	"for f in shared1 shared2; do\n"
	"  setfattr -n user.s -v \"$(head -c 300 /dev/zero | tr '\\0' s)\" $f; done\n"
	"setfattr -n user.v -v \"$(head -c 900 /dev/zero | tr '\\0' v)\" big-value\n"
	"setfattr -n user.w -v \"$(head -c 9001 /dev/zero | tr '\\0' w)\" big-value\n"
	"setfattr -n user.x -v \"$(head -c 60000 /dev/zero | tr '\\0' x)\" big-value\n"
	"setfattr -h -n trusted.link -v l link100\n"
	"setfacl -m u:1000:rw,g:2000:r,u:1:x acl\n"
	"setfacl -m u:1000:rwx -d -m g:5:rx acl-dir\n"
	"setfattr -n user.d -v dir few; setfattr -n user.a -v with-inline two/bb\n"
	"printf 'inline %0100d' 7 >two/bb\n"
	"exit 0\n";

static void compare_xattrs(struct ext4_inode *inode, const char *path)
{
	char theirs[8192], ours[8192], value[65536], own[65536];
	ssize_t len = llistxattr(path, theirs, sizeof(theirs));
	size_t own_len = 0;

	ck_assert_int_ge(len, 0);
	ck_ok(ext4_xattr_list(inode, true, ours, sizeof(ours), &own_len));
	ck_assert_msg(own_len == (size_t)len && memcmp(ours, theirs, own_len) == 0,
		"attributes of %s", path);
	ck_ok(ext4_xattr_list(inode, true, NULL, 0, &own_len));
	ck_assert_uint_eq(own_len, (size_t)len);
	if (len)
		ck_err(ext4_xattr_list(inode, true, ours, (size_t)len - 1, &own_len), ERR_RANGE);
	for (char *name = theirs; name < theirs + len; name += strlen(name) + 1) {
		ssize_t size = lgetxattr(path, name, value, sizeof(value));

		ck_assert_int_ge(size, 0);
		ck_ok(ext4_xattr_get(inode, name, NULL, 0, &own_len));
		ck_assert_uint_eq(own_len, (size_t)size);
		ck_ok(ext4_xattr_get(inode, name, own, sizeof(own), &own_len));
		ck_assert_msg(own_len == (size_t)size && memcmp(own, value, own_len) == 0,
			"%s of %s", name, path);
		seen.values++;
		seen.acls += strncmp(name, "system.posix_acl", 16) == 0;
		seen.inodes += size > 8000;
		ck_ok(ext4_xattr_get(inode, name, own, MAX((size_t)size, 1), &own_len));
		if (size > 1)
			ck_err(ext4_xattr_get(inode, name, own, (size_t)size - 1, &own_len),
				ERR_RANGE);
	}
	ck_err(ext4_xattr_get(inode, "user.missing", own, sizeof(own), &own_len), ERR_NODATA);
}

static void note_places(struct ext4_inode *inode)
{
	struct xattr_area area = {0};

	if (xattr_open_ibody(inode, &area) == OK)
		seen.in_inode += xattr_entry_at(&area, area.first) != NULL;
	if (xattr_open_block(inode, &area) == OK)
		seen.in_block++;
	xattr_close(inode, &area);
}

static void note_dir(struct ext4_inode *dir)
{
	const uint8_t *tail = NULL;
	size_t len = 0;

	seen.indexed += ext4_dir_is_indexed(dir);
	if (!(dir->attr.flags & EXT4_INLINE_DATA_FL))
		return;
	seen.inline_dirs++;
	seen.inline_tails += ext4_inline_tail(dir, &tail, &len) == OK && len > 0;
}

static void compare_link(struct ext4_inode *inode, const char *path)
{
	char theirs[5000], ours[5000];
	ssize_t len = readlink(path, theirs, sizeof(theirs));
	size_t own_len = 0;

	ck_assert_int_gt(len, 0);
	ck_ok(ext4_readlink(inode, ours, sizeof(ours), &own_len));
	ck_assert_msg(own_len == (size_t)len && memcmp(ours, theirs, own_len) == 0, "%s", path);
	seen.links++;
	ck_err(ext4_readlink(inode, ours, own_len - 1, &own_len), ERR_RANGE);
	ck_ok(ext4_readlink(inode, ours, (size_t)len, &own_len));
}

/* Fills *out with what the kernel lists, sorted. */
static void kernel_listing(const char *path, struct listing *out)
{
	DIR *d = opendir(path);
	struct dirent *de;

	ensure(d != NULL);
	*out = (struct listing){.stop = SIZE_MAX};
	while ((de = readdir(d)))
		ck_assert(listing_take(out, &(struct ext4_dirent){.name = de->d_name,
						    .len = strlen(de->d_name),
						    .inum = (inum_t)de->d_ino,
						    .type = de->d_type,
						    .cookie = 1}));
	closedir(d);
	listing_sort(out);
}

static void compare_listing(struct ext4_inode *dir, const char *path, struct listing *theirs)
{
	static const size_t steps[] = {SIZE_MAX, 1, 7};

	kernel_listing(path, theirs);
	for (size_t s = 0; s < ARRAY_SIZE(steps); s++) {
		struct listing ours;

		ck_ok(listing_read(dir, steps[s], &ours));
		ck_assert_str_eq(ours.entry[0].name, ".");
		ck_assert_str_eq(ours.entry[1].name, "..");
		listing_sort(&ours);
		ck_assert_uint_eq(ours.count, theirs->count);
		for (size_t i = 0; i < ours.count; i++) {
			struct listed *a = &ours.entry[i], *b = &theirs->entry[i];

			ck_assert_str_eq(a->name, b->name);
			ck_assert_uint_eq(a->type, b->type);
			/* The mounted root's ".." is the folder that it is mounted in. */
			if (strcmp(a->name, "..") || dir->inum != EXT4_ROOT_INUM)
				ck_assert_uint_eq(a->inum, b->inum);
		}
		listing_free(&ours);
	}
}

/* The volume is mounted by the kernel, read-only, and by us, from its image. */
static void compare_dir(struct rig *r, inum_t inum, const char *path)
{
	struct ext4_inode *dir = NULL, *inode = NULL;
	struct listing l;

	ck_ok(ext4_inode_get(r->fs, inum, &dir));
	compare_xattrs(dir, path);
	note_places(dir);
	note_dir(dir);
	compare_listing(dir, path, &l);
	for (size_t i = 0; i < l.count; i++) {
		char below[700];
		inum_t found = 0;

		ck_ok(ext4_lookup(dir, l.entry[i].name, l.entry[i].len, &found));
		if (strcmp(l.entry[i].name, ".") == 0 || strcmp(l.entry[i].name, "..") == 0)
			continue;
		ck_assert_uint_eq(found, l.entry[i].inum);
		snprintf(below, sizeof(below), "%s/%s", path, l.entry[i].name);
		if (l.entry[i].type == DT_DIR) {
			/* Two levels are all there is. */
			compare_dir(r, found, below);
			continue;
		}
		ck_ok(ext4_inode_get(r->fs, found, &inode));
		compare_xattrs(inode, below);
		note_places(inode);
		seen.names++;
		if (l.entry[i].type == DT_LNK)
			compare_link(inode, below);
		ext4_inode_put(inode);
	}
	listing_free(&l);
	ext4_inode_put(dir);
}

static void check_seen(const struct ext4 *fs)
{
	bool has_inline = ext4_has_incompat(fs, EXT4_INCOMPAT_INLINE_DATA);

	ck_assert_uint_ge(seen.names, 2700);
	ck_assert_uint_ge(seen.links, fs->block_bytes > 1024 ? 15 : 14);
	ck_assert_uint_ge(seen.values, 18);
	ck_assert_uint_ge(seen.acls, 3);
	ck_assert_uint_ge(seen.in_block, 2);
	if (fs->inode_bytes > EXT4_INODE_BYTES_OLD)
		ck_assert_uint_ge(seen.in_inode, 4);
	if (ext4_has_incompat(fs, EXT4_INCOMPAT_EA_INODE))
		ck_assert_uint_eq(seen.inodes, 2);
	if (has_inline) {
		ck_assert_uint_ge(seen.inline_dirs, 3);
		ck_assert_uint_ge(seen.inline_tails, 1);
	}
	ck_assert_uint_ge(seen.indexed, 2);
	printf("%s: %u names, %u values, %u links, %u inline directories (%u with two parts)\n",
		fs->info.features, seen.names, seen.values, seen.links, seen.inline_dirs,
		seen.inline_tails);
}

START_TEST(test_kernel)
{
	FILE *script = fopen(scratch_path("make"), "w");
	struct rig r;

	ensure(script != NULL && fputs(make_tree, script) >= 0 && fclose(script) == 0);
	rig_shell("rm -f img; mke2fs -q -F -N 8000 %s img 32M", kinds[_i].options);
	if (!kernel_mount("img"))
		return;
	rig_shell("cd %s && sh %s/make", mount_dir, scratch_dir);
	kernel_unmount();
	rig_shell("e2fsck -fn img");
	ensure(kernel_mount("img"));
	rig_shell("mount -o remount,ro %s", mount_dir);
	rig_load(&r, "img");
	rig_mount(&r);
	seen.names = 0;
	compare_dir(&r, EXT4_ROOT_INUM, mount_dir);
	check_seen(r.fs);
	rig_close(&r);
	kernel_unmount();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernel");
	TCase *c = tcase_create("kernel");

	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, test_kernel, 0, (int)ARRAY_SIZE(kinds));
	suite_add_tcase(s, c);
	return scratch_main(s);
}
