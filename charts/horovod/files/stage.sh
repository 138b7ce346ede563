#!/bin/sh
# Fill a directory of a volume once, by any command, before a worker starts.
#
# `stage.sh COMMAND [ARGUMENT ...]` runs in an init container of the image that has the command. The command
# runs in $STAGING_PATH.staging/partial, which an attempt that was cut off leaves as it was, so that a
# command that can resume does. When it ends well, the checksums are written, and partial becomes
# $STAGING_PATH. A lock on the volume makes a second pod of the node wait and then find the work done.
#
# STAGING_PATH the directory to fill; STAGING_KEY what fills it, as a hash: another one fills it anew;
# STAGING_VERIFY Size or Checksum: how a filled directory is checked before it is used.
# Needs a POSIX shell, find, sort, uniq, stat, du, sha256sum and flock: BusyBox and Debian have them all.
set -eu

state="$STAGING_PATH.staging"
partial="$state/partial"
report_every=10

say() { echo "[hvd staging] $*"; }

fail() {
    say "error: $*" >&2
    # Where kubectl describe and the master's log look for the reason.
    [ -w /dev/termination-log ] && echo "staging: $*" >/dev/termination-log
    exit 1
}

need() {
    for program in "$@"; do
        command -v "$program" >/dev/null || fail "the image has no $program: set staging.image to one that has it"
    done
}

# Size and name of every file below the current directory. Reads no contents: seconds for a large set.
sizes() { find . -type f -exec stat -c '%s %n' {} + | sort; }

checksums() { find . -type f -exec sha256sum {} + | sort -k 2; }

# A publisher's own list of checksums, when it came with the data.
verify_download() {
    if [ -f SHA256SUMS ]; then
        say "checking the publisher's SHA256SUMS"
        sha256sum -c SHA256SUMS >"$state/check" 2>/dev/null && return
        sed -n 's/: FAILED.*$//p' "$state/check" >"$state/bad"
        # A command that resumes would take them for complete.
        while read -r file; do rm -f "./$file"; done <"$state/bad"
        fail "$(wc -l <"$state/bad") files do not match the SHA256SUMS among them and were removed, such as $(head -n 1 "$state/bad"); the next attempt fetches them again"
    fi
}

is_filled() {
    [ -d "$STAGING_PATH" ] && [ -f "$state/key" ] && [ "$(cat "$state/key")" = "$STAGING_KEY" ] || return 1
    cd "$STAGING_PATH"
    if [ "$STAGING_VERIFY" = Checksum ]; then
        say "checking every file against its checksum"
        checksums >"$state/now"
        was="$state/sha256"
    else
        sizes >"$state/now"
        was="$state/sizes"
    fi
    differing=$(sort "$was" "$state/now" | uniq -u | head -n 4)
    [ -z "$differing" ] && return 0
    say "$STAGING_PATH is not what was fetched; before or now: $differing"
    return 1
}

report() {
    # Its output is nobody's: a sleep that outlives this script must not keep the log open.
    while sleep "$report_every" >/dev/null 2>&1; do
        say "fetched $(du -sh "$partial" | cut -f 1) so far"
    done
}

fill() {
    # What a changed key or a damaged file makes to be fetched again starts from what is there.
    rm -f "$state/key"
    [ -d "$STAGING_PATH" ] && [ ! -d "$partial" ] && mv "$STAGING_PATH" "$partial"
    mkdir -p "$partial"
    cd "$partial"
    say "fetching into $STAGING_PATH: $*"
    report 9>&- &
    reporter=$!
    trap 'kill "$reporter" 2>/dev/null || true' EXIT
    # The lock is this script's: a child that outlived it must not hold it.
    "$@" 9>&- || fail "the command ended with exit code $?: its lines above say why"
    [ -n "$(find . -type f | head -n 1)" ] || fail "the command ended well and left no file in its working directory, $partial"
    verify_download
    say "writing checksums"
    sizes >"$state/sizes"
    checksums >"$state/sha256"
    cd /
    rm -rf "$STAGING_PATH"
    mv "$partial" "$STAGING_PATH"
    echo "$STAGING_KEY" >"$state/key"
}

[ $# -gt 0 ] || fail "no command was given"
need find sort uniq stat du sha256sum flock
mkdir -p "$state" 2>/dev/null || fail "UID $(id -u) cannot write to ${STAGING_PATH%/*}: make the volume's directory writable for it, or set podSecurityContext.runAsUser"
exec 9>"$state/lock"
flock -n 9 || { say "another pod is filling $STAGING_PATH: waiting for it"; flock 9; }
if is_filled; then
    say "$STAGING_PATH is filled: $(wc -l <"$state/sizes") files"
else
    fill "$@"
    say "filled $STAGING_PATH: $(wc -l <"$state/sizes") files, $(du -sh "$STAGING_PATH" | cut -f 1)"
fi
