#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Blocks larger than a page: no kernel here mounts them, so the truth is the folder that mke2fs -d
# copied into the image, in the fields that it copies. Once with linear directories and once with
# the indexes that e2fsck -D builds.
set -u
. "${0%/*}/lib.sh"
rig_start "$@"

mkdir "$RIG/tree"
"$TOP/test/images/fill" "$RIG/tree" plain=1 || die "the tree could not be made"

# path, type and mode, owner, links; size for all but directories; seconds of mtime; data and link
copied_fields() {
	awk -F '\t' '$2 != "" {
		count = split($2, field, " ")
		line = $1 " " field[1] " " field[2] " " field[3]
		for (i = 4; i <= count; i++) {
			if (field[i] ~ /^s=/ && field[1] !~ /^d/) line = line " " field[i]
			if (field[i] ~ /^m=/) { sub(/\..*/, "", field[i]); line = line " " field[i] }
			if (field[i] ~ /^(data|link)=/) line = line " " field[i]
		}
		print line
	}' "$1" | grep -v '^\./lost+found' | grep -v '^\. '
}

manifest "$RIG/tree" >"$RIG/truth" || die "the tree could not be read"
copied_fields "$RIG/truth" >"$RIG/truth.fields"
check() {
	local name=$1 index=$2 before
	shift 2
	rig_make_plain "$RIG/plain" 64M "$@" -d "$RIG/tree" || die "$name: mke2fs"
	if [ "$index" = indexed ]; then
		e2fsck -fyD "$RIG/plain" >/dev/null 2>&1
	fi
	e2fsck -fn "$RIG/plain" >"$RIG/log" 2>&1 || die "$name: e2fsck: $(cat "$RIG/log")"
	rig_encrypt "$RIG/plain" "$RIG/volume" luks2 aes-xts-plain64 4096 || die "$name: cryptsetup"
	before=$(sum_of "$RIG/volume")
	rig_mount "$RIG/volume" "$RIG/m" || die "$name: mount.cryptfs"
	manifest "$RIG/m" >"$RIG/ours" || fail "$name: reading it"
	rig_unmount "$RIG/m" || fail "$name: unmounting"
	copied_fields "$RIG/ours" >"$RIG/ours.fields"
	assert_same "$name" "$RIG/truth.fields" "$RIG/ours.fields"
	assert_equal "$name: the source is unchanged" "$before" "$(sum_of "$RIG/volume")"
	rm -f "$RIG/volume"
}
for block in 8192 16384 32768 65536; do
	check "blocks of $block" linear -t ext4 -b "$block" -N 2048
	check "blocks of $block, indexed" indexed -t ext4 -b "$block" -N 2048
done
check "blocks of 65536, indirect" indexed -t ext3 -b 65536 -N 2048
