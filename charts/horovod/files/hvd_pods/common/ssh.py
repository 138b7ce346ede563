"""SSH between master and workers: keys from the Secret, and the configuration of both sides."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Mapping

from hvd_pods.common import fast_start
from hvd_pods.common.errors import ConfigurationError
from hvd_pods.common.passwd import require_user_name
from hvd_pods.common.paths import GENERATED, PROGRAMS, SECRETS
from hvd_pods.common.run import Host

# All workers of a release have the same host key, so the master knows it by one name.
HOST_KEY_ALIAS = "horovod-worker"
ENVIRONMENT = Path(fast_start.ENVIRONMENT)
BANNER_MARK = "hvd-"
# What begins the verdict on a worker of another revision.
STALE = "from before the last upgrade"
# The directory that sshd, running as root, confines its unprivileged process to.
PRIVILEGE_SEPARATION = Path("/run/sshd")
# The capabilities that sshd, running as root, needs to log a user in (numbers: linux/capability.h).
SSHD_CAPABILITIES = {"SETGID": 6, "SETUID": 7, "SYS_CHROOT": 18}


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file of mode 0600. A file that is there is replaced, with its mode."""
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(content)


def install_key(name: str, keys: Path | None = None) -> Path:
    """Copy a private key from the Secret to a file of mode 0600, as OpenSSH requires.

    `keys` is the folder that has it, where that is not the mounted Secret. Raises
    ConfigurationError when there is no such key.
    """
    source, target = (keys or SECRETS) / name, GENERATED / name
    try:
        key = source.read_bytes()
    except OSError as problem:
        raise ConfigurationError(
            f"cannot read key {name!r} of the SSH Secret: {problem}; the Secret "
            "(ssh.existingSecret) must have the keys user-key and host-key"
        ) from problem
    write_private_file(target, key)
    return target


