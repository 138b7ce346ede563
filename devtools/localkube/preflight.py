"""Requirements of the machine before a start: checks, and Debian packages."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

from devtools.common.apt import install_packages
from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.localkube import cgroups
from devtools.localkube.cgroups import MOUNT_TABLE
from devtools.localkube.config import CNI_PLUGINS
from devtools.localkube.instance import Instance

# In bytes. The state stays under 200 MB. Images of training frameworks have 1 to 2 GB and are
# stored both compressed and unpacked.
NEEDED_SPACE = {"state": 1 << 30, "store": 6 << 30}
# These cannot be the upper layer of an overlay file system, which containers need.
UNFIT_FOR_IMAGES = frozenset({"overlay", "aufs", "nfs", "nfs4", "cifs", "9p", "virtiofs", "vfat"})
# Package: the programs that the cluster needs from it.
CLUSTER_PACKAGES = {
    "containerd": ("containerd", "containerd-shim-runc-v2", "ctr"),
    "runc": ("runc",),
    "containernetworking-plugins": tuple(
        str(CNI_PLUGINS / name) for name in ("ptp", "host-local", "loopback")
    ),
    "nftables": ("nft",),
    "iproute2": ("ip", "tc"),
    "mount": ("mount", "umount"),
    "util-linux": ("unshare",),
}
# Services that a package would start at the machine's next boot.
SERVICES = {"containerd": "containerd.service"}


def check_machine() -> None:
    """Raise DevtoolsError unless this is root on Linux, with cgroups and overlay file systems."""
    if platform.system() != "Linux":
        raise DevtoolsError(
            f"this machine runs {platform.system()}; localkube needs Linux", "use CLUSTER=kind"
        )
    if os.geteuid() != 0:
        raise DevtoolsError(
            f"not root (uid {os.geteuid()}); a node mounts file systems and creates namespaces",
            "run it with sudo, or use another cluster: CLUSTER=current or CLUSTER=kind",
        )
    lacking = cgroups.NEEDED_CONTROLLERS - cgroups.controllers()
    if lacking:
        raise DevtoolsError(
            f"missing cgroup controllers: {', '.join(sorted(lacking))}",
            "mount them (systemd does), or boot without cgroup_disable= on the kernel command line",
        )
    _check_overlay()


def check_network(instance: Instance) -> None:
    """Raise DevtoolsError unless the cluster's addresses are free. Needs iproute2."""
    routes = read_output(
        ["ip", "--json", "route", "show", "table", "all"],
        remedy="run it by hand: localkube needs iproute2 and its kernel interface",
    )
    for route in json.loads(routes or "[]"):
        target = _network(str(route.get("dst", "")))
        if target and target.prefixlen > 0 and target.overlaps(instance.network):
            raise DevtoolsError(
                f"{instance.network} is in use: {target} is routed to {route.get('dev')}",
                "stop what uses it, or set another LOCALKUBE_NAME, which gives other addresses",
            )


def check_space(instance: Instance) -> None:
    """Raise DevtoolsError when the disks of state and images have too little space."""
    for name, path in (("state", instance.state), ("store", instance.store)):
        free = shutil.disk_usage(_existing(path)).free
        if free < NEEDED_SPACE[name]:
            raise DevtoolsError(
                f"{path}: {free / 1e9:.1f} GB free, {NEEDED_SPACE[name] / 1e9:.1f} GB needed",
                "free some space"
                + ("" if name == "state" else ", or set HVD_CACHE to a directory elsewhere"),
            )


def check_file_system(instance: Instance, mount_table: Path = MOUNT_TABLE) -> None:
    """Raise DevtoolsError when the image store's file system cannot hold container layers."""
    directory = _existing(instance.store)
    device = directory.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mount_table.read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind = rest.split()[0]
        if fields.split()[2] == number and kind in UNFIT_FOR_IMAGES:
            raise DevtoolsError(
                f"{directory} is on a file system ({kind}) that cannot hold container layers",
                "set HVD_CACHE to a directory on a local ext4 or xfs (in a container: on a volume)",
            )


def missing_packages() -> list[str]:
    """Return the packages with at least one missing program. A program may come from any source."""
    return [
        name for name, programs in CLUSTER_PACKAGES.items() if not all(map(shutil.which, programs))
    ]


def install_missing() -> None:
    """Install the packages of missing programs without starting their services.

    Raises DevtoolsError when a package cannot be installed, when systemd cannot keep its service
    from starting with the machine, and when programs are still missing after that.
    """
    missing = missing_packages()
    if not missing:
        return
    install_packages(missing)
    if shutil.which("systemctl"):
        for service in (SERVICES[name] for name in missing if name in SERVICES):
            remedy = f"run `systemctl disable {service}` by hand"
            read_output(["systemctl", "disable", service], remedy=remedy)
    still_missing = missing_packages()
    if still_missing:
        raise DevtoolsError(
            f"installed {', '.join(still_missing)}, and programs of it are still missing",
            "check that /usr/sbin and /sbin are on PATH, and `apt-get install --reinstall` it",
        )


def _existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _check_overlay() -> None:
    if "overlay" in Path("/proc/filesystems").read_text().split():
        return
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "overlay"], check=False, capture_output=True)
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        raise DevtoolsError(
            "the kernel has no overlay file system, and `modprobe overlay` did not load it",
            "install the modules of this kernel, or use one built with CONFIG_OVERLAY_FS",
        )


def _network(destination: str) -> IPv4Network | None:
    try:
        return IPv4Network(destination, strict=False)
    except ValueError:
        return None  # IPv6, or "default"
