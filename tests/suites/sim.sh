#!/usr/bin/env bash
# The simulated world: a crash at every I/O, many seeds, and equal traces for equal seeds.
set -euo pipefail
cargo build --release -q -p tests --bin sim
target/release/sim --crash-points "${CRASH_POINTS:-20000}"
target/release/sim --seeds 1..101 --twice --span-s 2
target/release/sim --seeds 1000..100000 --span-s 5 --minutes "${SIM_MINUTES:-2}"
