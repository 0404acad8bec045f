#!/usr/bin/env bash
# Power cuts under the release binary on ext4 and xfs, over a disk of our own: what was not flushed is
# lost, torn or kept, flushes and writes fail, the disk is slow or full; then the same disk is mounted
# again and must hold what the mode promises.
#   powercut.sh [LIVES]               lives per file system, mode and io engine (default 16)
#   powercut.sh --file-system F …     one run of the program below, as a failure prints it
set -euo pipefail
source tests/suites/lib.sh

[ "$(id -u)" = 0 ] || skip "only root can mount a disk: run this as root"
need mkfs.ext4 mkfs.xfs mount umount losetup unshare setpriv timeout find
[ -c /dev/fuse ] || skip "there is no /dev/fuse: modprobe fuse, or give the container --device /dev/fuse"
[ -c /dev/loop-control ] || skip "there are no loop devices: modprobe loop, or a privileged container"
unshare --mount true 2>/dev/null || skip "no mount namespaces: they need CAP_SYS_ADMIN"
cargo build --release -q -p tests --bin powercut
port=${POWERCUT_PORT:-26990}

cuts() { # cuts PORT FLAGS...: one disk after the other; it ends by itself, whatever hangs
    local port=$1
    shift
    # It ends with this shell, and the server with it.
    setpriv --pdeathsig KILL -- target/release/powercut --server "$BIN" --directory "$WORK/$port" --port "$port" "$@"
}

planted() { # planted FLAGS...: a mistake is planted and must be found
    local status=0
    cuts "$port" "$@" --lives 30 >"$WORK/planted" 2>&1 || status=$?
    [ $status = 1 ] || fail "$*: ended with $status: $(tail -n 3 "$WORK/planted")"
    head -n 1 "$WORK/planted" | sed 's/^FAILED/found:/'
}

if [[ ${1-} == --* ]]; then
    cuts "$port" "$@"
    exit
fi

planted --file-system ext4 --fsync safe --planted lying-disk --seed 21
planted --file-system xfs --fsync unsafe-no-fsync --planted same-boot --seed 5
lives=${1:-${POWERCUT_LIVES:-16}}

all_of() { # all_of PORT FILE-SYSTEM SEED
    local seed=$3
    for mode in safe unsafe-no-fsync; do
        for engine in uring epoll; do
            cuts "$1" --file-system "$2" --fsync "$mode" --io-engine "$engine" --lives "$lives" --seed "$seed" \
                ${POWERCUT_KEEP:+--keep "$POWERCUT_KEEP.$2"} || return
            seed=$((seed + 1)) # other lives in each
        done
    done
}

# Much of a life is waiting: two disks at a time.
seed=${POWERCUT_SEED:-1}
all_of "$port" ext4 "$seed" &
one=$!
all_of $((port + 2)) xfs $((seed + 4)) &
two=$!
status=0
wait "$one" || status=$?
wait "$two" || status=$?
exit "$status"
