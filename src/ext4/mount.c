/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mount: from a volume to a file system that can be read, and back.
 *
 *   superblock as it lies on the device -> cache -> journal's inode -> its runs -> journal_scan
 *   -> (where there was something to replay: a cache with the overlay, the superblock again)
 *   -> all group descriptors
 *
 * The journal's inode is read before replay, as the kernel does: it never travels through its own
 * log. Superblock and descriptors do, so they are read again behind the overlay.
 *
 * A journal that is not empty on a volume that does not ask for recovery is not replayed, as in
 * the kernel: its transactions may be older than what is on the disk. The mount is then read-only.
 * An external journal is read by nobody here: the mount needs noload. Fast commits that were not
 * replayed are refused by journal_scan, and with noload they are a reason not to write.
 *
 * A read-only mount claims nothing by multiple mount protection and does not look at its block,
 * as in the kernel: whoever holds the volume elsewhere is not disturbed by a reader.
 *
 * Threads: mount and unmount in one thread, with nobody else about.
 */
#include "write_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CACHE_DEFAULT_BYTES (64ull << 20)

/* What the volume has room for, which the file system may have grown into in its log. */
static fsblk_t mount_volume_blocks(const struct ext4 *fs)
{
	return volume_size_bytes(fs->options.volume) >> fs->block_bits;
}

/* Replaces the cache; nothing is pinned. Owns the overlay. */
static enum err mount_open_cache(struct ext4 *fs, struct overlay *overlay)
{
	uint64_t capacity = fs->options.cache_bytes;
	struct cache_config config = {
		.volume = fs->options.volume,
		.block_bytes = fs->block_bytes,
		.blocks = overlay ? mount_volume_blocks(fs) : fs->blocks,
		.capacity_bytes = capacity ? capacity : CACHE_DEFAULT_BYTES,
		.overlay = overlay,
	};
	enum err e;

	if (fs->cache)
		cache_destroy(fs->cache);
	fs->cache = NULL;
	e = cache_create(&config, &fs->cache);
	if (e)
		overlay_destroy(overlay);
	return e;
}

/* --- the journal ----------------------------------------------------------------------------- */

/* The journal's blocks, merged into runs. */
static enum err journal_map(
	struct ext4_inode *inode, struct journal_run **out_runs, size_t *out_count)
{
	const struct ext4 *fs = inode->fs;
	uint64_t blocks = inode->attr.size_bytes >> fs->block_bits;
	struct journal_run *runs = NULL;
	size_t count = 0, room = 0;
	enum err e = OK;

	for (uint64_t at = 0; at < blocks;) {
		struct ext4_run run;
		struct journal_run *last = count ? &runs[count - 1] : NULL;
		e = ext4_map(inode, (lblk_t)at, (uint32_t)MIN(blocks - at, UINT32_MAX), &run);
		if (!e && (run.physical == 0 || run.unwritten))
			e = err_set_detail(ERR_JOURNAL,
				"the journal has a hole at its block %llu; run fsck.cryptfs, or "
				"mount with -o ro,noload",
				(unsigned long long)at);
		if (e)
			goto out;
		at += run.count;
		if (last && last->physical + last->count == run.physical) {
			last->count += run.count;
			continue;
		}
		if (count == room) {
			struct journal_run *more;
			room = room ? 2 * room : 16;
			more = realloc(runs, room * sizeof(*runs));
			if (!more) {
				e = ERR_NOMEM;
				goto out;
			}
			runs = more;
		}
		runs[count] = (struct journal_run){
			.logical = run.logical, .count = run.count, .physical = run.physical};
		count++;
	}
	*out_runs = runs;
	*out_count = count;
	runs = NULL;
out:
	free(runs);
	return e;
}

/* Errors of the journal's inode are errors of the journal, with what to do. */
static enum err journal_error(enum err e)
{
	char detail[400];

	if (e != ERR_CORRUPT && e != ERR_CHECKSUM && e != ERR_STALE)
		return e;
	snprintf(detail, sizeof(detail), "%s", err_detail());
	return err_set_detail(ERR_JOURNAL,
		"the journal cannot be read (%s); run fsck.cryptfs, or mount with -o ro,noload",
		detail[0] ? detail : err_text(e));
}

