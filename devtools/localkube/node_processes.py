"""The processes that `up` has started, so that `down` stops these and no others."""

from __future__ import annotations

import json
import os
import select
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from devtools.localkube.instance import Instance
from hvdchart.files import write_atomically

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's name for the time since this machine was booted."""
    return BOOT_ID.read_text().strip()


@dataclass(frozen=True)
class ProcessIdentity:
    """Identifies a process even after its number was given to another one.

    start: clock ticks from the machine's boot to the process's start, which no change of the clock
    affects. boot: see boot_id.
    """

    pid: int
    start: int
    boot: str

    @staticmethod
    def of(pid: int) -> ProcessIdentity:
        """Raises psutil.NoSuchProcess when the process does not exist or is a zombie."""
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            raise psutil.ZombieProcess(pid)
        start = (process.create_time() - psutil.boot_time()) * os.sysconf("SC_CLK_TCK")
        return ProcessIdentity(pid, round(start), boot_id())

    def is_alive(self) -> bool:
        try:
            return ProcessIdentity.of(self.pid) == self
        except psutil.NoSuchProcess:
            return False

    def kill_and_wait(self) -> None:
        """Kills the process, which need not be a child of ours, and returns once it has ended.

        Does nothing when it has ended before or its number belongs to another process.
        """
        try:
            # It stands for this very process, and becomes readable when that ends, reaped or not.
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.is_alive():
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                select.select([descriptor], [], [])
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class NodeProcesses:
    """The two processes that `up` starts for a node.

    holder: the unshare(1) that made the namespaces and waits; init: their process 1.
    """

    holder: ProcessIdentity
    init: ProcessIdentity

    def write(self, instance: Instance) -> None:
        write_atomically(instance.run / "record.json", json.dumps(asdict(self)))

    @staticmethod
    def read(instance: Instance) -> NodeProcesses | None:
        """None when `up` has started none, or `down` has removed the file."""
        path = instance.run / "record.json"
        if not path.exists():
            return None
        fields = json.loads(path.read_text())
        return NodeProcesses(ProcessIdentity(**fields["holder"]), ProcessIdentity(**fields["init"]))

    @staticmethod
    def is_running(instance: Instance) -> bool:
        """Whether the node's process 1 runs."""
        processes = NodeProcesses.read(instance)
        return processes is not None and processes.init.is_alive()

    def stop(self) -> None:
        """Kills process 1, and returns when all that was in its namespaces has ended."""
        self.init.kill_and_wait()
        self.holder.kill_and_wait()
