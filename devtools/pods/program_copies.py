"""Copies of the pods' programs for pods on this machine, laid out as files/unpack.py does."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from devtools.common.repository import CHART

# The parent of the package, as /horovod/bin is in a pod.
FILES = CHART / "files"
POD_PROGRAMS = FILES / "hvd_pods"


@cache
def _compile(python: str) -> TemporaryDirectory[str]:
    """Return a folder of the programs as compiled by this Python. It exists until this process
    ends.

    Without it, every program that starts in a new copy compiles them again.
    """
    folder = TemporaryDirectory(prefix="pod-files-")
    target = Path(folder.name) / "bin" / POD_PROGRAMS.name
    shutil.copytree(POD_PROGRAMS, target, ignore=shutil.ignore_patterns("__pycache__"))
    command = [python, "-I", "-m", "compileall", "-q", folder.name]
    subprocess.run(command, check=True)
    return folder


def copy_files(root: Path, python: str) -> Path:
    """Copy the programs to `root`/bin, for a pod with all its paths below `root`. Return
    `root`/bin.
    """
    copy = root / "bin"
    # Keep the times: Python matches compiled files to their sources by them.
    shutil.copytree(f"{_compile(python).name}/bin", copy)
    replace_in(copy / "hvd_pods/shared/paths.py", '"/horovod/', f'"{root}/', 5)
    replace_in(copy / "hvd_pods/library/keep/worker.py", '"/dev/shm/hvd-keep"', f'"{root}/shm"', 1)
    replace_in(copy / "hvd_pods/worker/kept_states.py", '"/dev/shm/hvd-keep"', f'"{root}/shm"', 1)
    return copy


def replace_in(file: Path, before: str, after: str, number: int) -> None:
    """Replace a text that occurs `number` times in a file. Raises ValueError when it does not."""
    text = file.read_text()
    if text.count(before) != number:
        raise ValueError(f"{file.name} does not have {before} {number} times")
    file.write_text(text.replace(before, after))
