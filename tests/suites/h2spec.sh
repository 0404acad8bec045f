#!/usr/bin/env bash
# HTTP/2 conformance of the client port: all 145 tests of h2spec pass, with each io engine.
set -euo pipefail
source tests/suites/lib.sh
peers h2spec
for engine in uring epoll; do
    # Half of the connections live on another shard.
    start_server "h2spec-$engine" --io-engine=$engine --shards=2 --home-connections=0
    "$PEERS_DIR/bin/h2spec" -h 127.0.0.1 -p "$CLIENT_PORT" --timeout 5 | tee "$WORK/h2spec.txt"
    grep -qE '^145 tests, .* 0 failed' "$WORK/h2spec.txt"
    stop_server
done
