"""Many hosts on one machine: an agent that has the addresses of all, and a master that asks it.

All programs are real: the chart's own files, TLS, an MPI. What is not: all hosts share one agent
and this machine's cores, and a rank is `true`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from types import MappingProxyType
from typing import Any

from devtools.common.waiting import wait_until
from tests.support.release_keys import ReleaseKeys
from tests.unit.hvd_pods.worker.agent.pods import PYTHON, Pod

# More hosts would keep their one agent busy, and the master would wait for it.
MOST_HOSTS = 1000
PORT = 2222
WORKER_PROGRAM = "/run/horovod/bin/hvd_pods/worker/main.py"
# Files that the agent may have open: a connection and the pipes of a program for each host.
OPEN_FILES = 16 * MOST_HOSTS
# Part of the range that RFC 2544 reserves for benchmarks, and not one that devtools/localkube uses
# for its default cluster. EndpointSlices must not name loopback addresses.
NETWORK = IPv4Network("198.19.240.0/20")


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
# $1 is its /etc/hosts. /tmp and the processes are the pod's own, and end with it.
ENTER_POD = (
    "mount -t proc proc /proc && mount -t tmpfs tmpfs /run"
    " && mkdir -p /run/horovod /run/secrets/kubernetes.io"
    " && ln -s /run/horovod/account /run/secrets/kubernetes.io/serviceaccount"
    ' && mount --bind "$0" /run/horovod && mount --bind "$1" /etc/hosts'
    ' && mount -t tmpfs tmpfs /tmp && cd / && shift && exec "$@"'
)


def _make_pod(root: Path, hosts: Path) -> Pod:
    """A pod of root, as with an image of its own, that has the same paths as every other pod."""
    pod = Pod(root, None)
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER_POD]
    pod.prefix = [*enter, str(root), str(hosts)]
    for name in ("shared/paths.py", "pod/reporting.py"):
        source = pod.files / "hvd_pods" / name
        source.write_text(source.read_text().replace(f'"{root}/', '"/run/horovod/'))
    return pod


@dataclass(frozen=True)
class Farm:
    """The folders of the agent and of masters, and the keys of their release."""

    folder: Path
    keys: ReleaseKeys

    def add_worker(self) -> Pod:
        """The workers' pod, whose agent listens at all addresses of this machine."""
        pod = _make_pod(self.folder / "worker", self._hosts())
        self.keys.write_worker(pod.root / "keys")
        pod.prefix = ["prlimit", f"--nofile={OPEN_FILES}:{OPEN_FILES}", *pod.prefix]
        return pod

    def add_master(self, name: str, hosts: Mapping[str, str]) -> Pod:
        """A master that resolves the names of its hosts to these addresses, as the DNS does."""
        pod = _make_pod(self.folder / name, self._hosts(hosts))
        self.keys.write_master(pod.root / "keys")
        return pod

    def _hosts(self, hosts: Mapping[str, str] = MappingProxyType({})) -> Path:
        """An /etc/hosts with these names and their addresses."""
        file = self.folder / f"{len(hosts)}.hosts"
        lines = (f"{where} {host}\n" for host, where in hosts.items())
        # Pods that run would find it empty for a moment.
        if not file.exists():
            file.write_text(f"127.0.0.1 localhost {os.uname().nodename}\n{''.join(lines)}")
        return file


@contextmanager
def start_farm(run: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[Farm]:
    """Run the agent of the workers of a run until the end of the block. Needs root.

    run: the master's settings. variables: the environment of the workers' image.
    """
    with ExitStack() as stack:
        stack.enter_context(_route_to_this_machine())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hvd-farm-")))
        farm = Farm(folder, ReleaseKeys(run["master_name"], run["worker_name"]))
        worker = farm.add_worker()
        log = worker.root / "log"
        process = worker.start(
            PYTHON,
            "-I",
            WORKER_PROGRAM,
            env={
                **variables,
                "HVD_AGENT_PORT": str(PORT),
                "HVD_WORKERS": str(MOST_HOSTS),
                "HVD_MASTER_NAME": run["master_name"],
                "HVD_METRICS_DIR": "/run/metrics",
                "HVD_REVISION": run["groups"][0]["revision"],
                "HVD_SLOTS": "1",
            },
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
        )
        stack.callback(process.wait, 20)
        # It is unshare, which does not end by SIGTERM.
        stack.callback(process.kill)
        wait_until(
            lambda: process.poll() is not None or "ready for ranks" in log.read_text(),
            60,
            "the agent listens",
        )
        if process.poll() is not None:
            raise SystemExit(f"the agent has ended: {log.read_text()}")
        yield farm
