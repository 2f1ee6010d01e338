/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * feature: the names of feature bits, and the policy: what is read, what would be written, what
 * is refused.
 *
 * An incompat feature changes how bytes are read, so one that is not known is refused by name; an
 * ro_compat feature only binds a writer, so one that is not known, or whose accounting is not
 * kept, makes the mount read-only with one line saying why. Compat features bind nobody.
 *
 * Source: the kernel's Documentation/filesystems/ext4/super.rst; names as e2fsprogs prints them.
 */
#include "ext4_int.h"

#include <stdio.h>

enum feature_word { WORD_COMPAT, WORD_INCOMPAT, WORD_RO_COMPAT, WORDS };

static const struct feature_name {
	uint32_t bit;
	const char *name;
} compat_names[] =
	{
		{EXT4_COMPAT_DIR_PREALLOC, "dir_prealloc"},
		{EXT4_COMPAT_IMAGIC_INODES, "imagic_inodes"},
		{EXT4_COMPAT_HAS_JOURNAL, "has_journal"},
		{EXT4_COMPAT_EXT_ATTR, "ext_attr"},
		{EXT4_COMPAT_RESIZE_INODE, "resize_inode"},
		{EXT4_COMPAT_DIR_INDEX, "dir_index"},
		{EXT4_COMPAT_LAZY_BG, "lazy_bg"},
		{EXT4_COMPAT_EXCLUDE_BITMAP, "snapshot_bitmap"},
		{EXT4_COMPAT_SPARSE_SUPER2, "sparse_super2"},
		{EXT4_COMPAT_FAST_COMMIT, "fast_commit"},
		{EXT4_COMPAT_STABLE_INODES, "stable_inodes"},
		{EXT4_COMPAT_ORPHAN_FILE, "orphan_file"},
		{0, NULL},
},
  incompat_names[] =
	  {
		  {EXT4_INCOMPAT_COMPRESSION, "compression"},
		  {EXT4_INCOMPAT_FILETYPE, "filetype"},
		  {EXT4_INCOMPAT_RECOVER, "needs_recovery"},
		  {EXT4_INCOMPAT_JOURNAL_DEV, "journal_dev"},
		  {EXT4_INCOMPAT_META_BG, "meta_bg"},
		  {EXT4_INCOMPAT_EXTENTS, "extent"},
		  {EXT4_INCOMPAT_64BIT, "64bit"},
		  {EXT4_INCOMPAT_MMP, "mmp"},
		  {EXT4_INCOMPAT_FLEX_BG, "flex_bg"},
		  {EXT4_INCOMPAT_EA_INODE, "ea_inode"},
		  {EXT4_INCOMPAT_DIRDATA, "dirdata"},
		  {EXT4_INCOMPAT_CSUM_SEED, "metadata_csum_seed"},
		  {EXT4_INCOMPAT_LARGEDIR, "large_dir"},
		  {EXT4_INCOMPAT_INLINE_DATA, "inline_data"},
		  {EXT4_INCOMPAT_ENCRYPT, "encrypt"},
		  {EXT4_INCOMPAT_CASEFOLD, "casefold"},
		  {0, NULL},
},
  ro_compat_names[] = {
	  {EXT4_RO_COMPAT_SPARSE_SUPER, "sparse_super"},
	  {EXT4_RO_COMPAT_LARGE_FILE, "large_file"},
	  {EXT4_RO_COMPAT_HUGE_FILE, "huge_file"},
	  {EXT4_RO_COMPAT_GDT_CSUM, "uninit_bg"},
	  {EXT4_RO_COMPAT_DIR_NLINK, "dir_nlink"},
	  {EXT4_RO_COMPAT_EXTRA_ISIZE, "extra_isize"},
	  {EXT4_RO_COMPAT_QUOTA, "quota"},
	  {EXT4_RO_COMPAT_BIGALLOC, "bigalloc"},
	  {EXT4_RO_COMPAT_METADATA_CSUM, "metadata_csum"},
	  {EXT4_RO_COMPAT_REPLICA, "replica"},
	  {EXT4_RO_COMPAT_READONLY, "read-only"},
	  {EXT4_RO_COMPAT_PROJECT, "project"},
	  {EXT4_RO_COMPAT_SHARED_BLOCKS, "shared_blocks"},
	  {EXT4_RO_COMPAT_VERITY, "verity"},
	  {EXT4_RO_COMPAT_ORPHAN_PRESENT, "orphan_present"},
	  {0, NULL},
};

