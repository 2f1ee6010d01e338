#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Broken images, walked without FUSE: each structure damaged in each of its ways (the table in
# test/images/broken), and copies damaged by seed. None may crash, hang or make us read out of
# bounds; what must be noticed is noticed. Needs no root. Meant for the sanitizers' build.
#
#   FLIPS=100 SEED=1 test/image/broken.sh     damaged copies for each base, and the first seed
set -u
TOP=${TOP:-$(cd "${0%/*}/../.." && pwd)}
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$TOP/$BUILD ;; esac
walk=$BUILD/test/image/walk
work=$(mktemp -d "${TMPDIR:-/tmp}/cryptfs-broken.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
bad=0
fail() {
	echo "FAIL: $*"
	bad=1
}

export PATH=$PATH:/usr/sbin:/sbin
"$TOP/test/images/broken" "$work/images" || {
	fail "the images could not be made"
	exit 1
}

while IFS=$'\t' read -r name expected base; do
	image=$work/images/$name
	"$walk" "$image" >"$work/out" 2>&1
	status=$?
	outcome=$(tail -n 1 "$work/out")
	if [ "$status" != 0 ]; then
		fail "$name: walk ended with $status: $(tail -n 40 "$work/out")"
		continue
	fi
	case $expected:$outcome in
	clean:clean)
		cp "$work/out" "$work/whole-$base" ;;
	whole:clean)
		cmp -s "$work/out" "$work/whole-$base" || outcome="less than the base: $outcome" ;;
	esac
	case $expected:$outcome in
	clean:clean | refuse:refused:* | error:refused:* | error:errors:* | any:* | \
		whole:refused:* | whole:errors:* | whole:clean)
		echo "ok: $name: $outcome" ;;
	*)
		fail "$name: expected $expected, got: $(cat "$work/out")" ;;
	esac
done <"$work/images/list"

first=${SEED:-$((RANDOM * 32768 + RANDOM))}
for base in plain csum ext3 inline ea journal; do
	if "$walk" "$work/images/base-$base" flips "$first" "${FLIPS:-60}" >"$work/out" 2>&1; then
		echo "ok: flips $base: $(tail -n 1 "$work/out")"
	else
		fail "flips $base: $(tail -n 60 "$work/out")"
	fi
done
exit "$bad"
