#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# mkfs.cryptfs by its contract: what it makes, judged by cryptsetup and e2fsck, what it refuses,
# and that it leaves nothing behind when it fails.
set -u
# shellcheck source=test/system/lib.sh
. "${0%/*}/lib.sh"
rig_start "$@"

cheap=(--pbkdf pbkdf2 --pbkdf-force-iterations 1000)
keyed=("${cheap[@]}" --key-file "$RIG_KEY" -q)

# decrypt VOLUME PLAIN [HEADER]: in userspace, by stock tools alone. The ciphertext gets a detached
# header with the same volume key, under which cryptsetup decrypts it in place.
decrypt() {
	local header=${3:-$1} offset cipher sector bits
	offset=$(rig_offset "$header")
	cipher=$(cryptsetup luksDump "$header" | awk '/^\tcipher:/ {print $2; exit}')
	sector=$(cryptsetup luksDump "$header" | awk '/^\tsector:/ {print $2; exit}')
	bits=$(cryptsetup luksDump "$header" | awk '/^\tKey:/ {print $2; exit}')
	rm -f vk head
	dd if="$1" of="$2" bs=1M iflag=skip_bytes skip="$offset" conv=sparse status=none &&
		truncate -s "$(($(stat -c %s "$1") - offset))" "$2" &&
		cryptsetup luksDump -q --dump-volume-key --volume-key-file vk --key-file "$RIG_KEY" \
			"$header" >decrypt.log 2>&1 &&
		truncate -s 16M head &&
		cryptsetup luksFormat -q --type luks2 -c "$cipher" -s "$bits" --sector-size "$sector" \
			--key-file "$RIG_KEY" "${cheap[@]}" --volume-key-file vk --header head "$2" \
			>>decrypt.log 2>&1 &&
		cryptsetup reencrypt -q --decrypt --force-offline-reencrypt --disable-locks \
			--key-file "$RIG_KEY" --header head "$2" >>decrypt.log 2>&1 ||
		die "cannot decrypt $1: $(tail -c 400 decrypt.log)"
}
super() { # FILE FIELD
	dumpe2fs -h "$1" 2>/dev/null | sed -n "s/^$2: *//p"
}
dump() { # FILE REGEX
	cryptsetup luksDump "$1" | grep -Eq -- "$2"
}

# --- a plain user's container ----------------------------------------------------------------------
mkdir user && chown "$RIG_USER" user
assert_status "a plain user makes a volume of 64 MiB" 0 \
	as_user mkfs.cryptfs "${keyed[@]}" --label 'my stick' user/v 64M
assert_equal "it says nothing with -q" "" "$(cat out)"
assert_equal "the file has the size that was asked for" 67108864 "$(stat -c %s user/v)"
assert_equal "and is for its owner alone" "600 $RIG_USER" "$(stat -c '%a %u' user/v)"
assert_status "LUKS2 with a sector of 4096" 0 dump user/v '^	sector: 4096 '
assert_status "the header leaves room" 0 dump user/v '^	offset: 4194304 '
assert_status "the LUKS2 label" 0 dump user/v '^Label: *	my stick$'
assert_status "the passphrase opens it" 0 \
	cryptsetup open --test-passphrase --key-file "$RIG_KEY" user/v
decrypt user/v plain
assert_status "e2fsck finds nothing" 0 e2fsck -fn plain
assert_equal "the ext4 label" "my stick" "$(super plain 'Filesystem volume name')"
assert_equal "blocks of 4096" 4096 "$(super plain 'Block size')"
assert_equal "no reserved blocks" 0 "$(super plain 'Reserved block count')"
assert_status "the root directory is the user's" 0 \
	sh -c "debugfs -R 'stat /' plain 2>/dev/null | grep -Eq 'User: *$RIG_USER +Group: *$RIG_USER '"
assert_status "a journal" 0 sh -c "dumpe2fs -h plain 2>/dev/null | grep -q has_journal"
assert_status "it mounts" 0 rig_mount user/v mnt
rig_unmount mnt

