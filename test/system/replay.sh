#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Volumes whose journal was left full by a crash of the kernel's ext4: a read-only mount of ours
# replays it in memory and must show the tree that the kernel shows after replaying a copy; the
# source does not change. With noload the journal is not looked at, as with the kernel's.
set -u
. "${0%/*}/lib.sh"
rig_start "$@"
. "$TOP/test/images/build.sh"

# name | mke2fs options | shutdown flag | crash options | mount options
rows() {
	cat <<-'ROWS'
	no-csum-1k | -t ext3 -b 1024 | 1 | | data=ordered
	no-csum-4k | -t ext4 -b 4096 -O ^metadata_csum,^64bit | 2 | | data=ordered
	csum-v1 | -t ext4 -b 1024 -O ^metadata_csum,^64bit | 1 | | journal_checksum
	csum-v1-async | -t ext4 -b 4096 -O ^metadata_csum,^64bit | 2 | | journal_async_commit,data=writeback
	csum-v3-1k | -t ext4 -b 1024 | 1 | |
	csum-v3-1k-none | -t ext4 -b 1024 | 2 | |
	csum-v3-2k | -t ext4 -b 2048 | 1 | |
	csum-v3-4k | -t ext4 -b 4096 | 1 | |
	csum-v3-no-64bit | -t ext4 -b 1024 -O ^64bit | 2 | |
	data-journal | -t ext4 -b 1024 | 1 | | data=journal
	small-log-wraps | -t ext4 -b 1024 -J size=1 | 1 | | data=journal
	orphan-list | -t ext4 -b 1024 | 1 | orphans |
	orphan-file | -t ext4 -b 1024 -O orphan_file,metadata_csum_seed | 1 | orphans |
	crafted-v2 | -t ext4 -b 1024 -O ^64bit | craft2 | |
	crafted-v2-64bit | -t ext4 -b 4096 | craft2 | |
	crafted-v3-64bit | -t ext4 -b 1024 | craft3 | |
	ROWS
}

# The kernel recovers on a read-write mount of a copy, which also processes the orphans; the
# truth is then read from the clean copy. Times and free counts come out of the log alike.
truth_of() {
	cp --sparse=auto "$1" "$1.copy"
	rig_kernel_mount "$1.copy" "$1.mnt" rw,noatime || return 1
	umount "$1.mnt" || return 1
	image_truth "$1.copy" "$1.truth"
}

# What a replayed log does not decide is left out: statfs, because processing the orphans frees
# blocks, which a read-only mount leaves to the next writer.
comparable() {
	grep -v '^statfs' "$1"
}

# make_crash FILE MKE2FS_OPTIONS FLAG CRASH_OPTIONS MOUNT_OPTIONS
make_crash() {
	# shellcheck disable=SC2086 # options are lists
	rig_make_plain "$1" 24M $2 && rig_kernel_mount "$1" "$1.mnt" "rw${5:+,$5}" || return 1
	# shellcheck disable=SC2086
	"$TOP/test/images/crash" "$1.mnt" "$3" $4 || fail "$1: the crash"
	umount "$1.mnt"
}

# The kernel writes checksum v3 whenever it can, so debugfs writes the logs of v2:
# new contents for the blocks of a file, one of them logged twice, one revoked.
# RIG_CSUM=VERSION make_crafted FILE MKE2FS_OPTIONS
make_crafted() {
	local image=$1 blocks
	mkdir -p "$image.tree"
	head -c 20000 /dev/zero | tr '\0' o >"$image.tree/file"
	# shellcheck disable=SC2086
	rig_make_plain "$image" 24M $2 -d "$image.tree" || return 1
	head -c 20000 /dev/zero | tr '\0' n >"$image.new"
	head -c 20000 /dev/zero | tr '\0' N >"$image.newer"
	blocks=$(debugfs -R 'blocks file' "$image" 2>/dev/null)
	# shellcheck disable=SC2086
	set -- $blocks
	cat >"$image.script" <<-SCRIPT
		jo -c -v $RIG_CSUM
		jw -b $1,$2,$3 $image.new
		jc
		jo
		jw -b $2 -r $3 $image.newer
		jc
	SCRIPT
	debugfs -w -f "$image.script" "$image" >/dev/null 2>&1
}

check_row() {
	local name=$1 options=$2 flag=$3 crash=$4 mount_options=$5
	local image=$RIG/$1 before
	if [ "${flag#craft}" != "$flag" ]; then
		RIG_CSUM=${flag#craft} make_crafted "$image" "$options" || die "$name: crafting"
	else
		make_crash "$image" "$options" "$flag" "$crash" "$mount_options" ||
			die "$name: the image could not be made"
	fi
	dumpe2fs -h "$image" 2>/dev/null | grep -q needs_recovery ||
		fail "$name: the image needs no recovery, so it proves nothing"
	echo "$name: $(dumpe2fs -h "$image" 2>/dev/null | grep -i '^Journal features')"
	truth_of "$image" || die "$name: the kernel's replay"
	rig_encrypt "$image" "$image.volume" luks2 aes-xts-plain64 512 || die "$name: cryptsetup"
	before=$(sum_of "$image.volume")

	rig_mount "$image.volume" "$image.m" || die "$name: mount.cryptfs"
	manifest "$image.m" >"$image.ours" || fail "$name: reading it"
	rig_unmount "$image.m" || fail "$name: unmounting"
	comparable "$image.truth.root" >"$image.a"
	comparable "$image.ours" >"$image.b"
	assert_same "$name: as the kernel replays it" "$image.a" "$image.b"
	assert_equal "$name: the source is unchanged" "$before" "$(sum_of "$image.volume")"

	# noload: both read what lies at home, consistent or not.
	image_truth "$image" "$image.noload" noload || echo "$name: noload: the kernel met errors"
	rig_mount "$image.volume" "$image.m" noload || die "$name: mount.cryptfs -o noload"
	manifest "$image.m" >"$image.ours.noload" 2>"$image.log"
	rig_unmount "$image.m" || fail "$name: unmounting"
	comparable "$image.noload.root" | grep -v '=!' | cut -f 1 | sort >"$image.a"
	comparable "$image.ours.noload" | grep -v '=!' | cut -f 1 | sort >"$image.b"
	assert_same "$name: noload shows the names at home" "$image.a" "$image.b"
	assert_equal "$name: noload leaves it unchanged" "$before" "$(sum_of "$image.volume")"
	rm -rf "$image" "$image".*
}

while IFS='|' read -r name options flag crash mount_options; do
	[ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
	check_row "$name" "$options" "$flag" "$crash" "$mount_options" </dev/null
done < <(rows | sed 's/ *| */|/g;s/ *$//')
