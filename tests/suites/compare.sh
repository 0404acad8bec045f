#!/usr/bin/env bash
# The same etcdctl commands and gRPC calls against etcd and this server: no difference but ids,
# sizes and times.
set -euo pipefail
source tests/suites/lib.sh
peers etcd
cargo build --release -q -p tests --bin compare
old=()
if command -v /usr/bin/etcdctl >/dev/null; then old=(--etcdctl34 /usr/bin/etcdctl); fi
target/release/compare --peers "$PEERS_DIR/bin" --ours "${OURS:-$BIN}" "${old[@]}" "$@"
