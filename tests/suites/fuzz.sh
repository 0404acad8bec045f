#!/usr/bin/env bash
# Fuzz targets: everything that reads foreign bytes, instrumented so that the fuzzer sees which code
# an input reaches. A panic, a hang or growth of memory is a failure.
#   fuzz.sh                          some seconds for each target
#   fuzz.sh --inputs 10000000 [TARGET...]  so many inputs each; the corpus stays in target/fuzzing
#   fuzz.sh --seconds 600 [TARGET...]      the same by time
#   fuzz.sh --replay TARGET FILE     one input again, as a failure prints it
set -euo pipefail
source tests/suites/lib.sh

TARGETS=(requests files http2 hpack grpc messages config http1)
KEPT=$PWD/target/fuzzing          # corpora and what failed
RSS_MB_MAX=768                    # a target needs a tenth of it
INPUT_SECONDS_MAX=20              # the slowest seed needs a hundredth of it
SECONDS_EACH=${FUZZ_SECONDS:-13}
HOST=$(rustc -vV | sed -n 's/^host: //p')
# What cargo-fuzz asks a nightly compiler for, less the address sanitizer; a stable one has it too.
COVERAGE="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0"

build() { # build TARGET...: instrumented, and the seeds
    local names=()
    for name in "$@"; do names+=(--bin "fuzz-$name"); done
    # `--target` keeps the flags from build scripts and macros, which no fuzzer is linked to.
    RUSTFLAGS=$COVERAGE cargo build -q --profile fuzz --target "$HOST" -p ringbolt-fuzz --features libfuzzer "${names[@]}"
    cargo build -q --release -p ringbolt-fuzz --bin seeds
    target/release/seeds "$KEPT" >/dev/null
}

binary() { echo "target/$HOST/fuzz/fuzz-$1"; }

fuzz() { # fuzz TARGET OPTION...: its log in $WORK/TARGET
    local target=$1 status=0
    shift
    mkdir -p "$KEPT/found/$target" "$KEPT/failed"
    # The first directory takes what is found, the second is only read.
    "$(binary "$target")" -print_final_stats=1 -rss_limit_mb=$RSS_MB_MAX -timeout=$INPUT_SECONDS_MAX \
        -detect_leaks=0 -max_len="$(longest "$target")" -dict="$KEPT/$target.words" \
        -artifact_prefix="$KEPT/failed/$target-" "$@" \
        "$KEPT/found/$target" "$KEPT/$target" >"$WORK/$target" 2>&1 || status=$?
    echo $status >"$WORK/$target.status"
}

longest() { # longest TARGET: bytes of an input
    case $1 in
        http2) echo 32768 ;;
        requests | http1) echo 2048 ;;
        files) echo 512 ;;
        *) echo 4096 ;;
    esac
}

judge() { # judge TARGET: one line, or what failed and how to see it again
    local target=$1 log=$WORK/$1 failed
    if [ "$(cat "$log.status")" != 0 ]; then
        tail -n 60 "$log"
        failed=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
        fail "$target: ${failed:-no input was kept}; again: bash tests/suites/fuzz.sh --replay $target ${failed:-FILE}"
    fi
    local inputs rate mb first last units
    inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    mb=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
    first=$(sed -n 's/^#[0-9]*\tINITED cov: \([0-9]*\).*/\1/p' "$log")
    last=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
    units=$(grep -c $'\tNEW ' "$log" || true)
    printf '%-9s %9s inputs, %6s/s, coverage %s -> %s by %s new inputs, %s MB\n' \
        "$target" "$inputs" "$rate" "$first" "$last" "$units" "$mb"
    [ "${last:-0}" -gt 60 ] || fail "$target: coverage of ${last:-0}: is it instrumented?"
}

fuzz_all() { # fuzz_all OPTION TARGET...: two at a time
    local option=$1 target
    shift
    for target in "$@"; do
        while [ "$(jobs -rp | wc -l)" -ge "${FUZZ_JOBS:-2}" ]; do wait -n || true; done
        fuzz "$target" "$option" &
    done
    wait
    for target in "$@"; do judge "$target"; done
}

need cc g++
option=-max_total_time=$SECONDS_EACH
case ${1:-} in
    --replay)
        build "$2"
        exec "$(binary "$2")" -rss_limit_mb=$RSS_MB_MAX -timeout=$INPUT_SECONDS_MAX "$3" ;;
    --inputs) option=-runs=$2; shift 2 ;;
    --seconds) option=-max_total_time=$2; shift 2 ;;
    -*) fail "no option $1" ;;
esac
[ $# -gt 0 ] || set -- "${TARGETS[@]}"
build "$@"
fuzz_all "$option" "$@"
