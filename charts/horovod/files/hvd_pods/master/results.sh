#!/bin/sh
# Stores the results of a run, with any command, when the master asks for it.
#
# `results.sh COMMAND [ARGUMENT ...]` runs in a sidecar of the master. It waits until the master writes to the
# FIFO `go`, runs the command in $RESULTS_PATH, and writes `answer`: 0, or another number and the reason.
#
# RESULTS_PATH: the directory with the results.
# RESULTS_EXCHANGE: the directory that this container shares with the master's (master/results.py).
# Requires a POSIX shell, mkfifo, find, cat and mv, which BusyBox and Debian have.
set -u

go="$RESULTS_EXCHANGE/go"
answer="$RESULTS_EXCHANGE/answer"
running="$RESULTS_EXCHANGE/running"

log() { echo "[hvd results] $*"; }

# Reports the result to the master: the exit code and the reason. The file appears as a whole.
report() {
    code=$1
    shift
    log "$*"
    echo "$code $*" >"$answer.partial"
    mv "$answer.partial" "$answer"
    rm -f "$running"
}

store() {
    if ! cd "$RESULTS_PATH" || [ -z "$(find . -type f | head -n 1)" ]; then
        report 1 "$RESULTS_PATH contains no file on the master's node: \
use a volume that all nodes share, because rank 0 writes on its own node"
        return
    fi
    log "storing $RESULTS_PATH: $*"
    "$@" &
    wait $!
    code=$?
    if [ "$code" = 0 ]; then report 0 "stored $RESULTS_PATH"; else report "$code" "\`results.command\` failed with exit code $code"; fi
}

# A process with the ID 1 ignores signals that it does not handle, and `wait` can be interrupted.
trap 'exit 0' TERM
[ -p "$go" ] || mkfifo -m 666 "$go" || exit 1
[ ! -e "$running" ] || report 137 "the container ended while \`results.command\` ran, for instance because its memory ran out"
while :; do
    cat "$go" >/dev/null &
    wait $!
    touch "$running"
    store "$@"
done
