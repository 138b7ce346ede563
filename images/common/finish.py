"""Finishes an image's Python environment: takes out what no rank opens, makes it quick to start,
readable by all.

`finish.py PREFIX`, where PREFIX is a virtual environment. A pattern that matches nothing fails the
build: it is stale, and the image would grow without anybody noticing. Nothing that an import reads
may go: tests/images imports TensorFlow, Keras, TensorBoard and Horovod in the finished image.
"""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Below site-packages. What each is for:
REMOVE = (
    "tensorflow/include",  # headers for building custom ops; 170 MB
    "tensorflow/xla_aot_runtime_src",  # sources for ahead-of-time compilation
    "clang/native/*.so",  # libclang, which TensorFlow declares and never imports; 60 MB
    "*/tests",  # packages' own test suites
    "*/*/tests",
    "numpy/core/lib/*.a",  # static libraries for building extensions
    "numpy/random/lib/*.a",
)
# Symbol tables are 150 MB and 45 MB of these two. Not for every library: auditwheel renames and
# moves parts of those in other wheels, and stripping after that is known to break them.
STRIP = ("tensorflow/libtensorflow_*.so.*", "horovod/*/mpi_lib*.so")
# A .pth line is run at every start of this interpreter.
QUICK_START = "quick_start"


def matches(packages: Path, pattern: str) -> list[Path]:
    """Paths that `pattern` names below `packages`. Raises SystemExit when there are none."""
    found = sorted(packages.glob(pattern))
    if not found:
        raise SystemExit(f"{pattern} matches nothing below {packages}: mend the list in {__file__}")
    return found


def whole_seconds(folder: Path) -> None:
    """Cuts the times of modules to whole seconds. An image's layers hold no finer ones, and Buildah
    rounds up half of them: Python would then take what was compiled for out of date, and compile
    it again at every start.
    """
    for source in folder.rglob("*.py"):
        time = int(source.stat().st_mtime)
        os.utime(source, (time, time))


def main(prefix: Path) -> None:
    (packages,) = prefix.glob("lib/python3*/site-packages")
    for pattern in REMOVE:
        for path in matches(packages, pattern):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    for pattern in STRIP:
        for library in {path.resolve() for path in matches(packages, pattern)}:
            subprocess.run(["strip", "--strip-unneeded", library], check=True)
    shutil.copyfile(Path(__file__).with_name("quick_start.py"), packages / f"{QUICK_START}.py")
    (packages / f"{QUICK_START}.pth").write_text(f"import {QUICK_START}\n")
    # A rank may run as any user on a read-only root, where Python cannot keep what it compiles.
    whole_seconds(packages)
    if not compileall.compile_dir(packages, quiet=1, workers=0):
        raise SystemExit("a module does not compile; see above")
    subprocess.run(["chmod", "--recursive", "a+rX,go-w", prefix], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
