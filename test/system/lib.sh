# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
#
# What system tests share; test/README.md says how one is written. A test starts with
#
#   set -u
#   . "${0%/*}/lib.sh"
#   rig_start "$@"
#
# After rig_start the test runs as root in a mount namespace of its own, with a /dev/fuse that
# anyone may open, in the folder $RIG, which is removed at the end with all that is mounted below.
# So whatever way a test ends, no mount of it is ever seen outside.

TOP=${TOP:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$TOP/$BUILD ;; esac
RIG_USER=65534
RIG_FAILED=0

# Ends the test as skipped: a reason that only another machine could remove.
rig_skip_all() {
	echo "SKIP: $(basename "$0"): $*"
	exit 0
}

rig_start() {
	[ "$(id -u)" = 0 ] || rig_skip_all "needs root for loop mounts"
	[ -c /dev/fuse ] || rig_skip_all "no /dev/fuse"
	if [ "${RIG_INSIDE:-}" != "$$" ]; then
		# exec keeps the process number, which tells the inner run from an outer test's.
		RIG_INSIDE=$$ exec unshare -m --propagation private "$BASH" "$0" "$@"
	fi
	RIG=$(mktemp -d "${TMPDIR:-/tmp}/cryptfs-rig.XXXXXX") || exit 1
	trap rig_end EXIT
	trap 'exit 1' INT TERM HUP
	chmod 755 "$RIG"
	mkdir "$RIG/bin" "$RIG/dev"
	mkdir -m 1777 "$RIG/tmp"
	mount -t tmpfs -o mode=755 none "$RIG/dev"
	mknod -m 666 "$RIG/dev/fuse" c 10 229
	mount --bind "$RIG/dev/fuse" /dev/fuse
	# Copies: a plain user may not be able to look into the build folder.
	cp "$BUILD/cryptfs" "$BUILD"/test/rig/* "$RIG/bin/" 2>/dev/null
	cp -P "$BUILD"/*.cryptfs "$RIG/bin/" 2>/dev/null
	chmod 755 "$RIG"/bin/*
	PATH=$RIG/bin:/usr/sbin:/usr/bin:/sbin:/bin
	RIG_KEY=$RIG/key
	printf %s 'correct horse battery staple' >"$RIG_KEY"
	chmod 644 "$RIG_KEY"
	cd "$RIG" || exit 1
}

rig_end() {
	local status=$?
	trap - EXIT
	cd /
	rig_unmount_all
	umount /dev/fuse 2>/dev/null
	umount "$RIG/dev" 2>/dev/null
	rm -rf --one-file-system "$RIG"
	[ "$RIG_FAILED" = 0 ] || exit 1
	exit "$status"
}

rig_unmount_all() {
	local line
	# Newest first, as mounts may lie in each other.
	while read -r line; do
		umount -l "$line" 2>/dev/null
	done < <(awk -v top="$RIG/" 'index($2, top) == 1 && $2 != top "dev" {print $2}' \
		/proc/self/mounts | tac)
	rig_wait_gone "$RIG/" 50
}

# Waits until no process names the path on its command line; false after N tenths of a second.
rig_wait_gone() {
	local tenths=${2:-100}
	while pgrep -f -- "cryptfs .*$1" >/dev/null; do
		[ "$tenths" -gt 0 ] || return 1
		tenths=$((tenths - 1))
		sleep 0.1
	done
}

# Runs a command as a plain user without groups and capabilities.
as_user() {
	setpriv --reuid "$RIG_USER" --regid "$RIG_USER" --clear-groups --inh-caps=-all -- \
		env HOME="$RIG" TMPDIR="$RIG/tmp" "$@"
}

# --- cases ---------------------------------------------------------------------------------------
ok() {
	echo "ok: $*"
}
fail() {
	echo "FAIL: $*"
	RIG_FAILED=1
}
die() {
	fail "$*"
	exit 1
}
# assert_equal WHAT EXPECTED GOT
assert_equal() {
	if [ "$2" = "$3" ]; then ok "$1"; else fail "$1: expected '$2', got '$3'"; fi
}
# assert_status WHAT STATUS COMMAND...: the command's output goes to $RIG/out
assert_status() {
	local what=$1 wanted=$2 got
	shift 2
	"$@" >"$RIG/out" 2>&1
	got=$?
	if [ "$got" = "$wanted" ]; then
		ok "$what"
	else
		fail "$what: expected exit status $wanted, got $got: $(head -c 600 "$RIG/out")"
	fi
}
# assert_output WHAT REGEX: of the last assert_status
assert_output() {
	if grep -Eq -- "$2" "$RIG/out"; then
		ok "$1"
	else
		fail "$1: no match for '$2' in: $(head -c 600 "$RIG/out")"
	fi
}
# assert_same WHAT FILE FILE
assert_same() {
	if cmp -s "$2" "$3"; then
		ok "$1"
	else
		fail "$1: $2 and $3 differ: $(diff -a "$2" "$3" | cut -c 1-400 | head -n 12)"
	fi
}
sum_of() {
	sha256sum <"$1"
}

# --- volumes -------------------------------------------------------------------------------------
# rig_encrypt PLAIN OUT [luks1|luks2] [CIPHER] [SECTOR] [KEY_BITS]
#
# cryptsetup encrypts a copy of the image in userspace (offline reencryption with a detached
# header); the same volume key then makes a header in front of that ciphertext. So every header
# version and cipher goes through stock tools only, without device mapper.
rig_encrypt() {
	local plain=$1 out=$2 type=${3:-luks2} cipher=${4:-aes-xts-plain64} sector=${5:-512}
	local bits=${6:-512} work offset options size
	work=$(mktemp -d "$RIG/encrypt.XXXXXX") || return 1
	options=(-q -c "$cipher" -s "$bits" --key-file "$RIG_KEY" --pbkdf-force-iterations 1000)
	size=$(stat -c %s "$plain")
	cp --sparse=auto "$plain" "$work/data" &&
		cryptsetup reencrypt "${options[@]}" --encrypt --force-offline-reencrypt \
			--disable-locks --type luks2 --pbkdf pbkdf2 --sector-size "$sector" \
			--header "$work/header" "$work/data" >"$work/log" 2>&1 &&
		cryptsetup luksDump -q --dump-volume-key --volume-key-file "$work/key" \
			--key-file "$RIG_KEY" "$work/header" >>"$work/log" 2>&1 &&
		truncate -s $((size + (16 << 20))) "$out" || {
		cat "$work/log"
		return 1
	}
	if [ "$type" = luks1 ]; then
		options+=(--type luks1)
	else
		options+=(--type luks2 --pbkdf pbkdf2 --sector-size "$sector")
	fi
	cryptsetup luksFormat "${options[@]}" --volume-key-file "$work/key" "$out" \
		>"$work/log" 2>&1 || {
		cat "$work/log"
		return 1
	}
	offset=$(rig_offset "$out")
	dd if="$work/data" of="$out" bs=64K seek="$offset" oflag=seek_bytes conv=notrunc \
		status=none && truncate -s $((offset + size)) "$out"
	rm -rf "$work"
}
# The byte at which a volume's encrypted data starts.
rig_offset() {
	cryptsetup luksDump "$1" | awk '
		/^Payload offset:/ {print $3 * 512; exit}
		/^Data segments:/ {data = 1}
		data && /offset:/ {print $2; exit}'
}
# rig_make_plain FILE SIZE [mke2fs options]
rig_make_plain() {
	local file=$1 size=$2
	shift 2
	rm -f "$file"
	truncate -s "$size" "$file"
	# It warns of 128-byte inodes, which are here on purpose.
	mke2fs -q -F "$@" "$file" >"$file.log" 2>&1 || {
		cat "$file.log"
		return 1
	}
	rm "$file.log"
}
# Mounts and unmounts with the kernel's ext4: rig_kernel_mount FILE DIR [OPTIONS]
rig_kernel_mount() {
	local number device
	mkdir -p "$2"
	# A container's /dev may hold only a few loop nodes.
	device=$(losetup -f) && [ -b "$device" ] || {
		number=${device#/dev/loop}
		mknod -m 600 "$device" b 7 "$number" 2>/dev/null
	}
	mount -t "${4:-ext4}" -o "loop,${3:-rw}" "$1" "$2"
}
# rig_mount SOURCE DIR [OPTIONS]: as root, with the rig's key; rig_mount_user: as the plain user
rig_mount() {
	mkdir -p "$2"
	mount.cryptfs "$1" "$2" -o "ro,key-file=$RIG_KEY${3:+,$3}"
}
rig_mount_user() {
	mkdir -p "$2"
	chown "$RIG_USER" "$1" "$2"
	as_user mount.cryptfs "$1" "$2" -o "ro,key-file=$RIG_KEY${3:+,$3}"
}
rig_unmount() {
	umount "$1" && rig_wait_gone "$1"
}
rig_unmount_user() {
	as_user fusermount3 -u "$1" && rig_wait_gone "$1"
}

# --- a guest with device mapper ------------------------------------------------------------------
# rig_guest SCRIPT FILE...: boots user-mode-linux, whose disks /dev/ubdb, /dev/ubdc, ... are the
# files, and runs the script's text in it as root. The guest sees this machine's files read-only,
# has dm-crypt and the kernel's own ciphers, and writes to $RIG/guest.log. Its first lines give it
# $passphrase, and /run to write to.
rig_guest_needs() {
	command -v linux.uml >/dev/null || rig_skip_all "user-mode-linux is not installed"
	[ -d "$(echo /usr/lib/uml/modules/*/kernel)" ] ||
		rig_skip_all "user-mode-linux has no modules"
}
rig_guest() {
	local script=$1 letter disks=()
	shift
	for letter in b c d e f g h i j; do
		[ $# -gt 0 ] || break
		disks+=("ubd$letter=$RIG/$1")
		shift
	done
	{
		cat <<'END'
#!/bin/bash
PATH=/usr/sbin:/usr/bin:/sbin:/bin
passphrase=$(cat "${0%/*}/key")
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /run
mkdir /run/m
cd /usr/lib/uml/modules/*/kernel || exit
for module in drivers/md/dm-mod crypto/cbc crypto/ecb crypto/hmac \
	security/keys/encrypted-keys/encrypted-keys crypto/xts crypto/authenc crypto/essiv \
	drivers/md/dm-crypt crypto/serpent_generic crypto/twofish_common \
	crypto/twofish_generic crypto/camellia_generic crypto/af_alg crypto/algif_skcipher; do
	insmod $module.ko || echo "guest: no $module"
done
cd /run || exit
END
		printf '%s\n' "$script"
		echo 'sync; echo o >/proc/sysrq-trigger; sleep 60'
	} >"$RIG/init"
	chmod 755 "$RIG/init"
	timeout 200 linux.uml mem=512M root=/dev/root rootfstype=hostfs rootflags=/ ro \
		init="$RIG/init" "${disks[@]}" con=null con0=fd:0,fd:1 quiet \
		</dev/null >"$RIG/guest.log" 2>&1
}
