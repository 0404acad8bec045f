#!/usr/bin/env bash
# The same etcdctl commands and gRPC calls against etcd and this server: no difference but ids,
# sizes and times.
set -euo pipefail
source tests/suites/lib.sh
peers etcd
cargo build --release -q -p tests --bin compare
# The old client that is still in many scripts; Debian has it.
if [ ! -x /usr/bin/etcdctl ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get install -y -qq etcd-client >/dev/null 2>&1 || true
fi
old=()
if [ -x /usr/bin/etcdctl ]; then
    old=(--etcdctl34 /usr/bin/etcdctl)
else
    echo "not compared with etcdctl 3.4: it is not installed"
fi
play() { target/release/compare --peers "$PEERS_DIR/bin" --ours "${OURS:-$BIN}" "${old[@]}" "$@"; }
play "$@"
# etcdctl's own checks judge speed. On a slow moment either server may miss a mark: then once more.
[ $# -gt 0 ] || play tests/compare/long.txt || play tests/compare/long.txt
