"""Start a cluster and wait until its node is Ready: namespaces, network, processes."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil

from devtools.common.errors import DevtoolsError
from devtools.common.repository import ROOT
from devtools.common.ui import console, last_lines
from devtools.localkube import cgroups
from devtools.localkube.health import read_status, run_kubectl
from devtools.localkube.instance import Instance
from devtools.localkube.link import connect_node
from devtools.localkube.link import remove_link as remove_link
from devtools.localkube.node_processes import NodeProcesses, ProcessIdentity
from devtools.localkube.node_setup import TMPFS_DIRECTORIES
from devtools.localkube.processes import all_processes

# A node is Ready after 5 to 10 s, and after several times that on a busy machine.
START_TIMEOUT_SECONDS = 120.0
# Seconds between two reads of the node's status file.
STATUS_POLL_INTERVAL_SECONDS = 0.02
# How often one process may exit while the cluster starts.
MAX_PROCESS_EXITS = 3
NAMESPACES = ("--net", "--mount", "--pid", "--mount-proc", "--propagation=slave")


def clear_leftovers(instance: Instance) -> None:
    """Stop the node if it runs, and remove the parts that outlive its namespaces: cgroups, sockets,
    the file with its processes, and allocated addresses.
    """
    processes = NodeProcesses.read(instance)
    if processes is not None:
        processes.stop()
    remove_link(instance)
    cgroups.remove(instance.node_name, cgroups.hierarchies())
    if instance.run.exists():
        shutil.rmtree(instance.run)


class Boot:
    """One start of a node whose state directory is ready."""

    def __init__(self, instance: Instance, kube: Path, coredns: Path) -> None:
        self.instance = instance
        self.programs = str(kube), str(coredns)
        processes = all_processes(instance, kube, coredns)
        self.probes = {process.name: process.ready for process in processes}
        self.began = time.monotonic()
        self.deadline = self.began + START_TIMEOUT_SECONDS
        self.log = instance.logs / "node.log"
        self.ready: set[str] = set()

    def run(self) -> None:
        """Start the node. Return when pods can be created and run.

        Raises DevtoolsError when the cluster does not start; all its processes are stopped then.
        """
        try:
            self._start()
        except BaseException:
            clear_leftovers(self.instance)
            raise

    def _start(self) -> None:
        instance = self.instance
        roots = cgroups.hierarchies()
        cgroups.create(instance.node_name, roots)
        for directory in TMPFS_DIRECTORIES:
            Path(directory).mkdir(parents=True, exist_ok=True)
        holder = self.holder = self._start_node()
        while not (children := psutil.Process(holder.pid).children()):
            self._pause()
        init = children[0].pid
        NodeProcesses(ProcessIdentity.of(holder.pid), ProcessIdentity.of(init)).write(instance)
        cgroups.join_daemons(instance.node_name, roots, [holder.pid, init])
        connect_node(instance, init)
        if holder.stdin:
            with contextlib.suppress(BrokenPipeError), holder.stdin:
                holder.stdin.write(b"go\n")
        self._wait_until_usable()

    def _start_node(self) -> subprocess.Popen[bytes]:
        """Start process 1 of new namespaces. Return the unshare process; process 1 waits for "go"
        on its standard input.
        """
        node = self.instance.name, str(self.instance.node)
        program = [sys.executable, "-m", "devtools.localkube.node", *node, *self.programs]
        with self.log.open("a") as log:
            return subprocess.Popen(
                ["unshare", *NAMESPACES, "--fork", "--kill-child", *program],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
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
        run_kubectl(self.instance, "wait", condition, f"{kind}/{name}", f"--timeout={left}s")

    def _wait_until_ready(self, name: str) -> None:
        while name not in self.ready:
            self._pause()
            for process, state in read_status(self.instance).items():
                if state["ready"] and process not in self.ready:
                    self.ready.add(process)
                    if self.probes[process]:
                        seconds = time.monotonic() - self.began
                        console.print(f"        {process} ready after {seconds:.1f} s")
                if state["restarts"] >= MAX_PROCESS_EXITS:
                    log = self.instance.logs / f"{process}.log"
                    raise DevtoolsError(
                        f"{process} exited {MAX_PROCESS_EXITS} times ({state['lastExit']}); "
                        f"{last_lines(log)}",
                        "fix what the log names and run `up` again; `down` before that removes the"
                        " cluster's state",
                    )

    def _pause(self) -> None:
        """Wait before the next check. Raises DevtoolsError when the node has ended, or is not ready
        in time.
        """
        time.sleep(STATUS_POLL_INTERVAL_SECONDS)
        ended = self.holder.poll() is not None
        if ended or time.monotonic() > self.deadline:
            problem = (
                "the node ended" if ended else f"not ready after {START_TIMEOUT_SECONDS:.0f} s"
            )
            raise DevtoolsError(
                f"{problem}; {last_lines(self.log)}",
                f"read the other logs in {self.log.parent}, then run `up` again",
            )
