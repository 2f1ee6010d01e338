/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Images whose writes are recorded, so that a power cut at any moment can be judged: by e2fsck,
 * which repairs what a crash may leave and nothing else, and by our own recovery. Included by tests
 * only, after write_rig.h.
 */
#ifndef CRYPTFS_TEST_EXT4_CRASH_RIG_H
#define CRYPTFS_TEST_EXT4_CRASH_RIG_H

#include "write_rig.h"

#include <sys/wait.h>

/* Puts the recorder between the image that was loaded and its memory. */
__attribute__((unused)) static struct dev *crash_record(struct image *im)
{
	uint64_t size_bytes = im->device.size_bytes;
	struct dev *memory, *recorder;

	ensure(dev_open_memory(size_bytes, &memory) == OK);
	memcpy(dev_memory_bytes(memory), im->device.bytes, size_bytes);
	memory_volume_close(&im->device);
	ensure(dev_open_recorder(memory, &recorder) == OK);
	ensure(memory_volume_open_over(recorder, size_bytes, &im->device) == OK);
	im->device.memory = memory;
	im->device.bytes = dev_memory_bytes(memory);
	return recorder;
}

/* As write_open(), with the mark made durable in the recorded volume. */
__attribute__((unused)) static void crash_open(struct image *im)
{
	static uint8_t block[4096];
	uint32_t bytes = image_block_bytes(im);
	uint64_t at = EXT4_SUPER_OFFSET_BYTES / bytes * bytes;
	bool csum = le32_get(image_super(im)->s_feature_ro_compat) & EXT4_RO_COMPAT_METADATA_CSUM;
	struct ext4_super *s = (void *)(block + EXT4_SUPER_OFFSET_BYTES - at);

	memcpy(block, im->device.bytes + at, bytes);
	s->s_feature_incompat =
		le32_make(le32_get(s->s_feature_incompat) | (uint32_t)EXT4_INCOMPAT_RECOVER);
	if (csum)
		s->s_checksum = le32_make(ext4_csum_super(s));
	ck_ok(volume_write(im->device.volume, block, bytes, at));
	ck_ok(volume_flush(im->device.volume));
	write_open(im);
}

/* The journal's runs, from an image that is not replayed. */
__attribute__((unused)) static void crash_replay(struct image *im)
{
	struct journal_run runs[64];
	struct journal_config config = {.volume = im->device.volume, .runs = runs};
	struct journal_info info;
	struct ext4_inode *inode;
	uint32_t blocks;

	ck_ok(image_mount_with(im, true));
	config.block_bytes = im->fs->block_bytes;
	config.fs_blocks = im->fs->blocks;
	ck_ok(ext4_inode_get_special(im->fs, EXT4_INUM_JOURNAL, &inode));
	blocks = (uint32_t)(inode->attr.size_bytes >> im->fs->block_bits);
	for (lblk_t at = 0; at < blocks;) {
		struct ext4_run run;
		ck_ok(ext4_map(inode, at, blocks - at, &run));
		ck_assert_uint_lt(config.run_count, ARRAY_SIZE(runs));
		runs[config.run_count++] = (struct journal_run){
			.logical = at, .count = run.count, .physical = run.physical};
		at += run.count;
	}
	ext4_inode_put(inode);
	image_unmount(im);
	ck_ok(journal_recover(&config, &info));
}

/* An image as it came out of a crash, in `im`: replayed, open, its orphans finished. */
__attribute__((unused)) static void crash_recover(struct image *im)
{
	crash_replay(im);
	write_open(im);
	ck_ok(ext4_orphan_recover(im->fs));
}

