#!/usr/bin/env bash
# Hostile clients from outside, each against the limit that holds it off, while a quiet client puts:
# floods, bombs, slow and silent readers, garbage, smuggling, and 19 000 connections.
#   hostile.sh [ATTACK…]   only the named attacks
set -euo pipefail
source tests/suites/lib.sh
cargo build --release -q -p tests --bin hostile
for engine in uring epoll; do
    echo "-- $engine"
    target/release/hostile --server "$BIN" --directory "$WORK/$engine" \
        --flags "--io-engine=$engine --memory-budget=134217728" "$@"
done
# Calls of connections on another shard meet the same limits.
echo "-- two shards"
target/release/hostile --server "$BIN" --directory "$WORK/shards" \
    --flags "--shards=2 --home-connections=1 --memory-budget=268435456" "$@"
