"""The programs that come from Debian packages, installed when they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.errors import LocalkubeError
from devtools.common.ui import step, tail
from devtools.localkube.config import CNI_PLUGINS

# Package: the programs that we need of it. mount, unshare and nsenter are in util-linux, which is
# always there.
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
POLICY = Path("/usr/sbin/policy-rc.d")
# The exit status by which a policy forbids an action (Debian Policy 9.3.3.1 and invoke-rc.d(8)).
FORBID = "#!/bin/sh\n# Of localkube, while it installs packages; else remove it.\nexit 101\n"
# What a package would start at the machine's next boot.
SERVICES = {"containerd": "containerd.service"}


def missing_packages() -> list[str]:
    """Packages of which at least one program is not there, whatever it was installed from."""
    return [name for name, programs in PACKAGES.items() if not all(map(shutil.which, programs))]


def install_missing() -> None:
    """Installs what is missing through apt, without starting any service. Raises LocalkubeError
    when that fails.
    """
    missing = missing_packages()
    if not missing:
        return
    if shutil.which("apt-get") is None:
        programs = sorted(p for name in missing for p in PACKAGES[name] if not shutil.which(p))
        raise LocalkubeError(
            f"these programs are missing, and there is no apt-get: {', '.join(programs)}",
            f"install what your distribution has for Debian's {', '.join(missing)}",
        )
    with step(f"install Debian packages: {' '.join(missing)}"):
        _apt("update")
        with _no_service_starts():
            _apt("install", "--yes", "--no-install-recommends", *missing)
        _disable_services(missing)
    still = missing_packages()
    if still:
        raise LocalkubeError(
            f"installed {', '.join(still)}, and programs of it are still not found",
            "check that /usr/sbin and /sbin are on PATH, and `apt-get install --reinstall` it",
        )


def _disable_services(installed: list[str]) -> None:
    if shutil.which("systemctl"):
        for package, service in SERVICES.items():
            if package in installed:
                _logged(["systemctl", "disable", service])


def _apt(*arguments: str) -> None:
    _logged(["apt-get", "-o", "DPkg::Lock::Timeout=120", *arguments])


def _logged(command: list[str]) -> None:
    log = cache_dir() / "logs" / "packages.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with log.open("a") as output:
        done = subprocess.run(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode != 0:
        raise LocalkubeError(
            f"`{' '.join(command)}` failed (status {done.returncode}); {tail(log)}",
            "mend the machine's package sources, or install the packages by hand",
        )


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Packages such as containerd start their daemon at once; the machine did not ask for one."""
    left_by_a_crash = POLICY.exists() and POLICY.read_text() == FORBID
    if POLICY.exists() and not left_by_a_crash:
        yield
        return
    POLICY.write_text(FORBID)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
