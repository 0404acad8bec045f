#!/usr/bin/env bash
# kill -9 under a mixed load, on a real disk: every acknowledged write is there at its revision,
# revisions never go back, a watcher that resumed each time has neither gap nor repeat.
#   crash.sh [ROUNDS]   kills per engine and mode (default 100)
set -euo pipefail
source tests/suites/lib.sh
rounds=${1:-${CRASH_ROUNDS:-100}}
build_client
for engine in uring epoll; do
    echo "-- safe, $engine"
    "$WORK/client" crash -server "$BIN" -rounds "$rounds" -unix -flags "--io-engine=$engine"
    echo "-- unsafe-no-fsync, $engine"
    "$WORK/client" crash -server "$BIN" -rounds $((rounds / 4)) -unix -flags "--io-engine=$engine --unsafe-no-fsync"
done
