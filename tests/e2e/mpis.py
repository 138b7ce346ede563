"""MPIs other than the image's own, from their makers' wheels: a folder each, to be mounted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from devtools.common.cache import cache_dir, content_key
from devtools.common.locks import exclusive_lock

LOCKS = Path(__file__).with_name("mpi")


def installed(name: str) -> Path:
    """The folder of an MPI and of mpi4py, installed once for each content of its lock."""
    lock = LOCKS / f"{name}.txt"
    folder = cache_dir() / "mpi" / f"{name}-{content_key([lock], sys.version)}"
    # Tests run in several processes: one installs, the others wait for it.
    with exclusive_lock(folder.parent / ".lock", f"installing {name}"):
        return folder if folder.exists() else _install(lock, folder)


def _install(lock: Path, folder: Path) -> Path:
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    options = ["--quiet", "--require-hashes", "--only-binary=:all:", "--root-user-action=ignore"]
    command = [sys.executable, "-m", "pip", "install", *options, "--prefix", partial, "-r", lock]
    subprocess.run([str(word) for word in command], check=True)
    # The pods' user reads it, whatever this machine's umask is.
    subprocess.run(["chmod", "-R", "a+rX", str(partial)], check=True)
    return partial.rename(folder)