# --- sizes -----------------------------------------------------------------------------------------
for size in 33554432:33554432 32M:33554432 32768KiB:33554432 40MB:40000000 1g:1073741824; do
	mkfs.cryptfs "${keyed[@]}" size "${size%:*}" >out 2>&1 || fail "SIZE $size: $(cat out)"
	assert_equal "SIZE ${size%:*}" "${size#*:}" "$(stat -c %s size 2>/dev/null)"
	rm -f size
done
for size in 0 12x -5 M 99999999999T 10Q; do
	assert_status "SIZE $size is refused" 1 mkfs.cryptfs "${keyed[@]}" size "$size"
	gone "no file is left" size
done
truncate -s 20001280 odd # 512 x 39065
assert_status "an odd size" 0 mkfs.cryptfs "${keyed[@]}" odd
assert_status "gets a sector of 512" 0 dump odd '^	sector: 512 '
decrypt odd plain
assert_status "odd: e2fsck finds nothing" 0 e2fsck -fn plain
assert_status "a size that the sector does not divide" 1 \
	mkfs.cryptfs "${keyed[@]}" --force --sector-size 4096 odd
assert_output "says so" 'multiple of 4096'
for size in 512 100K 1M; do
	assert_status "$size is too small" 1 mkfs.cryptfs "${keyed[@]}" small "$size"
	assert_output "$size: says so" 'too small|mke2fs'
	gone "no file is left" small
done

# --- what is there ---------------------------------------------------------------------------------
truncate -s 1T sparse
assert_status "a sparse file of a TiB" 0 timeout 60 mkfs.cryptfs "${keyed[@]}" sparse
rm sparse
truncate -s 40M zeros
assert_status "a file that is there" 0 mkfs.cryptfs "${keyed[@]}" zeros
before=$(sum_of zeros)
assert_status "a LUKS volume is not overwritten" 1 mkfs.cryptfs "${keyed[@]}" zeros
assert_output "it names LUKS" 'crypto_LUKS.*--force'
assert_equal "nor changed" "$before" "$(sum_of zeros)"
assert_status "with --force it is" 0 mkfs.cryptfs "${keyed[@]}" --force zeros
truncate -s 40M byte && printf x | dd of=byte bs=1 seek=30000000 conv=notrunc status=none
before=$(sum_of byte)
assert_status "one byte in a file is something" 1 mkfs.cryptfs "${keyed[@]}" byte
assert_output "it says data" 'holds data'
assert_equal "the byte is still there" "$before" "$(sum_of byte)"
rig_make_plain ext4 40M -t ext4
assert_status "an ext4 is something" 1 mkfs.cryptfs "${keyed[@]}" ext4
assert_output "it names ext4" 'holds ext4'
assert_status "SIZE for a file that is there" 1 mkfs.cryptfs "${keyed[@]}" zeros 10M
assert_output "says that it exists" 'exists already'
assert_equal "and keeps it" 41943040 "$(stat -c %s zeros)"
assert_status "no file and no SIZE" 1 mkfs.cryptfs "${keyed[@]}" nothing
assert_output "asks for a SIZE" 'SIZE'
assert_status "a folder" 1 mkfs.cryptfs "${keyed[@]}" user
assert_status "a file in no folder" 1 mkfs.cryptfs "${keyed[@]}" none/v 40M

# --- ciphers, sectors, key derivation --------------------------------------------------------------
variant() { # NAME GREP OPTIONS...
	local name=$1 wanted=$2
	shift 2
	rm -f v
	assert_status "$name" 0 mkfs.cryptfs -q --key-file "$RIG_KEY" v 32M "$@"
	assert_status "$name: luksDump" 0 dump v "$wanted"
	decrypt v plain
	assert_status "$name: e2fsck" 0 e2fsck -fn plain
}
variant "aes-cbc-essiv" 'cipher: aes-cbc-essiv:sha256' "${cheap[@]}" -c aes-cbc-essiv:sha256
variant "XTS of 256 bits" 'Key: *256 bits' "${cheap[@]}" -s 256
variant "sector 512" 'sector: 512 ' "${cheap[@]}" --sector-size 512
variant "sector 2048" 'sector: 2048 ' "${cheap[@]}" --sector-size=2048
variant "the sector follows -b" 'sector: 1024 ' "${cheap[@]}" -- -b 1024
variant "the sector follows -b 2k" 'sector: 2048 ' "${cheap[@]}" -- -b2k
variant "ext2" 'sector: 4096 ' "${cheap[@]}" -- -t ext2
variant "no checksums" 'sector: 4096 ' "${cheap[@]}" -- -O '^metadata_csum,^uninit_bg'
variant "argon2i" 'PBKDF: *argon2i$' --pbkdf argon2i --pbkdf-memory 64 --pbkdf-parallel 2 \
	--pbkdf-force-iterations 4
