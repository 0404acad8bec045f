#!/usr/bin/env bash
# What the suites with a control plane share: kubeconfig, apiserver, components with logs.
# Sourced after lib.sh.

PROGRAMS=$PEERS_DIR/bin
API=16443
KUBECTL=$(command -v kubectl || echo "$PROGRAMS/kubectl")
COMPONENTS=()

kube() { "$KUBECTL" --kubeconfig "$WORK/kube/config" "$@"; }

write_kubeconfig() {
    mkdir -p "$WORK/kube"
    [ -f "$WORK/kube/sa.key" ] || openssl genrsa -out "$WORK/kube/sa.key" 2048 2>/dev/null
    echo 'checktoken,check,1,"system:masters"' >"$WORK/kube/tokens"
    cat >"$WORK/kube/config" <<K
apiVersion: v1
kind: Config
clusters: [{name: check, cluster: {server: "https://127.0.0.1:$API", insecure-skip-tls-verify: true}}]
users: [{name: check, user: {token: checktoken}}]
contexts: [{name: check, context: {cluster: check, user: check}}]
current-context: check
K
}

component() { # component NAME PROGRAM FLAGS...: runs it with a log of its own
    local name=$1
    shift
    "$@" >"$WORK/kube/$name.log" 2>&1 &
    COMPONENTS+=($!)
}

start_apiserver() { # start_apiserver ETCD_SERVERS [flags]
    local servers=$1
    shift
    component apiserver "$PROGRAMS/kube-apiserver" --etcd-servers="$servers" --etcd-compaction-interval=10s \
        --cert-dir="$WORK/kube/certs" --secure-port=$API --bind-address=127.0.0.1 \
        --service-account-key-file="$WORK/kube/sa.key" --service-account-signing-key-file="$WORK/kube/sa.key" \
        --service-account-issuer=https://kubernetes.default.svc --authorization-mode=AlwaysAllow \
        --token-auth-file="$WORK/kube/tokens" --service-cluster-ip-range=10.0.0.0/24 \
        --disable-admission-plugins=ServiceAccount "$@"
    wait_for 90 "the apiserver: $WORK/kube/apiserver.log" apiserver_ready
}

apiserver_ready() { [ "$(kube get --raw /readyz 2>/dev/null)" = ok ]; }

stop_components() {
    [ ${#COMPONENTS[@]} = 0 ] || kill -9 "${COMPONENTS[@]}" 2>/dev/null || true
    COMPONENTS=()
    sleep 0.5
}
