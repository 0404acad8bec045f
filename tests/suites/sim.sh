#!/usr/bin/env bash
# The simulated world: a crash at every I/O in the durable modes, equal traces for equal seeds, and
# random runs. Random runs of unsafe-no-fsync are not among them: after a kill the judge cannot yet
# order every unanswered write that survived (replay: --seed 27 --span-s 2).
set -euo pipefail
cargo build --release -q -p tests --bin sim
target/release/sim --crash-points "${CRASH_POINTS:-20000}"
target/release/sim --seeds 1..101 --twice --span-s 2 --mode safe
target/release/sim --seeds 1..41 --span-s 2 --mode memory
target/release/sim --seeds "${SIM_SEEDS:-1000..1080}" --span-s 5 --mode safe
