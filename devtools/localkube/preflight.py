"""Checks that the machine can run a cluster, before anything is started."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

from devtools.common.commands import read_output
from devtools.common.errors import LocalkubeError
from devtools.localkube import cgroups
from devtools.localkube.cgroups import MOUNT_TABLE
from devtools.localkube.instance import Instance

# In bytes. The state stays under 200 MB; images of training frameworks have 1 to 2 GB and are
# stored both compressed and unpacked.
NEEDED_SPACE = {"state": 1 << 30, "store": 6 << 30}
# These cannot be the upper layer of an overlay file system, which containers need.
UNFIT_FOR_IMAGES = frozenset({"overlay", "aufs", "nfs", "nfs4", "cifs", "9p", "virtiofs", "vfat"})
NAMESPACES = ("net", "mnt", "pid", "ipc", "uts")


def check_machine() -> None:
    """Raises LocalkubeError unless this is root on Linux, on a kernel that can run containers."""
    if platform.system() != "Linux":
        raise LocalkubeError(
            f"this machine runs {platform.system()}; localkube needs Linux", "use CLUSTER=kind"
        )
    if os.geteuid() != 0:
        raise LocalkubeError(
            f"not root (uid {os.geteuid()}); a node mounts file systems and creates namespaces",
            "run it with sudo, or use another cluster: CLUSTER=current or CLUSTER=kind",
        )
    missing = [name for name in NAMESPACES if not Path("/proc/self/ns", name).exists()]
    if missing:
        raise LocalkubeError(
            f"the kernel has no {', '.join(missing)} namespaces",
            "use a kernel built with CONFIG_NAMESPACES, as those of all distributions are",
        )
    lacking = cgroups.NEEDED - cgroups.controllers()
    if lacking:
        raise LocalkubeError(
            f"missing cgroup controllers: {', '.join(sorted(lacking))}",
            "mount them (systemd does), or boot without cgroup_disable= on the kernel command line",
        )
    _check_overlay()


def check_network(instance: Instance) -> None:
    """Raises LocalkubeError unless veth and nftables work and the cluster's addresses are free.

    Needs the programs of iproute2 and nftables.
    """
    routes = read_output(
        ["ip", "--json", "route", "show", "table", "all"],
        remedy="run it by hand: localkube needs iproute2 and its kernel interface",
        error=LocalkubeError,
    )
    for route in json.loads(routes or "[]"):
        target = _network(str(route.get("dst", "")))
        if target and target.prefixlen > 0 and target.overlaps(instance.network):
            raise LocalkubeError(
                f"{instance.network} is in use: {target} is routed to {route.get('dev')}",
                "stop what uses it, or set another LOCALKUBE_NAME, which gives other addresses",
            )
    add_veth = ["ip", "link", "add", f"{instance.link}x", "type", "veth"]
    _try_in_namespace(add_veth, "veth")
    _try_in_namespace(["nft", "add", "table", "ip", "localkube"], "nf_tables")


def check_space(instance: Instance) -> None:
    """Raises LocalkubeError when the disks of state and images have too little space."""
    for what, path in (("state", instance.state), ("store", instance.store)):
        free = shutil.disk_usage(_existing(path)).free
        if free < NEEDED_SPACE[what]:
            raise LocalkubeError(
                f"{path}: {free / 1e9:.1f} GB free, {NEEDED_SPACE[what] / 1e9:.1f} GB needed",
                "free some space"
                + ("" if what == "state" else ", or set HVD_CACHE to a directory elsewhere"),
            )


def check_file_system(instance: Instance, mount_table: Path = MOUNT_TABLE) -> None:
    """Raises LocalkubeError when the image store's file system cannot hold container layers."""
    directory = _existing(instance.store)
    device = directory.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mount_table.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind = rest.split()[0]
        if fields.split()[2] == number and kind in UNFIT_FOR_IMAGES:
            raise LocalkubeError(
                f"{directory} is on a file system ({kind}) that cannot hold container layers",
                "set HVD_CACHE to a directory on a local ext4 or xfs (in a container: on a volume)",
            )


def _existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _check_overlay() -> None:
    if "overlay" in Path("/proc/filesystems").read_text().split():
        return
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "overlay"], check=False, capture_output=True)
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        raise LocalkubeError(
            "the kernel has no overlay file system, and `modprobe overlay` did not load it",
            "install the modules of this kernel, or use one built with CONFIG_OVERLAY_FS",
        )


def _try_in_namespace(command: list[str], module: str) -> None:
    """Runs the command in a network namespace of its own, so that it leaves nothing behind."""
    read_output(
        ["unshare", "--net", *command],
        remedy=f"load the kernel module: `modprobe {module}`, or use a kernel that has it",
        error=LocalkubeError,
    )


def _network(destination: str) -> IPv4Network | None:
    try:
        return IPv4Network(destination, strict=False)
    except ValueError:
        return None  # IPv6, or "default"
