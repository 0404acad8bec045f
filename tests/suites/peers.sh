#!/usr/bin/env bash
# Builds the real peers from the Go module registry into $PEERS_DIR/bin and keeps them there.
#   peers.sh NAME...   etcd (etcd, etcdctl, etcdutl) | h2spec | benchmark | kubernetes | kwok | all
# Exit 77 where there is no Go to build with: the suites that need a peer then say that they were skipped.
# Most of these modules have replace directives, so `go install` refuses them; each is built from a
# small module of ours that requires it.
set -euo pipefail

ETCD_VERSION=v3.7.3
BENCHMARK_VERSION=v3.6.8
KUBERNETES_MINOR=37
KUBERNETES_VERSION=1.$KUBERNETES_MINOR.2
KWOK_VERSION=v0.8.0

source "$(dirname "${BASH_SOURCE[0]}")/needs.sh"
DIR=$PEERS_DIR
use_go || exit 77
mkdir -p "$DIR/bin"

have() { for name in "$@"; do [ -x "$DIR/bin/$name" ] || return 1; done; }

enter() { # enter NAME: an empty module to build from
    rm -rf "${DIR:?}/src/$1"
    mkdir -p "$DIR/src/$1"
    cd "$DIR/src/$1"
    go mod init "peers/$1" >/dev/null 2>&1
}

imports() { # imports PATH...: a file that keeps them in go.mod
    { echo 'package main'; printf 'import _ "%s"\n' "$@"; } | sed '1i //go:build peers\n' >peers.go
}

etcd() {
    have etcd etcdctl etcdutl && return
    enter etcd
    go get go.etcd.io/etcd/{server,etcdctl,etcdutl}/v3@$ETCD_VERSION
    go build -o "$DIR/bin/etcd" go.etcd.io/etcd/server/v3
    go build -o "$DIR/bin/" go.etcd.io/etcd/etcdctl/v3 go.etcd.io/etcd/etcdutl/v3
}

benchmark() {
    have benchmark && return
    enter benchmark
    go get go.etcd.io/etcd/v3@$BENCHMARK_VERSION
    go build -o "$DIR/bin/" go.etcd.io/etcd/v3/tools/benchmark
}

h2spec() {
    have h2spec && return
    enter h2spec
    imports github.com/summerwind/h2spec/cmd/h2spec
    go mod tidy
    go build -o "$DIR/bin/" github.com/summerwind/h2spec/cmd/h2spec
}

kubernetes() {
    local programs=(kube-apiserver kube-controller-manager kube-scheduler)
    command -v kubectl >/dev/null || programs+=(kubectl)
    have "${programs[@]}" && return
    enter kubernetes
    local file stamp=k8s.io/component-base/version
    file=$(go mod download -json k8s.io/kubernetes@v$KUBERNETES_VERSION | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    # Its staging modules are required at v0.0.0 and live in the registry at the matching 0.x.
    go mod edit -require=k8s.io/kubernetes@v$KUBERNETES_VERSION
    sed -n 's/^[[:space:]]*\(k8s\.io\/[^ ]*\) v0\.0\.0$/\1/p' "$file" | sort -u | while read -r module; do
        go mod edit -replace="$module=$module@v0.${KUBERNETES_VERSION#1.}"
    done
    imports "${programs[@]/#/k8s.io/kubernetes/cmd/}"
    go mod tidy
    for program in "${programs[@]}"; do
        have "$program" || go build -o "$DIR/bin/" -ldflags "-X $stamp.gitVersion=v$KUBERNETES_VERSION \
            -X $stamp.gitMajor=1 -X $stamp.gitMinor=$KUBERNETES_MINOR" "k8s.io/kubernetes/cmd/$program"
    done
}

kwok() {
    have kwok && [ -f "$DIR/bin/kwok-stages.yaml" ] && return
    enter kwok
    go get sigs.k8s.io/kwok@$KWOK_VERSION sigs.k8s.io/kwok/cmd/kwok@$KWOK_VERSION
    go build -o "$DIR/bin/" sigs.k8s.io/kwok/cmd/kwok
    local stages
    stages=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
    for part in node/fast/node-initialize node/heartbeat-with-lease/node-heartbeat-with-lease; do
        cat "$stages/$part.yaml"; printf '\n---\n'
    done >"$DIR/bin/kwok-stages.yaml"
    for file in "$stages"/pod/fast/pod-*.yaml; do
        cat "$file"; printf '\n---\n'
    done >>"$DIR/bin/kwok-stages.yaml"
}

for name in "$@"; do
    case $name in
        all) for each in etcd h2spec kwok kubernetes; do ("$each"); done ;;
        etcd | h2spec | benchmark | kubernetes | kwok) ("$name") ;;
        *) echo "no peer $name" >&2; exit 2 ;;
    esac
done
