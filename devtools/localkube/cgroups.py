"""The cluster's cgroups, in every hierarchy that the machine has: version 1, version 2, or both at
once.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")
NEEDED = frozenset({"cpu", "cpuset", "memory", "pids"})
DAEMONS = "daemons"
PODS = "pods"


def hierarchies(mount_table: Path = MOUNT_TABLE) -> list[Path]:
    """Where each cgroup hierarchy is mounted at its root, once each."""
    found: dict[str, Path] = {}
    for line in mount_table.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        device, root, place = fields.split()[2:5]
        if rest.split()[0] in ("cgroup", "cgroup2") and root == "/":
            found.setdefault(device, Path(place))
    return list(found.values())


def controllers(mount_table: Path = MOUNT_TABLE) -> set[str]:
    """The controllers that a container can be limited by here."""
    found: set[str] = set()
    for line in mount_table.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(maxsplit=2)
        if kind == "cgroup":
            found.update(options.split(","))
        elif kind == "cgroup2":
            found.update((Path(fields.split()[4]) / "cgroup.controllers").read_text().split())
    return found


def create(name: str, roots: list[Path]) -> None:
    """Makes NAME, NAME/daemons and NAME/pods in each hierarchy, with every controller passed down
    (version 2).
    """
    for root in roots:
        for directory in (root, root / name, root / name / PODS):
            directory.mkdir(exist_ok=True)
            _pass_controllers_down(directory)
        (root / name / DAEMONS).mkdir(exist_ok=True)


def _pass_controllers_down(directory: Path) -> None:
    offered = directory / "cgroup.controllers"
    if not offered.exists():  # version 1
        return
    for controller in offered.read_text().split():
        # A controller such as rdma or misc may be refused; what pods need is checked by the
        # kubelet.
        with contextlib.suppress(OSError):
            (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def join_daemons(name: str, roots: list[Path], pids: list[int]) -> None:
    """Moves processes, so that the node outlives the session or CI step that started it."""
    for root in roots:
        # A new version 1 cpuset has no CPUs until it is told; the daemons need none of their own.
        if not (root / "cpuset.cpus").exists() or (root / "cgroup.controllers").exists():
            for pid in pids:
                (root / name / DAEMONS / "cgroup.procs").write_text(str(pid))


def remove(name: str, roots: list[Path]) -> None:
    """Removes NAME and all below it, deepest first. Raises OSError when a process is left."""
    for root in roots:
        top = root / name
        if top.exists():
            for directory, _, _ in os.walk(top, topdown=False):
                Path(directory).rmdir()
