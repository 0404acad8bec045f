#!/usr/bin/env bash
# Hostile clients from outside, each against the limit that holds it off, while a quiet client puts:
# floods, bombs, slow and silent readers, garbage, smuggling, and 19 000 connections.
#   hostile.sh [ATTACK…]   only the named attacks
set -euo pipefail
source tests/suites/lib.sh
cargo build --release -q -p tests --bin hostile
alone=(rapid-reset made-you-reset continuation settings settings-windows ping window-update empty-data padding
    header-list hpack-bomb open-streams garbage smuggling slow-loris slow-reader nested-txn huge-keys gzip-bomb)
crowds=(fill slow-listers silent-listers silent-txns silent-watchers idle-connections idle-watchers)

attack() { # attack TITLE FLAGS ATTACK...
    echo "-- $1"
    target/release/hostile --server "$BIN" --directory "$WORK/$1" --flags "$2" "${@:3}"
}

if [ $# -gt 0 ]; then
    attack chosen --io-engine=auto "$@"
    exit
fi
attack uring --io-engine=uring "${alone[@]}" "${crowds[@]}"
attack epoll --io-engine=epoll "${alone[@]}"
attack small-budget --memory-budget=134217728 many-watches
# Calls of connections on another shard meet the same limits.
attack two-shards "--shards=2 --home-connections=1" rapid-reset slow-reader "${crowds[@]}"
