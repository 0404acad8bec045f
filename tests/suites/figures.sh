#!/usr/bin/env bash
# Figures beside etcd 3.7.3, interleaved, on this disk: reported, never judged here.
#   ROUNDS, SECONDS_EACH, KEYS, LEASES, REVISIONS: how long it takes (defaults are for continuous integration)
set -euo pipefail
source tests/suites/lib.sh
peers etcd
cargo build --release -q -p ringbolt-bench
mkdir -p target/results
target/release/ringbolt-bench compare --etcd "$PEERS_DIR/bin/etcd" --ours "$BIN" --directory "$WORK" \
    --rounds "${ROUNDS:-1}" --seconds "${SECONDS_EACH:-2}" --keys "${KEYS:-1000000}" \
    --leases "${LEASES:-100000}" --revisions "${REVISIONS:-1000000}" --plot target/results/figures.svg "$@"
