#!/usr/bin/env bash
# A real control plane on the server: kube-apiserver, controller-manager, scheduler and fake nodes.
# For each mode: 50 nodes become Ready, a Deployment of 300 replicas runs, `kubectl get --watch`
# goes on over a clean restart and a kill -9, the apiserver compacts, and no component logs an error
# about the store but while it was down. In memory mode a kill loses everything, and a control plane
# that is started again begins from nothing and works.
#   controlplane.sh [CASE...]   CASE: safe-unix | safe-tcp | nofsync-unix | memory-unix
# SERVER=path runs another server (etcd itself), to check the check.
set -euo pipefail
source tests/suites/lib.sh
need openssl
peers kubernetes kwok etcd
BIN=${SERVER:-$BIN}
source tests/suites/kube.sh
DOWN=() # "from to" in seconds of the day, while the server was down on purpose

day_second() { date -u +'%H %M %S' | awk '{ print $1 * 3600 + $2 * 60 + $3 }'; }

start_controllers() {
    local common=(--kubeconfig="$WORK/kube/config" --authentication-kubeconfig="$WORK/kube/config"
        --authorization-kubeconfig="$WORK/kube/config" --authentication-skip-lookup
        --kube-api-qps=500 --kube-api-burst=1000 --cert-dir="$WORK/kube/certs" --bind-address=127.0.0.1
        --leader-elect=false) # one of each: a slow machine must not make them give up their lease
    component controller-manager "$PROGRAMS/kube-controller-manager" "${common[@]}" \
        --service-account-private-key-file="$WORK/kube/sa.key" --use-service-account-credentials=false
    component scheduler "$PROGRAMS/kube-scheduler" "${common[@]}"
    # With more than one thread kwok can die of a race of its own at start.
    GOMAXPROCS=1 component kwok "$PROGRAMS/kwok" --kubeconfig="$WORK/kube/config" --config="$PROGRAMS/kwok-stages.yaml" \
        --manage-all-nodes=false --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --node-lease-duration-seconds=40
}

make_nodes() { # make_nodes COUNT
    for n in $(seq "$1"); do
        cat <<N
---
apiVersion: v1
kind: Node
metadata:
  name: fake-$n
  annotations: {kwok.x-k8s.io/node: fake}
  labels: {type: fake, kubernetes.io/hostname: fake-$n}
N
    done | kube create -f - >/dev/null
    wait_for 60 "$1 nodes to be Ready" nodes_ready "$1"
}

nodes_ready() { [ "$(kube get nodes --no-headers 2>/dev/null | grep -cw Ready)" = "$1" ]; }

deploy() { # deploy NAME REPLICAS
    kube create deployment "$1" --image=fake --replicas="$2" >/dev/null
    wait_for 120 "$2 pods of $1 to run" pods_running "$1" "$2"
}

pods_running() { [ "$(kube get pods -l app="$1" --no-headers 2>/dev/null | grep -cw Running)" = "$2" ]; }

restart_server() { # restart_server KIND NAME FLAGS...: "stop" cleanly or "kill", then start again
    local kind=$1 from
    shift
    from=$(day_second)
    if [ "$kind" = kill ]; then kill_server; else stop_server; fi
    sleep 1
    start_server "$@"
    wait_for 60 "the apiserver after a $kind" apiserver_ready
    sleep 3
    DOWN+=("$from $(($(day_second) + 12))")
}

# Klog lines look like `E1130 10:20:30.123456 …`; any at level W, E or F that names the store and
# was not written while the server was down is an error of the server.
store_errors() {
    grep -hE '^[WEF][0-9]{4} ' "$WORK"/kube/*.log | grep -iE 'etcdserver|etcd3|storage/|rpc error|retrywatcher|too large resource version|DetectCacheInconsistency' |
        while read -r line; do
            local at inside=no
            at=$(echo "$line" | awk '{ split($2, t, /[:.]/); print t[1] * 3600 + t[2] * 60 + t[3] }')
            for window in "${DOWN[@]:-0 0}"; do
                # shellcheck disable=SC2086
                set -- $window
                if [ "$at" -ge "$1" ] && [ "$at" -le "$2" ]; then inside=yes; fi
            done
            [ $inside = yes ] || echo "$line"
        done
}

compacted() { { "$ETCDCTL" --endpoints="127.0.0.1:$CLIENT_PORT" get x --rev=2 2>&1 || true; } | grep "has been compacted" >/dev/null; }

follow_pods() {
    while true; do kube get pods -l app="$1" --watch --no-headers --request-timeout=0 2>/dev/null || sleep 0.3; done
}

run_case() { # run_case NAME SERVERS_KIND FLAGS...
    local name=$1 kind=$2 servers=http://127.0.0.1:$CLIENT_PORT
    shift 2
    local flags=(--watch-progress-notify-interval=5s "$@")
    DOWN=()
    rm -rf "$WORK/kube"
    write_kubeconfig
    start_server "$name" "${flags[@]}"
    [ "$kind" = tcp ] || servers=unix://$SOCKET
    start_apiserver "$servers"
    start_controllers
    make_nodes 50
    deploy web 300
    echo "$name: 50 nodes Ready, 300 pods Running"
    wait_for 60 "the apiserver's own compaction" compacted
    kube get pods -l app=web --watch --no-headers >"$WORK/watch.txt" 2>&1 &
    local watcher=$!
    sleep 2
    restart_server stop "$name" "${flags[@]}"
    if [[ $name != memory* ]]; then
        kube scale deployment web --replicas=310 >/dev/null
        wait_for 60 "310 pods" pods_running web 310
        restart_server kill "$name" "${flags[@]}"
        kube scale deployment web --replicas=320 >/dev/null
        wait_for 60 "320 pods" pods_running web 320
        sleep 2
        kill -0 "$watcher" || fail "kubectl --watch has ended: $(tail -n 3 "$WORK/watch.txt")"
        local seen
        seen=$(awk '$3 == "Running" { print $1 }' "$WORK/watch.txt" | sort -u | wc -l)
        [ "$seen" -ge 320 ] || fail "the watch saw $seen of 320 pods run"
        echo "$name: the watch went on over a restart and a kill -9 and saw $seen pods"
    fi
    kill "$watcher" 2>/dev/null || true
    store_errors >"$WORK/errors.txt" || true # no line at all is what is hoped for
    [ ! -s "$WORK/errors.txt" ] || { head -n 20 "$WORK/errors.txt"; fail "$name: errors about the store"; }
    stop_components
    if [[ $name == memory* ]]; then begin_from_nothing "$name" "$servers" "${flags[@]}"; fi
    stop_server
}

begin_from_nothing() { # in memory mode a kill loses all; a control plane started again works
    local name=$1 servers=$2
    shift 2
    kill_server
    start_server "$name" "$@"
    start_apiserver "$servers"
    start_controllers
    [ "$(kube get nodes --no-headers 2>/dev/null | wc -l)" = 0 ] || fail "memory mode kept nodes over a kill"
    make_nodes 5
    deploy again 20
    echo "$name: after a kill a new control plane began from nothing and works"
    stop_components
}

CASES=("$@")
[ ${#CASES[@]} -gt 0 ] || CASES=(safe-unix safe-tcp nofsync-unix memory-unix)
for case in "${CASES[@]}"; do
    case $case in
        safe-unix) run_case safe-unix unix ;;
        safe-tcp) run_case safe-tcp tcp ;;
        nofsync-unix) run_case nofsync-unix unix --unsafe-no-fsync ;;
        memory-unix) run_case memory-unix unix --fsync=memory ;;
        *) fail "no case $case" ;;
    esac
done
