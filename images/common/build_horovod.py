"""Builds the Horovod wheel of an image, or takes the one that an earlier build with the same inputs
left.

`build_horovod.py FOLDER FRAMEWORK FEATURES WHEELHOUSE OUT`, run inside the image's build by an
interpreter that has the framework installed. FOLDER is the image's own, FEATURES are of mpi, gloo,
nccl with commas between. The wheel is in OUT afterwards; WHEELHOUSE may hold one to take, or not
exist. Beside this file, horovod.txt pins the released source with its hash. In FOLDER there may be

- `series`: names of files below images/patches, applied to that source in this order;
- `toolchain.py`: its `prepare()` installs what else the compiling needs, and returns the
  environment variables that say where it is.

$HOROVOD_MARCH, when not empty, is what the compiler is told as -march.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

COMMON = Path(__file__).resolve().parent
PATCHES = COMMON.parent / "patches"
# Always the same: messages of the compiled library name the files that they come from.
WORK = Path("/tmp/horovod")  # noqa: S108  (of a build step, which is alone there)
COMPILERS = ("g++", "make", "cmake", "patch", "python3-dev")
# Horovod's names of the frameworks that it can be compiled for, by module.
FRAMEWORKS = {"tensorflow": "TENSORFLOW", "torch": "PYTORCH", "mxnet": "MXNET"}
# What Horovod's setup.py is given as CMake. It would compile Gloo three times, for three kinds of
# framework, and everything with debug information: half of the time, for what is thrown away.
CMAKE = """#!/bin/sh
set -eu
case "$1" in
    --version) exec cmake "$@" ;;
    --build) directory="$2"; shift 2; exec cmake --build "$directory" --target {target} "$@" ;;
    *) exec cmake "$@" "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO={flags}" ;;
esac
"""


def main(folder: Path, framework: str, features: str, wheelhouse: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    kept = sorted(wheelhouse.glob("horovod-*.whl"))
    if len(kept) > 1:
        raise SystemExit(f"{wheelhouse} holds {len(kept)} Horovod wheels, expected one at most")
    if kept:
        shutil.copy2(kept[0], out)
        print(f"{kept[0].name} was compiled before from the same inputs", flush=True)
        return
    # PyPI's Open MPI brings its headers along, Debian's has them in a package of their own.
    brought = Path(sys.prefix, "include", "mpi.h").exists()
    headers = [] if brought else ["libopenmpi-dev"]
    subprocess.run(["sh", COMMON / "apt-install.sh", *COMPILERS, *headers], check=True)
    toolchain = folder / "toolchain.py"
    found = runpy.run_path(str(toolchain))["prepare"]() if toolchain.exists() else {}
    environment = {**os.environ, **switches(framework, features.split(",")), **found}
    march = os.environ.get("HOROVOD_MARCH")
    flags = "-O2 -DNDEBUG" + (f" -march={march}" if march else "")
    WORK.mkdir()
    cmake = WORK / "cmake"
    cmake.write_text(CMAKE.format(target=FRAMEWORKS[framework].lower(), flags=flags))
    cmake.chmod(0o755)
    # Horovod's own choice is eight at once, and each may take a gigabyte.
    parallel = f"-j{len(os.sched_getaffinity(0))}"
    environment |= {"HOROVOD_CMAKE": str(cmake), "MAKEFLAGS": parallel}
    source = patched_source(WORK, patches(folder))
    wheel = [*pip("wheel", "--verbose"), "--wheel-dir", str(out), str(source)]
    subprocess.run(wheel, check=True, env=environment)
    shutil.rmtree(WORK)


def switches(framework: str, features: Sequence[str]) -> dict[str, str]:
    """What tells Horovod's setup.py to build for one framework, these features and no other."""
    if framework not in FRAMEWORKS:
        raise SystemExit(f"{framework} is none of Horovod's frameworks: {', '.join(FRAMEWORKS)}")
    unknown = sorted(set(features) - {"mpi", "gloo", "nccl"})
    if unknown:
        raise SystemExit(f"unknown features: {', '.join(unknown)}; use mpi, gloo, nccl")
    chosen = {
        f"HOROVOD_WITH{'' if module == framework else 'OUT'}_{name}": "1"
        for module, name in FRAMEWORKS.items()
    }
    for feature in ("mpi", "gloo"):
        chosen[f"HOROVOD_WITH{'' if feature in features else 'OUT'}_{feature.upper()}"] = "1"
    if "nccl" in features:
        chosen |= {"HOROVOD_GPU": "CUDA", "HOROVOD_GPU_OPERATIONS": "NCCL"}
    return chosen


def patches(folder: Path) -> list[Path]:
    """The patches that an image's series names, in its order. Raises SystemExit for one that is not
    there.
    """
    series = folder / "series"
    if not series.exists():
        return []
    lines = [line.partition("#")[0].strip() for line in series.read_text().splitlines()]
    found = [PATCHES / line for line in lines if line]
    for file in found:
        if not file.is_file():
            raise SystemExit(f"{series} names {file.name}, and {PATCHES} has no such patch")
    return found


def patched_source(work: Path, series: Sequence[Path]) -> Path:
    """The released source, its hash checked, with `series` applied; below `work`."""
    downloads = work / "download"
    lock = str(COMMON / "horovod.txt")
    download = [*pip("download"), "--require-hashes", "--no-binary=:all:"]
    subprocess.run([*download, "--dest", str(downloads), "--requirement", lock], check=True)
    (archive,) = downloads.iterdir()
    shutil.unpack_archive(archive, work / "source")
    (source,) = (work / "source").iterdir()
    for patch in series:
        print(f"applying {patch.name}", flush=True)
        # No fuzz: a patch that no longer fits is to be looked at, not squeezed in.
        command = ["patch", "--strip=1", "--fuzz=0", "--no-backup-if-mismatch", f"--input={patch}"]
        subprocess.run(command, check=True, cwd=source)
    return source


def pip(command: str, *options: str) -> list[str]:
    """pip, with the environment's own setuptools and for the named packages alone."""
    base = [sys.executable, "-m", "pip", command, *options]
    return [*base, "--no-cache-dir", "--no-deps", "--no-build-isolation"]


if __name__ == "__main__":
    folder, framework, features, wheelhouse, out = sys.argv[1:]
    main(Path(folder), framework, features, Path(wheelhouse), Path(out))
