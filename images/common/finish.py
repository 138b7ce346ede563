"""Finishes an image's Python environment: takes out what no rank opens, makes it quick to start,
readable by all.

`finish.py PREFIX SLIM`, where PREFIX is a virtual environment and SLIM a file with a line for each
thing that the image does without: an action (`remove`, or `strip` for the symbol tables of
libraries) and a pattern below site-packages. A pattern that matches nothing fails the build: it is
stale, and the image would grow without anybody noticing.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path

# A .pth line is run at every start of this interpreter.
QUICK_START = "quick_start"
# Seconds since 1970 that all files of the environment are of: the day of Horovod 0.28.1.
TIME = 1_686_528_000


def matches(packages: Path, pattern: str) -> list[Path]:
    """Paths that `pattern` names below `packages`. Raises SystemExit when there are none."""
    found = sorted(packages.glob(pattern))
    if not found:
        raise SystemExit(f"{pattern} matches nothing below {packages}: mend the image's slim.txt")
    return found


def settle_times(folder: Path) -> None:
    """Gives everything below `folder` one time, in whole seconds: an image built again has the same
    files. An image's layers hold no finer ones, and Buildah rounds up half of them: Python would
    then take what was compiled for out of date, and compile it again at every start.
    """
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (TIME, TIME), follow_symlinks=False)


def slimming(file: Path) -> list[tuple[str, str]]:
    """(action, pattern) of each line. Raises SystemExit, with its number, for a line that is
    neither.
    """
    found = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] not in ACTIONS:
            raise SystemExit(f"{file}:{number}: {line!r}: expected {' or '.join(ACTIONS)} PATTERN")
        found.append((words[0], words[1]))
    return found


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def strip(library: Path) -> None:
    subprocess.run(["strip", "--strip-unneeded", library], check=True)


ACTIONS = {"remove": remove, "strip": strip}


def main(prefix: Path, slim: Path) -> None:
    (packages,) = prefix.glob("lib/python3*/site-packages")
    for action, pattern in slimming(slim):
        found = matches(packages, pattern)
        # A library and the links to it are one file.
        for path in sorted({path.resolve() for path in found} if action == "strip" else found):
            ACTIONS[action](path)
    shutil.copyfile(Path(__file__).with_name("quick_start.py"), packages / f"{QUICK_START}.py")
    (packages / f"{QUICK_START}.pth").write_text(f"import {QUICK_START}\n")
    # A rank may run as any user on a read-only root, where Python cannot keep what it compiles.
    settle_times(packages)
    if not compileall.compile_dir(packages, quiet=1, workers=0):
        raise SystemExit("a module does not compile; see above")
    settle_times(prefix)
    subprocess.run(["chmod", "--recursive", "a+rX,go-w", prefix], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
