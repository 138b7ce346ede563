"""The memory limit of this container, and its number of OOM kills.

Each file is read from cgroup version 2, or else from version 1.
"""

from __future__ import annotations

from pathlib import Path

from hvd_pods.shared.paths import CGROUPS

MEMORY_LIMIT_FILES = ("memory.max", "memory/memory.limit_in_bytes")
EVENTS = ("memory.events", "memory/memory.oom_control")
# The value of version 1 for no limit is slightly lower than this.
NO_LIMIT = 1 << 62


def limit(root: str = CGROUPS) -> int | None:
    """Return the container's memory limit in bytes; None if there is none, or it is unknown."""
    text = _read(root, MEMORY_LIMIT_FILES).strip()
    number = int(text) if text.isdecimal() else NO_LIMIT
    return number if number < NO_LIMIT else None


def count_killed(root: str = CGROUPS) -> int:
    """Return how many processes of the container the kernel has killed because of its limit."""
    for line in _read(root, EVENTS).splitlines():
        name, _, number = line.partition(" ")
        if name == "oom_kill" and number.strip().isdecimal():
            return int(number)
    return 0


def describe_exceeded(limit: float, setting: str) -> str:
    """Describe a rank's failure at its container's limit, in MiB; `setting` is what to raise."""
    gib = limit / 1024
    more = f"{2 * gib:.0f}Gi" if gib >= 1 else f"{2 * limit:.0f}Mi"
    return f"out of memory: it used {gib:.1f} of {gib:.1f} GiB; raise {setting} to {more}"


def _read(root: str, names: tuple[str, ...]) -> str:
    for name in names:
        try:
            return Path(root, name).read_text()
        except OSError:
            # The other cgroup version, or no cgroup at all.
            continue
    return ""