assert_status "and its parameters" 0 dump v 'Time cost: *4$'
assert_status "and its memory" 0 dump v 'Memory: *64$'
assert_status "and its threads" 0 dump v 'Threads: *2$'
variant "argon2id by time" 'PBKDF: *argon2id$' --iter-time 100 --pbkdf-memory 1024
rm -f v
assert_status "a sector larger than -b" 1 \
	mkfs.cryptfs "${keyed[@]}" --sector-size 4096 v 32M -- -b 1024
assert_output "is refused by name" 'block \(1024\) is smaller than the sector'
assert_status "an unknown pbkdf" 1 mkfs.cryptfs "${keyed[@]}" --pbkdf md5 v 32M
assert_output "names the known ones" 'argon2id'
assert_status "an unknown cipher" 1 mkfs.cryptfs "${keyed[@]}" -c rot13-xts-plain64 v 32M
assert_output "is named" 'rot13'
assert_status "a sector of 1000" 1 mkfs.cryptfs "${keyed[@]}" --sector-size 1000 v 32M
assert_status "a label that is too long" 1 \
	mkfs.cryptfs "${keyed[@]}" --label 12345678901234567 v 32M
gone "no file is left" v

# --- mke2fs ----------------------------------------------------------------------------------------
mkdir tree && echo hello >tree/file
variant "options of our own beside the user's -E" 'sector: 4096 ' "${cheap[@]}" \
	-- -E stride=4 -E lazy_itable_init=0 -N 5000 -d tree
assert_equal "the user's -E counts" 4 "$(super plain 'RAID stride')"
assert_status "no inode table claims to be zeroed" 1 \
	sh -c "dumpe2fs plain 2>/dev/null | grep -q ITABLE_ZEROED"
rig_mount v mnt && assert_same "-d fills it" tree/file mnt/file
rig_unmount mnt
rm -f v
assert_status "an argument that mke2fs refuses" 1 mkfs.cryptfs "${keyed[@]}" v 32M -- -I 77
assert_output "comes from mke2fs" 'mke2fs failed'
assert_status "a letter that mke2fs does not have" 1 mkfs.cryptfs "${keyed[@]}" v 32M -- -Y
assert_status "an operand for mke2fs" 1 mkfs.cryptfs "${keyed[@]}" v 32M -- /dev/null
assert_status "mke2fs that does nothing" 1 mkfs.cryptfs "${keyed[@]}" v 32M -- -n
gone "no file is left" v

# --- detached header -------------------------------------------------------------------------------
truncate -s 32M data
assert_status "a detached header" 0 mkfs.cryptfs "${keyed[@]}" --header head2 data
assert_equal "all of the target is data" 0 "$(rig_offset head2)"
decrypt data plain head2
assert_status "detached: e2fsck" 0 e2fsck -fn plain
assert_status "it mounts with its header" 0 rig_mount data mnt header=head2
rig_unmount mnt
assert_status "a header that holds something" 1 mkfs.cryptfs "${keyed[@]}" --header head2 new 32M
assert_output "names the header's file" 'header head2: it holds crypto_LUKS'
gone "no file is left" new

# --- passphrases -----------------------------------------------------------------------------------
opens() { # WHAT VOLUME: passphrase on stdin, byte for byte
	if cryptsetup open --test-passphrase --key-file - "$2"; then ok "$1"; else fail "$1"; fi
}
gone() { # WHAT FILE
	if [ ! -e "$2" ]; then ok "$1"; else fail "$1: it is still there"; fi
}
rm -f v
assert_status "a line on stdin" 0 sh -c \
	"echo 'a line' | setsid -w mkfs.cryptfs -q ${cheap[*]} v 32M"
