#!/bin/sh
# Fills a directory of a volume once, with any command, before a worker starts.
#
# `stage.sh COMMAND [ARGUMENT ...]` runs in an init container. The command runs in
# $STAGING_PATH.staging/partial. An interrupted attempt leaves its files there, so that a command that can
# resume continues with them. When the command succeeds, its checksums are written, and partial is renamed to
# $STAGING_PATH. A second pod waits for the lock on the volume, and then uses what the first one fetched.
#
# STAGING_PATH: the directory to fill.
# STAGING_KEY: a hash of the command, its image and variables; when it changes, the command runs again.
# STAGING_VERIFY: Size or Checksum, how a filled directory is checked before it is used.
# STAGING_OWNER: the namespace and name of the release. Another release's directory is used, and never filled again.
# Requires a POSIX shell, find, sort, uniq, stat, readlink, tr, df, awk, sha256sum and flock, which BusyBox and Debian have.
#
# What was fetched may come from a stranger: no name in it is read or removed that is not a file of the directory itself.
set -eu

state="$STAGING_PATH.staging"
partial="$state/partial"
report_every=10

# Without the control characters that names of files may have, and without the escapes that echo knows.
log() { printf '[hvd staging] %s\n' "$*" | tr -d '\001-\011\013-\037\177'; }

fail() {
    log "error: $*" >&2
    # kubectl describe and the master's log show this file.
    [ -w /dev/termination-log ] && printf 'staging: %s\n' "$*" >/dev/termination-log
    exit 1
}

require_programs() {
    for program in "$@"; do
        command -v "$program" >/dev/null || fail "the image has no $program: set staging.image to one that has it"
    done
}

# Prints where each link leads. A link that is changed later could lead to data of somebody else.
list_links() {
    find . -type l -exec sh -c 'for link; do printf "link to %s  %s\n" "$(readlink "$link")" "$link"; done' sh {} +
}

# Prints size and name of every file below the current directory. It reads no contents, so it is fast.
list_sizes() { { find . -type f -exec stat -c '%s %n' {} + && list_links; } | sort; }

list_checksums() { { find . -type f -exec sha256sum {} + && list_links; } | sort -k 2; }

