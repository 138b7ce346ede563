"""Many hosts on one machine: real sshd, each with several addresses, and a master that logs in.

All programs are real: the chart's own files, the machine's OpenSSH, an MPI. What is not: all hosts
share this machine's cores, and a rank is `true`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from types import MappingProxyType

from tests.unit.hvd_pods.copies import replace_in
from tests.unit.hvd_pods.worker.ssh import pods
from tests.waiting import wait_until

SERVERS = 80
# sshd's limit on ListenAddress (MAX_LISTEN_SOCKS of its sources).
ADDRESSES_PER_SERVER = 16
PORT = 2222
WORKER_PROGRAM = "/run/horovod/bin/hvd_pods/worker/main.py"
# Part of the range that RFC 2544 reserves for benchmarks, and not one that devtools/localkube uses
# for its default cluster. EndpointSlices must not name loopback addresses.
NETWORK = IPv4Network("198.19.240.0/20")


def address(host: int) -> str:
    return str(NETWORK[1 + host])


@contextmanager
def _route_to_this_machine() -> Iterator[None]:
    """Every address of NETWORK is this machine's until the end of the block."""
    route = ["local", str(NETWORK), "dev", "lo"]
    subprocess.run(["ip", "route", "replace", *route], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "route", "delete", *route], check=True)


# Makes a process one of a pod's: it finds its own folder, $0, and its service account below /run.
# $1 is its /etc/hosts, $2 its /etc/passwd. /tmp and the processes
# are the pod's own, and end with it.
ENTER_POD = (
    "mount -t proc proc /proc && mount -t tmpfs tmpfs /run"
    " && mkdir -p /run/sshd /run/horovod /run/secrets/kubernetes.io"
    " && ln -s /run/horovod/account /run/secrets/kubernetes.io/serviceaccount"
    ' && mount --bind "$0" /run/horovod && mount --bind "$1" /etc/hosts'
    ' && mount --bind "$2" /etc/passwd && mount -t tmpfs tmpfs /tmp && cd / && shift 2 && exec "$@"'
)
# An image's user has no profile that its sessions would read.
PASSWD = "root:x:0:0::/run:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"


def _user(root: Path, hosts: Path) -> pods.User:
    """The user of a pod whose folder is `root`: root, as in an image of its own."""
    enter = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER_POD)
    passwd = root.parent / "passwd"
    if not passwd.exists():  # Pods that run would find it empty for a moment.
        passwd.write_text(PASSWD)
    return pods.User("root", 0, (*enter, str(root), str(hosts), str(passwd)))


def _move_to_run(pod: pods.Worker | pods.Master) -> None:
    """Let a pod's files have the same paths in every pod."""
    for name in ("fast_start.py", "reporting.py"):
        source = pod.files / "hvd_pods/common" / name
        source.write_text(source.read_text().replace(f'"{pod.root}/', '"/run/horovod/'))


@dataclass
class Farm:
    """80 sshd, which listen at `address(0)` and on; and the folders of masters."""

    folder: Path
    keys: Mapping[str, bytes]
    workers: list[pods.Worker] = field(default_factory=list)

    def set_environment(self, variables: Mapping[str, str]) -> None:
        """What the ranks find in their environment from now on."""
        content = b"".join(os.fsencode(f"{name}={value}\0") for name, value in variables.items())
        for worker in self.workers:
            (worker.generated / "environment").write_bytes(content)

    def add_worker(self, number: int) -> pods.Worker:
        """A worker whose sshd listens at some addresses only, so that all have one port."""
        root = self.folder / f"worker-{number}"
        worker = pods.Worker(root, _user(root, self._hosts()), self.keys)
        own = range(number, SERVERS * ADDRESSES_PER_SERVER, SERVERS)
        lines = "".join(f"ListenAddress {address(host)}\n" for host in own)
        source = worker.files / "hvd_pods/worker/sshd.py"
        replace_in(source, "\nPort {port}\n", f"\nPort {{port}}\n{lines}", 1)
        # Of the hosts that it stands for.
        replace_in(source, "BASE_CONNECTIONS, SOURCES = 16", "BASE_CONNECTIONS, SOURCES = 256", 1)
        _move_to_run(worker)
        self.workers.append(worker)
        return worker

    def add_master(self, name: str, hosts: Mapping[str, str]) -> pods.Master:
        """A master that resolves the names of its hosts to these addresses, as the DNS does."""
        root = self.folder / name
        master = pods.Master(root, _user(root, self._hosts(hosts)), self.keys)
        _move_to_run(master)
        return master

    def _hosts(self, hosts: Mapping[str, str] = MappingProxyType({})) -> Path:
        """An /etc/hosts with these names and their addresses."""
        file = self.folder / f"{len(hosts)}.hosts"
        lines = (f"{where} {host}\n" for host, where in hosts.items())
        if not file.exists():  # As the file of users.
            file.write_text(f"127.0.0.1 localhost {os.uname().nodename}\n{''.join(lines)}")
        return file


def _answers(where: str) -> bool:
    try:
        with socket.create_connection((where, PORT), timeout=2) as connection:
            return connection.recv(8).startswith(b"SSH-2.0-")
    except OSError:
        return False


@contextmanager
def start_farm(revision: str) -> Iterator[Farm]:
    """Run the servers, workers of this revision, until the end of the block. Needs root."""
    pods.require_sshd()
    with ExitStack() as stack:
        stack.enter_context(_route_to_this_machine())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hvd-farm-")))
        farm = Farm(folder, {key: pods.make_key() for key in pods.KEYS})
        environment = {
            "PATH": os.environ["PATH"],
            "HVD_SSH_PORT": str(PORT),
            "HVD_METRICS_DIR": "/run/metrics",
        }
        for number in range(SERVERS):
            server = farm.add_worker(number)
            process = server.start(
                pods.PYTHON,
                "-I",
                WORKER_PROGRAM,
                env={**environment, "HVD_REVISION": revision},
                stdout=(server.root / "log").open("wb"),
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait, 20)
            # It is unshare, which does not end by SIGTERM.
            stack.callback(process.kill)
        for number, server in enumerate(farm.workers):
            # sshd does not announce that it listens.
            wait_until(partial(_answers, address(number)), 60, f"sshd {number}: {server.log}")
        yield farm
