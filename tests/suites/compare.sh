#!/usr/bin/env bash
# The same etcdctl commands and gRPC calls against etcd and this server: no difference but ids,
# sizes and times.
set -euo pipefail
source tests/suites/lib.sh
need curl
peers etcd
cargo build --release -q -p tests --bin compare
# The old client that is still in many scripts; Debian has it.
old=()
if [ -x /usr/bin/etcdctl ]; then
    old=(--etcdctl34 /usr/bin/etcdctl)
else
    not_checked "etcdctl 3.4: sudo apt-get install etcd-client"
fi
play() { target/release/compare --peers "$PEERS_DIR/bin" --ours "${OURS:-$BIN}" "${old[@]}" "$@"; }
play "$@"
# etcdctl's own checks judge speed. On a slow moment either server may miss a mark: then once more.
[ $# -gt 0 ] || [ -n "${CONFINED:-}" ] || play tests/compare/long.txt || play tests/compare/long.txt
