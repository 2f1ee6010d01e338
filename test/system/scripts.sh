#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The scripts of a newcomer: scripts/demo as root and as a plain user, twice each, and
# `make install`, with mount(8) finding the helper. The build is copied with its times, so that
# nothing is built again.
set -u
. "${0%/*}/lib.sh"
rig_start "$@"

mkdir "$RIG/src"
(cd "$TOP" && cp -a --parents Makefile README.md include src scripts test "$RIG/src/") ||
	die "the tree could not be copied"
cp -a "$BUILD" "$RIG/src/build"
export BUILD=build

# try_demo WHO COMMAND...
try_demo() {
	local who=$1 run dir unmount
	shift
	for run in 1 2; do
		assert_status "demo ($who, run $run)" 0 "$@" "$RIG/src/scripts/demo" "$RIG/home-$who"
		dir=$(sed -n 's/^mounted at: *\([^ ]*\) .*/\1/p' "$RIG/out")
		unmount=$(sed -n 's/^unmount: *//p' "$RIG/out")
		cp "$RIG/out" "$RIG/out.$who.$run"
		if "$@" grep -q 'lies encrypted' "$dir/hello.txt"; then
			ok "demo: the mount can be read ($who, run $run)"
		else
			fail "demo: the mount cannot be read ($who, run $run)"
		fi
		assert_equal "demo: last line ($who, run $run)" "unmount:     $unmount" \
			"$(tail -n 1 "$RIG/out")"
		echo "$unmount" >>"$RIG/unmount.$who"
	done
	while read -r unmount; do
		# The line as a user would type it.
		assert_status "demo: $unmount ($who)" 0 "$@" sh -c "$unmount"
	done <"$RIG/unmount.$who"
	rig_wait_gone "$RIG/home-$who" || fail "demo: a daemon is left ($who)"
}

try_demo root env
chown -R "$RIG_USER" "$RIG/src"
mkdir "$RIG/home-user"
chown "$RIG_USER" "$RIG/home-user"
try_demo user as_user

# An installed tree, bound over where mount(8) looks for helpers.
assert_status "make install" 0 make -s -C "$RIG/src" install DESTDIR="$RIG/root" BUILD=build
assert_equal "install: the program" x "$([ -x "$RIG/root/usr/local/bin/cryptfs" ] && echo x)"
for name in mount.cryptfs mkfs.cryptfs; do
	assert_equal "install: $name leads to the program" ../local/bin/cryptfs \
		"$(readlink "$RIG/root/usr/sbin/$name")"
	assert_equal "install: the page of $name" x \
		"$([ -s "$RIG/root/usr/local/share/man/man8/$name.8" ] && echo x)"
done
rig_make_plain "$RIG/plain" 8M -t ext4
rig_encrypt "$RIG/plain" "$RIG/volume" || die "cryptsetup failed"
mkdir "$RIG/m"
cp -a /usr/sbin "$RIG/sbin"
cp "$RIG/root/usr/local/bin/cryptfs" "$RIG/sbin/mount.cryptfs"
mount --bind "$RIG/sbin" /usr/sbin
assert_status "mount -t cryptfs" 0 mount -t cryptfs -o "ro,key-file=$RIG_KEY" "$RIG/volume" "$RIG/m"
assert_equal "findmnt: source and type" "$RIG/volume fuse.cryptfs" \
	"$(findmnt -n -o SOURCE,FSTYPE "$RIG/m")"
assert_status "umount" 0 umount "$RIG/m"
rig_wait_gone "$RIG/m" || fail "a daemon is left"
umount -l /usr/sbin
