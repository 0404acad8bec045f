#!/usr/bin/env bash
# The simulated world: a crash at every I/O in every mode, equal traces for equal seeds, and ten
# minutes of random runs on two threads: always the same seeds in the same order, and as many of them
# as a machine gets through. For longer: target/release/sim --hours 500
set -euo pipefail
cargo build --release -q -p tests --bin sim
target/release/sim --crash-points "${CRASH_POINTS:-20000}"
target/release/sim --seeds 1..101 --twice --span-s 2
for mode in no-fsync memory; do
    target/release/sim --seeds 1000..1030 --span-s 3 --mode "$mode"
done
target/release/sim --seeds "${SIM_SEEDS:-2000..3362}" --span-s 5 --minutes "${SIM_MINUTES:-10}"