static enum err journal_load(
	struct ext4 *fs, struct overlay **overlay, struct journal_info *info, fsblk_t *blocks)
{
	inum_t inum = le32_get(fs->super.s_journal_inum);
	struct ext4_inode *inode = NULL;
	struct journal_config config = {
		.volume = fs->options.volume,
		.block_bytes = fs->block_bytes,
		.fs_blocks = mount_volume_blocks(fs),
	};
	struct journal_run *runs = NULL;
	enum err e = OK;

	if (inum > fs->inodes)
		return journal_error(err_set_detail(ERR_CORRUPT, "its inode is %u", inum));
	e = ext4_groups_load(fs, (inum - 1) / fs->inodes_per_group);
	if (!e)
		e = ext4_inode_get_special(fs, inum, &inode);
	if (!e && (!S_ISREG(inode->attr.mode) || inode->attr.flags & EXT4_INLINE_DATA_FL))
		e = ext4_corrupt(fs, inum, "the journal's inode is not a file");
	if (!e)
		e = journal_map(inode, &runs, &config.run_count);
	if (e) {
		e = journal_error(e);
		goto out;
	}
	config.runs = runs;
	*blocks = inode->attr.size_bytes >> fs->block_bits;
	e = journal_scan(&config, overlay, info);
out:
	free(runs);
	ext4_inode_put(inode);
	return e;
}

/* Where there is something to replay, everything that was read so far is read again behind it. */
static enum err mount_replay(struct ext4 *fs, struct overlay *overlay)
{
	struct ext4_super super;
	struct cache_block *b;
	enum err e;

	ext4_inode_cache_destroy(fs);
	e = mount_open_cache(fs, overlay);
	if (e)
		return e;
	e = ext4_inode_cache_create(fs);
	if (e)
		return e;
	e = cache_get(fs->cache, EXT4_SUPER_OFFSET_BYTES >> fs->block_bits, &b);
	if (e)
		return e;
	memcpy(&super, b->data + (EXT4_SUPER_OFFSET_BYTES & (fs->block_bytes - 1)), sizeof(super));
	cache_put(fs->cache, b);
	if (le32_get(super.s_log_block_size) + EXT4_BLOCK_BITS_MIN != fs->block_bits)
		return err_set_detail(ERR_JOURNAL,
			"the superblock in the journal has another block size; run fsck.cryptfs");
	return ext4_super_accept(fs, &super, volume_size_bytes(fs->options.volume));
}

static enum err mount_journal(struct ext4 *fs, fsblk_t *journal_blocks)
{
	struct overlay *overlay = NULL;
	struct journal_info info = {0};
	bool recover = ext4_has_incompat(fs, EXT4_INCOMPAT_RECOVER);
	enum err e;

	if (!ext4_has_compat(fs, EXT4_COMPAT_HAS_JOURNAL)) {
		if (recover)
			ext4_reason_add(&fs->info,
				"it asks for recovery but has no journal; run fsck.cryptfs");
		return OK;
	}
	if (fs->options.noload) {
		if (recover)
			ext4_reason_add(&fs->info, "the journal was not replayed (noload)");
		return OK;
	}
	if (!le32_get(fs->super.s_journal_inum))
		return ERR_JOURNAL_EXTERNAL;
	e = journal_load(fs, &overlay, &info, journal_blocks);
	if (e)
		return e;
	if (info.error)
		ext4_reason_add(
			&fs->info, "the journal holds an error (%u); run fsck.cryptfs", info.error);
	if (!info.clean && !recover) {
		overlay_destroy(overlay);
		ext4_reason_add(&fs->info,
			"the journal is not empty but no recovery is asked for; run fsck.cryptfs");
		return OK;
	}
	fs->info.replayed_transactions = info.transactions;
	fs->info.replayed_blocks = info.blocks;
	return overlay ? mount_replay(fs, overlay) : OK;
}

/* --- mount and unmount ----------------------------------------------------------------------- */

static void mount_fill_info(struct ext4 *fs, bool needs_recovery)
{
	struct ext4_info *info = &fs->info;
	const struct ext4_super *s = &fs->super;
	const uint8_t *u = s->s_uuid;

	memcpy(info->label, s->s_volume_name, sizeof(s->s_volume_name));
	snprintf(info->uuid, sizeof(info->uuid),
		"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
		u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
		u[15]);
	ext4_feature_names(s, info->features, sizeof(info->features));
	info->block_bytes = fs->block_bytes;
	info->inode_bytes = fs->inode_bytes;
	info->blocks = fs->blocks;
	info->inodes = fs->inodes;
	info->needs_recovery = needs_recovery;
	info->clean = le16_get(s->s_state) & EXT4_STATE_CLEAN &&
		      !(le16_get(s->s_state) & EXT4_STATE_ERRORS);
	ext4_feature_reasons(fs, info);
}

