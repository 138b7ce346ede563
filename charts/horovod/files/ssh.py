"""SSH between master and workers: keys from the Secret, the configuration of both ends."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Mapping

from passwd import require_entry
from settings import FILES, GENERATED, SECRETS, ConfigurationError, Host

# Every worker of a release has the same host key, so one name stands for all of them.
HOST_KEY_ALIAS = "horovod-worker"
ENVIRONMENT = GENERATED / "environment"
BANNER_MARK = "hvd-"
# Where sshd of root jails its unprivileged half.
PRIVILEGE_SEPARATION = Path("/run/sshd")
# What sshd of root logs a user in with; numbers of linux/capability.h.
OF_SSHD = {"SETGID": 6, "SETUID": 7, "SYS_CHROOT": 18}


def install_key(name: str) -> Path:
    """Copy a private key out of the Secret with the mode that OpenSSH asks for."""
    source, target = SECRETS / name, GENERATED / name
    try:
        key = source.read_bytes()
    except OSError as problem:
        raise ConfigurationError(
            f"the SSH Secret has no readable {name!r} ({problem}); it needs user-key and host-key"
        ) from problem
    target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
    return target


def public_key(private: Path) -> str:
    """The public half of a private key, as one line `type base64`."""
    done = subprocess.run(
        ["ssh-keygen", "-y", "-P", "", "-f", str(private)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ConfigurationError(
            f"key {private.name!r} of the SSH Secret cannot be used: {done.stderr.strip()}; "
            "give an unencrypted PEM private key"
        )
    return " ".join(done.stdout.split()[:2])


def find_program(name: str, package: str) -> str:
    """A program's absolute path: sshd insists on being called by it, and is not on PATH."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin")
    if found is None:
        raise ConfigurationError(f"the image has no {name}: install its package ({package})")
    return found


def check_account() -> None:
    """Say plainly that OpenSSH will not run as a user it cannot look up."""
    try:
        require_entry()
    except LookupError as problem:
        raise ConfigurationError(str(problem)) from problem


def check_capabilities(status: str) -> None:
    """Say which of the capabilities that sshd needs the root of this container lacks."""
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    held = int(line.split()[1], 16)
    missing = [name for name, bit in OF_SSHD.items() if not held >> bit & 1]
    if missing:
        raise ConfigurationError(
            f"sshd runs as root here without the capabilities {', '.join(missing)}: set "
            "podSecurityContext.runAsUser to 0 and the chart adds them, or to another UID"
        )


def sshd_config(port: int, revision: str, python: str) -> str:
    """The worker's server configuration: key login as the container's own user and nothing else."""
    return f"""\
Port {port}
HostKey {GENERATED}/host-key
AuthorizedKeysFile {GENERATED}/authorized_keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
PrintMotd no
PermitUserEnvironment no
AllowAgentForwarding no
AllowTcpForwarding no
PermitTunnel no
X11Forwarding no
MaxStartups 1000
LogLevel ERROR
VersionAddendum {BANNER_MARK}{revision}
ForceCommand {python} -I -S {FILES}/session.py
"""


def client_config(port: int, addresses: Mapping[Host, str]) -> str:
    """The master's client configuration; hosts are reached by IP, so no DNS answer can be stale."""
    blocks = [
        f"Host {host.address} {host.name}\n  HostName {address}\n"
        for host, address in addresses.items()
    ]
    blocks.append(f"""\
Host *
  Port {port}
  IdentityFile {GENERATED}/user-key
  IdentitiesOnly yes
  HostKeyAlias {HOST_KEY_ALIAS}
  UserKnownHostsFile {GENERATED}/known_hosts
  GlobalKnownHostsFile none
  BatchMode yes
  ConnectTimeout 10
  ServerAliveInterval 15
  ServerAliveCountMax 4
  LogLevel ERROR
""")
    return "".join(blocks)


def prepare_worker(port: int, revision: str, python: str) -> list[str]:
    """Write what sshd reads and return its command line."""
    check_account()
    sshd = find_program("sshd", "openssh-server")
    install_key("host-key")
    user_key = public_key(install_key("user-key"))
    (GENERATED / "authorized_keys").write_text(f"restrict,pty {user_key}\n")
    config = GENERATED / "sshd_config"
    config.write_text(sshd_config(port, revision, python))
    if os.getuid() == 0:
        check_capabilities(Path("/proc/self/status").read_text())
        # The chart's volume: sshd of root refuses it while others may write there.
        PRIVILEGE_SEPARATION.mkdir(exist_ok=True)
        PRIVILEGE_SEPARATION.chmod(0o755)
    return [sshd, "-D", "-e", "-f", str(config)]


def prepare_master() -> None:
    """Write the keys, and an `ssh` that every launcher finds first on PATH.

    Options on the command line win over a configuration file: the wrapper puts the strict host key
    check there, ahead of launchers such as horovodrun that switch it off.
    """
    check_account()
    ssh = find_program("ssh", "openssh-client")
    install_key("user-key")
    host_key = public_key(install_key("host-key"))
    (GENERATED / "known_hosts").write_text(f"{HOST_KEY_ALIAS} {host_key}\n")
    wrapper = GENERATED / "bin" / "ssh"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(
        f'#!/bin/sh\nexec {ssh} -F {GENERATED}/ssh_config -o StrictHostKeyChecking=yes "$@"\n'
    )
    wrapper.chmod(0o755)


def write_client_config(port: int, addresses: Mapping[Host, str]) -> None:
    """Write where the hosts are; whole at any moment."""
    beside = GENERATED / "ssh_config.new"
    beside.write_text(client_config(port, addresses))
    beside.replace(GENERATED / "ssh_config")


def write_environment(environment: Mapping[str, str]) -> None:
    """Keep a worker's container environment for its SSH sessions, each entry ended by a NUL."""
    content = b"".join(
        os.fsencode(name) + b"=" + os.fsencode(value) + b"\0" for name, value in environment.items()
    )
    # Values may be secrets: for the container's own user only.
    descriptor = os.open(ENVIRONMENT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def read_environment() -> dict[str, str]:
    """What write_environment kept."""
    entries = ENVIRONMENT.read_bytes().split(b"\0")
    pairs = (entry.split(b"=", 1) for entry in entries if entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}
