"""Starts a cluster and waits until its node is Ready: namespaces, network, processes."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import psutil

from devtools.common.errors import LocalkubeError
from devtools.common.ui import console, tail
from devtools.localkube import cgroups
from devtools.localkube.instance import Instance
from devtools.localkube.kubectl import kubectl
from devtools.localkube.link import NODE_INTERFACE, connect
from devtools.localkube.link import remove as remove_link
from devtools.localkube.node import Plan
from devtools.localkube.node_setup import TMPFS_DIRECTORIES, NodeNetwork
from devtools.localkube.processes import all_processes
from devtools.localkube.record import ProcessIdentity, Record

# A node is Ready after 5 to 10 s, and after several times that on a busy machine.
START_SECONDS = 120.0
# How often one process may exit while the cluster starts.
MAX_EXITS = 3
# The environment of the node's processes: no proxy settings, no kubeconfig of the user.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/nonexistent",
}
NAMESPACES = ("--net", "--mount", "--pid", "--mount-proc", "--propagation=slave")


def clear_leftovers(instance: Instance) -> None:
    """Stops the node if it runs, and removes what outlives its namespaces: cgroups, sockets,
    records and allocated addresses.
    """
    record = Record.read(instance)
    if record is not None:
        record.stop()
    remove_link(instance)
    cgroups.remove(instance.cgroup, cgroups.hierarchies())
    if instance.run.exists():
        shutil.rmtree(instance.run)


class Boot:
    """One start of a node whose state directory is ready."""

    def __init__(self, instance: Instance, kube: Path, coredns: Path) -> None:
        self.instance = instance
        self.processes = all_processes(instance, kube, coredns)
        self.probes = {process.name: process.ready for process in self.processes}
        self.deadline = time.monotonic() + START_SECONDS
        self.log = instance.logs / "node.log"
        self.ready: set[str] = set()
        self.exits: dict[str, int] = {}

    def run(self) -> None:
        """Returns when a pod can be created and will run. Raises LocalkubeError when the cluster
        does not start; nothing of it keeps running then.
        """
        try:
            self._start()
        except BaseException:
            clear_leftovers(self.instance)
            raise

    def _start(self) -> None:
        instance = self.instance
        roots = cgroups.hierarchies()
        cgroups.create(instance.cgroup, roots)
        for directory in TMPFS_DIRECTORIES:
            Path(directory).mkdir(parents=True, exist_ok=True)
        holder, stdin = self._start_node()
        self.events.next()  # the node runs, and waits for its network interface
        init = psutil.Process(holder.pid).children()[0].pid
        Record(ProcessIdentity.of(holder.pid), ProcessIdentity.of(init)).write(instance)
        cgroups.join_daemons(instance.cgroup, roots, [holder.pid, init])
        connect(instance, init)
        stdin.write(b"go\n")
        stdin.close()
        self._wait_until_usable()

    def _start_node(self) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        """Starts process 1 of new namespaces. Returns the unshare process and the pipe on which
        process 1 waits for "go".
        """
        plan = self.instance.run / "plan.json"
        self._plan().write(plan)
        program = [sys.executable, "-m", "devtools.localkube.node", str(plan)]
        with self.log.open("a") as log:
            holder = subprocess.Popen(
                ["unshare", *NAMESPACES, "--fork", "--kill-child", *program],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        if holder.stdin is None or holder.stdout is None:
            raise RuntimeError("Popen made no pipes although it was asked to")
        self.events = Events(holder.stdout, self.deadline, self.log)
        return holder, holder.stdin

    def _plan(self) -> Plan:
        instance = self.instance
        address = f"{instance.node_ip}/{instance.link_prefix}"
        # The first node reaches the machine and nothing else.
        gateway = "" if instance.node == 1 else str(instance.gateway_ip)
        return Plan(
            network=NodeNetwork(NODE_INTERFACE, address, gateway),
            sysctl_copies=instance.run / "sysctls",
            processes=self.processes,
            environment=ENVIRONMENT,
            ca=instance.pki / "ca.crt",
            logs=instance.logs,
            status=instance.run / "node.json",
        )

    def _wait_until_usable(self) -> None:
        self._wait_until_ready("kubelet")
        self._wait_for_object("node", self.instance.node_name, "--for=create")
        self._wait_for_object("node", self.instance.node_name, "--for=condition=Ready")
        if self.instance.node == 1:
            # The default namespace admits no pod before its service account exists.
            self._wait_for_object("serviceaccount", "default", "--for=create")
            self._wait_until_ready("coredns")

    def _wait_for_object(self, kind: str, name: str, condition: str) -> None:
        left = max(1, int(self.deadline - time.monotonic()))
        kubectl(self.instance, "wait", condition, f"{kind}/{name}", f"--timeout={left}s")

    def _wait_until_ready(self, name: str) -> None:
        while name not in self.ready:
            event = self.events.next()
            process = str(event["name"])
            if event["event"] == "ready":
                self.ready.add(process)
                if self.probes[process]:
                    console.print(f"        {process} ready after {event['at']:.1f} s")
            elif event["event"] == "ended":
                self.exits[process] = self.exits.get(process, 0) + 1
                if self.exits[process] >= MAX_EXITS:
                    log = self.instance.logs / f"{process}.log"
                    raise LocalkubeError(
                        f"{process} exited {MAX_EXITS} times ({event['exit']}); {tail(log)}",
                        "fix what the log names and run `up` again; `down` before that removes the"
                        " cluster's state",
                    )


class Events:
    """The events that the node reports, one JSON object a line."""

    def __init__(self, pipe: IO[bytes], deadline: float, log: Path) -> None:
        self.descriptor = pipe.fileno()
        self.pipe = pipe
        self.deadline = deadline
        self.log = log
        self.buffer = b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(pipe, selectors.EVENT_READ)

    def next(self) -> dict[str, object]:
        """The next event. Raises LocalkubeError when none comes in time or the node has ended."""
        while b"\n" not in self.buffer:
            if not self.selector.select(max(0.0, self.deadline - time.monotonic())):
                raise self._failure(f"the cluster was not ready after {START_SECONDS:.0f} s")
            data = os.read(self.descriptor, 65536)
            if not data:
                raise self._failure("the node ended")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        event: dict[str, object] = json.loads(line)
        return event

    def _failure(self, problem: str) -> LocalkubeError:
        return LocalkubeError(
            f"{problem}; {tail(self.log)}",
            f"read the other logs in {self.log.parent}, then run `up` again",
        )
