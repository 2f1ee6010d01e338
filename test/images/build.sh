# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# Makes the images of test/images/rows with mke2fs, the kernel and e2fsprogs, and takes the truth
# about them from the kernel's own read-only mount. Sourced after test/system/lib.sh's rig_start.

IMAGE_ROWS=$TOP/test/images/rows

# Prints the rows, blanks round the bars removed.
image_rows() {
	sed -e '/^#/d' -e '/^ *$/d' -e 's/ *| */|/g' "$IMAGE_ROWS"
}

# image_change FILE WORDS: what is changed before or after the kernel filled the image
image_change() {
	local file=$1 dir=$1.mnt
	shift
	while [ $# -gt 0 ]; do
		case $1 in
		before:unsigned) # the hashes as on a machine whose char is unsigned
			debugfs -w -R 'ssv flags 2' "$file" >/dev/null 2>&1 || return 1 ;;
		before:hash=*)
			tune2fs -E "hash_alg=${1#before:hash=}" "$file" >/dev/null || return 1 ;;
		resize)
			shift
			e2fsck -fp "$file" >/dev/null
			truncate -s "$1" "$file"
			resize2fs "$file" >/dev/null 2>&1 || return 1 ;;
		extents)
			tune2fs -O extents "$file" >/dev/null || return 1
			rig_kernel_mount "$file" "$dir" || return 1
			"$TOP/test/images/fill" "$dir" late=1 || return 1
			umount "$dir" ;;
		tune)
			shift
			# tune2fs asks for a check first where it rewrites what it finds.
			e2fsck -fp "$file" >/dev/null
			tune2fs -O "$1" "$file" >/dev/null 2>&1 || return 1 ;;
		feature)
			shift
			debugfs -w -R "feature $1" "$file" >/dev/null 2>&1 || return 1 ;;
		errors) # the kernel saw an error: s_state ERROR_FS
			debugfs -w -R 'ssv state 2' "$file" >/dev/null 2>&1 || return 1 ;;
		why:*) ;;
		*)
			echo "$1: no such change in test/images/rows"
			return 1 ;;
		esac
		shift
	done
}

# image_build FILE SIZE MKE2FS_OPTIONS FILL_OPTIONS CHANGES: FILE is the plain image
image_build() {
	local file=$1 size=$2 options=$3 fill=$4 changes=$5 dir=$1.mnt
	# shellcheck disable=SC2086 # options are lists
	rig_make_plain "$file" "$size" $options || return 1
	case $changes in *before:*) image_change "$file" "$changes" || return 1; changes= ;; esac
	rig_kernel_mount "$file" "$dir" || return 1
	# shellcheck disable=SC2086
	"$TOP/test/images/fill" "$dir" $fill || {
		umount "$dir"
		return 1
	}
	umount "$dir" || return 1
	# shellcheck disable=SC2086
	image_change "$file" $changes
}

# image_truth FILE OUT [OPTIONS]: what root sees goes to OUT.root, a plain user to OUT.user
image_truth() {
	local dir=$1.mnt who status
	# A mount each: the kernel shows pages that somebody has read as data in an unwritten range.
	for who in root user; do
		rig_kernel_mount "$1" "$dir" "ro${3:+,$3}" || return 1
		if [ "$who" = root ]; then
			manifest "$dir" >"$2.root"
		else
			as_user manifest "$dir" >"$2.user"
		fi
		status=$?
		umount "$dir" || return 1
		[ "$status" = 0 ] || return 1
	done
}
