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
refused "a flag unlike all others" 2 'all flags are listed by: .* --help' --zzzzzz=x
refused "bad duration" 2 'invalid value "5x" for flag -grpc-keepalive-min-time: parse error' --grpc-keepalive-min-time=5x
refused "bad URL" 2 'URL scheme must be http, https, unix, or unixs: foo' --listen-client-urls=foo
refused "bad fsync mode" 2 'one of safe, unsafe-no-fsync, memory' --fsync=sometimes
refused "unknown cipher suite" 1 'unexpected TLS cipher suite .*foo' --data-dir="$WORK/never" --cipher-suites=foo
refused "bad keyspace" 1 'keyspace events: unknown key .*nonsense.* a keyspace has listen-client-urls, fsync' --keyspace=events,nonsense=1
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
mkdir -p "$WORK/later" && echo 'ringbolt data 2' >"$WORK/later/ringbolt"
refused "a later release's data directory" 1 'later release' --data-dir="$WORK/later" "${away[@]}"
[ "$(cat "$WORK/later/ringbolt")" = 'ringbolt data 2' ] || fail "a later release's directory was changed"
printf '\377\n' >"$WORK/later/ringbolt"
refused "a data directory whose marker is damaged" 1 'is damaged .*Restore' --data-dir="$WORK/later" "${away[@]}"
touch "$WORK/file"
refused "data directory is a file" 1 "$WORK/file" --data-dir="$WORK/file" "${away[@]}"
not_writable() { # not_writable COMMAND...: starts the server as somebody who may not write here
    local status=0
    mkdir -p "$WORK/readonly" && chmod 555 "$WORK/readonly" && chmod 755 "$WORK"
    # Whoever that is may not look into the tree that was built: the program itself is copied.
    cp "${UNCONFINED:-$BIN}" "$WORK/ringbolt"
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
    od -An -tx1 -v "$WORK/answer.bin" | tr -d '\n ' | grep '0700000000' >/dev/null || fail "no GOAWAY after a malformed frame"
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
small_disk() { # small_disk NAME: an ext4 file system of 256 MB in $WORK/NAME
    local image=$WORK/$1.img
    truncate -s 256M "$image" && mkfs.ext4 -q "$image" && mkdir -p "$WORK/$1"
    mount -o loop "$image" "$WORK/$1" 2>/dev/null
}

fill_disk() { # fill_disk DIRECTORY: to the last block, those kept for root too
    fallocate -l "$(($(df -B1 --output=avail "$1" | tail -n 1) - 65536))" "$1/filler" || true
    dd if=/dev/zero of="$1/filler2" bs=4096 2>/dev/null || true
    sync -f "$1"
    dd if=/dev/zero of="$1/filler3" bs=4096 2>/dev/null || true
}

disk_full() {
    local mount=$WORK/disk
    start_server full --data-dir="$mount/data"
    at put before full >/dev/null
    fill_disk "$mount"
    local status=0 text
    text=$(head -c 100000 /dev/zero | tr '\0' x)
    for i in $(seq 3000); do
        at put "fill$i" "$text" >"$WORK/out.txt" 2>&1 || { status=$?; break; }
    done
    [ $status != 0 ] || fail "3000 puts of 100 kB went into a full disk"
    grep -q 'etcdserver: mvcc: database space exceeded' "$WORK/out.txt" || fail "a full disk answers: $(cat "$WORK/out.txt")"
    [ "$(at get before --print-value-only)" = full ] || fail "reads fail on a full disk"
    at del fill1 >/dev/null || fail "a delete fails on a full disk: nothing could ever be freed"
    rm -f "$mount"/filler*
    wait_for 30 "writes after space returned" at put after space
    [ "$(at get before --print-value-only)" = full ] || fail "a full disk lost a write"
    stop_server
    rm -rf "$mount/data"
    echo "passed a full disk: refused, served reads and deletes, resumed by itself"
}

# The disk is full before the first checkpoint is due: it and those that follow find their space,
# the log is recycled and service goes on; kill -9 and a start on the same full disk lose nothing.
disk_full_at_checkpoint() { # disk_full_at_checkpoint ENGINE
    local mount=$WORK/disk noted=$WORK/noted log=$WORK/full-$1/log before
    : >"$noted"
    start_server "full-$1" --data-dir="$mount/data" --io-engine="$1"
    fill 2 || fail "the disk has room"
    before=$(grep -c 'checkpoint written' "$log" || true)
    fill_disk "$mount"
    fill 8 || fail "$1: service does not go on with a full disk: $(tail -n 3 "$log")"
    [ "$(df --output=avail "$mount" | tail -n 1)" -lt 70000 ] || fail "the disk is not full"
    [ "$(grep -c 'checkpoint written' "$log")" -ge $((before + 1)) ] || fail "$1: no checkpoint on a full disk"
    holds || fail "$1: a full disk lost a write"
    kill_server
    start_server "full-$1" --data-dir="$mount/data" --io-engine="$1"
    holds || fail "$1: kill -9 on a full disk lost a write"
    fill 2 || fail "$1: no service after a start on a full disk: $(tail -n 3 "$log")"
    rm -f "$mount"/filler*
    wait_for 30 "writes after space returned" at put after space
    fill 2 || fail "$1: no service after space returned"
    holds || fail "$1: a write is lost after space returned"
    stop_server
    rm -rf "$mount/data"
    echo "passed a full disk while checkpointing, $1"
}

# A file system that refuses direct I/O (ext4 does with data=journal): said once, buffered from end to
# end, and kill -9 loses nothing.
buffered() { # buffered ENGINE
    local mount=$WORK/disk noted=$WORK/noted log=$WORK/buffered-$1/log
    : >"$noted"
    start_server "buffered-$1" --data-dir="$mount/data" --io-engine="$1"
    [ "$(grep -c 'refuses direct I/O' "$log")" = 1 ] || fail "$1: it is not said that the log is buffered"
    fill 6 || fail "$1: no service where direct I/O is refused"
    kill_server
    start_server "buffered-$1" --data-dir="$mount/data" --io-engine="$1"
    holds || fail "$1: kill -9 lost a write where direct I/O is refused"
    fill 1 || fail "$1: no service after a start where direct I/O is refused"
    stop_server
    rm -rf "$mount/data"
    echo "passed a file system that refuses direct I/O, $1"
}

fill() { "$WORK/client" fill -endpoint "http://127.0.0.1:$CLIENT_PORT" -noted "$noted" -rounds "$1"; }
holds() { "$WORK/client" holds -endpoint "http://127.0.0.1:$CLIENT_PORT" -noted "$noted"; }

engines=(uring epoll)
[ -z "${CONFINED:-}" ] || engines=(epoll)
if [ "$(id -u)" != 0 ]; then
    not_checked "the full disk: only root can mount one"
elif [ -n "$(packages_of mkfs.ext4 mount)" ]; then
    not_checked "the full disk: sudo apt-get install $(packages_of mkfs.ext4 mount)"
elif ! small_disk disk; then
    not_checked "the full disk: no loop device here"
else
    trap 'umount -l "$WORK/disk" 2>/dev/null || true; cleanup' EXIT
    disk_full
    for engine in "${engines[@]}"; do disk_full_at_checkpoint "$engine"; done
    umount "$WORK/disk"
    if mount -o loop,data=journal "$WORK/disk.img" "$WORK/disk"; then
        for engine in "${engines[@]}"; do buffered "$engine"; done
        umount "$WORK/disk"
    else
        not_checked "a file system that refuses direct I/O: no ext4 with data=journal here"
    fi
fi
