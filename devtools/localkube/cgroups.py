"""The cluster's cgroups in every hierarchy of the machine: version 1, version 2, or both."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")
NEEDED_CONTROLLERS = frozenset({"cpu", "cpuset", "memory", "pids"})
DAEMONS = "daemons"
PODS = "pods"


def hierarchies(mount_table: Path = MOUNT_TABLE) -> list[Path]:
    """Return the mount path of each cgroup hierarchy whose root is mounted, once each."""
    paths: dict[str, Path] = {}
    for line in mount_table.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        device, root, mount_path = fields.split()[2:5]
        if rest.split()[0] in ("cgroup", "cgroup2") and root == "/":
            paths.setdefault(device, Path(mount_path))
    return list(paths.values())


def controllers(mount_table: Path = MOUNT_TABLE) -> set[str]:
    """Return the controllers that can limit a container on this machine."""
    names: set[str] = set()
    for line in mount_table.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(maxsplit=2)
        if kind == "cgroup":
            names.update(options.split(","))
        elif kind == "cgroup2":
            names.update((Path(fields.split()[4]) / "cgroup.controllers").read_text().split())
    return names


def create(name: str, roots: list[Path]) -> None:
    """Create NAME, NAME/daemons and NAME/pods in each hierarchy, with all controllers (v2)."""
    for root in roots:
        for directory in (root, root / name, root / name / PODS):
            directory.mkdir(exist_ok=True)
            _enable_controllers(directory)
        (root / name / DAEMONS).mkdir(exist_ok=True)


def _enable_controllers(directory: Path) -> None:
    available = directory / "cgroup.controllers"
    if not available.exists():  # version 1
        return
    for controller in available.read_text().split():
        # The kernel may refuse a controller such as rdma or misc. The kubelet checks those that
        # pods need.
        with contextlib.suppress(OSError):
            (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def join_daemons(name: str, roots: list[Path], pids: list[int]) -> None:
    """Move the processes to NAME/daemons, so that they outlive the login session or CI step that
    started them.
    """
    for root in roots:
        # A new version 1 cpuset has no CPUs until some are assigned: leave the daemons in the root.
        if not (root / "cpuset.cpus").exists() or (root / "cgroup.controllers").exists():
            for pid in pids:
                (root / name / DAEMONS / "cgroup.procs").write_text(str(pid))


def remove(name: str, roots: list[Path]) -> None:
    """Remove NAME and all below it, deepest first. Raises OSError when a process is left."""
    for root in roots:
        top = root / name
        if top.exists():
            for directory, _, _ in os.walk(top, topdown=False):
                Path(directory).rmdir()
