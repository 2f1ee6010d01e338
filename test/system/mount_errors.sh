#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Every way a mount can fail that a user can do something about: one line that says what, the exit
# status of mount(8), not a byte of the source changed, no mount and no process left; as root and as
# a plain user. And what a mount that works looks like from outside.
set -u
. "${0%/*}/lib.sh"
rig_start "$@"

rig_make_plain plain 8M -b 1024 && mkdir content mnt && echo hello >content/hello
rig_make_plain plain 8M -b 1024 -d content || die "mke2fs"
rig_encrypt plain good || die "encrypting"
sum_good=$(sum_of good)
printf wrong >wrong
chmod 644 wrong

rig_make_plain folded 8M -b 1024 -O casefold -E encoding=utf8 && rig_encrypt folded casefold
head -c 8M /dev/urandom >noise && rig_encrypt noise empty
rig_encrypt plain cipher luks1 aes-xts-plain64 512 512
# LUKS1 names its cipher at byte 8, without a checksum.
printf 'rot13\0' | dd of=cipher bs=1 seek=8 conv=notrunc status=none
cp good truncated && truncate -s 20M truncated
head -c 3000 good >header-only
rm -f folded noise

# Runs mount.cryptfs as "root" or "user": expect_refused WHO WHAT STATUS REGEX SOURCE DIR OPTIONS
expect_refused() {
	local who=$1 what="$1: $2" status=$3 regex=$4 source=$5 dir=$6 options=$7 before after run=()
	[ "$who" = user ] && run=(as_user)
	before=$([ -f "$source" ] && sum_of "$source")
	assert_status "$what" "$status" "${run[@]}" mount.cryptfs "$source" "$dir" -o "$options"
	assert_output "$what: the line" "^mount\.cryptfs: $source: .*$regex"
	assert_equal "$what: one line" 1 "$(wc -l <"$RIG/out")"
	after=$([ -f "$source" ] && sum_of "$source")
	assert_equal "$what: nothing written" "$before" "$after"
	grep -q "$RIG/mnt" /proc/self/mounts && fail "$what: a mount is left"
	rig_wait_gone "$source $dir" 20 || fail "$what: a process is left"
}

for who in root user; do
	[ "$who" = user ] && chown "$RIG_USER" good casefold empty cipher truncated header-only plain mnt
	key=ro,key-file=$RIG_KEY
	expect_refused $who "wrong key file" 32 "wrong key file" good mnt "ro,key-file=$RIG/wrong"
	expect_refused $who "missing key file" 2 "key file .*/absent: No such file" good mnt \
		"ro,key-file=$RIG/absent"
	expect_refused $who "missing header" 2 "header .*/absent: No such file" good mnt \
		"$key,header=$RIG/absent"
	expect_refused $who "not LUKS" 32 "not a LUKS" plain mnt "$key"
	expect_refused $who "half a header" 32 "LUKS|short" header-only mnt "$key"
	expect_refused $who "unknown cipher" 32 "rot13" cipher mnt "$key"
	expect_refused $who "unsupported feature" 32 "casefold" casefold mnt "$key"
	expect_refused $who "no file system" 32 "no ext2, ext3 or ext4" empty mnt "$key"
	expect_refused $who "truncated device" 32 "short|only [0-9]+" truncated mnt "$key"
	expect_refused $who "missing source" 2 "no such file" absent mnt "$key"
	expect_refused $who "folder as source" 32 "folder|directory" content mnt "$key"
	expect_refused $who "missing mount point" 2 "mount point absent does not exist" good absent "$key"
	expect_refused $who "file as mount point" 2 "mount point plain is not a directory" good plain \
		"$key"
	expect_refused $who "missing tag" 2 "no device has this UUID" UUID=0-0 mnt "$key"

	# An OFD write lock, as a cryptfs that writes holds it.
	python3 - good "$RIG/locked" <<-'PYTHON' &
		import fcntl, os, struct, sys, time
		f = open(sys.argv[1], 'r+b')
		fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 1, 0))
		open(sys.argv[2], 'w')
		while os.path.exists(sys.argv[2]):
		    time.sleep(0.05)
	PYTHON
	for _ in $(seq 100); do [ -e locked ] && break; sleep 0.1; done
	expect_refused $who "busy source" 32 "in use" good mnt "$key"
	rm -f locked
	wait
