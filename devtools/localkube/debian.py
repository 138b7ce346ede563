"""The programs that come from Debian packages, installed when they are missing."""

from __future__ import annotations

import shutil

from devtools.common.apt import install_packages
from devtools.common.commands import read_output
from devtools.common.errors import LocalkubeError
from devtools.localkube.config import CNI_PLUGINS

# Package: the programs that the cluster needs from it.
PACKAGES = {
    "containerd": ("containerd", "containerd-shim-runc-v2", "ctr"),
    "runc": ("runc",),
    "containernetworking-plugins": tuple(
        str(CNI_PLUGINS / name) for name in ("ptp", "host-local", "loopback")
    ),
    "nftables": ("nft",),
    "iproute2": ("ip",),
    "mount": ("mount", "umount"),
    "util-linux": ("unshare",),
}
# What a package would start at the machine's next boot.
SERVICES = {"containerd": "containerd.service"}


def missing_packages() -> list[str]:
    """Packages of which at least one program is missing, wherever it would come from."""
    return [name for name, programs in PACKAGES.items() if not all(map(shutil.which, programs))]


def install_missing() -> None:
    """Installs what is missing, without starting any service. Raises LocalkubeError when that
    fails.
    """
    missing = missing_packages()
    if not missing:
        return
    install_packages(missing, LocalkubeError)
    if shutil.which("systemctl"):
        for service in (SERVICES[name] for name in missing if name in SERVICES):
            remedy = f"run `systemctl disable {service}` by hand"
            read_output(["systemctl", "disable", service], remedy=remedy, error=LocalkubeError)
    still_missing = missing_packages()
    if still_missing:
        raise LocalkubeError(
            f"installed {', '.join(still_missing)}, and programs of it are still missing",
            "check that /usr/sbin and /sbin are on PATH, and `apt-get install --reinstall` it",
        )
