#!/usr/bin/env bash
# The black-box suites once more where io_uring is refused, as in most containers: `auto` falls back
# and says so, `uring` is a hard error that names cause and remedy, and everything works.
set -euo pipefail
source tests/suites/lib.sh
need perl curl
peers etcd h2spec
build_client

cat >"$WORK/confined" <<S
#!/bin/sh
exec perl "$PWD/tests/suites/without-io-uring.pl" "$BIN" "\$@"
S
chmod +x "$WORK/confined"

status=0
"$WORK/confined" --io-engine=uring --data-dir="$WORK/refused" >"$WORK/refused.log" 2>&1 || status=$?
[ $status = 1 ] || fail "--io-engine=uring ended with $status where io_uring is refused"
grep -qi seccomp "$WORK/refused.log" || fail "no cause is named: $(cat "$WORK/refused.log")"
grep -q -- '--io-engine=' "$WORK/refused.log" || fail "no remedy is named: $(cat "$WORK/refused.log")"

export UNCONFINED=$BIN
BIN=$WORK/confined
start_server fallback
grep -q 'epoll' "$WORK/fallback/log" || fail "the log does not say which engine was chosen"
"$PEERS_DIR/bin/h2spec" -h 127.0.0.1 -p "$CLIENT_PORT" --timeout 5 | tail -n 3 | tee "$WORK/h2spec.txt"
grep -qE '^145 tests, .* 0 failed' "$WORK/h2spec.txt"
stop_server
"$WORK/client" checks -server "$BIN" -port 24790
"$WORK/client" crash -server "$BIN" -rounds 10 -unix
export OURS=$BIN CONFINED=yes
bash tests/suites/compare.sh
bash tests/suites/badinput.sh
bash tests/suites/keyspaces.sh
bash tests/suites/controlplane.sh safe-unix
