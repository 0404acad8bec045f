#!/usr/bin/env bash
# The body of ./x: set-up, build, run, and the list of suites with their times.
set -euo pipefail

source tests/suites/needs.sh

SUITES=(unit sim planted compare client h2spec hostile badinput corruption fuzz crash powercut seccomp keyspaces controlplane figures)
RESULTS=${RESULTS_DIR:-target/results}
BIN=target/release/ringbolt

say() { printf '\n== %s\n' "$*"; }

die() { echo "$*" >&2; exit 1; }

setup() { # what a build needs
    local missing version least
    missing=$(packages_of cc git)
    # Raft's messages are compiled with protoc at build time.
    ! can_install || missing="$missing $(packages_of protoc)"
    missing=$(echo "$missing" | xargs)
    if [ -n "$missing" ]; then
        can_install || die "missing: $missing. Install with: sudo apt-get install $missing"
        # shellcheck disable=SC2086
        install_packages $missing
    fi
    least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || true
    [ -n "$version" ] || die "cargo is missing: install Rust $least or newer with rustup, then run this again"
    not_older "$least" "$version" || die "Rust is $version; $least or newer is needed: rustup update stable"
    [ -z "$(packages_of protoc)" ] || [ -n "${PROTOC-}" ] || bring_protoc ||
        die "protoc is missing. Install with: sudo apt-get install protobuf-compiler"
}

setup_tests() { # what the suites need beyond that; a suite whose needs are not met says so itself
    local missing
    missing=$(packages_of curl openssl g++ perl mkfs.ext4 mkfs.xfs setpriv mount etcdctl)
    go_serves "$PEERS_DIR/go/bin/go" || missing="$missing $(packages_of go)"
    missing=$(echo "$missing" | xargs)
    if [ -n "$missing" ] && can_install; then
        # shellcheck disable=SC2086
        install_packages $missing || echo "apt-get could not install all of: $missing"
    elif [ -n "$missing" ]; then
        echo "some suites will be skipped; they need: sudo apt-get install $missing"
    fi
    if command -v rustup >/dev/null && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
        rustup component add rustfmt clippy || true
    fi
    ! command -v go >/dev/null || use_go || true
}

build() {
    say "building"
    cargo build --release --bin ringbolt
    ln -sf ringbolt target/release/etcd
}

check_names() { # check_names SUITE...: before a long build
    for name in "$@"; do
        [[ " ${SUITES[*]} " == *" $name "* ]] || { echo "no suite $name; there are: ${SUITES[*]}" >&2; exit 2; }
    done
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
    sed -n 's/^not checked: /    not checked: /p' "$RESULTS/$name.log"
}

run_suites() {
    local chosen=("$@") PASSED=0 FAILED=0 SKIPPED=0
    [ ${#chosen[@]} -gt 0 ] || chosen=("${SUITES[@]}")
    mkdir -p "$RESULTS"
    say "suites"
    for name in "${chosen[@]}"; do
        run_suite "$name"
    done
    echo
    echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
    [ "$FAILED" = 0 ]
}

case ${1:-} in
    run) shift; setup; build; say "running"; exec "$BIN" "$@" ;;
    test) shift; check_names "$@"; say "setting up"; setup; setup_tests; build; run_suites "$@" ;;
    suites) printf '%s\n' "${SUITES[@]}" ;;
    setup) setup; setup_tests ;;
    peers) shift; setup_tests; bash tests/suites/peers.sh "${@:-all}" ;;
    *) sed -n 2,7p x | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
