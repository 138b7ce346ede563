"""What a machine must have, asked before anything is started; each refusal says what to do about
it.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

from devtools.common.errors import LocalkubeError
from devtools.localkube import cgroups
from devtools.localkube.cgroups import MOUNT_TABLE
from devtools.localkube.instance import Instance

# Cluster state stays under 200 MB; images of training frameworks are 1 to 2 GB, stored packed and
# unpacked.
NEEDED_SPACE = {"state": 1 << 30, "store": 6 << 30}
# On these the overlay file system cannot keep the layers of containers.
UNFIT_FOR_IMAGES = frozenset({"overlay", "aufs", "nfs", "nfs4", "cifs", "9p", "virtiofs", "vfat"})
NAMESPACES = ("net", "mnt", "pid", "ipc", "uts")


def check_machine() -> None:
    """Root, Linux, and a kernel with what containers need. Raises LocalkubeError."""
    if platform.system() != "Linux":
        raise LocalkubeError(
            f"this is {platform.system()}; localkube runs on Linux", "use CLUSTER=kind"
        )
    if os.geteuid() != 0:
        raise LocalkubeError(
            f"not root (uid {os.geteuid()}); a node mounts file systems and makes namespaces",
            "run it with sudo, or use a cluster that you have: CLUSTER=current or CLUSTER=kind",
        )
    missing = [name for name in NAMESPACES if not Path("/proc/self/ns", name).exists()]
    if missing:
        raise LocalkubeError(
            f"the kernel has no {', '.join(missing)} namespaces",
            "use a kernel built with CONFIG_NAMESPACES, as all distributions' are",
        )
    lacking = cgroups.NEEDED - cgroups.controllers()
    if lacking:
        raise LocalkubeError(
            f"no cgroup controller for: {', '.join(sorted(lacking))}",
            "mount them (systemd does), or boot without cgroup_disable= on the command line",
        )
    _need_overlay()


def check_network(instance: Instance) -> None:
    """veth and nftables work, and nobody else uses the cluster's addresses. Needs iproute2 and
    nftables.
    """
    answer = subprocess.run(
        ["ip", "--json", "route", "show", "table", "all"],
        check=True,
        capture_output=True,
        text=True,
    )
    for route in json.loads(answer.stdout or "[]"):
        target = _network(str(route.get("dst", "")))
        if target and target.prefixlen > 0 and target.overlaps(instance.network):
            raise LocalkubeError(
                f"{instance.network} is in use: {target} is routed to {route.get('dev')}",
                "stop what uses it, or give this cluster another name (LOCALKUBE_NAME), and with it"
                " other addresses",
            )
    probe = ["ip", "link", "add", f"{instance.link}x", "type", "veth"]
    _try_in_namespace(probe, "virtual Ethernet cables (CONFIG_VETH)", "veth")
    _try_in_namespace(["nft", "add", "table", "ip", "localkube"], "nftables", "nf_tables")


def check_space(instance: Instance) -> None:
    for what, path in (("state", instance.state), ("store", instance.store)):
        free = shutil.disk_usage(_existing(path)).free
        if free < NEEDED_SPACE[what]:
            raise LocalkubeError(
                f"{path}: {free / 1e9:.1f} GB free, {NEEDED_SPACE[what] / 1e9:.1f} GB needed",
                "free some space"
                + ("" if what == "state" else ", or set HVD_CACHE to a directory elsewhere"),
            )


def check_file_system(instance: Instance, mount_table: Path = MOUNT_TABLE) -> None:
    place = _existing(instance.store)
    device = place.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mount_table.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind = rest.split()[0]
        if fields.split()[2] == number and kind in UNFIT_FOR_IMAGES:
            raise LocalkubeError(
                f"{place} is on a file system ({kind}) that cannot hold containers' layers",
                "set HVD_CACHE to a directory on a local disk, such as ext4 or xfs (in a container:"
                " a volume)",
            )


def _existing(path: Path) -> Path:
    """The path, or the nearest directory above it that exists."""
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _need_overlay() -> None:
    if "overlay" in Path("/proc/filesystems").read_text().split():
        return
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "overlay"], check=False, capture_output=True)
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        raise LocalkubeError(
            "the kernel has no overlay file system, and `modprobe overlay` did not load it",
            "install the kernel's modules, or use a kernel built with CONFIG_OVERLAY_FS",
        )


def _try_in_namespace(command: list[str], feature: str, module: str) -> None:
    """Tries it in a network namespace that ends with the command, so that nothing stays."""
    tried = subprocess.run(
        ["unshare", "--net", *command], check=False, capture_output=True, text=True
    )
    if tried.returncode != 0:
        raise LocalkubeError(
            f"the kernel offers no {feature}: `{' '.join(command)}` said: {tried.stderr.strip()}",
            f"`modprobe {module}`, or use a kernel that has it",
        )


def _network(destination: str) -> IPv4Network | None:
    try:
        return IPv4Network(destination, strict=False)
    except ValueError:
        return None  # IPv6, or a word such as "default"
