"""Packages from their makers' wheels, by the name of a file in locks/: a folder each, to mount.

NAME.txt is the lock of NAME.in. Rare tests use packages without a lock.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from devtools.common.cache import cache_dir, content_key
from devtools.common.locks import exclusive_lock

LOCKS = Path(__file__).with_name("locks")


def install_packages(name: str, python: str | None = None) -> Path:
    """The folder of the installed packages of a file, made once for each content of the file. The
    modules are in the folder itself, programs and libraries in its `bin` and `lib`.

    python: the version of the Python that imports them, such as "3.13"; this machine's by default.
    """
    version = python or f"{sys.version_info.major}.{sys.version_info.minor}"
    command = f"uv pip install --python {sys.executable} --python-version {version} --target"
    return _made(name, f"{name}-for-{version}", *command.split())


def download_wheels(name: str) -> Path:
    """The folder with the wheels of a file, downloaded once as well."""
    return _made(name, f"wheels-{name}", "pip", "download", "--dest")


def _made(name: str, folder_name: str, *command: str) -> Path:
    lock = LOCKS / f"{name}.txt"
    file = lock if lock.exists() else lock.with_suffix(".in")
    folder = cache_dir() / "packages" / f"{folder_name}-{content_key([file], sys.version)}"
    # Tests run in several processes: one runs pip, the others wait for it.
    with exclusive_lock(folder.parent / ".lock", f"installing {name}"):
        return folder if folder.exists() else _install(file, folder, *command)


def _install(file: Path, folder: Path, *command: str) -> Path:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    hashes = ["--require-hashes"] if file.suffix == ".txt" else []
    options = ["--quiet", *hashes, "--only-binary=:all:", "-r", file]
    line = [sys.executable, "-m", *command, partial, *options]
    subprocess.run([str(word) for word in line], check=True)
    # The pods' user reads it, whatever this machine's umask is.
    subprocess.run(["chmod", "-R", "a+rX", str(partial)], check=True)
    return partial.rename(folder)
