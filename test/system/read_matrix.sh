#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Every row of the feature table: an image made by mke2fs and filled by the kernel, encrypted by
# cryptsetup, must look through mount.cryptfs as it looks through the kernel's own mount, to root
# and to a plain user, and must not have changed by a bit.
#
#   test/system/read_matrix.sh [ROW ...]
set -u
. "${0%/*}/lib.sh"
rig_start "$@"
. "$TOP/test/images/build.sh"

# check_row NAME SIZE MKE2FS FILL CHANGES LUKS; runs in a subshell of its own, output into a file
check_row() {
	local name=$1 size=$2 options=$3 fill=$4 changes=$5 luks=$6 dir=$RIG/rows/$1 before why
	mkdir -p "$dir"
	image_build "$dir/plain" "$size" "$options" "$fill" "$changes" ||
		die "$name: the image could not be made"
	image_truth "$dir/plain" "$dir/truth" || die "$name: the kernel's mount could not be read"
	# shellcheck disable=SC2086
	rig_encrypt "$dir/plain" "$dir/volume" $luks || die "$name: cryptsetup failed"
	rm "$dir/plain"
	before=$(sum_of "$dir/volume")

	rig_mount "$dir/volume" "$dir/m" || die "$name: mount.cryptfs failed (root)"
	manifest "$dir/m" >"$dir/ours.root" || fail "$name: reading it (root)"
	rig_unmount "$dir/m" || fail "$name: unmounting (root)"
	assert_same "$name: as root" "$dir/truth.root" "$dir/ours.root"

	rig_mount_user "$dir/volume" "$dir/u" || die "$name: mount.cryptfs failed (user)"
	as_user manifest "$dir/u" >"$dir/ours.user" || fail "$name: reading it (user)"
	rig_unmount_user "$dir/u" || fail "$name: unmounting (user)"
	assert_same "$name: as a plain user" "$dir/truth.user" "$dir/ours.user"

	assert_equal "$name: the source is unchanged" "$before" "$(sum_of "$dir/volume")"
	why=$(grep -o 'why:[^ ]*' <<<"$changes")
	cryptfs info --key-file "$RIG_KEY" "$dir/volume" >"$dir/info" 2>&1 ||
		fail "$name: cryptfs info: $(cat "$dir/info")"
	if [ -n "$why" ]; then
		grep -Eqi "read-only: .*${why#why:}" "$dir/info" ||
			fail "$name: no reason with '${why#why:}': $(grep read-only: "$dir/info")"
	elif grep 'read-only: ' "$dir/info" | grep -qv 'this version does not write'; then
		fail "$name: a reason not to write: $(grep read-only: "$dir/info")"
	fi
	rm -rf --one-file-system "$dir"
	[ "$RIG_FAILED" = 0 ]
}

start_row() {
	# The subshell must not run the clean-up of the whole test when it ends.
	(
		trap - EXIT
		check_row "$@"
	) >"$RIG/rows/$1.log" 2>&1 || echo "$1" >>"$RIG/rows/failed"
	cat "$RIG/rows/$1.log"
}

mkdir "$RIG/rows"
wanted=" $* "
running=0
# Two rows at a time: one makes an image while the other is read.
while IFS='|' read -r name size options fill changes luks; do
	[ $# = 0 ] || [[ $wanted == *" $name "* ]] || continue
	start_row "$name" "$size" "$options" "$fill" "$changes" "$luks" </dev/null &
	running=$((running + 1))
	if [ "$running" -ge 2 ]; then
		wait -n
		running=$((running - 1))
	fi
done < <(image_rows)
wait
[ ! -e "$RIG/rows/failed" ] || RIG_FAILED=1
