"""Builds the Horovod wheel of an image, or takes the one that an earlier build with the same inputs
left.

`build_horovod.py FOLDER FRAMEWORK FEATURES WHEELHOUSE OUT`, run inside the image's build by an
interpreter that has the framework installed. FOLDER is the image's own, FEATURES are of mpi, gloo,
nccl with commas between. The wheel is in OUT afterwards; WHEELHOUSE may hold one to take, or not
exist. Beside this file, horovod.txt pins the released source with its hash, and wheel.txt what
finishes a wheel that works outside of the image, too. In FOLDER there may be

- `series`: names of files below images/patches, applied to that source in this order;
- `toolchain.py`: its `prepare(folder)` installs what else the compiling needs, and returns the
  environment variables that say where it is. Images with nccl use that of images/nvidia.

$VERSIONS has the image's versions, as NAME=VERSION with spaces between.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

COMMON = Path(__file__).resolve().parent
PATCHES = COMMON.parent / "patches"
# Always the same: messages of the compiled library name the files that they come from.
WORK = Path("/tmp/horovod")  # noqa: S108  (of a build step, which is alone there)
COMPILERS = ("g++", "make", "cmake", "patch", "python3-dev")
# Horovod's names of the frameworks that it can be compiled for, by module.
FRAMEWORKS = {"tensorflow": "TENSORFLOW", "torch": "PYTORCH", "mxnet": "MXNET"}
# What the version of a wheel calls them, after the plus sign.
LABELS = {"tensorflow": "tf", "torch": "torch"}
# With this patch, a wheel finds an MPI library when it runs, and works in any environment that has
# its framework. The headers of both kinds of MPI are needed.
PORTABLE = "mpi-at-run-time.patch"
MPI_HEADERS = {
    "libopenmpi-dev": "/usr/lib/{machine}/openmpi/include",
    "libmpich-dev": "/usr/include/{machine}/mpich",
}
# Libraries of frameworks, which are loaded before Horovod's.
OF_FRAMEWORKS = ("libtensorflow*", "libtorch*", "libc10*", "libshm*")
# The day of Horovod 0.28.1, in seconds since 1970.
TIME = 1_686_528_000
# What Horovod's setup.py is given as CMake. It would compile Gloo three times, for three kinds of
# framework, and everything with debug information: half of the time, for what is thrown away.
# With -O2 alone, GCC leaves loops of unknown length as they are.
CMAKE = """#!/bin/sh
set -eu
case "$1" in
    --version) exec cmake "$@" ;;
    --build) directory="$2"; shift 2; exec cmake --build "$directory" --target {target} "$@" ;;
    *) exec cmake "$@" "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -fvect-cost-model=dynamic -DNDEBUG" ;;
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
    series = patches(folder)
    portable = is_portable(series)
    headers = [*MPI_HEADERS] if portable else ["libopenmpi-dev"]
    subprocess.run(["sh", COMMON / "apt-install.sh", *COMPILERS, *headers], check=True)
    nvidia = COMMON.parent / "nvidia"
    toolchain = (nvidia if "nccl" in features.split(",") else folder) / "toolchain.py"
    found = runpy.run_path(str(toolchain))["prepare"](folder) if toolchain.exists() else {}
    environment = {**os.environ, **switches(framework, features.split(",")), **found}
    WORK.mkdir()
    cmake = WORK / "cmake"
    cmake.write_text(CMAKE.format(target=FRAMEWORKS[framework].lower()))
    cmake.chmod(0o755)
    # Horovod's own choice is eight at once, and each may take a gigabyte.
    parallel = f"-j{len(os.sched_getaffinity(0))}"
    environment |= {"HOROVOD_CMAKE": str(cmake), "MAKEFLAGS": parallel}
    if portable:
        machine = sysconfig.get_config_var("MULTIARCH")
        interfaces = [place.format(machine=machine) for place in MPI_HEADERS.values()]
        environment |= {
            "HOROVOD_MPI_INTERFACES": ":".join(interfaces),
            "HOROVOD_LOCAL_VERSION": local_version(framework, os.environ["VERSIONS"]),
        }
    source = patched_source(WORK, series)
    made = WORK / "made" if portable else out
    wheel = [*pip("wheel", "--verbose"), "--wheel-dir", str(made), str(source)]
    subprocess.run(wheel, check=True, env=environment)
    if portable:
        (compiled,) = made.iterdir()
        finish_wheel(compiled, series, out, any_python=framework == "tensorflow")
    shutil.rmtree(WORK)


def is_portable(series: Sequence[Path]) -> bool:
    """Whether a wheel with these patches works outside of the image that it is compiled in."""
    return PORTABLE in {patch.name for patch in series}


def local_version(framework: str, versions: str) -> str:
    """What follows the plus sign of the wheel's version: the framework's minor version. Debian's
    framework has other library names than PyPI's.
    """
    found = dict(item.split("=", 1) for item in versions.split())
    origin = getattr(importlib.util.find_spec(framework), "origin", None) or ""
    source = ".debian" if origin.startswith("/usr/lib/python3/dist-packages") else ""
    return LABELS[framework] + ".".join(found[framework].split(".")[:2]) + source


def finish_wheel(wheel: Path, series: Sequence[Path], out: Path, *, any_python: bool) -> None:
    """Writes `wheel` into `out` without symbols, with its licences, patches and an SBOM, and with
    the tag of the oldest C library that it works with.

    any_python: no library in it depends on the version of Python.
    """
    tools = wheel.parent / "tools"
    install = [*pip("install"), "--require-hashes", "--target", str(tools)]
    subprocess.run([*install, "--requirement", str(COMMON / "wheel.txt")], check=True)
    # The same source gives the same bytes, whenever it is compiled.
    environment = os.environ | {
        "PYTHONPATH": str(tools),
        "PATH": f"{tools / 'bin'}:{os.environ['PATH']}",
        "SOURCE_DATE_EPOCH": str(TIME),
    }

    def run(*command: str) -> None:
        subprocess.run(
            [sys.executable, "-m", *command], check=True, cwd=wheel.parent, env=environment
        )

    run("wheel", "unpack", wheel.name, "--dest", "unpacked")
    wheel.unlink()
    (content,) = (wheel.parent / "unpacked").iterdir()
    (described,) = content.glob("*.dist-info")
    licences = described / "licenses"
    sboms = described / "sboms"
    shutil.copytree(PATCHES, licences / "patches", ignore=lambda *_: unused(series))
    shutil.copy(COMMON / "notices.txt", licences)
    sboms.mkdir()
    (sboms / "horovod.cdx.json").write_text(bill_of_materials(series))
    run("wheel", "pack", str(content))
    if any_python:
        run("wheel", "tags", "--remove", "--python-tag=py3", "--abi-tag=none", wheel.name)
    (packed,) = wheel.parent.glob("*.whl")
    left_out = [f"--exclude={name}" for name in OF_FRAMEWORKS]
    run("auditwheel", "repair", "--strip", *left_out, f"--wheel-dir={out}", packed.name)


def unused(series: Sequence[Path]) -> list[str]:
    return [file.name for file in PATCHES.iterdir() if file not in series]


def bill_of_materials(series: Sequence[Path]) -> str:
    """The CycloneDX document of a wheel: what its source holds of others, and the patches."""
    document = json.loads((COMMON / "horovod.cdx.json").read_text())
    document["metadata"]["component"]["pedigree"] = {
        "patches": [
            {"type": "unofficial", "diff": {"url": f"../licenses/patches/{patch.name}"}}
            for patch in series
        ]
    }
    return json.dumps(document, indent=1) + "\n"


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
