"""Install the Debian packages of programs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from devtools.common.cache import cache_dir
from devtools.common.commands import run_logged
from devtools.common.errors import DevtoolsError
from devtools.common.locks import exclusive_lock
from devtools.common.ui import step

POLICY = Path("/usr/sbin/policy-rc.d")
# Exit status 101 of a policy forbids an action (Debian Policy 9.3.3.1 and invoke-rc.d(8)).
FORBID_STARTS = (
    "#!/bin/sh\n# Exists while devtools installs packages; remove it if one was interrupted.\n"
    "exit 101\n"
)
# One lock for the machine: checkouts may use different caches.
APT_LOCK_FILE = Path("/run/lock/hvd-apt.lock")
# How long to wait for another apt-get, such as unattended upgrades.
LOCK_TIMEOUT_SECONDS = 300


def install_packages(packages: Sequence[str]) -> None:
    """Install the packages through apt-get, without starting their services.

    Raises DevtoolsError without root or apt-get, and when apt-get fails.
    """
    names = " ".join(packages)
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise DevtoolsError(
            f"missing Debian packages: {names}; only root with apt-get can install them",
            f"install {names}, or what your distribution has for it",
        )
    with (
        exclusive_lock(APT_LOCK_FILE, "installing packages"),
        step(f"install Debian packages: {names}"),
    ):
        run_apt("update")
        with _services_not_started():
            run_apt("install", "--yes", "--no-install-recommends", *packages)


def ensure_program(program: str) -> None:
    """Install a missing program, whose Debian package has the same name. Raises DevtoolsError."""
    if shutil.which(program) is None:
        install_packages([program])


def run_apt(*arguments: str, folder: Path | None = None) -> None:
    """Run apt-get in a folder, with its output in a log. Raises DevtoolsError when it fails."""
    run_logged(
        ["apt-get", "-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT_SECONDS}", *arguments],
        cache_dir() / "logs" / "packages.log",
        remedy="repair the machine's package sources, or install the packages by hand",
        folder=folder,
        environment={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )


@contextmanager
def _services_not_started() -> Iterator[None]:
    """Keep packages such as containerd from starting their daemon during the block.

    A policy of the machine stays in force. A policy that an interrupted run left is replaced.
    """
    if POLICY.exists() and POLICY.read_text() != FORBID_STARTS:
        yield
        return
    POLICY.write_text(FORBID_STARTS)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
