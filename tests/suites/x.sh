#!/usr/bin/env bash
# The body of ./x: set-up, build, run, and the list of suites with their times.
set -euo pipefail

SUITES=(unit sim compare client h2spec badinput crash seccomp keyspaces controlplane figures)
PEERS=${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ringbolt-peers}
RESULTS=${RESULTS_DIR:-target/results}
BIN=target/release/ringbolt
export PEERS_DIR=$PEERS

say() { printf '\n== %s\n' "$*"; }

install_packages() { # install_packages PACKAGE...: as root, or names the command
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $*"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null 2>&1 || {
            apt-get update -qq >/dev/null
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
        }
    else
        echo "missing: $*. Install with: sudo apt-get install -y $*" >&2
        exit 1
    fi
}

setup() {
    command -v cargo >/dev/null || {
        echo "cargo is missing: install Rust 1.95 or newer with rustup, then run this again" >&2
        exit 1
    }
    local missing=()
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    command -v git >/dev/null || missing+=(git)
    [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

build() {
    say "building"
    cargo build --release --bin ringbolt
    ln -sf ringbolt target/release/etcd
}

run_suite() { # run_suite NAME: its output in a file, one line here
    local name=$1 start status=0
    start=$(date +%s)
    printf '%-14s ' "$name"
    bash "tests/suites/$name.sh" >"$RESULTS/$name.log" 2>&1 || status=$?
    local took=$(($(date +%s) - start))
    case $status in
        0) echo "passed  ${took}s"; PASSED=$((PASSED + 1)) ;;
        77) echo "skipped ${took}s: $(tail -n 1 "$RESULTS/$name.log")"; SKIPPED=$((SKIPPED + 1)) ;;
        *) echo "FAILED  ${took}s (exit $status): $RESULTS/$name.log"
           tail -n 40 "$RESULTS/$name.log" | sed 's/^/    /'
           FAILED=$((FAILED + 1)) ;;
    esac
}

run_suites() {
    local chosen=("$@") PASSED=0 FAILED=0 SKIPPED=0
    [ ${#chosen[@]} -gt 0 ] || chosen=("${SUITES[@]}")
    mkdir -p "$RESULTS"
    say "suites"
    for name in "${chosen[@]}"; do
        [ -f "tests/suites/$name.sh" ] || { echo "no suite $name; ./x suites lists them" >&2; exit 2; }
        run_suite "$name"
    done
    echo
    echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
    [ "$FAILED" = 0 ]
}

case ${1:-} in
    run) shift; setup; build; say "running"; exec "$BIN" "$@" ;;
    test) shift; setup; build; run_suites "$@" ;;
    suites) printf '%s\n' "${SUITES[@]}" ;;
    setup) setup ;;
    peers) shift; bash tests/suites/peers.sh "${@:-all}" ;;
    *) sed -n 2,7p x | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
