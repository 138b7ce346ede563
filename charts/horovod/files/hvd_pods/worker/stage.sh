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
# STAGING_OWNER: the namespace and name of the release. Another release's directory is used, and never filled
# again.
# Requires a POSIX shell, find, sort, uniq, stat, readlink, tr, df, awk, sha256sum and flock, which BusyBox and
# Debian have.
#
# What was fetched may come from a stranger: no name in it is read or removed that is not a file of the directory
# itself.
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
        command -v "$program" >/dev/null ||
            fail "the image has no $program: set \`staging.image\` to one that has it"
    done
}

# Prints where each link leads. A link that is changed later could lead to data of somebody else.
list_links() {
    find . -type l -exec sh -c 'for link; do
        printf "link to %s  %s\n" "$(readlink "$link")" "$link"
    done' sh {} +
}

# Prints size and name of every file below the current directory. It reads no contents, so it is fast.
list_sizes() { find . -type f -exec stat -c '%s %n' {} + | sort; }

list_checksums() { find . -type f -exec sha256sum {} + | sort -k 2; }

# Prints the links to what exists outside of the directory, and those into partial, which is renamed.
list_links_outside() {
    find . -type l -exec sh -c 'partial=$1 && shift && for link; do
        case $(readlink "$link") in "$partial" | "$partial"/*) printf "%s\n" "$link"; continue ;; esac
        [ -e "$link" ] || continue
        case $(readlink -f "$link") in "$0" | "$0"/*) ;; *) printf "%s\n" "$link" ;; esac
    done' "$(pwd -P)" "$partial" {} +
}

# Refuses file names with line breaks: each list has one file in a line.
refuse_line_breaks() {
    [ -z "$(find . -name '*
*' | head -n 1)" ] || fail "what was fetched has a name with a line break"
}

# Refuses links to data of somebody else, where they lead from the directory's own place.
check_links() {
    cd "$STAGING_PATH"
    outside=$(list_links_outside | head -n 1)
    [ -n "$outside" ] || return 0
    mv "$STAGING_PATH" "$partial"
    fail "what was fetched has links to files or directories outside of it, such as $outside: \
let \`staging.command\` copy what they lead to, make them relative or remove them"
}

# Prints the lines HASH  NAME of the input that the checksums of the files do not have.
list_unmatched() { sort -u | sort - "$state/own" "$state/own" | uniq -u; }

# Compares the checksums with a SHA256SUMS file of the publisher's, when there is one among the files.
verify_download() {
    [ -f SHA256SUMS ] && [ ! -L SHA256SUMS ] || return 0
    log "checking the publisher's SHA256SUMS"
    awk '{ sub(/^\\/, ""); print }' "$state/sha256" >"$state/own"
    # The names of coreutils, and those of BSD: SHA256 (NAME) = HASH.
    awk '
        { sub(/^\\/, "") }
        /^SHA256 \(.*\) = / { $0 = substr($0, length($0) - 63) "  " substr($0, 9, length($0) - 76) }
        { hash = tolower(substr($0, 1, 64)); name = substr($0, 67) }
        length(hash) < 64 || hash ~ /[^0-9a-f]/ { next }
        { sub(/^(\.\/)+/, "", name); print hash "  ./" name }' SHA256SUMS >"$state/listed"
    [ -s "$state/listed" ] || fail "the SHA256SUMS that was fetched has no checksums"
    : >"$state/missing"
    here=$(pwd -P)
    # A name may lead through links to a file of the directory.
    list_unmatched <"$state/listed" | while IFS= read -r line; do
        name=${line#*  } && file=
        [ ! -f "$name" ] || file=$(readlink -f "$name")
        case $file in
        "$here"/*) printf '%s  .%s\n' "${line%%  *}" "${file#"$here"}" ;;
        *) printf '%s\n' "$name" >>"$state/missing" ;;
        esac
    done | list_unmatched | while IFS= read -r line; do
        printf '%s\n' "${line#*  }"
    done >"$state/differ"
    [ -s "$state/differ" ] || [ -s "$state/missing" ] || return 0
    # A command that resumes would consider them complete.
    while IFS= read -r file; do rm -f "$file"; done <"$state/differ"
    fail "$(cat "$state/differ" "$state/missing" | wc -l) files do not match the publisher's SHA256SUMS or are \
missing, such as $(cat "$state/differ" "$state/missing" | head -n 1): those that do not match were removed, and \
the next attempt fetches again"
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
    { list_links && list_links_outside; } >>"$state/now"
    differing=$(sort "$expected" "$state/links" "$state/now" | uniq -u | head -n 4)
    [ -z "$differing" ] && return 0
    log "$STAGING_PATH differs from what was fetched, in lines such as: $differing"
    return 1
}

# Prints the used space of the volume in MiB. Adding up the files, as du does, reads every directory each
# time.
used_space() { df -P -k "$state" | awk 'END { print int($3 / 1024) }'; }

# Prints the number of files and their size.
filled_size() { awk '{ size += $1 } END { print NR " files, " int(size / 1048576) " MiB" }' "$state/sizes"; }

report_progress() {
    before=$(used_space)
    # A sleep that outlives this script must not keep the log open.
    while sleep "$report_every" >/dev/null 2>&1; do
        log "$(($(used_space) - before)) MiB more of the volume are used than at the start"
    done
}

# Other pods may be training on the files of another release: replacing them would end those runs, or spoil
# them.
refuse_to_replace() {
    owner=$(cat "$state/owner" 2>/dev/null) || return 0
    [ "$owner" = "$STAGING_OWNER" ] || [ ! -d "$STAGING_PATH" ] ||
        fail "$STAGING_PATH was filled by release $owner with another \`staging.command\`, image or env, or was \
changed since: give this release another \`staging.path\` or the same settings, or remove $state/owner when that \
release is gone"
}

fill() {
    refuse_to_replace
    echo "$STAGING_OWNER" >"$state/owner"
    # After a changed key or a damaged file, the command continues with the files that are there.
    rm -f "$state/key"
    [ -d "$STAGING_PATH" ] && [ ! -d "$partial" ] && mv "$STAGING_PATH" "$partial"
    mkdir -p "$partial"
    cd "$partial"
    # An argument may be a token.
    log "fetching into $STAGING_PATH with $1"
    report_progress 9>&- &
    reporter=$!
    trap 'kill "$reporter" 2>/dev/null || true' EXIT
    # A child that outlives this script must not hold the lock.
    "$@" 9>&- || fail "the command failed with exit code $?: its output above shows the reason"
    [ -n "$(find . -type f | head -n 1)" ] ||
        fail "the command succeeded and left no file in its working directory, $partial"
    refuse_line_breaks
    log "writing checksums"
    list_links >"$state/links"
    list_sizes >"$state/sizes"
    list_checksums >"$state/sha256"
    verify_download
    cd /
    rm -rf "$STAGING_PATH"
    mv "$partial" "$STAGING_PATH"
    check_links
    echo "$STAGING_KEY" >"$state/key"
}

[ $# -gt 0 ] || fail "there is no command: set \`staging.command\`"
require_programs find sort uniq stat readlink tr df awk sha256sum flock
mkdir -p "$state" 2>/dev/null ||
    fail "UID $(id -u) cannot write to ${STAGING_PATH%/*}: make the volume's directory writable for it, or set \
\`podSecurityContext.runAsUser\`"
exec 9>"$state/lock"
flock -n 9 || { log "another pod is filling $STAGING_PATH: waiting for it"; flock 9; }
if is_filled; then
    log "$STAGING_PATH is filled: $(wc -l <"$state/sizes") files"
else
    fill "$@"
    log "filled $STAGING_PATH: $(filled_size)"
fi