done

# Only a plain user meets these.
chmod 600 good
chown 0 good
expect_refused user "source of another" 1 "permission" good mnt "ro,key-file=$RIG_KEY"
chown "$RIG_USER" good
mkdir theirs
expect_refused user "mount point of another" 1 "theirs: you may not write" good theirs \
	"ro,key-file=$RIG_KEY"
echo '# nothing allowed' >fuse.conf
[ -e /etc/fuse.conf ] && mount --bind fuse.conf /etc/fuse.conf &&
	expect_refused user "allow_other" 1 "user_allow_other" good mnt \
		"ro,allow_other,key-file=$RIG_KEY" && umount /etc/fuse.conf
mknod -m 600 "$RIG/dev/closed" c 10 229
mount --bind "$RIG/dev/closed" /dev/fuse
expect_refused user "closed /dev/fuse" 1 "/dev/fuse may not be opened" good mnt \
	"ro,key-file=$RIG_KEY"
umount /dev/fuse

# Usage.
for options in bogus data=journal nobarrier remount idle=9 tries=x; do
	assert_status "option $options" 1 mount.cryptfs good mnt -o "$options"
	assert_output "option $options: named" "^mount\.cryptfs: .*option '${options%%=x}"
done
assert_status "no operand" 1 mount.cryptfs
assert_status "one operand" 1 mount.cryptfs good

# Passphrases: the first line of standard input, which is asked once; a program, as often as tries say.
assert_status "standard input" 0 sh -c "cat '$RIG_KEY' | mount.cryptfs good mnt -o ro"
rig_unmount mnt || fail "standard input: unmounting"
assert_status "wrong standard input" 32 sh -c "echo wrong | mount.cryptfs good mnt -o ro"
assert_output "wrong standard input: the line" "^mount.cryptfs: good: wrong passphrase$"
assert_equal "wrong standard input: once" 1 "$(wc -l <"$RIG/out")"
assert_status "empty standard input" 32 sh -c "mount.cryptfs good mnt -o ro </dev/null"
cat >askpass <<-'SCRIPT'
	#!/bin/sh
	echo "$1" >>asked
	[ "$(wc -l <asked)" -lt 3 ] && echo wrong || cat key
SCRIPT
chmod 755 askpass
export CRYPTFS_ASKPASS=$RIG/askpass
assert_status "third try" 0 mount.cryptfs good mnt -o ro
assert_output "third try: says how many are left" "wrong passphrase \(1 try left\)"
assert_equal "third try: asked three times" 3 "$(wc -l <asked)"
assert_equal "third try: the prompt names the source" 3 "$(grep -c good asked)"
rig_unmount mnt || fail "third try: unmounting"
rm -f asked
assert_status "no third try" 32 mount.cryptfs good mnt -o ro,tries=2
assert_output "no third try: the line" "^mount.cryptfs: good: wrong passphrase$"
unset CRYPTFS_ASKPASS

# What works.
assert_status "fake" 0 mount.cryptfs -f good mnt -o "ro,key-file=$RIG_KEY"
grep -q "$RIG/mnt" /proc/self/mounts && fail "fake: a mount"
for who in root user; do
	run=()
	[ "$who" = user ] && run=(as_user)
	assert_status "$who: rw" 0 "${run[@]}" mount.cryptfs good mnt -o "key-file=$RIG_KEY"
	assert_output "$who: rw: says that it is read-only" "^mount.cryptfs: good: mounted read-only"
	assert_equal "$who: source and type" "$RIG/good fuse.cryptfs" \
		"$(awk -v dir="$RIG/mnt" '$2 == dir {print $1, $3}' /proc/self/mounts)"
	assert_equal "$who: content" hello "$("${run[@]}" cat mnt/hello)"
	ln -sfn good other-name
	for source in good ./good other-name "$RIG/good"; do
		assert_status "$who: $source once more on the same directory" 32 \
			"${run[@]}" mount.cryptfs "$source" mnt -o "ro,key-file=$RIG_KEY"
		assert_output "$who: $source once more: the line" "already mounted on $RIG/mnt$"
	done
	assert_equal "$who: one mount" 1 "$(grep -c " $RIG/mnt " /proc/self/mounts)"
	assert_status "$who: writing" 1 "${run[@]}" touch mnt/new
	assert_output "$who: writing: EROFS" "Read-only file system"
	pid=$(pgrep -f "^mount\.cryptfs good mnt")
	assert_equal "$who: the daemon has a session of its own" "$pid" "$(ps -o sid= -p "$pid" | tr -d ' ')"
	assert_equal "$who: the daemon is in /" / "$(readlink "/proc/$pid/cwd")"
	if [ "$who" = user ]; then rig_unmount_user mnt; else rig_unmount mnt; fi || fail "$who: unmounting"
