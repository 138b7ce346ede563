"""From nothing to a Ready node: namespaces, cable, processes, and the waiting for each."""

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

from devtools.common.errors import LocalkubeError
from devtools.common.ui import console, tail
from devtools.localkube import cgroups
from devtools.localkube.instance import Instance
from devtools.localkube.kubectl import kubectl
from devtools.localkube.node import Plan
from devtools.localkube.node_setup import OWN_DIRECTORIES, Ground
from devtools.localkube.processes import all_processes
from devtools.localkube.procs import Identity, only_child
from devtools.localkube.record import Record

# A node is Ready after 5 to 10 s; on a machine busy with other work this grows severalfold.
DEADLINE = 120.0
# A process that ends this often while the cluster starts will not stay.
TOO_MANY_ENDS = 3
# What the node's processes see of the environment: no proxy settings, no user's kubeconfig.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/nonexistent",
}
NAMESPACES = ("--net", "--mount", "--pid", "--mount-proc", "--propagation=slave")


def clear_leftovers(instance: Instance) -> None:
    """Ends the node if it runs, and removes what outlives its namespaces: cgroups, sockets,
    addresses given out.
    """
    record = Record.read(instance)
    if record is not None:
        record.stop()
    # The cable goes with its other end, but some time after the namespace's last process.
    if Path("/sys/class/net", instance.link).exists():
        subprocess.run(["ip", "link", "delete", instance.link], check=False, capture_output=True)
    cgroups.remove(instance.cgroup, cgroups.hierarchies())
    if instance.run.exists():
        shutil.rmtree(instance.run)


class Boot:
    """One start of a cluster whose state directory is ready."""

    def __init__(self, instance: Instance, kube: Path, coredns: Path) -> None:
        self.instance = instance
        self.processes = all_processes(instance, kube, coredns)
        self.says_when_ready = {process.name: process.ready for process in self.processes}
        self.deadline = time.monotonic() + DEADLINE
        self.log = instance.logs / "node.log"
        self.ready: set[str] = set()
        self.ends: dict[str, int] = {}

    def run(self) -> None:
        """Returns when a pod can be created and will run. Raises LocalkubeError; then nothing is
        left running.
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
        for directory in OWN_DIRECTORIES:
            Path(directory).mkdir(parents=True, exist_ok=True)
        holder, orders = self._start_node()
        self.events.next()  # the node lives, and waits for its cable
        init = only_child(holder.pid)
        Record(Identity.of(holder.pid), Identity.of(init)).write(instance)
        cgroups.join_daemons(instance.cgroup, roots, [holder.pid, init])
        self._lay_cable(init)
        orders.write(b"go\n")
        orders.close()
        self._follow()

    def _start_node(self) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
        """Process 1 of new namespaces, in its first moment, and the pipe that it waits at."""
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
        return Plan(
            ground=Ground(address, str(instance.run / "settings")),
            processes=self.processes,
            environment=ENVIRONMENT,
            ca=instance.pki / "ca.crt",
            logs=instance.logs,
            status=instance.run / "node.json",
        )

    def _lay_cable(self, init: int) -> None:
        instance, link = self.instance, self.instance.link
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(init))
        _ip("address", "add", f"{instance.host_ip}/{instance.link_prefix}", "dev", link)
        _ip("link", "set", link, "up")
        # The rest of the cluster's addresses, pods and Services, can be reached from the machine
        # too.
        _ip("route", "add", str(instance.network), "via", str(instance.node_ip))

    def _follow(self) -> None:
        self._wait_for("kubelet")
        self._await_object("node", self.instance.node_name, "--for=create")
        self._await_object("node", self.instance.node_name, "--for=condition=Ready")
        # Without it no pod is admitted in the default namespace.
        self._await_object("serviceaccount", "default", "--for=create")
        self._wait_for("coredns")

    def _await_object(self, kind: str, name: str, condition: str) -> None:
        left = max(1, int(self.deadline - time.monotonic()))
        kubectl(self.instance, "wait", condition, f"{kind}/{name}", f"--timeout={left}s")

    def _wait_for(self, name: str) -> None:
        while name not in self.ready:
            event = self.events.next()
            which = str(event["name"])
            if event["event"] == "ready":
                self.ready.add(which)
                if self.says_when_ready[which]:
                    console.print(f"        {which} ready after {event['at']:.1f} s")
            elif event["event"] == "ended":
                self.ends[which] = self.ends.get(which, 0) + 1
                if self.ends[which] >= TOO_MANY_ENDS:
                    log = self.instance.logs / f"{which}.log"
                    raise LocalkubeError(
                        f"{which} ended {self.ends[which]} times ({event['exit']}); {tail(log)}",
                        "mend what the log says, then `up` again; `down` before it makes all anew",
                    )


class Events:
    """The node's reports, one JSON object a line."""

    def __init__(self, pipe: IO[bytes], deadline: float, log: Path) -> None:
        self.descriptor = pipe.fileno()
        self.pipe = pipe
        self.deadline = deadline
        self.log = log
        self.buffer = b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(pipe, selectors.EVENT_READ)

    def next(self) -> dict[str, object]:
        """The next report. Raises LocalkubeError when none comes in time or the node has ended."""
        while b"\n" not in self.buffer:
            if not self.selector.select(max(0.0, self.deadline - time.monotonic())):
                raise self._failure(f"the cluster was not ready after {DEADLINE:.0f} s")
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
            f"read the other logs beside {self.log}, then `up` again",
        )


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise LocalkubeError(
            f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}",
            "if something else uses that name or address, give this cluster another LOCALKUBE_NAME",
        )
