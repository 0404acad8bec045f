#!/usr/bin/env bash
# Mistakes planted in the engine, one at a time: each must be found by the simulation. The table
# says after how many seeds, and what the checker said. The build has a directory of its own: what
# is released holds no mistake.
set -euo pipefail
cargo build --release -q -p tests --bin sim --features planted --target-dir target/planted
target/planted/release/sim --planted "${PLANTED_SEEDS:-400}" --span-s 5
if strings -a target/release/ringbolt 2>/dev/null | grep -q "acknowledged before durable"; then
    echo "the released build holds planted mistakes"
    exit 1
fi
