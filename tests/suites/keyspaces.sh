#!/usr/bin/env bash
# Two keyspaces in one process: the apiserver keeps events in one of memory mode and the rest in a
# safe one. A restart loses the events alone, and nothing hangs.
set -euo pipefail
source tests/suites/lib.sh
need openssl
peers kubernetes etcd
source tests/suites/kube.sh

EVENTS=$WORK/events.sock
flags=(--watch-progress-notify-interval=5s --keyspace "events,listen-client-urls=unix://$EVENTS,fsync=memory")
at() { "$ETCDCTL" --endpoints="unix://$1" "${@:2}"; }

make_event() { # make_event NAME
    kube create -f - >/dev/null <<V
apiVersion: v1
kind: Event
metadata: {name: $1, namespace: kept}
involvedObject: {kind: Namespace, name: kept, namespace: kept}
reason: Check
message: an event in memory
type: Normal
V
}

start_server two "${flags[@]}"
at "$SOCKET" put a main >/dev/null
at "$EVENTS" put a events >/dev/null
[ "$(at "$SOCKET" get a --print-value-only)" = main ] || fail "keyspaces are not apart"
[ "$(at "$EVENTS" get a --print-value-only)" = events ] || fail "keyspaces are not apart"

write_kubeconfig
start_apiserver "unix://$SOCKET" --etcd-servers-overrides="/events#unix://$EVENTS" --lease-reuse-duration-seconds=5
kube create namespace kept >/dev/null
make_event told
[ "$(kube get events -n kept --no-headers | wc -l)" = 1 ] || fail "the event is not there"
at "$EVENTS" get /registry/events --prefix --keys-only | grep told >/dev/null || fail "the event is not in its keyspace"
if at "$SOCKET" get /registry/events --prefix --keys-only | grep told >/dev/null; then fail "the event is in both keyspaces"; fi

stop_server
start_server two "${flags[@]}"
wait_for 60 "the apiserver after a restart" apiserver_ready
wait_for 30 "the namespace after a restart" kube get namespace kept
[ "$(kube get events -n kept --no-headers 2>/dev/null | wc -l)" = 0 ] || fail "an event outlived memory mode"
kube create namespace more >/dev/null
# The apiserver goes on using the lease of its last events for a moment; that lease was in memory too.
wait_for 30 "events after a restart" make_event again
[ "$(kube get events -n kept --no-headers | wc -l)" = 1 ] || fail "no event can be made after a restart"
stop_components
stop_server
echo "two keyspaces: only events were lost"
