"""Write the files for a machine with a GPU and no network to `.gpu`: `make gpu-bundle`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devtools.common.commands import read_output
from devtools.common.errors import DevtoolsError
from devtools.common.ui import note, show_error
from devtools.gpus import machine
from devtools.gpus.stages import BUNDLE
from devtools.localkube.config import CNI_PLUGINS
from devtools.localkube.preflight import CLUSTER_PACKAGES
from devtools.toolchain.tools import tool
from images.builder.sdist import write_sdist

# The size limit of a part: some transfers to such a machine take no larger file.
PART_BYTES = 60 << 20
# The machine's Python, and the packages that the project and Horovod import there. The machine
# already has frameworks, NumPy and their dependencies.
PYTHON = "3.12"
PLATFORMS = (
    "manylinux_2_34_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
# Libraries that every system has.
OF_THE_SYSTEM = ("libc", "libm", "libdl", "libpthread", "librt", "libresolv")


def write_bundle() -> None:
    """Write the parts, folders below `.gpu`. Raises DevtoolsError when a part is too large."""
    shutil.rmtree(BUNDLE, ignore_errors=True)
    first = BUNDLE / "1"
    second = BUNDLE / "2"
    for part in (first, second):
        part.mkdir(parents=True)
    note("fetching packages for Python")
    fetch_packages(first / "packages")
    write_sdist(first)
    note("packing the local Kubernetes")
    kube, *others = map(tool, ("kube", "coredns", "pause", "helm4"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        content = [find_in_cache([kube]), find_in_cache(others) | write_scripts(kube, Path(folder))]
        content[1] |= debian_programs()
        archives = [part / machine.BUNDLE_ARCHIVE for part in (first, second)]
        list(pool.map(pack, content, archives))
    for part in (first, second):
        size = sum(file.stat().st_size for file in part.rglob("*") if file.is_file())
        note(f"{part}: {size / (1 << 20):.1f} MiB")
        if size > PART_BYTES:
            raise DevtoolsError(
                f"{part} has {size >> 20} MiB, and a part may have {PART_BYTES >> 20}",
                "move some of its content to another part in devtools/gpus/bundle.py",
            )


def fetch_packages(folder: Path) -> None:
    """Download wheels for that machine's Python, whatever the version here."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", PYTHON]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run([*command, "-d", str(folder), "-r", str(REQUIREMENTS)], check=True)


def find_in_cache(tools: list[Path]) -> dict[Path, Path]:
    """Return the target paths of programs of the toolchain, with their paths here."""
    return {machine.CACHE / "tools" / path.parent.name / path.name: path for path in tools}


def write_scripts(kube: Path, folder: Path) -> dict[Path, Path]:
    """Write scripts for programs that the project calls by name. Return their target paths.

    The names of the tools' folders contain the version of Go: Go is called only for its version.
    """
    version = read_output(["go", "env", "GOVERSION"], remedy="install Go").strip()
    (there,) = find_in_cache([kube])
    texts = {
        "go": f'[ "$1 $2" = "env GOVERSION" ] && echo {version} || exit 1',
        "helm": f'exec {machine.CACHE}/tools/helm4-*/helm "$@"',
        "kubectl": f'exec {there} kubectl "$@"',
    }
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {machine.BUNDLE_PROGRAMS / name: folder / name for name in texts}


def debian_programs() -> dict[Path, Path]:
    """Return the target paths of Debian's programs for the local Kubernetes and of their libraries,
    with their paths here.
    """
    names = {name for programs in CLUSTER_PACKAGES.values() for name in programs}
    files: dict[Path, Path] = {}
    for name in sorted(names - {"mount", "umount", "unshare"}):
        program = Path(shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") or "")
        if not program.is_file():
            raise DevtoolsError(f"{name} is not installed", "start the local cluster once")
        is_plugin = CNI_PLUGINS in program.parents
        folder = machine.BUNDLE_CNI_PLUGINS if is_plugin else machine.BUNDLE_PROGRAMS
        files[folder / program.name] = program.resolve()
        for library, path in libraries_of(program).items():
            files[machine.BUNDLE_LIBRARIES / library] = path.resolve()
    return files


def libraries_of(program: Path) -> dict[str, Path]:
    """Return the shared libraries that a program loads, except those of every system."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    paths = {}
    for line in done.stdout.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if arrow and rest.startswith("/") and name.partition(".so")[0] not in OF_THE_SYSTEM:
            paths[name] = Path(rest.split()[0])
    return paths


def pack(content: dict[Path, Path], archive: Path) -> None:
    """Compress files; each is below machine.WORK on that machine."""
    with tarfile.open(archive, "w:xz", preset=6) as tar:
        for there, here in content.items():
            tar.add(here, str(there.relative_to(machine.WORK)))


def main() -> int:
    try:
        write_bundle()
    except DevtoolsError as error:
        show_error(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
