#!/usr/bin/env bash
# Mistakes planted in the engine, one at a time: the simulation must find each. The table says after
# how many seeds, and what the checker said. The program is one of its own: no other build holds a
# mistake.
set -euo pipefail
cargo build --release -q -p tests --bin planted --features planted
target/release/planted --seeds "${PLANTED_SEEDS:-200}"
if strings -a target/release/ringbolt 2>/dev/null | grep "acknowledged before durable" >/dev/null; then
    echo "the released build holds planted mistakes"
    exit 1
fi
