"""Keeps a login of each worker open, which the sessions of launchers and of the master share.

A login takes six times as long as a session over an open one. It is ssh's ControlMaster: a process
with a socket, which the configuration names for the host. Where that process is not there, or
refuses, ssh logs in anew. A login belongs to one pod, by UID and address, and its socket's name is
never used again, so that no session reaches another pod by it.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Collection, Mapping

from hvd_pods.common import ssh
from hvd_pods.common.paths import GENERATED
from hvd_pods.common.run import Host, Pod
from hvd_pods.master.mpi import BRANCHES

# Each login is a process of the master's container, of 1.2 MiB. A run of more hosts than launchers
# start at once has none: some of the hosts would still take as long, and the launcher needs the
# memory.
MOST = BRANCHES
# The modes of launch whose sessions share logins. horovodrun, and perhaps a command of the user's,
# ends a rank by ending its ssh, and waits for the end of the rank's output: a shared login would
# keep that open until the rank ends by itself.
SHARING = ("mpirun", "direct")
# Seconds that sessions wait for a new login, after which they log in themselves, and between looks.
LOGIN_WITHIN = 2.0
LOOK_EVERY = 0.01


@dataclass
class Login:
    """A process that is logged in to a pod, or about to be, and where it then listens."""

    pod: Pod
    socket: Path
    process: subprocess.Popen[bytes] | None = None

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def begin(self, host: Host) -> None:
        """Log in. Why that fails, the first session says, which then logs in itself."""
        line = [str(GENERATED / "bin" / "ssh"), "-N", ssh.LOGIN + host.name]
        null = subprocess.DEVNULL
        with suppress(OSError):
            self.process = subprocess.Popen(line, stdin=null, stdout=null, stderr=null)

    def end(self) -> None:
        """End it at once, and the sessions that use it: the network may be cut."""
        if self.process:
            self.process.kill()
            self.process.wait()
        self.socket.unlink(missing_ok=True)


class Logins:
    """The open logins of a run. Each method may be called from any thread."""

    def __init__(self, port: int, mode: str) -> None:
        self._port = port
        self._number = 0
        self._most = MOST if mode in SHARING else 0
        self._guard = threading.Lock()
        self._open: dict[Host, Login] = {}

    def keep(self, pods: Mapping[Host, Pod]) -> None:
        """Tell ssh where these hosts are, and log in to those pods that have no login yet."""
        most = self._most if len(pods) <= self._most else 0
        with self._guard:
            new = {}
            for host, pod in pods.items():
                login = self._open.get(host)
                if login and (not most or login.pod[:2] != pod[:2] or not login.is_alive()):
                    self._open.pop(host).end()
                # Where only DNS is asked, a later pod could not be told from this one.
                if pod.uid and host not in self._open and len(self._open) < most:
                    self._number += 1
                    # Where its socket has no place, sessions log in themselves.
                    with suppress(OSError):
                        socket = self._folder / str(self._number)
                        new[host] = self._open[host] = Login(pod, socket)
            self._write({host: pod.address for host, pod in pods.items()})
            for host, login in new.items():
                login.begin(host)
        until = time.monotonic() + LOGIN_WITHIN
        while time.monotonic() < until and any(
            login.is_alive() and not login.socket.exists() for login in new.values()
        ):
            time.sleep(LOOK_EVERY)

    def write_config(self, addresses: Mapping[Host, str]) -> None:
        """Tell ssh where these hosts are; of logins to other addresses it is not told."""
        with self._guard:
            self._write(addresses)

    def end(self, hosts: Collection[Host] | None = None) -> None:
        """End the logins of these hosts, or all."""
        with self._guard:
            for host in list(self._open if hosts is None else hosts):
                if host in self._open:
                    self._open.pop(host).end()

    @functools.cached_property
    def _folder(self) -> Path:
        """Create the folder of this process's sockets, which only its user can enter."""
        return Path(tempfile.mkdtemp(prefix="logins-", dir=GENERATED))

    def _write(self, addresses: Mapping[Host, str]) -> None:
        sockets = {
            host: login.socket
            for host, login in self._open.items()
            if login.pod.address == addresses.get(host)
        }
        ssh.write_client_config(self._port, addresses, sockets)
