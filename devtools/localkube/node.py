"""The node: process 1 of the cluster's own PID, mount and network namespaces. Run by cluster.py,
never by hand.

It starts each process when what it needs is ready, starts again what dies, and reaps orphans. Since
it is process 1, its own end is the end of everything in the cluster: processes, containers, mounts
and interfaces go with the namespaces, whatever had happened to any of them.

Standard output carries one JSON object a line to whoever started the node, for as long as they
listen.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from devtools.common.files import write_atomic
from devtools.localkube.node_setup import Ground, prepare
from devtools.localkube.probe import wait_until_ok
from devtools.localkube.processes import EXIT, NOTIFY, Process

FIRST_RESTART_DELAY = 0.5
LONGEST_RESTART_DELAY = 10.0
# A process that ran for this long is sound again: its next restart need not wait longer than the
# first.
SOUND_AFTER = 30.0


@dataclass(frozen=True)
class Plan:
    """What cluster.py hands over, as a JSON file."""

    ground: Ground
    processes: list[Process]
    environment: dict[str, str]
    ca: Path
    logs: Path
    status: Path

    @staticmethod
    def read(path: Path) -> Plan:
        plan: dict[str, Any] = json.loads(path.read_text())
        processes = [Process(**{**p, "needs": tuple(p["needs"])}) for p in plan["processes"]]
        paths = {key: Path(plan[key]) for key in ("ca", "logs", "status")}
        ground = Ground(**plan["ground"])
        return Plan(ground, processes, plan["environment"], **paths)

    def write(self, path: Path) -> None:
        write_atomic(path, json.dumps(asdict(self), default=str, indent=1).encode(), 0o600)


@dataclass
class Running:
    """What became of one process so far."""

    process: Process
    pid: int = 0
    ready: bool = False
    restarts: int = 0
    started: float = 0.0
    delay: float = FIRST_RESTART_DELAY
    start_at: float | None = 0.0
    last_exit: str = ""


class Node:
    """Starts, watches and restarts the processes of a plan until it is killed."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.began = time.monotonic()
        self.running = {process.name: Running(process) for process in plan.processes}
        self.selector = selectors.DefaultSelector()
        self.answers: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self.wake_read, self.wake_write = socket.socketpair()
        for end in (self.wake_read, self.wake_write):
            end.setblocking(False)
        self.selector.register(self.wake_read, selectors.EVENT_READ, self._on_wake)

    def run_forever(self) -> None:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_write.fileno(), warn_on_full_buffer=False)
        while True:
            self._start_what_can_start()
            for key, _ in self.selector.select(self._seconds_to_next_restart()):
                key.data(key.fileobj)

    # Starting

    def _start_what_can_start(self) -> None:
        now = time.monotonic()
        for entry in self.running.values():
            due = entry.start_at is not None and entry.start_at <= now
            if due and all(self.running[need].ready for need in entry.process.needs):
                self._start(entry)

    def _seconds_to_next_restart(self) -> float | None:
        now = time.monotonic()
        waiting = [
            entry.start_at - now
            for entry in self.running.values()
            if entry.start_at is not None and entry.start_at > now
        ]
        return min(waiting, default=None)

    def _start(self, entry: Running) -> None:
        process = entry.process
        environment = dict(self.plan.environment)
        if process.ready == NOTIFY:
            environment["NOTIFY_SOCKET"] = self._notification_socket(entry)
        log = str(self.plan.logs / f"{process.name}.log")
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        entry.pid = os.posix_spawnp(
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
        entry.started, entry.start_at = time.monotonic(), None
        self._tell("started", entry)
        if not process.ready:
            self._is_ready(entry)
        elif process.ready not in (NOTIFY, EXIT):
            self._watch_url(entry)

    def _notification_socket(self, entry: Running) -> str:
        # An abstract name: it lives in the network namespace and leaves no file.
        name = f"localkube/{entry.process.name}/{entry.restarts}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        listener.bind("\0" + name)

        def on_message(_: object) -> None:
            if b"READY=1" in listener.recv(4096).split(b"\n"):
                self.selector.unregister(listener)
                listener.close()
                self._is_ready(entry)

        self.selector.register(listener, selectors.EVENT_READ, on_message)
        return "@" + name

    def _watch_url(self, entry: Running) -> None:
        pid = entry.pid

        def watch() -> None:
            wait_until_ok(entry.process.ready, self.plan.ca, lambda: entry.pid == pid)
            self.answers.put((entry.process.name, pid))
            with contextlib.suppress(BlockingIOError):  # full: it wakes up anyway
                self.wake_write.send(b"\0")

        threading.Thread(target=watch, daemon=True).start()

    # Events

    def _on_wake(self, _: object) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.wake_read.recv(4096):
                pass
        while not self.answers.empty():
            name, pid = self.answers.get()
            if self.running[name].pid == pid:
                self._is_ready(self.running[name])
        self._reap()

    def _is_ready(self, entry: Running) -> None:
        entry.ready = True
        self._tell("ready", entry)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for entry in self.running.values():
                if entry.pid == pid:
                    self._ended(entry, status)

    def _ended(self, entry: Running, status: int) -> None:
        now = time.monotonic()
        code = os.waitstatus_to_exitcode(status)
        if entry.process.ready == EXIT and code == 0:
            entry.pid = 0
            self._is_ready(entry)
            return
        entry.last_exit = f"signal {-code}" if code < 0 else f"status {code}"
        if now - entry.started > SOUND_AFTER:
            entry.delay = FIRST_RESTART_DELAY
        entry.pid, entry.ready, entry.start_at = 0, False, now + entry.delay
        entry.restarts += 1
        entry.delay = min(2 * entry.delay, LONGEST_RESTART_DELAY)
        self._tell("ended", entry)

    def _tell(self, event: str, entry: Running) -> None:
        at = round(time.monotonic() - self.began, 3)
        record = {"event": event, "name": entry.process.name, "at": at, "exit": entry.last_exit}
        emit(record)
        processes = {
            name: {
                "pid": other.pid,
                "ready": other.ready,
                "restarts": other.restarts,
                "lastExit": other.last_exit,
            }
            for name, other in self.running.items()
        }
        write_atomic(self.plan.status, json.dumps({"processes": processes}).encode())


def emit(record: dict[str, object]) -> None:
    """Tells whoever started the node; they may be gone, and the log has it all the same."""
    line = json.dumps(record)
    print(line, file=sys.stderr, flush=True)
    with contextlib.suppress(BrokenPipeError):
        print(line, flush=True)


def main() -> None:
    plan = Plan.read(Path(sys.argv[1]))
    emit({"event": "waiting"})
    # The host lays the cable into our network namespace, and says so.
    if sys.stdin.readline() != "go\n":
        sys.exit("node: whoever started it is gone")
    prepare(plan.ground)
    Node(plan).run_forever()


if __name__ == "__main__":
    main()
