"""The worker's sshd: the files that it reads, and its command line."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Mapping, Sequence

from hvd_pods.common import fast_start, ssh
from hvd_pods.common.errors import ConfigurationError
from hvd_pods.common.passwd import require_user_name
from hvd_pods.common.paths import GENERATED, OPENSSH, PROGRAMS

# The directory that sshd, running as root, confines its unprivileged process to.
PRIVILEGE_SEPARATION = Path("/run/sshd")
# The capabilities that sshd, running as root, needs to log a user in (numbers: linux/capability.h).
CAPABILITIES = {"SETGID": 6, "SETUID": 7, "SYS_CHROOT": 18}
# Seconds in which a client must have logged in. master/probing.py renews its connection before.
GRACE_TIME = 120
# A session whose master has not answered so many times, after so many seconds each, ends: of a
# network that was cut, TCP alone would tell after hours, and the ranks would run on.
ALIVE_EVERY = 15
ALIVE_MISSED = 4
# Connections of one address that have not logged in, beside one for each rank, which horovodrun
# starts at once; and how many such addresses there may be, beside one connection of each host,
# which a program in mode custom may start at once. Each connection takes 1.3 MiB. A connection may
# have as many sessions: those that it refuses log in themselves.
BASE_CONNECTIONS = 16
SOURCES = 4
# Options of OpenSSH 8.5 and 9.8, and one of an OpenSSH that was compiled with PAM.
OPTIONAL = ("PerSourceMaxStartups", "PerSourcePenalties", "UsePAM")


def prepare(port: int, revision: str, python: str, slots: int, hosts: int) -> list[str]:
    """Write the files that sshd and this worker's own ssh read, and return sshd's command line.

    Raises ConfigurationError when the image, the user or the keys do not allow sshd to run.
    """
    require_user_name()
    sshd = ssh.find_program("sshd")
    # In a run of many hosts, the daemons on some of them start those on others.
    user_key = ssh.prepare_client()
    ssh.write_client_config(port, {})
    # `restrict` also forbids what a later version of OpenSSH may add to it.
    (GENERATED / "authorized_keys").write_text(f"restrict,pty {user_key}\n")
    if os.getuid() == 0:
        check_capabilities(Path("/proc/self/status").read_text())
        PRIVILEGE_SEPARATION.mkdir(exist_ok=True)
        # The chart mounts a volume here that all may write to, which sshd refuses.
        PRIVILEGE_SEPARATION.chmod(0o755)
    config = GENERATED / "sshd_config"
    content = format_config(port, revision, python, os.getuid() == 0, slots, hosts)
    if Path(sshd).parent == OPENSSH:
        # It may be elsewhere than where it was compiled for.
        content += f"SshdSessionPath {OPENSSH}/sshd-session\nSshdAuthPath {OPENSSH}/sshd-auth\n"
    config.write_text(content)
    config.write_text(leave_out_unknown(content, [sshd, "-t", "-f", str(config)]))
    return [sshd, "-D", "-e", "-f", str(config)]


def leave_out_unknown(config: str, test: Sequence[str]) -> str:
    """Leave out the options that this sshd does not know: with one of them it would not start.

    `test` is the command that checks the configuration. It may find other faults as well, which
    sshd tells when it is started.
    """
    done = subprocess.run(test, capture_output=True, text=True, errors="replace", check=False)
    told = re.compile(r"(?:Bad configuration|Unsupported) option:? (\w+)$", re.M)
    unknown = set(told.findall(done.stderr)).intersection(OPTIONAL)
    lines = config.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition(" ")[0] not in unknown)


def format_config(
    port: int, revision: str, python: str, is_root: bool, slots: int, hosts: int
) -> str:
    """Return the worker's server configuration: only its own user may log in, with the key.

    An sshd of another user than root cannot log in anyone else. It gets no AllowUsers: its user may
    have another name in the master's image, by which the client asks for it. No address is refused
    for connections that did not log in: the master probes this worker by them.
    """
    allowed = "AllowUsers root\n" if is_root else ""
    per_source = BASE_CONNECTIONS + slots
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
AcceptEnv HVD_EPOCH HVD_ATTEMPT HVD_NOTICES HVD_MEETING HVD_RUN_ID
PermitUserRC no
AllowAgentForwarding no
AllowStreamLocalForwarding no
AllowTcpForwarding no
PermitTunnel no
X11Forwarding no
LoginGraceTime {GRACE_TIME}
ClientAliveInterval {ALIVE_EVERY}
ClientAliveCountMax {ALIVE_MISSED}
MaxStartups {SOURCES * per_source + hosts}
PerSourceMaxStartups {per_source}
MaxSessions {per_source}
PerSourcePenalties no
LogLevel ERROR
VersionAddendum {ssh.BANNER_MARK}{revision}
ForceCommand {python} -I -S {PROGRAMS}/worker/session.py
"""


def check_capabilities(status: str) -> None:
    """Raise ConfigurationError when root lacks what sshd needs; `status`: /proc/self/status."""
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    missing = [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]
    if missing:
        raise ConfigurationError(
            f"sshd runs as root here without the capabilities {', '.join(missing)}: set "
            "podSecurityContext.runAsUser to 0 and the chart adds them, or to another UID"
        )


def write_environment(environment: Mapping[str, str]) -> None:
    """Save a worker's container environment for its SSH sessions, each entry ended by a NUL."""
    content = b"".join(
        os.fsencode(name) + b"=" + os.fsencode(value) + b"\0" for name, value in environment.items()
    )
    # Values may be secrets.
    ssh.write_private_file(Path(fast_start.ENVIRONMENT), content)
