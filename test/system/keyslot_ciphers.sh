#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Volumes whose keyslots libcryptsetup opens only with the kernel's crypto: made by cryptsetup and
# filled by ext4 in a guest that has it, opened here by the native reader.
set -u
# shellcheck source=test/system/lib.sh
. "${0%/*}/lib.sh"
rig_start "$@"
rig_guest_needs

specs=("luks1 serpent-xts-plain64 512" "luks1 twofish-cbc-essiv:sha256 256"
	"luks2 serpent-xts-plain64 512" "luks2 twofish-xts-plain64 512"
	"luks2 camellia-xts-plain64 256" "luks2 serpent-cbc-plain64 256")
names=()
for i in "${!specs[@]}"; do
	names+=("v$i")
	truncate -s 40M "v$i"
done
# shellcheck disable=SC2016 # the guest expands it
rig_guest '
make() { # NAME DISK TYPE CIPHER BITS
	local kdf="--pbkdf-force-iterations 1000"
	[ "$3" = luks1 ] || kdf="$kdf --pbkdf pbkdf2"
	printf %s "$passphrase" | cryptsetup -q luksFormat --type "$3" -c "$4" -s "$5" $kdf \
		--key-file - "/dev/$2" &&
		printf %s "$passphrase" | cryptsetup open --key-file - "/dev/$2" "$1" &&
		mke2fs -q -t ext4 -b 4096 "/dev/mapper/$1" && mount "/dev/mapper/$1" m &&
		dd if=/dev/urandom of=m/file bs=64K count=40 status=none &&
		sum=$(sha256sum <m/file) && umount m && cryptsetup close "$1" &&
		echo "guest: $1 $sum"
}'"
$(i=0; for letter in b c d e f g; do
	echo "make v$i ubd$letter ${specs[$i]}"
	i=$((i + 1))
done)" "${names[@]}"
for i in "${!specs[@]}"; do
	spec=${specs[$i]}
	sum=$(sed -n "s/^guest: v$i \([0-9a-f]*\).*/\1/p" guest.log)
	[ -n "$sum" ] || {
		fail "$spec: the guest could not make it: $(tail -c 800 guest.log)"
		continue
	}
	before=$(sum_of "v$i")
	assert_status "$spec mounts" 0 rig_mount "$RIG/v$i" "mnt$i"
	assert_equal "$spec: the guest's file" "$sum" "$(sum_of "mnt$i/file" | cut -d ' ' -f 1)"
	rig_unmount "mnt$i"
	printf wrong >wrong
	assert_status "$spec: a wrong key" 32 \
		mount.cryptfs "$RIG/v$i" "$RIG/mnt$i" -o "ro,key-file=$RIG/wrong"
	assert_equal "$spec: the source is as it was" "$before" "$(sum_of "v$i")"
done
