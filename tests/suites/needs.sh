#!/usr/bin/env bash
# What ./x and the suites need of the machine, and how it comes there. Sourced.

GO_LEAST=1.26.0    # what the peers' modules and tests/go ask for
GO_BROUGHT=1.26.8  # what is brought where the machine's Go is older
export PEERS_DIR=${PEERS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/ringbolt-peers}
# Go neither fetches another toolchain by itself nor asks git about the checkout.
export GOTOOLCHAIN=local GOFLAGS="${GOFLAGS-} -buildvcs=false"

not_older() { printf '%s\n%s\n' "$1" "$2" | sort -V -C; } # not_older LEAST VERSION

go_serves() { # go_serves GO: it runs and is new enough
    local version
    version=$("$1" env GOVERSION 2>/dev/null) || return 1
    not_older "$GO_LEAST" "${version#go}"
}

bring_go() { # by an old Go, the one we need: it is a module too, only without execute bits
    local module from to=$PEERS_DIR/go
    module=golang.org/toolchain@v0.0.1-go$GO_BROUGHT.linux-$(go env GOARCH)
    echo "bringing Go $GO_BROUGHT to $to"
    from=$(cd / && GO111MODULE=on go mod download -json "$module" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    [ -d "$from" ] || return 1
    rm -rf "$to" "$to.part"
    # A module may hold no other module, so their go.mod files have another name in it.
    mkdir -p "$PEERS_DIR" && cp -r "$from" "$to.part" && chmod -R u+w "$to.part" &&
        chmod -R +x "$to.part/bin" "$to.part/pkg/tool" &&
        find "$to.part" -name _go.mod -execdir mv {} go.mod \; &&
        mv "$to.part" "$to" && go_serves "$to/bin/go"
}

use_go() { # a Go that is new enough comes first in PATH; or says what is missing
    go_serves go && return
    if ! go_serves "$PEERS_DIR/go/bin/go"; then
        command -v go >/dev/null ||
            { echo "skipped: Go is missing (any version): sudo apt-get install golang-go"; return 1; }
        bring_go || { echo "skipped: Go is older than $GO_LEAST, and $GO_BROUGHT could not be fetched"; return 1; }
    fi
    export PATH=$PEERS_DIR/go/bin:$PATH
}

declare -A PACKAGE_OF=([cc]="gcc libc6-dev" [protoc]=protobuf-compiler [go]=golang-go
    [mkfs.ext4]=e2fsprogs [mkfs.xfs]=xfsprogs [setpriv]=util-linux [unshare]=util-linux [etcdctl]=etcd-client
    [umount]=mount [losetup]=mount [timeout]=coreutils [find]=findutils)

packages_of() { # packages_of COMMAND...: Debian's packages of those that are missing
    local name
    for name in "$@"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$name" >/dev/null || echo "${PACKAGE_OF[$name]:-$name}"
    done | xargs
}

bring_protoc() { # the protoc that a crate of raft's build has along, for this run
    local crate host
    host=$(rustc -vV | sed -n 's/^host: //p')
    crate=$(cargo metadata --format-version 1 --filter-platform "$host" | grep -o '"manifest_path":"[^"]*/protobuf-build-[0-9.]*/' |
        cut -d'"' -f4)
    PROTOC=${crate}bin/protoc-linux-$(uname -m | sed 's/aarch64/aarch_64/')
    export PROTOC
    [ -x "$PROTOC" ]
}

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

install_packages() { # install_packages PACKAGE...: as root
    local -x DEBIAN_FRONTEND=noninteractive
    echo "installing $*"
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 || {
        apt-get update -qq >/dev/null
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    }
}
