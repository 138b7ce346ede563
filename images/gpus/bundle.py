"""Writes what a machine with a GPU and no network needs for the proof: `make gpu-bundle`."""

from __future__ import annotations

import lzma
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.common.ui import note
from devtools.localkube.config import CNI_PLUGINS
from devtools.localkube.preflight import PACKAGES
from devtools.toolchain.tools import tool
from images.builder.catalogue import ROOT
from images.builder.sdist import write_sdist

FOLDER = ROOT / ".gpu"
# A part travels in one piece; some ways to such a machine take no more.
PART_BYTES = 60 << 20
# Python of the machine, and what the project and Horovod import there. Frameworks, NumPy and what
# comes with them are there already.
PYTHON = "3.12"
PLATFORMS = (
    "manylinux_2_34_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
# These are part of any system.
OF_THE_SYSTEM = ("libc", "libm", "libdl", "libpthread", "librt", "libresolv")


def write_bundle(wheel: Path | None) -> list[Path]:
    """Writes the parts, folders below `.gpu`, and returns them.

    wheel: Horovod, compiled for that machine's Python and PyTorch. Without one that fits, the
    machine compiles the source, which takes 16 cores two minutes. Raises DevtoolsError when a part
    is too large.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    first = FOLDER / "1"
    second = FOLDER / "2"
    for part in (first, second):
        part.mkdir(parents=True)
    note("fetching packages for Python")
    fetch_packages(first / "packages")
    write_sdist(first)
    if wheel is not None:
        shutil.copy2(wheel, first / "packages")
    note("packing the local Kubernetes")
    pack_tools({"kube": first, "coredns": second, "pause": second, "helm4": second})
    (second / "go-version").write_text(read_output(["go", "env", "GOVERSION"], remedy="install Go"))
    pack_programs(second / "programs.tar.xz")
    for part in (first, second):
        size = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        note(f"{part}: {size / (1 << 20):.1f} MiB")
        if size > PART_BYTES:
            raise DevtoolsError(
                f"{part} has {size >> 20} MiB, and a part may have {PART_BYTES >> 20}",
                "move some of its content to another part in images/gpus/bundle.py",
            )
    return [first, second]


def fetch_packages(folder: Path) -> None:
    """Downloads wheels for the machine's Python, whatever this machine's is."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", PYTHON]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run([*command, "-d", str(folder), "-r", str(REQUIREMENTS)], check=True)


def pack_tools(places: dict[str, Path]) -> None:
    """Compresses tools of the toolchain to PART/tools/FOLDER/PROGRAM.xz."""

    def pack(name: str) -> None:
        program = tool(name)
        folder = places[name] / "tools" / program.parent.name
        folder.mkdir(parents=True)
        compress(program, folder / f"{program.name}.xz")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(pack, places))


def compress(source: Path, target: Path) -> None:
    with source.open("rb") as file, lzma.open(target, "wb", preset=6) as packed:
        shutil.copyfileobj(file, packed, 1 << 20)


def pack_programs(target: Path) -> None:
    """Packs Debian's programs that the local Kubernetes needs, with their libraries."""
    names = {name for programs in PACKAGES.values() for name in programs}
    names -= {"mount", "umount", "unshare"}
    with lzma.open(target, "wb", preset=6) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        libraries: dict[str, Path] = {}
        for name in sorted(names):
            found = shutil.which(name, path=f"{CNI_PLUGINS}:/usr/sbin:/usr/bin:/sbin:/bin")
            program = Path(name) if name.startswith("/") else Path(found or "")
            if not program.is_file():
                raise DevtoolsError(f"{name} is not installed", "start the local cluster once")
            folder = "cni" if CNI_PLUGINS in program.parents else "bin"
            tar.add(program.resolve(), f"{folder}/{program.name}")
            libraries |= libraries_of(program)
        for name, path in sorted(libraries.items()):
            tar.add(path.resolve(), f"lib/{name}")


def libraries_of(program: Path) -> dict[str, Path]:
    """The shared libraries that a program loads, but for those of any system."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    found = {}
    for line in done.stdout.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if arrow and rest.startswith("/") and name.partition(".so")[0] not in OF_THE_SYSTEM:
            found[name] = Path(rest.split()[0])
    return found