static enum err mount_check_root(struct ext4 *fs)
{
	struct ext4_inode *root;
	enum err e = ext4_inode_get(fs, EXT4_ROOT_INUM, &root);

	if (e == ERR_STALE)
		return ext4_corrupt(fs, EXT4_ROOT_INUM, "the root directory is not there");
	if (e)
		return e;
	if (!S_ISDIR(root->attr.mode))
		e = ext4_corrupt(fs, EXT4_ROOT_INUM, "the root is not a directory");
	ext4_inode_put(root);
	return e;
}

enum err ext4_mount(const struct ext4_options *options, struct ext4 **out)
{
	struct ext4 *fs = calloc(1, sizeof(*fs));
	struct ext4_super super;
	fsblk_t journal_blocks = 0;
	bool needs_recovery;
	enum err e;

	if (!fs)
		return ERR_NOMEM;
	fs->options = *options;
	mutex_init(&fs->xattr_lock);
	ext4_orphan_open(fs);
	e = ext4_super_read(options->volume, &super);
	if (!e)
		e = ext4_super_accept(fs, &super, volume_size_bytes(options->volume));
	if (!e)
		e = mount_open_cache(fs, NULL);
	if (!e)
		e = ext4_inode_cache_create(fs);
	if (e)
		goto out;
	needs_recovery = ext4_has_incompat(fs, EXT4_INCOMPAT_RECOVER);
	e = mount_journal(fs, &journal_blocks);
	if (!e)
		e = ext4_groups_load(fs, EXT4_GROUPS_ALL);
	if (!e)
		e = mount_check_root(fs);
	if (!e)
		e = ext4_readahead_start(fs);
	if (e)
		goto out;
	ext4_super_count_overhead(fs, journal_blocks);
	mount_fill_info(fs, needs_recovery);
	*out = fs;
	fs = NULL;
out:
	ext4_unmount(fs);
	return e;
}

void ext4_unmount(struct ext4 *fs)
{
	if (!fs)
		return;
	ext4_readahead_stop(fs);
	ext4_orphan_close(fs);
	ext4_inode_cache_destroy(fs);
	if (fs->cache)
		cache_destroy(fs->cache);
	mutex_destroy(&fs->xattr_lock);
	free(fs->group);
	free(fs);
}

void ext4_info(const struct ext4 *fs, struct ext4_info *out)
{
	*out = fs->info;
}

struct cache *ext4_cache(struct ext4 *fs)
{
	return fs->cache;
}

/* What the kernel keeps back for metadata of extents: 2 %, at most 4096 clusters. */
static uint64_t statfs_kept_blocks(const struct ext4 *fs)
{
	uint64_t clusters = fs->blocks >> fs->cluster_bits;

	if (!ext4_has_incompat(fs, EXT4_INCOMPAT_EXTENTS))
		return 0;
	return MIN(clusters / 50, 4096u) << fs->cluster_bits;
}

enum err ext4_statfs(struct ext4 *fs, struct ext4_statfs *out)
{
	const struct ext4_super *s = &fs->super;
	uint64_t reserved = le32_get(s->s_r_blocks_count_lo), uuid[2];
	uint64_t free_clusters = fs->free_clusters, free_inodes = fs->free_inodes;
	struct ext4_statfs st = {
		.block_bytes = fs->block_bytes,
		.blocks = fs->blocks - fs->overhead_blocks,
		.inodes = fs->inodes,
	};

	if (fs->alloc)
		ext4_alloc_counts(fs, &free_clusters, &free_inodes);
	st.free_blocks = MIN(free_clusters << fs->cluster_bits, fs->blocks);
	st.free_inodes = free_inodes;

	if (ext4_has_incompat(fs, EXT4_INCOMPAT_64BIT))
		reserved |= (uint64_t)le32_get(s->s_r_blocks_count_hi) << 32;
	reserved = MIN(reserved, fs->blocks) + statfs_kept_blocks(fs);
	st.available_blocks = st.free_blocks > reserved ? st.free_blocks - reserved : 0;
	for (int i = 0; i < 2; i++) {
		le64 half;
		memcpy(&half, s->s_uuid + 8 * i, sizeof(half));
		uuid[i] = le64_get(half);
	}
	st.fsid = uuid[0] ^ uuid[1];
	*out = st;
	return OK;
}
