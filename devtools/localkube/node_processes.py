"""The processes that `up` started, so that `down` stops only these."""

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
    """Return the kernel's identifier of this boot of the machine."""
    return BOOT_ID.read_text().strip()


@dataclass(frozen=True)
class ProcessIdentity:
    """Identifies a process even after its number is reused.

    start: clock ticks from the machine's boot to the process's start; changes of the clock do not
    affect it. boot: see boot_id.
    """

    pid: int
    start: int
    boot: str

    @staticmethod
    def of(pid: int) -> ProcessIdentity:
        """Return the identity of a process.

        Raises psutil.NoSuchProcess when the process does not exist or is a zombie.
        """
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
        """Kill the process, which need not be a child of this process, and return once it ends.

        Do nothing when it has already ended or its number belongs to another process.
        """
        try:
            # The descriptor identifies this process, and becomes readable when the process ends,
            # reaped or not.
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
        """Return the processes of a node; None when `up` has started none, or `down` has removed
        the file.
        """
        path = instance.run / "record.json"
        if not path.exists():
            return None
        fields = json.loads(path.read_text())
        return NodeProcesses(ProcessIdentity(**fields["holder"]), ProcessIdentity(**fields["init"]))

    @staticmethod
    def is_running(instance: Instance) -> bool:
        """Return whether the node's process 1 runs."""
        processes = NodeProcesses.read(instance)
        return processes is not None and processes.init.is_alive()

    def stop(self) -> None:
        """Kill process 1. Return when all processes in its namespaces have ended."""
        self.init.kill_and_wait()
        self.holder.kill_and_wait()
