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

modules=$(echo /usr/lib/uml/modules/*/kernel)
command -v linux.uml >/dev/null || rig_skip_all "user-mode-linux is not installed"
[ -d "$modules" ] || rig_skip_all "user-mode-linux has no modules"

cheap=(--pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file "$RIG_KEY" -q)
assert_status "a volume of 64 MiB" 0 mkfs.cryptfs "${cheap[@]}" small 64M
assert_status "a volume of 1 TiB" 0 mkfs.cryptfs "${cheap[@]}" large 1T
assert_status "a volume of ext2, 1k blocks" 0 \
	mkfs.cryptfs "${cheap[@]}" ext2 48M -- -t ext2 -b 1024

cat >init <<'END'
#!/bin/bash
# Runs as the guest's first process.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
rig=${0%/*}
exec 3<"$rig/key"
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /run
mkdir /run/m
for m in drivers/md/dm-mod crypto/cbc crypto/ecb crypto/hmac security/keys/encrypted-keys/encrypted-keys \
	crypto/xts crypto/authenc crypto/essiv drivers/md/dm-crypt; do
	insmod /usr/lib/uml/modules/*/kernel/$m.ko || echo "guest: no $m"
done
read -r -d '' -u 3 passphrase
try() { # NAME DISK
	printf %s "$passphrase" | cryptsetup open --key-file - "/dev/$2" "$1" &&
		e2fsck -fn "/dev/mapper/$1" >/dev/null 2>&1 &&
		mount -t "${3:-ext4}" "/dev/mapper/$1" /run/m &&
		stat -c "$1 root %u:%g" /run/m &&
		dd if=/dev/urandom of=/run/m/file bs=64K count=40 status=none &&
		sum=$(sha256sum </run/m/file) && umount /run/m &&
		mount -t "${3:-ext4}" "/dev/mapper/$1" /run/m &&
		[ "$sum" = "$(sha256sum </run/m/file)" ] && umount /run/m &&
		e2fsck -fn "/dev/mapper/$1" >/dev/null 2>&1 &&
		cryptsetup close "$1" && echo "guest: $1 works $sum"
}
try small ubdb
try large ubdc
try ext2 ubdd ext2
sync
echo o >/proc/sysrq-trigger
sleep 60
END
chmod 755 init
timeout 200 linux.uml mem=512M root=/dev/root rootfstype=hostfs rootflags=/ ro init="$RIG/init" \
	ubdb="$RIG/small" ubdc="$RIG/large" ubdd="$RIG/ext2" con=null con0=fd:0,fd:1 quiet \
	</dev/null >guest.log 2>&1
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