assert_status "is a passphrase without its newline" 0 sh -c \
	"printf 'a line' | cryptsetup open --test-passphrase --key-file - v"
rm -f v
assert_status "--key-file -" 0 sh -c \
	"printf 'two\nlines\n' | mkfs.cryptfs -q ${cheap[*]} --key-file - v 32M"
opens "is all of stdin" v < <(printf 'two\nlines\n')
rm -f v
assert_status "nothing on stdin" 1 setsid -w mkfs.cryptfs "${cheap[@]}" v 32M </dev/null
assert_status "an empty pipe" 1 sh -c ": | timeout 20 mkfs.cryptfs ${cheap[*]} v 32M"
assert_output "says so" 'no passphrase'
assert_status "no key file" 1 mkfs.cryptfs "${cheap[@]}" --key-file none v 32M
assert_output "names it" 'key file none: No such file'
gone "no file is left" v
cat >ask <<'END'
#!/bin/sh
echo "asked: $1" >&2
echo 'from askpass'
END
chmod 755 ask
assert_status "CRYPTFS_ASKPASS" 0 env CRYPTFS_ASKPASS="$RIG/ask" \
	setsid -w mkfs.cryptfs -q "${cheap[@]}" v 32M </dev/null
assert_output "gets the prompt" 'asked: .*passphrase for v'
opens "and gives the passphrase" v < <(printf 'from askpass')

# --- failures on the way ---------------------------------------------------------------------------
rm -f v
mkdir full && mount -t tmpfs -o size=3M none full
assert_status "no space" 1 mkfs.cryptfs "${keyed[@]}" full/v 64M
assert_output "says so" '[Nn]o space'
gone "and removes the file" full/v
truncate -s 64M full/there
assert_status "no space for a file that was there" 1 mkfs.cryptfs "${keyed[@]}" full/there
assert_output "says that there is no volume on it" 'no volume is on it'
assert_status "and leaves the file" 0 test -e full/there
umount full
mkfifo hang
mkfs.cryptfs "${cheap[@]}" --key-file hang v 32M >out 2>&1 &
child=$!
for _ in $(seq 50); do
	[ -e v ] && break
	sleep 0.1
done
[ -e v ] || fail "the file was not made: $(cat out)"
sleep 0.3
kill -TERM "$child"
wait "$child"
assert_equal "a signal ends it" 143 $?
gone "and the new file is gone" v

# --- a block device --------------------------------------------------------------------------------
truncate -s 40M disk
if device=$(losetup -f --show disk 2>/dev/null); then
	assert_status "a block device" 0 mkfs.cryptfs "${keyed[@]}" "$device"
	decrypt disk plain
	assert_status "block device: e2fsck" 0 e2fsck -fn plain
	assert_status "it is not overwritten" 1 mkfs.cryptfs "${keyed[@]}" "$device"
	assert_status "unless forced" 0 mkfs.cryptfs "${keyed[@]}" --force "$device"
	mke2fs -q -F "$device" && mkdir held && mount "$device" held
	assert_status "a mounted device" 1 mkfs.cryptfs "${keyed[@]}" --force "$device"
	assert_output "is busy" 'in use|[Bb]usy'
	umount held
	losetup -d "$device"
else
	echo "SKIP: mkfs on a block device: no loop device"
fi

# --- usage -----------------------------------------------------------------------------------------
assert_status "--help" 0 mkfs.cryptfs --help
assert_output "shows all options" '--pbkdf-force-iterations'
assert_status "no target" 1 mkfs.cryptfs
assert_status "an unknown option" 1 mkfs.cryptfs --frobnicate v 32M
assert_equal "an unknown option: one line that names it" \
	"mkfs.cryptfs: unknown option '--frobnicate'; --help lists them" "$(cat "$RIG/out")"
assert_status "an option without its value" 1 mkfs.cryptfs v 32M --label
assert_equal "an option without its value: one line that names it" \
	"mkfs.cryptfs: option '--label' needs a value" "$(cat "$RIG/out")"
assert_status "one operand too many" 1 mkfs.cryptfs "${keyed[@]}" v 32M more
assert_status "cryptfs mkfs is the same command" 0 cryptfs mkfs "${keyed[@]}" v 32M