def derive_public_key(private: Path) -> str:
    """Return the public half of a private key as one line, `TYPE BASE64`.

    Raises ConfigurationError for a key with a passphrase and for a file that is not a key.
    """
    done = subprocess.run(
        ["ssh-keygen", "-y", "-P", "", "-f", str(private)],
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


def find_program(name: str, package: str) -> str:
    """Return a program's absolute path: sshd must be started by it, and is often not on PATH."""
    search_path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin:/sbin"
    path = shutil.which(name, path=search_path)
    if path is None:
        raise ConfigurationError(f"the image has no {name}: install its package {package}")
    return path


def check_capabilities(status: str) -> None:
    """Raise ConfigurationError when a container that runs as root lacks what sshd needs.

    `status` is the content of /proc/self/status.
    """
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    missing = [name for name, bit in SSHD_CAPABILITIES.items() if not effective >> bit & 1]
    if missing:
        raise ConfigurationError(
            f"sshd runs as root here without the capabilities {', '.join(missing)}: set "
            "podSecurityContext.runAsUser to 0 and the chart adds them, or to another UID"
        )


def sshd_config(port: int, revision: str, python: str, is_root: bool) -> str:
    """Return the worker's server configuration: only its own user may log in, with the key.

    An sshd of another user than root cannot log in anyone else. It gets no AllowUsers: its user may
    have another name in the master's image, by which the client asks for it. The connection by
    which the master sees that this worker is there never logs in.
    """
    allowed = "AllowUsers root\n" if is_root else ""
    return f"""\
Port {port}
HostKey {GENERATED}/host-key
AuthorizedKeysFile {GENERATED}/authorized_keys
AuthenticationMethods publickey
{allowed}PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
UseDNS no
PidFile none
PrintMotd no
PermitUserEnvironment no
AcceptEnv HVD_EPOCH HVD_ATTEMPT HVD_NOTICES
PermitUserRC no
AllowAgentForwarding no
AllowStreamLocalForwarding no
AllowTcpForwarding no
PermitTunnel no
X11Forwarding no
LoginGraceTime 0
MaxStartups 1000
LogLevel ERROR
VersionAddendum {BANNER_MARK}{revision}
ForceCommand {python} -I -S {PROGRAMS}/worker/session.py
"""


def client_config(port: int, addresses: Mapping[Host, str]) -> str:
    """Return the master's client configuration.

    It reaches each host by its IP address, so that a stale DNS answer cannot mislead it. The key
    exchange that OpenSSH 9 prefers takes six times the CPU time of all the rest of a login.
    """
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
  ConnectTimeout 60
  KexAlgorithms -sntrup761*
  SendEnv HVD_EPOCH HVD_ATTEMPT HVD_NOTICES
  ServerAliveInterval 15
  ServerAliveCountMax 4
  LogLevel ERROR
""")
    return "".join(blocks)


def prepare_worker(port: int, revision: str, python: str) -> list[str]:
    """Write the files that sshd and this worker's own ssh read, and return sshd's command line.

    Raises ConfigurationError when the image, the user or the keys do not allow sshd to run.
    """
    require_user_name()
    sshd = find_program("sshd", "openssh-server")
    host_key = derive_public_key(install_key("host-key"))
    user_key = derive_public_key(install_key("user-key"))
    # In a run of many hosts, the daemons on some of them start those on others.
    _prepare_client(host_key)
    write_client_config(port, {})
    # `restrict` also forbids what a later version of OpenSSH may add to it.
    (GENERATED / "authorized_keys").write_text(f"restrict,pty {user_key}\n")
    config = GENERATED / "sshd_config"
    config.write_text(sshd_config(port, revision, python, os.getuid() == 0))
    if os.getuid() == 0:
        check_capabilities(Path("/proc/self/status").read_text())
        PRIVILEGE_SEPARATION.mkdir(exist_ok=True)
        # The chart mounts a volume here that all may write to, which sshd refuses.
        PRIVILEGE_SEPARATION.chmod(0o755)
    return [sshd, "-D", "-e", "-f", str(config)]


def prepare_master(keys: Path | None = None) -> None:
    """Write the master's keys, and a wrapper named `ssh` that launchers find first on PATH.

    `keys` is the folder that has them, where that is not the mounted Secret.
    """
    require_user_name()
    install_key("user-key", keys)
    _prepare_client(derive_public_key(install_key("host-key", keys)))


def _prepare_client(host_key: str) -> None:
    """Write the host key to expect, and a wrapper that calls ssh with this configuration.

    Options on the command line override a configuration file, and the first one counts. The wrapper
    puts the strict host key check there, before the options of launchers such as horovodrun, which
    switch it off.
    """
    ssh = find_program("ssh", "openssh-client")
    (GENERATED / "known_hosts").write_text(f"{HOST_KEY_ALIAS} {host_key}\n")
    wrapper = GENERATED / "bin" / "ssh"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(
        f'#!/bin/sh\nexec {ssh} -F {GENERATED}/ssh_config -o StrictHostKeyChecking=yes "$@"\n'
    )
    wrapper.chmod(0o755)


def write_client_config(port: int, addresses: Mapping[Host, str]) -> None:
    """Replace the client configuration in one step: launchers may read it at any moment."""
    new = GENERATED / "ssh_config.new"
    new.write_text(client_config(port, addresses))
    new.replace(GENERATED / "ssh_config")


def write_environment(environment: Mapping[str, str]) -> None:
    """Save a worker's container environment for its SSH sessions, each entry ended by a NUL."""
    content = b"".join(
        os.fsencode(name) + b"=" + os.fsencode(value) + b"\0" for name, value in environment.items()
    )
    # Values may be secrets.
    write_private_file(ENVIRONMENT, content)


def find_banner_problem(banner: str, port: int, revision: str) -> str | None:
    """Return None for the banner of an SSH server of this revision, else what is wrong."""
    if not banner.startswith("SSH-2.0-"):
        return f"port {port} is not an SSH server: it sent {banner!r}"
    if not banner.endswith(BANNER_MARK + revision):
        return f"{STALE}: it sent {banner!r}, this run needs {BANNER_MARK}{revision}"
    return None