# Refuses names that lists cannot have, and links that would not lead to what was fetched when the directory is renamed.
check_names() {
    [ -z "$(find . -name '*
*' | head -n 1)" ] || fail "what was fetched has a name with a line break"
    outside=$(find . -type l -exec sh -c 'for link; do
        case $(readlink "$link") in /*) echo "$link"; continue ;; esac
        case $(readlink -f "$link") in "$0"/*) ;; *) echo "$link" ;; esac
    done' "$(pwd -P)" {} + | head -n 1)
    [ -z "$outside" ] || fail "what was fetched has links that do not lead to another part of it, such as $outside: \
let staging.command copy what they lead to"
}

# Compares the checksums with a SHA256SUMS file of the publisher's, when there is one among the files.
verify_download() {
    [ -f SHA256SUMS ] && [ ! -L SHA256SUMS ] || return 0
    log "checking the publisher's SHA256SUMS"
    : >"$state/differ" && : >"$state/missing"
    awk -v differ="$state/differ" -v missing="$state/missing" '
        { sub(/^\\/, ""); hash = tolower(substr($0, 1, 64)); name = substr($0, 67) }
        NR == FNR { own[name] = hash; next }
        length(hash) < 64 || hash ~ /[^0-9a-f]/ { next }
        { sub(/^(\.\/)+/, "", name); name = "./" name; checked++ }
        !(name in own) { print name >missing; next }
        own[name] != hash { print name >differ }
        END { exit (checked == 0) }' "$state/sha256" SHA256SUMS || fail "the SHA256SUMS that was fetched has no checksums"
    [ -s "$state/differ" ] || [ -s "$state/missing" ] || return 0
    # A command that resumes would consider them complete. A name with a backslash is not the file's own in the list.
    while IFS= read -r file; do case $file in *\\*) ;; *) rm -f "$file" ;; esac done <"$state/differ"
    fail "$(cat "$state/differ" "$state/missing" | wc -l) files do not match the publisher's SHA256SUMS, such as \
$(cat "$state/differ" "$state/missing" | head -n 1): they were removed, and the next attempt fetches them again"
}

is_filled() {
    [ -d "$STAGING_PATH" ] && [ -f "$state/key" ] && [ "$(cat "$state/key")" = "$STAGING_KEY" ] || return 1
    cd "$STAGING_PATH"
    if [ "$STAGING_VERIFY" = Checksum ]; then
        log "checking every file against its checksum"
        list_checksums >"$state/now"
        expected="$state/sha256"
    else
        list_sizes >"$state/now"
        expected="$state/sizes"
    fi
    differing=$(sort "$expected" "$state/now" | uniq -u | head -n 4)
    [ -z "$differing" ] && return 0
    log "$STAGING_PATH differs from what was fetched, in lines such as: $differing"
    return 1
}

# Prints the used space of the volume in MiB. Adding up the files, as du does, reads every directory each time.
used_space() { df -P -k "$state" | awk 'END { print int($3 / 1024) }'; }

report_progress() {
    before=$(used_space)
    # A sleep that outlives this script must not keep the log open.
    while sleep "$report_every" >/dev/null 2>&1; do
        log "$(($(used_space) - before)) MiB more of the volume are used than at the start"
    done
}

# Other pods may be training on the files of another release: replacing them would end those runs, or spoil them.
refuse_to_replace() {
    owner=$(cat "$state/owner" 2>/dev/null) || return 0
    [ "$owner" = "$STAGING_OWNER" ] || [ ! -d "$STAGING_PATH" ] ||
        fail "$STAGING_PATH was filled by release $owner with another staging.command, image or env, or was changed since: \
give this release another staging.path or the same settings, or remove $state/owner when that release is gone"
}

fill() {
    refuse_to_replace
    echo "$STAGING_OWNER" >"$state/owner"
    # After a changed key or a damaged file, the command continues with the files that are there.
    rm -f "$state/key"
    [ -d "$STAGING_PATH" ] && [ ! -d "$partial" ] && mv "$STAGING_PATH" "$partial"
    mkdir -p "$partial"
    cd "$partial"
    log "fetching into $STAGING_PATH: $*"
    report_progress 9>&- &
    reporter=$!
    trap 'kill "$reporter" 2>/dev/null || true' EXIT
    # A child that outlives this script must not hold the lock.
    "$@" 9>&- || fail "the command failed with exit code $?: its output above shows the reason"
    [ -n "$(find . -type f | head -n 1)" ] || fail "the command succeeded and left no file in its working directory, $partial"
    check_names
    log "writing checksums"
    list_sizes >"$state/sizes"
    list_checksums >"$state/sha256"
    verify_download
    cd /
    rm -rf "$STAGING_PATH"
    mv "$partial" "$STAGING_PATH"
    echo "$STAGING_KEY" >"$state/key"
}

[ $# -gt 0 ] || fail "there is no command: set staging.command"
require_programs find sort uniq stat readlink tr df awk sha256sum flock
mkdir -p "$state" 2>/dev/null || fail "UID $(id -u) cannot write to ${STAGING_PATH%/*}: make the volume's directory writable for it, or set podSecurityContext.runAsUser"
exec 9>"$state/lock"
flock -n 9 || { log "another pod is filling $STAGING_PATH: waiting for it"; flock 9; }
if is_filled; then
    log "$STAGING_PATH is filled: $(wc -l <"$state/sizes") files"
else
    fill "$@"
    log "filled $STAGING_PATH: $(awk '{ size += $1 } END { print NR " files, " int(size / 1048576) " MiB" }' "$state/sizes")"
fi
