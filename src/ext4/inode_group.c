/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * inode_group: which group a new inode goes to.
 *
 * Files go near their directory, so that what is read together lies together: its group, then the
 * others of its flex group, then the next flex groups. Directories at the top spread over the
 * volume, since their trees have nothing to do with each other; those below stay near their parent
 * until that flex group has more than its share of directories, inodes or blocks (the Orlov
 * allocator of BSD, as the kernel's ext4 has it). Whatever is chosen, all groups are tried before a
 * volume has no inodes left.
 *
 * Counts are read without locks: they are hints. No choice looks at more than SPREAD_MAX flex
 * groups; only the search for a last free inode may look at all groups.
 *
 * Source: the kernel's fs/ext4/ialloc.c, read for the policy.
 */
#include "alloc_int.h"

#include <sys/stat.h>

enum { SPREAD_MAX = 64 };

uint32_t inode_group_flex(const struct ext4 *fs)
{
	uint32_t bits = fs->super.s_log_groups_per_flex;

	if (!ext4_has_incompat(fs, EXT4_INCOMPAT_FLEX_BG) || bits > 16)
		return 1;
	return 1u << bits;
}

struct flex_counts {
	uint64_t inodes, blocks, dirs;
};

static struct flex_counts flex_count(const struct ext4 *fs, uint32_t flex_groups, group_t flex)
{
	struct flex_counts c = {0};
	group_t first = flex * flex_groups, end = MIN(fs->groups - first, flex_groups) + first;

	for (group_t n = first; n < end; n++) {
		c.inodes += atomic_load_explicit(&fs->group[n].free_inodes, memory_order_relaxed);
		c.dirs += atomic_load_explicit(&fs->group[n].used_dirs, memory_order_relaxed);
		c.blocks +=
			atomic_load_explicit(&fs->alloc->hint[n].available, memory_order_relaxed);
	}
	return c;
}

static struct flex_counts flex_average(const struct ext4 *fs, group_t flexes)
{
	const struct ext4_alloc *a = fs->alloc;
	int64_t blocks = atomic_load(&a->credit.global);

	return (struct flex_counts){.inodes = atomic_load(&a->inodes_free) / flexes,
		.dirs = atomic_load(&a->dirs) / flexes,
		.blocks = (uint64_t)MAX(blocks, 0) / flexes};
}

/* At the top: of some flex groups, that with the fewest directories and no less than its share. */
static group_t flex_spread(struct ext4 *fs, uint32_t flex_groups, group_t flexes)
{
	struct flex_counts average = flex_average(fs, flexes);
	uint32_t random = atomic_fetch_add(&fs->alloc->spread, 0x9e3779b1u);
	group_t flex = (group_t)((uint64_t)random * flexes >> 32), best = flex;
	uint64_t fewest = UINT64_MAX;

	for (group_t n = 0; n < MIN(flexes, (group_t)SPREAD_MAX); n++) {
		struct flex_counts c = flex_count(fs, flex_groups, flex);

		if (c.inodes > 0 && c.dirs < fewest && c.inodes >= average.inodes &&
			c.blocks >= average.blocks) {
			best = flex;
			fewest = c.dirs;
		}
		if (++flex == flexes)
			flex = 0;
	}
	return best;
}

/* Below: the parent's, or the next that is not crowded. */
static group_t flex_near(struct ext4 *fs, uint32_t flex_groups, group_t flexes, group_t parent)
{
	struct flex_counts average = flex_average(fs, flexes);
	uint64_t inodes = (uint64_t)fs->inodes_per_group * flex_groups;
	uint64_t blocks = (uint64_t)fs->blocks_per_group * flex_groups;
	uint64_t dirs_most = average.dirs + inodes / 16;
	uint64_t inodes_least = average.inodes > inodes / 4 ? average.inodes - inodes / 4 : 1;
	uint64_t blocks_least = average.blocks > blocks / 4 ? average.blocks - blocks / 4 : 0;
	group_t flex = parent;

	for (group_t n = 0; n < MIN(flexes, (group_t)SPREAD_MAX); n++) {
		struct flex_counts c = flex_count(fs, flex_groups, flex);

		if (c.dirs < dirs_most && c.inodes >= inodes_least && c.blocks >= blocks_least)
			return flex;
		if (++flex == flexes)
			flex = 0;
	}
	return parent;
}

void inode_group_start(struct ext4_inode *parent, uint32_t mode, struct inode_group_search *out)
{
	struct ext4 *fs = parent->fs;
	group_t near = (parent->inum - 1) / fs->inodes_per_group, flex;
	uint32_t flex_groups = inode_group_flex(fs);
	group_t flexes = (fs->groups - 1) / flex_groups + 1;

	*out = (struct inode_group_search){.first = near};
	if (!S_ISDIR(mode))
		return;
	if (parent->inum == EXT4_ROOT_INUM || parent->attr.flags & EXT4_TOPDIR_FL)
		flex = flex_spread(fs, flex_groups, flexes);
	else
		flex = flex_near(fs, flex_groups, flexes, near / flex_groups);
	if (flex != near / flex_groups)
		out->first = flex * flex_groups;
}

/* The nth group of the order: those of the first one's flex group, then all by rising number. */
static group_t inode_group_nth(
	const struct ext4 *fs, const struct inode_group_search *search, group_t nth)
{
	uint32_t flex_groups = inode_group_flex(fs);
	group_t base = search->first - search->first % flex_groups;
	group_t size = MIN(fs->groups - base, flex_groups);

	if (nth < size)
		return base + (search->first - base + nth) % size;
	return (group_t)(((uint64_t)base + nth) % fs->groups);
}

group_t inode_group_next(struct ext4 *fs, struct inode_group_search *search)
{
	while (search->tried < fs->groups) {
		group_t group = inode_group_nth(fs, search, search->tried++);

		if (atomic_load_explicit(&fs->group[group].free_inodes, memory_order_relaxed))
			return group;
	}
	return NO_GROUP;
}