enum {
	INCOMPAT_READABLE = EXT4_INCOMPAT_FILETYPE | EXT4_INCOMPAT_RECOVER | EXT4_INCOMPAT_META_BG |
			    EXT4_INCOMPAT_EXTENTS | EXT4_INCOMPAT_64BIT | EXT4_INCOMPAT_MMP |
			    EXT4_INCOMPAT_FLEX_BG | EXT4_INCOMPAT_EA_INODE |
			    EXT4_INCOMPAT_CSUM_SEED | EXT4_INCOMPAT_LARGEDIR |
			    EXT4_INCOMPAT_INLINE_DATA,
	/* The old btree_dir bit was never used by anybody and is ignored, as the kernel does. */
	RO_COMPAT_WRITABLE =
		EXT4_RO_COMPAT_SPARSE_SUPER | EXT4_RO_COMPAT_LARGE_FILE | EXT4_RO_COMPAT_BTREE_DIR |
		EXT4_RO_COMPAT_HUGE_FILE | EXT4_RO_COMPAT_GDT_CSUM | EXT4_RO_COMPAT_DIR_NLINK |
		EXT4_RO_COMPAT_EXTRA_ISIZE | EXT4_RO_COMPAT_METADATA_CSUM | EXT4_RO_COMPAT_PROJECT |
		EXT4_RO_COMPAT_VERITY | EXT4_RO_COMPAT_ORPHAN_PRESENT,
};

/* One bit's name; for one without, FEATURE_ with the word's letter and the bit's number. */
static void feature_name(enum feature_word word, uint32_t bit, char *buf, size_t room)
{
	static const struct feature_name *const tables[WORDS] = {
		compat_names, incompat_names, ro_compat_names};
	static const char letters[WORDS] = {'C', 'I', 'R'};

	for (const struct feature_name *f = tables[word]; f->name; f++)
		if (f->bit == bit) {
			snprintf(buf, room, "%s", f->name);
			return;
		}
	snprintf(buf, room, "FEATURE_%c%d", letters[word], __builtin_ctz(bit));
}

void ext4_feature_names(const struct ext4_super *super, char *buf, size_t room)
{
	const uint32_t words[WORDS] = {le32_get(super->s_feature_compat),
		le32_get(super->s_feature_incompat), le32_get(super->s_feature_ro_compat)};
	char name[32];
	size_t used = 0;

	buf[0] = '\0';
	for (enum feature_word w = 0; w < WORDS; w++)
		for (int i = 0; i < 32; i++) {
			if (!(words[w] & 1u << i))
				continue;
			feature_name(w, 1u << i, name, sizeof(name));
			if (used + strlen(name) + 2 > room)
				return;
			used += (size_t)snprintf(
				buf + used, room - used, "%s%s", used ? " " : "", name);
		}
}

enum err ext4_feature_check(const struct ext4_super *super)
{
	uint32_t bad = le32_get(super->s_feature_incompat) & ~(uint32_t)INCOMPAT_READABLE;
	char name[32];

	if (!bad)
		return OK;
	if (bad & EXT4_INCOMPAT_JOURNAL_DEV)
		return err_set_detail(ERR_EXT4_FEATURE,
			"this is an external journal (feature journal_dev), not a file system");
	feature_name(WORD_INCOMPAT, bad & -bad, name, sizeof(name));
	return err_set_detail(ERR_EXT4_FEATURE, "the ext4 feature '%s' is not supported", name);
}

void ext4_reason_add(struct ext4_info *info, const char *fmt, ...)
{
	va_list args;

	info->must_be_readonly = true;
	if (info->reason_count == EXT4_REASONS_MAX)
		return;
	va_start(args, fmt);
	vsnprintf(info->reasons[info->reason_count++], sizeof(info->reasons[0]), fmt, args);
	va_end(args);
}

void ext4_feature_reasons(const struct ext4 *fs, struct ext4_info *info)
{
	uint32_t bad = fs->feature_ro_compat & ~(uint32_t)RO_COMPAT_WRITABLE;
	uint32_t sector_bytes = volume_sector_bytes(fs->options.volume);
	char name[32];

	for (; bad; bad &= bad - 1) {
		feature_name(WORD_RO_COMPAT, bad & -bad, name, sizeof(name));
		ext4_reason_add(info, "the ext4 feature '%s' is only read", name);
	}
	if (fs->block_bytes > 4096)
		ext4_reason_add(info, "a block size of %u is only read", fs->block_bytes);
	if (fs->block_bytes < sector_bytes)
		ext4_reason_add(info,
			"the block size %u is smaller than the encryption sector %u; no kernel "
			"mounts this",
			fs->block_bytes, sector_bytes);
	if (le32_get(fs->super.s_rev_level) > 1)
		ext4_reason_add(info, "the revision level %u is not known",
			le32_get(fs->super.s_rev_level));
	if (le16_get(fs->super.s_state) & EXT4_STATE_ERRORS)
		ext4_reason_add(info, "the file system is marked with errors; run fsck.cryptfs");
	if (ext4_has_compat(fs, EXT4_COMPAT_HAS_JOURNAL) && !le32_get(fs->super.s_journal_inum))
		ext4_reason_add(info, "the journal is on another device");
}
