#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What mkfs.cryptfs makes is opened by the real dm-crypt and mounted read-write by the real ext4: a
# small volume and one of a TiB, in user-mode-linux, since the machine's own kernel may have no
# device mapper. The guest sees the machine's files read-only and the volumes as its disks.
set -u
# shellcheck source=test/system/lib.sh
. "${0%/*}/lib.sh"
rig_start "$@"

rig_guest_needs

cheap=(--pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file "$RIG_KEY" -q)
assert_status "a volume of 64 MiB" 0 mkfs.cryptfs "${cheap[@]}" small 64M
assert_status "a volume of 1 TiB" 0 mkfs.cryptfs "${cheap[@]}" large 1T
assert_status "a volume of ext2, 1k blocks" 0 \
	mkfs.cryptfs "${cheap[@]}" ext2 48M -- -t ext2 -b 1024

# shellcheck disable=SC2016 # the guest expands it
rig_guest '
try() { # NAME DISK [TYPE]
	printf %s "$passphrase" | cryptsetup open --key-file - "/dev/$2" "$1" &&
		e2fsck -fn "/dev/mapper/$1" >/dev/null 2>&1 &&
		mount -t "${3:-ext4}" "/dev/mapper/$1" m &&
		dd if=/dev/urandom of=m/file bs=64K count=40 status=none &&
		sum=$(sha256sum <m/file) && umount m &&
		mount -t "${3:-ext4}" "/dev/mapper/$1" m &&
		[ "$sum" = "$(sha256sum <m/file)" ] && umount m &&
		e2fsck -fn "/dev/mapper/$1" >/dev/null 2>&1 &&
		cryptsetup close "$1" && echo "guest: $1 works $sum"
}
try small ubdb
try large ubdc
try ext2 ubdd ext2' small large ext2
for name in small large ext2; do
	if grep -q "guest: $name works" guest.log; then
		ok "dm-crypt and the kernel's ext4 use the $name volume"
	else
		fail "$name: $(tail -c 1500 guest.log)"
	fi
done

# And what the guest wrote is what we read.
for name in small large ext2; do
	mkdir -p "mnt.$name"
	assert_status "$name mounts after the guest has written" 0 rig_mount "$RIG/$name" "mnt.$name"
	assert_equal "$name holds the guest's file" \
		"$(sed -n "s/^guest: $name works \([0-9a-f]*\).*/\1/p" guest.log)" \
		"$(sum_of "mnt.$name/file" | cut -d ' ' -f 1)"
	rig_unmount "mnt.$name"
done
