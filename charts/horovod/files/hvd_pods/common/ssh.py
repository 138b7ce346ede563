"""SSH between master and workers: keys from the Secret, and the client's configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Mapping

from hvd_pods.common.errors import ConfigurationError
from hvd_pods.common.passwd import require_user_name
from hvd_pods.common.paths import GENERATED, OPENSSH, SECRETS
from hvd_pods.common.run import Host

# All workers of a release have the same host key, so the master knows it by one name.
HOST_KEY_ALIAS = "horovod-worker"
# What precedes the worker's revision in the banner of its sshd.
BANNER_MARK = "hvd-"
# How the problem of a worker of another revision begins.
STALE = "from before the last upgrade"
# Prefix of the host alias with which ssh opens a worker's shared login (master/logins.py).
LOGIN = "login_"
# What ssh prints when a worker does not have the keys that this pod has, and what is told instead.
OTHER_KEYS = re.compile(
    rf"Host key for {HOST_KEY_ALIAS} has changed|host key is known for {HOST_KEY_ALIAS} "
    r"|^[\w.-]{1,64}@(?P<address>[0-9a-f.:]{1,64}): Permission denied \(publickey\)",
    re.M,
)
KEYS_DIFFER = (
    "its SSH keys are not the master's, as when the Secret with the keys was changed during a run: "
    "give all pods the same keys with helm upgrade --reuse-values --set ssh.generation=N, where N "
    "is another number than before"
)
# The settings that launchers, the MPI operator, rsync and scripts pass with -o. None of them starts
# a program, listens, or writes a file.
SETTINGS = (
    "BatchMode BindAddress CheckHostIP Compression ConnectTimeout ConnectionAttempts "
    "GlobalKnownHostsFile IdentitiesOnly IdentityFile LogLevel PasswordAuthentication Port "
    "ServerAliveCountMax ServerAliveInterval StrictHostKeyChecking TCPKeepAlive User "
    "UserKnownHostsFile"
)
# ssh takes NAME=VALUE and NAME VALUE, and names in any case.
_PATTERNS = (
    re.sub("[A-Za-z]", lambda letter: f"[{letter[0].upper()}{letter[0].lower()}]", name)
    for name in SETTINGS.split()
)
# The beginning of the wrapper. Arguments that are no options are the host and its command.
WRAPPER = """\
#!/bin/sh
# Training code can name hosts (MPI's info key add-host). One named -oProxyCommand=... would
# start a program in this container.
refuse() { echo "[hvd] error: ssh is not to be called with $1" >&2; exit 255; }
check_setting() {
    case $1 in
    SETTINGS) ;;
    *) refuse "-o $1" ;;
    esac
}
check() {
    host=
    while [ $# -gt 0 ]; do
        case $1 in
        -o) check_setting "$2" && shift ;;
        -o*) check_setting "${1#-o}" ;;
        -[bceilp]) shift ;;
        -[bceilp]*) ;;
        -*[!46ACNTXYafknqtvx]*) refuse "$1" ;;
        -*) ;;
        *) [ -z "$host" ] || return 0 ; host=$1 ;;
        esac
        shift
    done
}
check "$@"
# ssh makes its pipes non-blocking, and so the launcher's, whose they are, too: Open MPI then drops
# what a full pipe does not take. A pipe that is opened anew is not the launcher's. A
# named one waits for a reader, which descriptor 9 is; `command` keeps this shell after a failure.
reopens() { [ -p "$1" ] && [ -r "$1" ] && [ -w "$1" ]; }
reopens /proc/self/fd/1 && command exec 9<>/proc/self/fd/1 >>/proc/self/fd/1 9>&-
reopens /proc/self/fd/2 && command exec 9<>/proc/self/fd/2 2>>/proc/self/fd/2 9>&-
""".replace("SETTINGS", " | ".join(f'{pattern}[" "=]*' for pattern in _PATTERNS))


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file of mode 0600. An existing file is replaced, with its mode."""
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(content)


def find_program(name: str) -> str:
    """Return the absolute path of a program of OpenSSH: the image's own, else that of ssh.image."""
    # sshd must be started by its path, and is often not on PATH.
    search_path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin:/sbin"
    path = shutil.which(name, path=f"{search_path}:{OPENSSH}")
    if path is None:
        raise ConfigurationError(f"the image has no {name}: set ssh.image to an image with OpenSSH")
    return path


