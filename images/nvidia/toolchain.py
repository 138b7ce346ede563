"""The toolchain of images for NVIDIA's GPUs: CUDA's compiler, headers and libraries, assembled from
packages. It stays in the build stage.

common/build_horovod.py calls it for each image with `nccl` among its features, with the image's
folder, where there are

- `toolkit.txt`: PyPI's packages by NVIDIA, with hashes;
- `toolkit.debs`, for what PyPI lacks (nvcc of CUDA 12, headers that XLA's include): a Debian
  package a line, as SUITE COMPONENT NAME=VERSION SHA256.

An nvcc of the base image, as NVIDIA's images have one, is used instead of these.

What runs later (libcudart, NCCL) is the framework's own: its wheel depends on these packages.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HOME = Path("/opt/cuda")
# Where NVIDIA's own images have the toolkit.
BROUGHT = Path("/usr/local/cuda")
# A linker looks for names without a version; the framework's packages have only versioned ones.
LINKS = Path("/opt/cuda-links")
# The mirror that Debian's other packages came from has these too.
SOURCES = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d"))
DEBIAN_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Where Debian's packages have what belongs below the toolkit's bin, nvvm and include.
FROM_DEBIAN = {
    "usr/bin/ptxas": "bin/ptxas",
    "usr/bin/fatbinary": "bin/fatbinary",
    "usr/bin/cudafe++": "bin/cudafe++",
    "usr/bin/nvlink": "bin/nvlink",
    "usr/lib/nvidia-cuda-toolkit/bin/nvcc": "bin/nvcc",
    "usr/lib/nvidia-cuda-toolkit/bin/crt": "bin/crt",
    "usr/lib/nvidia-cuda-toolkit/bin/cicc": "nvvm/bin/cicc",
    "usr/lib/nvidia-cuda-toolkit/libdevice": "nvvm/libdevice",
    "usr/include/highwayhash": "include/highwayhash",
    "usr/include/farmhash.h": "include/farmhash.h",
}
# Tells nvcc where its parts are, relative to itself.
PROFILE = """\
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include"
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib"
"""


def prepare(folder: Path, home: Path = HOME) -> dict[str, str]:
    """Assembles the toolkit at `home`; returns the environment variables by which Horovod's build
    finds it and the NCCL of the framework.

    Raises SystemExit when a package has another hash, when there is not exactly one NCCL, and when
    the compiler does not know a GPU that is asked for.
    """
    if (BROUGHT / "bin" / "nvcc").exists():
        home.symlink_to(BROUGHT)
    else:
        assemble(folder, home)
    refuse_unknown(os.environ.get("HOROVOD_BUILD_CUDA_CC_LIST", ""), home)
    nccl = the_one("nvidia/nccl/lib/libnccl.so.*")
    cudart = the_one("nvidia/*/lib/libcudart.so.*")
    LINKS.mkdir()
    link(LINKS / "libnccl.so", nccl)
    link(LINKS / "libcudart.so", cudart)
    return {
        "CUDA_HOME": str(home),
        "CUDACXX": str(home / "bin" / "nvcc"),
        "CUDAFLAGS": "--cudart=shared",
        "LIBRARY_PATH": f"{LINKS}:{home / 'lib64'}",
        "HOROVOD_CUDA_HOME": str(home),
        "HOROVOD_NCCL_INCLUDE": str(nccl.parent.parent / "include"),
        "HOROVOD_NCCL_LIB": str(LINKS),
        # Else it takes a static library where it finds one, of whatever version.
        "HOROVOD_NCCL_LINK": "SHARED",
        "CMAKE_TOOLCHAIN_FILE": str(settings(nccl, cudart)),
    }


def refuse_unknown(capabilities: str, home: Path) -> None:
    """Raises SystemExit for compute capabilities that this compiler does not know: the base image
    may have another one than images/versions.yaml was written for.
    """
    nvcc = [str(home / "bin" / "nvcc"), "--list-gpu-arch"]
    output = subprocess.run(nvcc, check=True, capture_output=True, text=True).stdout
    known = [line.removeprefix("compute_") for line in output.split()]
    unknown = [word for word in capabilities.split(",") if word not in known]
    if unknown:
        raise SystemExit(
            f"compute capability {', '.join(unknown) or 'none'}: this nvcc knows {', '.join(known)}"
        )


def assemble(folder: Path, home: Path) -> None:
    """Makes the toolkit from the packages that the image's folder lists."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        wheels(folder / "toolkit.txt", work, home)
        packages = folder / "toolkit.debs"
        if packages.exists():
            debs(packages, work, home)
    complete(home)