/* Commits as often as it can, so that there are cuts between all the transactions of a test. */
struct crash_committer {
	struct journal *journal;
	pthread_t thread;
	_Atomic bool stop;
};
static void *crash_commit_loop(void *arg)
{
	struct crash_committer *c = arg;

	while (!c->stop && journal_commit(c->journal, journal_running(c->journal)) == OK)
		usleep(200);
	return NULL;
}
__attribute__((unused)) static void crash_commit_start(struct crash_committer *c, struct image *im)
{
	*c = (struct crash_committer){.journal = im->fs->journal};
	ensure(thread_start(&c->thread, "commits", crash_commit_loop, c) == OK);
}
__attribute__((unused)) static void crash_commit_stop(struct crash_committer *c)
{
	c->stop = true;
	ensure(pthread_join(c->thread, NULL) == 0);
}

/* The kernel mounts the image, which replays it and finishes its orphans; nothing is left then. */
static void crash_kernel_judge(const char *name)
{
	char device[256];

	if (!scratch_loop_attach("", scratch_path(name), device)) {
		printf("SKIP: the kernel on %s: %s\n", name, device);
		return;
	}
	image_run("unshare -m sh -ec 'mkdir -p mnt; mount -t ext4 %s mnt; umount mnt'", device);
	scratch_loop_detach(device);
	write_judge(name);
}

/*
 * e2fsck -p must repair it, or find nothing; then nothing is left. Where e2fsck 1.47.0 truncates an
 * orphan whose tree is deep, it now and then takes the first leaf out and leaves the index above it
 * as it was, and then gives up on its own work, though the replayed tree was whole: there the
 * kernel judges in its place, on a copy that e2fsck has not touched.
 */
__attribute__((unused)) static void crash_judge(const char *name)
{
	char command[700], said[4096];
	FILE *p;
	size_t n;
	int status;

	image_run("cp %s untouched", name);
	snprintf(command, sizeof(command), "cd '%s' && e2fsck -p '%s' 2>&1", scratch_dir, name);
	p = popen(command, "r");
	ensure(p != NULL);
	n = fread(said, 1, sizeof(said) - 1, p);
	said[n] = '\0';
	status = pclose(p);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 4 &&
		strstr(said, "Truncating orphaned inode") != NULL &&
		strstr(said, "Already cleared indirect block") != NULL) {
		printf("e2fsck gave up on its own truncation; the kernel judges\n");
		crash_kernel_judge("untouched");
		return;
	}
	ck_assert_msg(status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 1),
		"e2fsck -p: %s", said);
	write_judge(name);
}

static void crash_write_image(const uint8_t *bytes, size_t len, const char *name)
{
	int fd = open(scratch_path(name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ensure(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
	close(fd);
}

/*
 * `count` cuts of what was recorded: judged by e2fsck, and a copy of each recovered by ours and
 * judged then. No write tears inside a superblock: on its checksum no ext4 gets by, and e2fsck only
 * with a backup that it is told of.
 */
__attribute__((unused)) static void crash_cuts(struct image *im, struct dev *recorder, int count)
{
	size_t len = im->device.size_bytes;
	uint8_t *bytes = malloc(len);

	ensure(bytes != NULL);
	for (int i = 0; i < count; i++) {
		struct dev_cut cut = {.stamp = 1 + scratch_random(dev_recorder_stamp(recorder)),
			.seed = scratch_random(4) ? scratch_random(1u << 30) : 0,
			.tear_bytes = scratch_random(2) ? EXT4_SUPER_BYTES : 4096};
		struct image copy;

		dev_recorder_image(recorder, &cut, bytes);
		crash_write_image(bytes, len, "cut");
		image_load(&copy, "cut");
		printf("cut %llu of %llu, seed %llu\n", (unsigned long long)cut.stamp,
			(unsigned long long)dev_recorder_stamp(recorder),
			(unsigned long long)cut.seed);
		fflush(stdout);
		crash_judge("cut");
		if (!(le32_get(image_super(&copy)->s_feature_incompat) & EXT4_INCOMPAT_RECOVER)) {
			image_close(&copy);
			continue;
		}
		crash_recover(&copy);
		write_close_and_judge(&copy);
	}
	free(bytes);
}

#endif
