"""How much memory this container may use, and whether the kernel has killed for it.

Each file is read with cgroup version 2, and else with version 1.
"""

from __future__ import annotations

from pathlib import Path

ROOT = "/sys/fs/cgroup"
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
EVENTS = ("memory.events", "memory/memory.oom_control")
# What version 1 has for no limit is a little less than this.
NO_LIMIT = 1 << 62


def limit(root: str = ROOT) -> int | None:
    """The container's memory limit in bytes; None where there is none, or it is not known."""
    text = _read(root, LIMITS).strip()
    number = int(text) if text.isdecimal() else NO_LIMIT
    return number if number < NO_LIMIT else None


def was_exceeded(root: str = ROOT) -> bool:
    """Whether the kernel has killed a process of the container because of its limit."""
    for line in _read(root, EVENTS).splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            return number.strip() not in ("", "0")
    return False


def _read(root: str, names: tuple[str, ...]) -> str:
    for name in names:
        try:
            return Path(root, name).read_text()
        except OSError:
            # The other version, or no cgroup at all.
            continue
    return ""
