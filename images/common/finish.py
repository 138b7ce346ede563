"""Finishes an image's Python environment: removes files that ranks do not need, compiles modules,
and makes everything readable for all users.

`finish.py PREFIX SLIM`, where PREFIX is a virtual environment. Each line of the file SLIM is an
action (`remove`, or `strip` for symbol tables of libraries) and a pattern below site-packages. A
pattern that matches nothing fails the build: otherwise the image would grow unnoticed when a
package moves its files.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Python runs a line of a .pth file at every start.
QUICK_START = "quick_start"
# The modification time of all files, in seconds since 1970: the day of Horovod 0.28.1.
TIME = 1_686_528_000


def matches(packages: Path, pattern: str) -> list[Path]:
    """The paths below `packages` that match. Raises SystemExit when there are none."""
    paths = sorted(packages.glob(pattern))
    if not paths:
        raise SystemExit(f"{pattern} matches nothing below {packages}: correct slim.txt")
    return paths


def set_times(folder: Path) -> None:
    """Sets one modification time, in whole seconds, so that a rebuilt image has the same files.

    Layers store whole seconds, and Buildah rounds half of the times up: Python would then consider
    compiled modules stale and compile them again at every start.
    """
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (TIME, TIME), follow_symlinks=False)


def slimming(file: Path) -> list[tuple[str, str]]:
    """(action, pattern) of each line. Raises SystemExit for a malformed line, with its number."""
    steps = []
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] not in ACTIONS:
            raise SystemExit(f"{file}:{number}: {line!r}: expected {' or '.join(ACTIONS)} PATTERN")
        steps.append((words[0], words[1]))
    return steps


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
        paths = matches(packages, pattern)
        # Strip a library once, and not once per link to it.
        for path in sorted({path.resolve() for path in paths} if action == "strip" else paths):
            ACTIONS[action](path)
    shutil.copyfile(Path(__file__).with_name("quick_start.py"), packages / f"{QUICK_START}.py")
    (packages / f"{QUICK_START}.pth").write_text(f"import {QUICK_START}\n")
    # Ranks may run as any user with a read-only root, where Python cannot write compiled modules.
    set_times(packages)
    if not compileall.compile_dir(packages, quiet=1, workers=0):
        raise SystemExit("a module does not compile; the output above names it")
    set_times(prefix)
    subprocess.run(["chmod", "--recursive", "a+rX,go-w", prefix], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
