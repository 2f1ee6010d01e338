#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# cryptfs info: the header without a key, the file system with one, as text and as JSON, beside what
# cryptsetup and dumpe2fs say; nothing written, and a mounted volume may be asked.
set -u
. "${0%/*}/lib.sh"
rig_start "$@"

rig_make_plain plain 8M -b 1024 -L inside && rig_encrypt plain volume
sum=$(sum_of volume)

assert_status "locked" 0 cryptfs info volume
assert_output "locked: uuid" "uuid: $(cryptsetup luksUUID volume)"
assert_output "locked: cipher" "cipher: aes-xts-plain64"
assert_output "locked: says so" "file system: locked"
grep -q inside "$RIG/out" && fail "locked: shows the label of the file system"

assert_status "with a key file" 0 cryptfs info --key-file "$RIG_KEY" volume
assert_output "with a key file: label" "label: inside"
assert_output "with a key file: verdict" "would mount for reading: "

field() {
	python3 -c 'import json, sys; v = json.load(open(sys.argv[1]))
for k in sys.argv[2].split("."): v = v[int(k)] if k.isdigit() else v[k]
print(v)' "$RIG/out" "$1"
}
assert_status "json" 0 cryptfs info volume --json --key-file "$RIG_KEY"
assert_equal "json: offset" "$(rig_offset volume)" "$(field luks.offset_bytes)"
assert_equal "json: size" "$(stat -c %s plain)" "$(field luks.size_bytes)"
assert_equal "json: key slot" pbkdf2 "$(field luks.keyslots.0.kdf)"
assert_equal "json: blocks" "$(dumpe2fs -h plain 2>/dev/null | sed -n 's/^Block count: *//p')" \
	"$(field file_system.blocks)"
assert_equal "json: features" \
	"$(dumpe2fs -h plain 2>/dev/null | sed -n 's/^Filesystem features: *//p' | tr ' ' '\n' | sort)" \
	"$(field file_system.features | tr ' ' '\n' | sort)"

rig_make_plain folded 8M -b 1024 -O casefold -E encoding=utf8 && rig_encrypt folded casefold
assert_status "a refused file system is a fact" 0 cryptfs info casefold --json --key-file "$RIG_KEY"
assert_equal "refused: verdict" no "$(field file_system.mount)"
assert_output "refused: reason" casefold

assert_status "a refused file system in words" 0 cryptfs info casefold --key-file "$RIG_KEY"
assert_output "refused in words" "would not mount: .*casefold"

rig_make_plain clustered 16M -O extents,bigalloc && rig_encrypt clustered bigalloc
assert_status "a file system we would not write" 0 cryptfs info bigalloc --key-file "$RIG_KEY"
assert_output "not written: the reason" "would mount read-only: .*bigalloc"

printf wrong >wrong
assert_status "wrong key file" 2 cryptfs info volume --key-file wrong
assert_output "wrong key file: the line" "^cryptfs info: volume: wrong key file: "
assert_status "not LUKS" 1 cryptfs info plain
assert_status "missing" 4 cryptfs info absent
assert_status "no source" 1 cryptfs info
assert_status "unknown option" 1 cryptfs info volume --bogus
assert_status "unknown command" 1 cryptfs bogus
assert_output "unknown command: named" "unknown command 'bogus'"
assert_status "help" 0 cryptfs --help
for command in "cryptfs" "cryptfs info" "cryptfs mount" "cryptfs mkfs"; do
	# shellcheck disable=SC2086 # words
	assert_status "$command --version" 0 $command --version
	assert_output "$command --version: the number" " [0-9]+\.[0-9]+$"
	assert_status "$command --help on a full disk" 1 sh -c "$command --help >/dev/full"
	assert_output "$command --help on a full disk: the line" "^cryptfs: .*No space left"
done
assert_status "version" 0 cryptfs --version

rig_mount volume mnt || die "mounting"
assert_status "while mounted" 0 cryptfs info volume
rig_unmount mnt || fail "unmounting"
assert_equal "nothing written" "$sum" "$(sum_of volume)"
