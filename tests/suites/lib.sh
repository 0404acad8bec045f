#!/usr/bin/env bash
# What the black-box suites share: a work directory, peers, starting and stopping servers.
# A suite sources this from the root of the tree. Everything it starts ends with it.

source tests/suites/needs.sh

BIN=${OURS:-$PWD/target/release/ringbolt}
WORK=$(mktemp -d "${TMPDIR:-/tmp}/ringbolt-suite.XXXXXX")
CLIENT_PORT=${CLIENT_PORT:-23790}
SERVER_PID=

cleanup() {
    local pids
    pids=$(jobs -p)
    [ -z "$pids" ] || kill -9 $pids 2>/dev/null || true
    wait 2>/dev/null || true
    [ -n "${KEEP_WORK:-}" ] || rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

skip() { echo "skipped: $*"; exit 77; }

not_checked() { echo "not checked: $*"; } # a part; ./x shows it beside the result

fail() { echo "FAILED: $*" >&2; exit 1; }

need() { # need COMMAND...: or the suite is skipped
    local missing
    missing=$(packages_of "$@")
    [ -z "$missing" ] || skip "missing: sudo apt-get install $missing"
}

build_client() { # the Go client's checks, in $WORK/client
    use_go || exit 77
    (cd tests/go && go build -o "$WORK/client" .)
}

peers() { # peers NAME...: builds them, or skips the suite where that cannot be done
    local status=0
    bash tests/suites/peers.sh "$@" || status=$?
    [ $status != 77 ] || exit 77
    [ $status = 0 ] || fail "building $*"
    ETCDCTL=$PEERS_DIR/bin/etcdctl
}

wait_for() { # wait_for SECONDS WHAT COMMAND...: until the command succeeds
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $until ] || fail "waited in vain for $what"
        sleep 0.1
    done
}

ready_line() { grep -q 'ready to serve client requests' "$1"; }

start_server() { # start_server NAME [flags]: data and log in $WORK/NAME, TCP and a socket file
    local name=$1
    shift
    mkdir -p "$WORK/$name"
    : >"$WORK/$name/log"
    "$BIN" --name="$name" --data-dir="$WORK/$name/data" \
        --listen-client-urls="http://127.0.0.1:$CLIENT_PORT,unix://$WORK/$name/sock" \
        --advertise-client-urls="http://127.0.0.1:$CLIENT_PORT" \
        --listen-peer-urls=http://127.0.0.1:$((CLIENT_PORT + 1)) \
        --initial-advertise-peer-urls=http://127.0.0.1:$((CLIENT_PORT + 1)) \
        --initial-cluster="$name=http://127.0.0.1:$((CLIENT_PORT + 1))" \
        "$@" >>"$WORK/$name/log" 2>&1 &
    SERVER_PID=$!
    SOCKET=$WORK/$name/sock
    wait_for 15 "the server $name to be ready: $(tail -n 3 "$WORK/$name/log")" ready_line "$WORK/$name/log"
}

stop_server() { # a clean stop must end by the signal and within ten seconds
    local status=0
    kill -TERM "$SERVER_PID"
    wait "$SERVER_PID" || status=$?
    [ $status = 143 ] || fail "a clean stop ended with $status"
}

kill_server() {
    kill -9 "$SERVER_PID"
    wait "$SERVER_PID" 2>/dev/null || true
}
