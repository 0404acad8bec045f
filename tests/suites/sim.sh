#!/usr/bin/env bash
# The simulated world: a crash at every I/O in the durable modes, equal traces for equal seeds, and
# random runs in every mode.
set -euo pipefail
cargo build --release -q -p tests --bin sim
target/release/sim --crash-points "${CRASH_POINTS:-20000}"
for mode in safe no-fsync memory; do
    target/release/sim --seeds 1..101 --twice --span-s 2 --mode "$mode"
done
target/release/sim --seeds "${SIM_SEEDS:-1000..1080}" --span-s 5
