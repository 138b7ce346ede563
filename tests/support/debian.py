"""Programs of Debian packages that tests need, and that are not installed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from devtools.common.apt import APT_LOCK_FILE, run_apt
from devtools.common.cache import cache_dir
from devtools.common.commands import read_output
from devtools.common.locks import exclusive_lock
from devtools.common.ui import step


def unpacked_program(package: str, program: str) -> Path:
    """Unpack a package in the cache and return the path of a program such as usr/bin/promtool.

    The package is not installed: apt creates no user, starts no service and adds no dependencies.

    Raises DevtoolsError without apt-get, and when apt-get fails.
    """
    folder = cache_dir() / "packages" / package
    if not folder.exists():
        with (
            exclusive_lock(APT_LOCK_FILE, "unpacking a package"),
            step(f"unpack Debian package: {package}"),
        ):
            _unpack(package, folder)
    return folder / program


def _unpack(package: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
        run_apt("update")
        run_apt("download", package, folder=Path(partial))
        (archive,) = Path(partial).glob("*.deb")
        content = Path(partial, "content")
        command = ["dpkg-deb", "--extract", str(archive), str(content)]
        read_output(command, remedy="see whether the machine's disk is full")
        if not folder.exists():
            content.rename(folder)