done
# shellcheck disable=SC2034 # the substitution must return, that is the point
captured=$(timeout 20 mount.cryptfs good mnt -o "ro,key-file=$RIG_KEY") || fail "captured output"
pid=$(pgrep -f "^mount\.cryptfs good mnt")
kill -TERM "$pid"
rig_wait_gone "good mnt" || fail "SIGTERM: the daemon is still there"
grep -q "$RIG/mnt" /proc/self/mounts && fail "SIGTERM: the mount is still there"
ok "SIGTERM unmounts"

# The kernel still answers stat(2) of a dead mount from its cache.
for who in root user; do
	run=()
	[ "$who" = user ] && run=(as_user)
	"${run[@]}" mount.cryptfs good mnt -o "ro,key-file=$RIG_KEY" || fail "$who: mounting"
	kill -KILL "$(pgrep -f "^mount\.cryptfs good mnt")"
	rig_wait_gone "good mnt"
	assert_status "$who: on a dead mount" 32 \
		"${run[@]}" mount.cryptfs good mnt -o "ro,key-file=$RIG_KEY"
	assert_output "$who: on a dead mount: the line" "whose daemon has died; unmount it first"
	assert_status "$who: unmounting a dead mount" 0 \
		"${run[@]}" "$([ "$who" = root ] && echo umount || echo fusermount3)" \
		$([ "$who" = root ] || echo -u) mnt
	assert_status "$who: mounting anew, and -v says so" 0 \
		"${run[@]}" mount.cryptfs -v good mnt -o "ro,key-file=$RIG_KEY"
	assert_output "$who: -v" "^mount\.cryptfs: good: mounted on $RIG/mnt$"
	if [ "$who" = user ]; then rig_unmount_user mnt; else rig_unmount mnt; fi || fail "$who: unmounting"
done

# The mount table writes such names in another way.
for name in 'a b' 'a,b' '#a' 'a\b' '\040' $'a\nb' $'\xff' "it's \"q\""; do
	cp good "$RIG/x$name" && mkdir "$RIG/m$name"
	assert_status "${name@Q}: mounts" 0 mount.cryptfs "x$name" "m$name" -o "ro,key-file=$RIG_KEY"
	assert_equal "${name@Q}: content" hello "$(cat "m$name/hello")"
	assert_status "${name@Q}: once more" 32 \
		mount.cryptfs "x$name" "m$name" -o "ro,key-file=$RIG_KEY"
	assert_output "${name@Q}: once more: the line" "already mounted on"
	umount "m$name" && rm "x$name" && rmdir "m$name" || fail "${name@Q}: unmounting"
done

# Without standard descriptors a file must not get their numbers: the key is not read from the
# volume, and no message is written into it.
assert_status "closed standard input as key file" 32 \
	sh -c "exec mount.cryptfs good mnt -o ro,key-file=- <&-"
assert_output "closed standard input as key file: the line" "there is nothing in it"
assert_status "no standard descriptor" 0 \
	timeout 20 sh -c "exec mount.cryptfs good mnt -o ro,key-file=$RIG_KEY <&- >&- 2>&-"
rig_unmount mnt || fail "no standard descriptor: unmounting"
truncate -s 64M target
sh -c "exec mkfs.cryptfs --key-file absent target <&- >&- 2>&-" && fail "mkfs without a key file"
assert_equal "messages do not go into the target" 0 "$(tr -d '\0' <target | wc -c)"

assert_equal "the volume is as it was" "$sum_good" "$(sum_of good)"