def prepare_client(keys: Path | None = None) -> str:
    """Install the keys and a wrapper named `ssh` that launchers find first on PATH.

    `keys` is the folder with the private keys, by default the mounted Secret. Returns the public
    half of the user's key. Raises ConfigurationError when the image, the user or the keys do not
    allow ssh to run.

    Options on the command line override a configuration file, and the first one counts. The wrapper
    puts the host key check there, before the options of launchers such as horovodrun, which switch
    it off.
    """
    require_user_name()
    user_key, host_key = (_install_key(name, keys) for name in ("user-key", "host-key"))
    ssh = find_program("ssh")
    (GENERATED / "known_hosts").write_text(f"{HOST_KEY_ALIAS} {host_key}\n")
    wrapper = GENERATED / "bin" / "ssh"
    wrapper.parent.mkdir(exist_ok=True)
    pinned = (
        f"-o StrictHostKeyChecking=yes -o UserKnownHostsFile={GENERATED}/known_hosts "
        "-o GlobalKnownHostsFile=none"
    )
    wrapper.write_text(f'{WRAPPER}exec {ssh} -F {GENERATED}/ssh_config {pinned} "$@"\n')
    wrapper.chmod(0o755)
    return user_key


def _install_key(name: str, keys: Path | None) -> str:
    """Copy a private key to a file of mode 0600, as OpenSSH requires; return its public half."""
    try:
        key = ((keys or SECRETS) / name).read_bytes()
    except OSError as problem:
        raise ConfigurationError(
            f"cannot read key {name!r} of the SSH Secret: {problem}; the Secret "
            "(ssh.existingSecret) must have the keys user-key and host-key"
        ) from problem
    write_private_file(GENERATED / name, key)
    return derive_public_key(GENERATED / name)


def derive_public_key(private: Path) -> str:
    """Return the public half of a private key as one line, `TYPE BASE64`.

    Raises ConfigurationError for a key with a passphrase and for a file that is not a key.
    """
    done = subprocess.run(
        [find_program("ssh-keygen"), "-y", "-P", "", "-f", str(private)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConfigurationError(
            f"cannot use key {private.name!r} of the SSH Secret: {done.stderr.strip()}; the Secret "
            "(ssh.existingSecret) must have private keys in PEM format without a passphrase"
        )
    return " ".join(done.stdout.split()[:2])


def write_client_config(
    port: int, addresses: Mapping[Host, str], sockets: Mapping[Host, Path] | None = None
) -> None:
    """Replace the client configuration in one step: launchers may read it at any moment."""
    new = GENERATED / "ssh_config.new"
    new.write_text(client_config(port, addresses, sockets or {}))
    new.replace(GENERATED / "ssh_config")


def tells_other_keys(text: str) -> bool:
    """Whether ssh has printed that a worker has other keys."""
    addresses = [match["address"] for match in OTHER_KEYS.finditer(text)]
    try:
        config = (GENERATED / "ssh_config").read_text()
    except OSError:
        config = ""
    # The script's own git or rsync prints the same about servers that are no workers.
    return any(not one or f"\n  HostName {one}\n" in config for one in addresses)


def client_config(port: int, addresses: Mapping[Host, str], sockets: Mapping[Host, Path]) -> str:
    """Return the configuration of this pod's SSH client.

    It reaches each host by its IP address, so that a stale DNS answer cannot mislead it, or over
    the login that listens at its socket. The key exchange that OpenSSH 9 prefers takes six times
    the CPU time of all the rest of a login.
    """
    blocks = []
    for host, address in addresses.items():
        login = f" {LOGIN}{host.name}" if host in sockets else ""
        blocks.append(f"Host {host.address} {host.name}{login}\n  HostName {address}\n")
        if host in sockets:
            blocks.append(f"  ControlPath {sockets[host]}\n")
    blocks.append(f"""\
Host {LOGIN}*
  ControlMaster yes
Host *
  Port {port}
  IdentityFile {GENERATED}/user-key
  IdentitiesOnly yes
  HostKeyAlias {HOST_KEY_ALIAS}
  UserKnownHostsFile {GENERATED}/known_hosts
  GlobalKnownHostsFile none
  BatchMode yes
  ConnectTimeout 60
  KexAlgorithms -sntrup761*
  SendEnv HVD_EPOCH HVD_ATTEMPT HVD_NOTICES HVD_MEETING HVD_RUN_ID
  ServerAliveInterval 15
  ServerAliveCountMax 4
  LogLevel ERROR
""")
    return "".join(blocks)


def find_banner_problem(banner: str, port: int, revision: str) -> str | None:
    """Return None for the banner of an SSH server of this revision, else what is wrong."""
    if not banner.startswith("SSH-2.0-"):
        return f"port {port} is not an SSH server: it sent {banner!r}"
    if not banner.endswith(BANNER_MARK + revision):
        return f"{STALE}: it sent {banner!r}, this run needs {BANNER_MARK}{revision}"
    return None
