#!/usr/bin/env bash
# Bad input from outside: each case gets a clear message that names the place and the next step, a
# non-zero exit or the exact status, and the server goes on serving everybody else.
set -euo pipefail
source tests/suites/lib.sh
peers etcd
build_client
at() { "$ETCDCTL" --endpoints="127.0.0.1:$CLIENT_PORT" "$@"; }
PASSED=0

refused() { # refused TITLE EXIT PATTERN FLAGS...: the server does not start, and says why
    local title=$1 want=$2 pattern=$3 status=0
    shift 3
    timeout 20 "$BIN" "$@" >"$WORK/out.txt" 2>&1 || status=$?
    [ $status = "$want" ] || fail "$title: exit $status, want $want: $(tail -n 3 "$WORK/out.txt")"
    grep -qE -- "$pattern" "$WORK/out.txt" || fail "$title: no '$pattern' in: $(tail -n 5 "$WORK/out.txt")"
    ! grep -q panicked "$WORK/out.txt" || fail "$title: a panic: $(cat "$WORK/out.txt")"
    echo "passed $title"
    PASSED=$((PASSED + 1))
}

answers() { # answers TITLE EXIT PATTERN COMMAND...: etcdctl ends so and says this
    local title=$1 want=$2 pattern=$3 status=0
    shift 3
    "$@" >"$WORK/out.txt" 2>&1 || status=$?
    [ $status = "$want" ] || fail "$title: exit $status, want $want: $(tail -n 3 "$WORK/out.txt")"
    grep -qE -- "$pattern" "$WORK/out.txt" || fail "$title: no '$pattern' in: $(tail -n 5 "$WORK/out.txt")"
    echo "passed $title"
    PASSED=$((PASSED + 1))
}

alive() { at put alive yes >/dev/null || fail "$1 harmed the server"; }

# -- flags
refused "unknown flag" 2 'flag provided but not defined: -data-dirr' --data-dirr=x
grep -q -- '--data-dir' "$WORK/out.txt" || fail "the nearest flag is not named"
refused "bad duration" 2 'invalid value "5x" for flag -grpc-keepalive-min-time: parse error' --grpc-keepalive-min-time=5x
refused "bad URL" 2 'URL scheme must be http, https, unix, or unixs: foo' --listen-client-urls=foo
refused "bad fsync mode" 2 'one of safe, unsafe-no-fsync, memory' --fsync=sometimes
refused "bad keyspace" 1 'keyspace events: unknown key .*nonsense.* did you mean' --keyspace=events,nonsense=1
refused "positional argument" 1 'is not a valid flag' something

# -- what the server stands on
start_server first
refused "port in use" 1 'address already in use' --data-dir="$WORK/other" --listen-client-urls="http://127.0.0.1:$CLIENT_PORT" \
    --advertise-client-urls="http://127.0.0.1:$CLIENT_PORT" --listen-peer-urls=http://127.0.0.1:23990
refused "socket in use" 1 'in use' --data-dir="$WORK/other2" --listen-client-urls="unix://$SOCKET" \
    --advertise-client-urls=http://127.0.0.1:1 --listen-peer-urls=http://127.0.0.1:23990
refused "data directory in use" 1 'in use|another process|lock' --data-dir="$WORK/first/data" --listen-client-urls="unix://$WORK/x.sock" \
    --advertise-client-urls=http://127.0.0.1:1 --listen-peer-urls=http://127.0.0.1:23990
