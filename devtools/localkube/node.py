"""The node: process 1 of the cluster's own PID, mount and network namespaces. boot.py runs it.

It starts each process when the processes that it needs are ready, restarts processes that end, and
reaps orphans. Because it is process 1, the kernel ends everything in the cluster with it, in any
state: processes, containers, mounts and interfaces.

It writes the state of the processes to a file, which boot.py and health.py read.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from devtools.localkube.instance import Instance
from devtools.localkube.node_setup import set_up_namespaces
from devtools.localkube.probe import is_ok
from devtools.localkube.processes import EXIT, NOTIFY, Process, all_processes
from hvdchart.files import write_atomically

FIRST_RESTART_DELAY_SECONDS = 0.5
MAX_RESTART_DELAY_SECONDS = 10.0
# After a process has run for this long, its next restart waits only FIRST_RESTART_DELAY_SECONDS
# again.
RESTART_DELAY_RESET_SECONDS = 30.0
# Seconds between two checks: of processes that are not ready, which send no event, and of ready
# processes. SIGCHLD reports the end of a process at once. One refused connection costs about 0.1 ms
# of CPU.
STARTING_POLL_INTERVAL_SECONDS = 0.03
READY_POLL_INTERVAL_SECONDS = 3600.0
# The folders of programs of Debian.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The environment of the node's processes: without proxy settings and the user's kubeconfig.
ENVIRONMENT = {
    "PATH": PATH,
    "HOME": "/nonexistent",
}


@dataclass
class ProcessState:
    """The state of one process. pid: 0 when it does not run. start_at: when to start it, None when
    it runs or is done. listener: the socket on which it reports that it is ready, until it does.
    """

    process: Process
    pid: int = 0
    ready: bool = False
    restarts: int = 0
    started: float = 0.0
    delay: float = FIRST_RESTART_DELAY_SECONDS
    start_at: float | None = 0.0
    last_exit: str = ""
    listener: socket.socket | None = None


class LocalNode:
    """Starts, watches and restarts its processes until it is killed."""

    def __init__(self, instance: Instance, processes: list[Process]) -> None:
        self.instance = instance
        self.began = time.monotonic()
        self.states = {process.name: ProcessState(process) for process in processes}

    def run_forever(self) -> None:
        # sigtimedwait waits for this signal below; the processes start with an empty mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        while True:
            self._reap()
            for state in self.states.values():
                if state.start_at is not None and self._is_due(state):
                    self._start(state)
                elif state.pid and not state.ready and self._is_ready(state):
                    self._mark_ready(state)
            settled = all(state.ready for state in self.states.values())
            signal.sigtimedwait(
                {signal.SIGCHLD},
                READY_POLL_INTERVAL_SECONDS if settled else STARTING_POLL_INTERVAL_SECONDS,
            )

    def _is_due(self, state: ProcessState) -> bool:
        now = time.monotonic()
        due = state.start_at is not None and state.start_at <= now
        return due and all(self.states[need].ready for need in state.process.needs)

    def _start(self, state: ProcessState) -> None:
        process = state.process
        environment = dict(ENVIRONMENT)
        if process.ready == NOTIFY:
            # An abstract name exists only in the network namespace and leaves no file.
            name = f"localkube/{process.name}/{state.restarts}"
            kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            state.listener = socket.socket(socket.AF_UNIX, kind)
            state.listener.bind("\0" + name)
            environment["NOTIFY_SOCKET"] = "@" + name
        log = str(self.instance.logs / f"{process.name}.log")
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        state.pid = os.posix_spawnp(
            process.argv[0],
            process.argv,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, append, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE],
        )
        state.started = time.monotonic()
        state.start_at = None
        self._report("started", state)

    def _is_ready(self, state: ProcessState) -> bool:
        """Return whether a running process is ready."""
        if state.listener is not None:
            with contextlib.suppress(BlockingIOError):
                return b"READY=1" in state.listener.recv(4096).split(b"\n")
            return False
        if state.process.ready == EXIT:
            return False
        return not state.process.ready or is_ok(state.process.ready, self.instance.pki / "ca.crt")

    def _mark_ready(self, state: ProcessState) -> None:
        state.ready = True
        if state.listener is not None:
            state.listener.close()
            state.listener = None
        self._report("ready", state)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                for state in self.states.values():
                    if state.pid == ended[0]:
                        self._on_exit(state, ended[1])

    def _on_exit(self, state: ProcessState, status: int) -> None:
        now = time.monotonic()
        code = os.waitstatus_to_exitcode(status)
        if state.process.ready == EXIT and code == 0:
            state.pid = 0
            self._mark_ready(state)
            return
        state.last_exit = f"signal {-code}" if code < 0 else f"status {code}"
        if now - state.started > RESTART_DELAY_RESET_SECONDS:
            state.delay = FIRST_RESTART_DELAY_SECONDS
        state.pid = 0
        state.ready = False
        state.start_at = now + state.delay
        state.restarts += 1
        state.delay = min(2 * state.delay, MAX_RESTART_DELAY_SECONDS)
        self._report("ended", state)

    def _report(self, event: str, state: ProcessState) -> None:
        at = round(time.monotonic() - self.began, 3)
        print(f"{at} s: {state.process.name} {event} {state.last_exit}", flush=True)
        processes = {
            name: {
                "pid": other.pid,
                "ready": other.ready,
                "restarts": other.restarts,
                "lastExit": other.last_exit,
            }
            for name, other in self.states.items()
        }
        write_atomically(self.instance.status, json.dumps(processes))


def main() -> None:
    """Run a node. Arguments: the cluster's name, the node, the programs kube and coredns."""
    name, node, kube, coredns = sys.argv[1:]
    instance = Instance(name, int(node))
    # boot.py first moves the node's end of the veth pair into this network namespace.
    if sys.stdin.readline() != "go\n":
        sys.exit("node: the process that started it has ended")
    set_up_namespaces(instance)
    LocalNode(instance, all_processes(instance, Path(kube), Path(coredns))).run_forever()


if __name__ == "__main__":
    main()
