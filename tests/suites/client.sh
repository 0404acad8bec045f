#!/usr/bin/env bash
# The Go client's checks: first against etcd, so that the checks themselves are right, then against
# this server over TCP and a Unix socket, with each io engine and in each mode.
set -euo pipefail
source tests/suites/lib.sh
peers etcd
build_client

run() { # run TITLE BINARY ARGUMENT...
    echo "-- $1"
    "$WORK/client" checks -server "$2" -port 24790 "${@:3}"
}

run "etcd, TCP" "$PEERS_DIR/bin/etcd"
run "uring, TCP" "$BIN" -flags --io-engine=uring
run "epoll, Unix socket" "$BIN" -unix -flags --io-engine=epoll
run "uring, unsafe-no-fsync, Unix socket" "$BIN" -unix -flags "--io-engine=uring --unsafe-no-fsync"
run "uring, memory, TCP" "$BIN" -flags "--io-engine=uring --fsync=memory"
run "uring, three shards, Unix socket" "$BIN" -unix -flags "--io-engine=uring --shards=3 --home-connections=0"
run "epoll, two shards, TCP" "$BIN" -flags "--io-engine=epoll --shards=2 --home-connections=0"

echo "-- etcdctl, abstract socket"
abstract=unix://@ringbolt-$$
start_server abstract --keyspace "other,listen-client-urls=$abstract,fsync=unsafe-no-fsync"
at() { "$ETCDCTL" --endpoints="$abstract" "$@"; }
[ "$(at put by abstract)" = OK ] || fail "no put over an abstract socket"
[ "$(at get by --print-value-only)" = abstract ] || fail "no get over an abstract socket"
at endpoint health 2>&1 | grep 'is healthy' >/dev/null || fail "an abstract socket is not healthy"
stop_server
echo ok
