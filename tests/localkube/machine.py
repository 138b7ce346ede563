"""The cluster of these tests, and what it changes on the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from devtools.localkube import cgroups

# Not the default name, so that the tests do not touch a cluster that is in use.
NAME = "lifecycle"
# How long a component may take to recover, which sends no event then.
TIMEOUT_SECONDS = 90.0
SHARED_SETTINGS = ("net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic")


def machine_state() -> dict[str, Any]:
    """What the cluster could leave on the machine. Builds of images, beside these tests, have
    interfaces and rules of their own.
    """
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    listed = {
        "interfaces": _list(Path("/sys/class/net")),
        "routes": _output("ip", "route").splitlines(),
        "cgroups": [str(path) for root in cgroups.hierarchies() for path in root.iterdir()],
        "mounts": mounts,
        "processes": _output("ps", "-e", "-o", "pid=,args=").splitlines(),
        "state": _list(Path("/var/lib/localkube")),
    }
    own = {kind: [word for word in words if NAME in word] for kind, words in listed.items()}
    # kube-proxy belongs into the network namespace of a node.
    rules = [line for line in _output("nft", "list", "tables").splitlines() if "kube" in line]
    settings = [Path("/proc/sys", name).read_text() for name in SHARED_SETTINGS]
    return {**own, "namespaces": _list(Path("/run/netns")), "rules": rules, "settings": settings}


def _list(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