def settings(*libraries: Path) -> Path:
    """A CMake file with what CMake reads from no environment variable. Horovod's library finds
    `libraries` relative to itself, site-packages/horovod/FRAMEWORK: a program that sets its own
    environment may have no LD_LIBRARY_PATH.
    """
    folders = [
        f"$ORIGIN/../../{library.parent.relative_to(site_packages())}" for library in libraries
    ]
    file = LINKS / "horovod.cmake"
    file.write_text(
        "set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)\n"
        f'set(CMAKE_BUILD_RPATH "{";".join(folders)}")\n'.replace("$", "\\$")
    )
    return file


def wheels(lock: Path, work: Path, home: Path) -> None:
    """Installs PyPI's packages and copies what they have below nvidia/PART into `home`."""
    target = work / "wheels"
    pip = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--no-compile"]
    locked = ["--require-hashes", "--requirement", str(lock)]
    subprocess.run([*pip, "--target", str(target), *locked], check=True)
    for part in sorted((target / "nvidia").iterdir()):
        if part.is_dir():
            shutil.copytree(part, home, dirs_exist_ok=True)


def debs(listed: Path, work: Path, home: Path) -> None:
    """Unpacks Debian's packages, which may be of another release, and copies the compiler's parts
    and headers to where NVIDIA has them. Installing them would install gigabytes of libraries.
    """
    unpacked = work / "unpacked"
    for line in listed.read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            suite, component, package, digest = words
            deb = download(suite, component, package, work)
            actual = hashlib.sha256(deb.read_bytes()).hexdigest()
            if actual != digest:
                raise SystemExit(f"{deb.name} has SHA-256 {actual}, and {listed} says {digest}")
            subprocess.run(["dpkg", "--extract", deb, unpacked], check=True)
    for source, place in FROM_DEBIAN.items():
        target = home / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if (unpacked / source).is_dir():
            shutil.copytree(unpacked / source, target, dirs_exist_ok=True)
        else:
            shutil.copy2(unpacked / source, target)
    (home / "bin" / "nvcc.profile").write_text(PROFILE)


def download(suite: str, component: str, package: str, work: Path) -> Path:
    """Downloads the .deb of NAME=VERSION with apt, which checks its signature."""
    apt = work / f"apt-{suite}"
    for name in ("lists/partial", "archives/partial", "parts"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    source = f"deb [signed-by={DEBIAN_KEYS}] {mirror()} {suite} {component}\n"
    (apt / "sources.list").write_text(source)
    settings = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": apt / "parts",
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache::archives": apt / "archives",
        "APT::Sandbox::User": "root",
    }
    options = [f"--option={name}={value}" for name, value in settings.items()]
    environment = dict(os.environ)
    secret = Path("/run/secrets/apt.conf")
    if secret.exists() and secret.stat().st_size:
        environment["APT_CONFIG"] = str(secret)
    for command in (["update", "--quiet"], ["download", package]):
        subprocess.run(
            ["apt-get", *options, *command], check=True, cwd=apt / "archives", env=environment
        )
    name = package.partition("=")[0]
    (deb,) = (apt / "archives").glob(f"{name}_*.deb")
    return deb


def mirror() -> str:
    """The first URL in the image's package sources."""
    files = [SOURCES[0], *sorted(SOURCES[1].glob("*"))]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    words = [word for line in lines for word in line.partition("#")[0].split()]
    addresses = [word for word in words if word.startswith(("http://", "https://"))]
    if not addresses:
        raise SystemExit(f"no address of a Debian mirror in {SOURCES[0]} or below {SOURCES[1]}")
    return addresses[0]


def complete(home: Path) -> None:
    """Adds the names that compilers look for, which NVIDIA's packages for Python lack."""
    for library in (home / "lib").glob("lib*.so.*"):
        link(library.with_name(library.name.partition(".so")[0] + ".so"), library)
    link(home / "lib64", home / "lib")
    # For kernels that start kernels. Horovod has none, and CMake names the library all the same.
    if not (home / "lib" / "libcudadevrt.a").exists():
        subprocess.run(["ar", "rc", home / "lib" / "libcudadevrt.a"], check=True)


def link(place: Path, target: Path) -> None:
    if not place.exists():
        place.symlink_to(target)


def the_one(pattern: str) -> Path:
    """The file of the framework's packages that matches. Raises SystemExit unless there is one."""
    found = sorted(site_packages().glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"expected one {pattern} below {site_packages()}, found {found or 'none'}")
    return found[0]


def site_packages() -> Path:
    return Path(sysconfig.get_path("purelib"))
