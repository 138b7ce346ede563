"""Requirements of the local Kubernetes on this machine: the programs of the bundle, and an image
whose pods use the machine's own system and Python.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from devtools.gpus.stages import BUNDLE, PREFIX, SITE
from devtools.localkube import oci
from devtools.localkube.node import PATH

# Outside the overlay that may be such a machine's disk: a container's file system cannot be on an
# overlay.
WORK = Path("/opt/hvd-gpu")
# The bundle's archive has folders with these names and their files.
CACHE = WORK / "cache"
BUNDLE_PROGRAMS = WORK / "bin"
BUNDLE_CNI_PLUGINS = WORK / "cni"
BUNDLE_LIBRARIES = WORK / "lib"
BUNDLE_ARCHIVE = "cluster.tar.xz"
# The path of the bundle's packages in pods.
POD_PREFIX = Path("/opt/hvd-gpu-prefix")
IMAGE = "docker.io/local/machine:1"


def prepare_machine() -> None:
    """Put the tools where the project looks for them, and Debian's programs on PATH. Mount cgroups
    and a disk for images.
    """
    if not CACHE.exists():
        CACHE.mkdir(parents=True)
        mount("tmpfs", CACHE, "-o", "size=24g,mode=755")
    with ProcessPoolExecutor() as pool:
        list(pool.map(unpack, BUNDLE.glob(f"*/{BUNDLE_ARCHIVE}")))
    for program in BUNDLE_PROGRAMS.iterdir():
        if not shutil.which(program.name):
            shutil.copy2(program, "/usr/local/bin")
    standard = Path("/usr/lib/cni")
    standard.mkdir(exist_ok=True)
    for plugin in BUNDLE_CNI_PLUGINS.iterdir():
        if not (standard / plugin.name).exists():
            shutil.copy2(plugin, standard)
    libraries = subprocess.run(
        ["ldconfig", "-p"], check=True, capture_output=True, text=True
    ).stdout
    for library in BUNDLE_LIBRARIES.iterdir():
        if f"\t{library.name} " not in libraries:
            shutil.copy2(library, "/usr/local/lib")
    subprocess.run(["ldconfig"], check=True)
    if " - cgroup" not in Path("/proc/self/mountinfo").read_text():
        Path("/sys/fs/cgroup").mkdir(exist_ok=True)
        mount("cgroup2", Path("/sys/fs/cgroup"))
    # Copy before programs import packages that only this stage uses: Python writes files beside
    # these.
    if PREFIX.exists() and not POD_PREFIX.exists():
        shutil.copytree(PREFIX, POD_PREFIX, symlinks=True)


def mount(kind: str, place: Path, *options: str) -> None:
    subprocess.run(["mount", "-t", kind, *options, kind, str(place)], check=True)


def unpack(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(WORK, filter="data")


def mounted_folders() -> list[str]:
    """Return folders of the machine that pods need: the system, and the folders of its Python."""
    python_folder = "/" + Path(sys.executable).parts[1]
    return sorted({"/usr", python_folder, "/opt"} - {"/bin"})


def write_image() -> Path:
    """Write an archive of an image with the links of the machine's root and the needed files of
    /etc.
    """
    root = WORK / "root"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("proc", "sys", "dev", "run", "var", "etc", "home", "root", "srv", "mnt", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for place in mounted_folders():
        (root / place[1:]).mkdir(exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64", "lib32"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
    for name in ("alternatives", "ld.so.conf.d"):
        shutil.copytree(Path("/etc", name), root / "etc" / name, symlinks=True)
    for name in ("ld.so.cache", "ld.so.conf", "nsswitch.conf", "services", "protocols"):
        if Path("/etc", name).is_file():
            shutil.copy2(Path("/etc", name), root / "etc")
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nhorovod:x:1000:1000::/home/horovod:/bin/sh\n"
    )
    (root / "etc/group").write_text("root:x:0:\nhorovod:x:1000:\n")
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(root.iterdir()):
            tar.add(path, path.name)
    layer = oci.descriptor(oci.LAYER, raw.getvalue())
    variables = [
        f"PATH={POD_PREFIX / 'bin'}:{Path(sys.executable).parent}:{PATH}",
        f"PYTHONPATH={POD_PREFIX / SITE.relative_to(PREFIX)}",
    ]
    if os.environ.get("LD_LIBRARY_PATH"):
        variables.append(f"LD_LIBRARY_PATH={os.environ['LD_LIBRARY_PATH']}")
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": variables, "User": "1000", "WorkingDir": "/", "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    archive = WORK / "machine.tar"
    content = {layer["digest"]: raw.getvalue()}
    oci.write_archive(archive, IMAGE, oci.to_json(config), [layer], content)
    return archive
