"""What the node does to its own namespaces before anything runs in them. Nothing here is seen
outside.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

# The kubelet sets these for the whole machine, and refuses to run where it cannot. In the node's
# mount namespace a file of ours lies over each of them: the kubelet reads and writes that, and the
# machine keeps its own values.
MACHINE_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
# The CNI library keeps its results here and takes no other path.
CNI_RESULTS = "/var/lib/cni"
# Each gets its own file system in memory; the kubelet puts links to container logs in /var/log.
OWN_DIRECTORIES = ("/var/log", CNI_RESULTS)


@dataclass(frozen=True)
class Ground:
    """address: the node's, with its prefix length; scratch: a directory for small files."""

    address: str
    scratch: str


def prepare(ground: Ground) -> None:
    """Mounts, sysctls and addresses. Raises CalledProcessError or OSError when the kernel refuses
    one.
    """
    # Mounts of the machine still come in, none goes out; inside, volumes may be passed on to
    # containers.
    _run("mount", "--make-rshared", "/")
    for directory in OWN_DIRECTORIES:
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "localkube", directory)
    for setting in MACHINE_SETTINGS:
        _shadow(Path("/proc/sys") / setting, Path(ground.scratch))
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", ground.address, "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")


def _shadow(setting: Path, scratch: Path) -> None:
    if not setting.exists():
        return
    copy = scratch / setting.name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(setting.read_text())
    _run("mount", "--bind", str(copy), str(setting))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)
