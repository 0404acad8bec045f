#!/usr/bin/env bash
# Damaged files: bits flipped, blocks zeroed, swapped or written to the wrong place, files cut, grown
# or missing. A start refuses, naming file, place, expected, found and the next command, and changes
# nothing; or it starts with exactly what was there.
#   corruption.sh [COUNT]   damages in the process (default 20000; 110000 takes some minutes)
# First the engine's recovery in one process, from seeds; then the release binary from outside.
set -euo pipefail
source tests/suites/lib.sh
cargo build --release -q -p tests --bin corrupt
target/release/corrupt --count "${1:-${CORRUPTIONS:-20000}}"

use_go >/dev/null || { not_checked "the release binary: sudo apt-get install golang-go"; exit 0; }
build_client
peers etcd
at() { "$ETCDCTL" --endpoints="127.0.0.1:$CLIENT_PORT" "$@"; }
seen() { at endpoint hashkv -w json | sed 's/"\(raft_term\|member_id\|cluster_id\)":[0-9]*//g'; }
RANDOM=${CORRUPTION_SEED:-7}

# A life with segments, a checkpoint and a compaction; ended in order, or by kill -9 while idle.
start_server life
"$WORK/client" fill -endpoint "http://127.0.0.1:$CLIENT_PORT" -noted "$WORK/noted" -rounds 6
for i in $(seq 10); do at put "last$i" "$i" >/dev/null; done
sleep 3
want=$(seen)
if [ $((RANDOM % 2)) = 0 ]; then stop_server; else kill_server; fi
keep=$WORK/life/data/keyspaces/default
ls "$keep"/*.checkpoint >/dev/null || fail "no checkpoint was written"

damage() { # damage FILE: one of the kinds, at a place of chance; prints what it did
    local size blocks block
    size=$(stat -c %s "$1")
    blocks=$((size / 4096 < 1 ? 1 : size / 4096))
    block=$(((RANDOM * 32768 + RANDOM) % blocks))
    case $((RANDOM % 6)) in
    0 | 1)
        local at=$((block * 4096 + RANDOM % 160))
        local byte
        byte=$(od -An -tu1 -j $at -N 1 "$1" | tr -d ' ')
        printf "\\x$(printf %02x $((byte ^ (1 << (RANDOM % 8)))))" | dd of="$1" bs=1 seek=$at conv=notrunc 2>/dev/null
        echo "a bit at $at" ;;
    2) dd if=/dev/zero of="$1" bs=4096 seek=$block count=1 conv=notrunc 2>/dev/null; echo "block $block zeroed" ;;
    3) dd if="$1" of="$WORK/block" bs=4096 skip=$((RANDOM % blocks)) count=1 2>/dev/null
        dd if="$WORK/block" of="$1" bs=4096 seek=$block conv=notrunc 2>/dev/null; echo "block $block overwritten by another" ;;
    4) truncate -s $((size * (RANDOM % 100) / 100)) "$1"; echo "cut" ;;
    5) rm "$1"; echo "missing" ;;
    esac
}

sum() { # of segments and checkpoints; none may be left
    find "$WORK/hurt/data/keyspaces/default" \( -name '*.wal' -o -name '*.checkpoint' \) | sort | xargs -r cat | cksum
}

refusals=0 whole=0
for round in $(seq "${CORRUPTION_ROUNDS:-36}"); do
    rm -rf "$WORK/hurt" && mkdir "$WORK/hurt" && cp -a "$WORK/life/data" "$WORK/hurt/data"
    files=("$WORK"/hurt/data/keyspaces/default/*)
    file=${files[$((RANDOM % ${#files[@]}))]}
    what="$(basename "$file"), $(damage "$file")"
    before=$(sum)
    : >"$WORK/hurt/log"
    "$BIN" --name=life --data-dir="$WORK/hurt/data" --listen-client-urls="http://127.0.0.1:$CLIENT_PORT" \
        --advertise-client-urls="http://127.0.0.1:$CLIENT_PORT" --listen-peer-urls="http://127.0.0.1:$((CLIENT_PORT + 1))" \
        --initial-advertise-peer-urls="http://127.0.0.1:$((CLIENT_PORT + 1))" \
        --initial-cluster="life=http://127.0.0.1:$((CLIENT_PORT + 1))" >>"$WORK/hurt/log" 2>&1 &
    SERVER_PID=$!
    until ready_line "$WORK/hurt/log" || ! kill -0 $SERVER_PID 2>/dev/null; do sleep 0.05; done
    if ready_line "$WORK/hurt/log"; then
        [ "$(seen)" = "$want" ] || fail "round $round, $what: wrong data: $(seen), not $want"
        kill_server
        whole=$((whole + 1))
    else
        status=0
        wait $SERVER_PID || status=$?
        [ $status = 1 ] || fail "round $round, $what: exit $status: $(tail -n 3 "$WORK/hurt/log")"
        grep -q "$file @ 0x.* expected .*; \(nothing was changed; restore this directory from a copy, or give up what follows with .ringbolt recover --accept-loss --directory=\|the file was left as it is; restore this directory from a copy\)" \
            "$WORK/hurt/log" || fail "round $round, $what: the refusal does not say it all: $(tail -n 3 "$WORK/hurt/log")"
        grep -q '\.checkpoint @' "$WORK/hurt/log" ||
            [ "$(sum)" = "$before" ] ||
            fail "round $round, $what: a refused start changed files"
        refusals=$((refusals + 1))
    fi
done
[ $refusals -gt 5 ] && [ $whole -gt 1 ] || fail "$refusals refused, $whole whole: the damages hit nothing"
echo "passed $((refusals + whole)) damages under the release binary: $refusals refused, $whole harmless"
