#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What must be refused: one clear line, the exit code of mount(8), nothing written to the source, and
# no daemon left. As root, and the same as a plain user.
set -u
. "${0%/*}/lib.sh"
rig_start "$@"

printf %s wrong >"$RIG/wrong"
printf '' >"$RIG/empty"
chmod 644 "$RIG/wrong" "$RIG/empty"
mkdir "$RIG/m" "$RIG/u"
chown "$RIG_USER" "$RIG/u"
rig_make_plain "$RIG/plain" 8M -t ext4
rig_encrypt "$RIG/plain" "$RIG/volume" || die "cryptsetup failed"

# refused NAME STATUS REGEX SOURCE OPTIONS [DIR]
refused() {
	local name=$1 status=$2 regex=$3 source=$4 options=$5 before after who command dir
	for who in root user; do
		if [ "$who" = root ]; then
			command=()
			dir=${6:-$RIG/m}
		else
			command=(as_user)
			dir=${6:-$RIG/u}
			[ ! -f "$source" ] || chown "$RIG_USER" "$source"
		fi
		before=$([ -f "$source" ] && sum_of "$source")
		assert_status "$name: exit status ($who)" "$status" \
			"${command[@]}" timeout 60 mount.cryptfs "$source" "$dir" -o "$options"
		assert_output "$name: message ($who)" "$regex"
		assert_equal "$name: one line ($who)" 1 "$(wc -l <"$RIG/out")"
		after=$([ -f "$source" ] && sum_of "$source")
		assert_equal "$name: nothing written ($who)" "$before" "$after"
		rig_wait_gone "$source" 30 || fail "$name: a daemon is left ($who)"
		if mountpoint -q "$dir" 2>/dev/null; then
			fail "$name: it is mounted ($who)"
			umount -l "$dir"
		fi
	done
}

key="ro,key-file=$RIG_KEY"
refused "wrong key file" 32 "wrong key file|no key available" "$RIG/volume" "ro,key-file=$RIG/wrong"
refused "empty key file" 32 "no key|passphrase|empty|key file" "$RIG/volume" \
	"ro,key-file=$RIG/empty"
refused "missing key file" 2 "there-is-none" "$RIG/volume" "ro,key-file=$RIG/there-is-none"
refused "missing source" 2 "no such file" "$RIG/there-is-none" "$key"
refused "missing mount point" 2 "there-is-none" "$RIG/volume" "$key" "$RIG/there-is-none"
refused "not LUKS" 32 "not a LUKS volume" "$RIG/plain" "$key"
refused "unknown option" 1 "no-such-option" "$RIG/volume" "$key,no-such-option"
refused "data=journal" 1 "data=journal" "$RIG/volume" "$key,data=journal"
refused "nobarrier" 1 "nobarrier" "$RIG/volume" "$key,nobarrier"
refused "missing key slot" 32 "slot" "$RIG/volume" "$key,key-slot=5"

cp "$RIG/volume" "$RIG/short"
truncate -s $(($(rig_offset "$RIG/volume") + (3 << 20))) "$RIG/short"
refused "truncated" 32 "short" "$RIG/short" "$key"
cp "$RIG/volume" "$RIG/header-only"
truncate -s 1000000 "$RIG/header-only"
refused "cut in the header" 32 "short|damaged|header" "$RIG/header-only" "$key"
truncate -s 100 "$RIG/tiny"
refused "tiny" 32 "not a LUKS volume" "$RIG/tiny" "$key"

# A volume with no file system in it.
truncate -s 8M "$RIG/zeros"
rig_encrypt "$RIG/zeros" "$RIG/nothing" || die "cryptsetup failed"
refused "no file system" 32 "no ext2, ext3 or ext4" "$RIG/nothing" "$key"

# Features of the file system, by name.
refuse_feature() {
	local name=$1 regex=$2
	rm -f "$RIG/f" "$RIG/feature"
	rig_make_plain "$RIG/f" 8M -t ext4
	printf '%b\n' "$3" | debugfs -w -f /dev/stdin "$RIG/f" >/dev/null 2>&1
	rig_encrypt "$RIG/f" "$RIG/feature" || die "cryptsetup failed"
	refused "$name" 32 "$regex" "$RIG/feature" "$key"
}
refuse_feature "encrypt" "encrypt" "feature encrypt"
refuse_feature "casefold" "casefold" "feature casefold"
refuse_feature "journal_dev" "journal" "feature journal_dev"
refuse_feature "unknown incompat" "FEATURE_I31|unknown|0x80000000" "feature FEATURE_I31"
refuse_feature "external journal" "noload" \
	"ssv journal_inum 0\nssv journal_dev 0x801\nssv journal_uuid 12345678-1234-1234-1234-123456789abc"
before=$(sum_of "$RIG/feature")
rig_mount "$RIG/feature" "$RIG/m" noload && {
	ok "external journal with noload"
	rig_unmount "$RIG/m"
} || fail "external journal with noload"
assert_equal "external journal: unchanged" "$before" "$(sum_of "$RIG/feature")"

# A cipher that nobody knows: the header's text is patched, and its checksum made right.
cp "$RIG/volume" "$RIG/cipher"
"$TOP/test/images/luks2_patch" "$RIG/cipher" aes-xts-plain64 foo-xts-plain64 ||
	die "the header could not be patched"
refused "unknown cipher" 32 "foo" "$RIG/cipher" "$key"

# A busy source: ours holds it; a reader shares with a reader, so an exclusive lock is taken here.
"$TOP/test/images/hold_lock" "$RIG/volume" "$RIG/held" &
holder=$!
while [ ! -e "$RIG/held" ]; do
	kill -0 "$holder" 2>/dev/null || die "the lock could not be taken"
	sleep 0.05
done
refused "busy" 32 "in use|busy" "$RIG/volume" "$key"
kill "$holder"
wait "$holder" 2>/dev/null

# Two readers share.
rig_mount "$RIG/volume" "$RIG/m" && rig_mount "$RIG/volume" "$RIG/m2" &&
	ok "two read-only mounts share a source" || fail "two read-only mounts share a source"
rig_unmount "$RIG/m2" || fail "unmounting the second"
rig_unmount "$RIG/m" || fail "unmounting the first"
