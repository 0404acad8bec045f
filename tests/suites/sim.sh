#!/usr/bin/env bash
# The simulated world: a crash at every I/O in every mode, equal traces for equal seeds, and random
# runs in each mode. Longer: target/release/sim --seeds 2000..1000000 --span-s 5 --minutes 10
set -euo pipefail
cargo build --release -q -p tests --bin sim
target/release/sim --crash-points "${CRASH_POINTS:-20000}"
target/release/sim --seeds 1..101 --twice --span-s 2
for mode in safe no-fsync memory; do
    target/release/sim --seeds "${SIM_SEEDS:-1000..1050}" --span-s 3 --mode "$mode"
done