alive "a second server"
mkdir -p "$WORK/foreign/member/snap" "$WORK/foreign/member/wal"
echo stranger >"$WORK/foreign/member/snap/db"
away=(--listen-client-urls="unix://$WORK/x.sock" --advertise-client-urls=http://127.0.0.1:1 --listen-peer-urls=http://127.0.0.1:23990)
refused "etcd's data directory" 1 'etcd' --data-dir="$WORK/foreign" "${away[@]}"
[ "$(cat "$WORK/foreign/member/snap/db")" = stranger ] || fail "a foreign directory was changed"
touch "$WORK/file"
refused "data directory is a file" 1 "$WORK/file" --data-dir="$WORK/file" "${away[@]}"
not_writable() { # not_writable COMMAND...: starts the server as somebody who may not write here
    local status=0
    mkdir -p "$WORK/readonly" && chmod 555 "$WORK/readonly" && chmod 755 "$WORK"
    cp "$BIN" "$WORK/ringbolt"
    "$@" "$WORK/ringbolt" --data-dir="$WORK/readonly/data" \
        --listen-client-urls=unix://@ringbolt-readonly --advertise-client-urls=http://127.0.0.1:1 \
        --listen-peer-urls=http://127.0.0.1:23990 >"$WORK/out.txt" 2>&1 || status=$?
    [ $status = 1 ] || fail "a directory that cannot be written: exit $status"
    grep -qi 'permission denied' "$WORK/out.txt" || fail "no 'permission denied': $(cat "$WORK/out.txt")"
    echo "passed data directory not writable"
}
if [ "$(id -u)" != 0 ]; then
    not_writable timeout 20
elif [ -n "$(packages_of setpriv)" ]; then
    not_checked "a data directory that is not writable: sudo apt-get install $(packages_of setpriv)"
else
    not_writable timeout 20 setpriv --reuid=65534 --regid=65534 --clear-groups
fi

# -- requests
answers "request over the limit" 1 'etcdserver: request is too large' bash -c "head -c 1600000 /dev/zero | tr '\0' x | '$ETCDCTL' --endpoints=127.0.0.1:$CLIENT_PORT put big"
{ echo; for i in $(seq 129); do echo "put t$i v"; done; echo; echo; } >"$WORK/txn.txt"
answers "transaction of 129 operations" 1 'etcdserver: too many operations in txn request' bash -c "'$ETCDCTL' --endpoints=127.0.0.1:$CLIENT_PORT txn <'$WORK/txn.txt'"
alive "a refused request"

frame() { # frame BYTES...: preface, SETTINGS, then these bytes; the connection must be ended
    exec 7<>"/dev/tcp/127.0.0.1/$CLIENT_PORT"
    printf 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0%b' "$1" >&7
    timeout 5 cat <&7 >"$WORK/answer.bin" || fail "the connection stays open after a malformed frame"
    exec 7<&-
    # Frame type 7 is GOAWAY.
    od -An -tx1 -v "$WORK/answer.bin" | tr -d '\n ' | grep -q '0700000000' || fail "no GOAWAY after a malformed frame"
}
frame '\0\0\1\0\0\0\0\0\0x'           # DATA on stream 0
frame '\0\0\3\6\0\0\0\0\0abc'         # PING of three bytes
frame '\177\377\377\1\4\0\0\0\1'      # HEADERS larger than any frame may be
echo "passed malformed frames"
alive "a malformed frame"
printf 'GARBAGE\r\n\r\n' | timeout 5 bash -c "exec 7<>/dev/tcp/127.0.0.1/$CLIENT_PORT; cat >&7; cat <&7" >/dev/null || true
alive "garbage instead of a preface"
"$WORK/client" stall -endpoint "http://127.0.0.1:$CLIENT_PORT" -pid "$SERVER_PID"
echo "passed a client that stops reading in the middle of a 1 GB list"
stop_server

# -- a damaged log: named, not cut; given up only by the command that the message spells
start_server damaged
for i in $(seq 20); do at put "damaged$i" "$(head -c 3000 /dev/zero | tr '\0' v)" >/dev/null; done
revision=$(at get x -w json | sed 's/.*"revision":\([0-9]*\).*/\1/')
stop_server
segment=$WORK/damaged/data/keyspaces/default/00000001.wal
printf 'rot' | dd of="$segment" bs=1 seek=20000 conv=notrunc 2>/dev/null
status=0
timeout 20 "$BIN" --name=damaged --data-dir="$WORK/damaged/data" "${away[@]}" \
    --initial-advertise-peer-urls=http://127.0.0.1:23990 --initial-cluster=damaged=http://127.0.0.1:23990 \
    >"$WORK/out.txt" 2>&1 || status=$?
[ $status = 1 ] || fail "a damaged log: exit $status"
grep -q "$segment @ 0x" "$WORK/out.txt" || fail "no file and offset: $(tail -n 2 "$WORK/out.txt")"
command=$(grep -o 'ringbolt recover --accept-loss --directory=[^`]*' "$WORK/out.txt" | head -n 1)
[ -n "$command" ] || fail "the next command is not named"
"$BIN" ${command#ringbolt } || fail "the command that the message names does not work"
start_server damaged
after=$(at get x -w json | sed 's/.*"revision":\([0-9]*\).*/\1/')
[ "$after" -gt "$revision" ] || fail "after a loss the revision is $after, it was $revision"
at put again works >/dev/null
stop_server
echo "passed a damaged log"

# -- a full disk
disk_full() {
    local image=$WORK/disk.img mount=$WORK/disk
    truncate -s 256M "$image" && mkfs.ext4 -q "$image" && mkdir -p "$mount"
    mount -o loop "$image" "$mount" 2>/dev/null || { not_checked "the full disk: no loop device here"; return; }
    trap 'umount -l "$WORK/disk" 2>/dev/null || true; cleanup' EXIT
    start_server full --data-dir="$mount/data"
    at put before full >/dev/null
    fallocate -l "$(($(df -B1 --output=avail "$mount" | tail -n 1) - 65536))" "$mount/filler" || true
    dd if=/dev/zero of="$mount/filler2" bs=4096 2>/dev/null || true
    local status=0 text
    text=$(head -c 100000 /dev/zero | tr '\0' x)
    for i in $(seq 3000); do
        at put "fill$i" "$text" >"$WORK/out.txt" 2>&1 || { status=$?; break; }
    done
    [ $status != 0 ] || fail "3000 puts of 100 kB went into a full disk"
    grep -q 'etcdserver: mvcc: database space exceeded' "$WORK/out.txt" || fail "a full disk answers: $(cat "$WORK/out.txt")"
    [ "$(at get before --print-value-only)" = full ] || fail "reads fail on a full disk"
    at del fill1 >/dev/null || fail "a delete fails on a full disk: nothing could ever be freed"
    rm -f "$mount/filler" "$mount/filler2"
    wait_for 30 "writes after space returned" at put after space
    [ "$(at get before --print-value-only)" = full ] || fail "a full disk lost a write"
    stop_server
    umount "$mount"
    echo "passed a full disk: refused, served reads and deletes, resumed by itself"
}
if [ "$(id -u)" != 0 ]; then
    not_checked "the full disk: only root can mount one"
elif [ -n "$(packages_of mkfs.ext4 mount)" ]; then
    not_checked "the full disk: sudo apt-get install $(packages_of mkfs.ext4 mount)"
else
    disk_full
fi
