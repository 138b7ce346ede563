"""Builds the Horovod wheel of an image, or takes the one that an earlier build with the same inputs
left.

`build_horovod.py FRAMEWORK LOCK WHEELHOUSE OUT`, run inside the image's build by an interpreter
that has the framework installed. LOCK pins the released source with its hash; HOROVOD_* in the
environment says what to build. The wheel is in OUT afterwards; WHEELHOUSE may hold one to take, or
not exist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMPILERS = ("g++", "make", "cmake", "python3-dev", "libopenmpi-dev")
# What Horovod's setup.py is given as CMake. It would compile Gloo three times, for three kinds of
# framework, and everything with debug information: half of the time, for what is thrown away.
CMAKE = """#!/bin/sh
set -eu
case "$1" in
    --version) exec cmake "$@" ;;
    --build) directory="$2"; shift 2; exec cmake --build "$directory" --target {target} "$@" ;;
    *) exec cmake "$@" "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -DNDEBUG" ;;
esac
"""


def main(framework: str, lock: Path, wheelhouse: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    kept = sorted(wheelhouse.glob("horovod-*.whl"))
    if len(kept) > 1:
        raise SystemExit(f"{wheelhouse} holds {len(kept)} Horovod wheels, expected one at most")
    if kept:
        shutil.copy2(kept[0], out)
        print(f"{kept[0].name} was compiled before from the same inputs", flush=True)
        return
    apt_install = Path(__file__).with_name("apt-install.sh")
    subprocess.run(["sh", apt_install, *COMPILERS], check=True)
    with tempfile.TemporaryDirectory() as folder:
        cmake = Path(folder) / "cmake"
        cmake.write_text(CMAKE.format(target=framework))
        cmake.chmod(0o755)
        compile_wheel(cmake, lock, out)


def compile_wheel(cmake: Path, lock: Path, out: Path) -> None:
    environment = {
        **os.environ,
        "HOROVOD_CMAKE": str(cmake),
        # Horovod's own choice is eight at once, and each may take a gigabyte.
        "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",
    }
    options = "--no-cache-dir --no-deps --no-build-isolation --no-binary=:all: --require-hashes"
    wheel = [sys.executable, "-m", "pip", "wheel", "--verbose", *options.split()]
    subprocess.run([*wheel, "--wheel-dir", out, "--requirement", lock], check=True, env=environment)


if __name__ == "__main__":
    main(sys.argv[1], *(Path(argument) for argument in sys.argv[2:]))
