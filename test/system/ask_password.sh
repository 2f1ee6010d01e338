#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Without a terminal, a passphrase is asked for through systemd-ask-password: the real one, in a
# namespace where systemd seems to run, answered as its agents answer (systemd's "Password Agents"
# specification: a file that names a socket, and a datagram that starts with "+").
set -u
. "${0%/*}/lib.sh"
rig_start "$@"

mount -t tmpfs none /run && mkdir -p /run/systemd/system /run/systemd/ask-password || die "/run"
rig_make_plain plain 8M -b 1024 && rig_encrypt plain volume
sum=$(sum_of volume)
mkdir m

# Answers one question for each argument and shows what was asked.
agent() {
	python3 - "$@" <<'PYTHON'
import glob, socket, sys, time

seen = set()
for secret in sys.argv[1:]:
    end = time.monotonic() + 30
    while True:
        new = [f for f in glob.glob("/run/systemd/ask-password/ask.*") if f not in seen]
        text = open(new[0]).read() if new else ""
        lines = dict(l.split("=", 1) for l in text.splitlines() if "=" in l)
        if "Socket" in lines and "Message" in lines and "Id" in lines:
            break
        if time.monotonic() > end:
            sys.exit("nobody asked")
        time.sleep(0.05)
    seen.add(new[0])
    print(lines["Id"], "cached" if lines.get("AcceptCached") == "1" else "fresh")
    answer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    answer.sendto(b"+" + secret.encode(), lines["Socket"])
PYTHON
}

# systemd-ask-password keeps what was entered in the user's keyring for a while.
forget() {
	keyctl purge user cryptsetup >/dev/null 2>&1
}

ask() { # ANSWERS... ; the exit status is mount.cryptfs's
	agent "$@" >"$RIG/asked" &
	local agent=$! status=0
	setsid -w mount.cryptfs volume m -o ro >"$RIG/said" 2>&1 </dev/null || status=$?
	wait "$agent" || fail "the agent: nobody asked"
	return "$status"
}

key=$(cat "$RIG_KEY")
forget
ask "$key" || fail "the right answer: $(cat "$RIG/said")"
assert_equal "what is asked" "cryptsetup:volume cached" "$(cat "$RIG/asked")"
[ -d m/lost+found ] && ok "the right answer mounts" || fail "nothing is mounted"
rig_unmount m
setsid -w mount.cryptfs volume m -o ro >"$RIG/said" 2>&1 </dev/null &&
	ok "what was entered for one volume opens the next" ||
	fail "nothing is cached: $(cat "$RIG/said")"
rig_unmount m

forget
ask wrong "$key" || fail "a wrong answer, then the right one: $(cat "$RIG/said")"
assert_equal "only the first question takes a cached passphrase" \
	"cryptsetup:volume cached cryptsetup:volume fresh" "$(tr '\n' ' ' <"$RIG/asked" | sed 's/ $//')"
rig_unmount m

forget
status=0
ask wrong wrong wrong || status=$?
assert_equal "three wrong answers" 32 "$status"
mountpoint -q m && fail "three wrong answers: mounted" || ok "three wrong answers mount nothing"
assert_equal "the source is unchanged" "$sum" "$(sum_of volume)"
forget
