"""The tools of the bundle on this machine, and how its programs are called."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

# Disks of such machines may be overlays, on which a container's file system cannot be.
WORK = Path("/opt/hvd-gpu")
CACHE = WORK / "cache"
# The names of the tools' folders hold the version of Go that built them.
GO = '#!/bin/sh\n[ "$1 $2" = "env GOVERSION" ] && echo "$HVD_PROOF_GO" || exit 1\n'


def call(command: list[str], *, seconds: float = 60, check: bool = True, **options: Any) -> str:
    """What a command prints. Raises RuntimeError with it when it fails or takes too long."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, **options
        )
    except subprocess.TimeoutExpired as problem:
        raise RuntimeError(f"{command} took over {seconds} s: {problem.stdout!r}") from problem
    output: str = done.stdout + done.stderr
    if check and done.returncode:
        raise RuntimeError(f"{command} exited with status {done.returncode}: {output[-3000:]}")
    return output


def unpack_one(place: tuple[Path, Path]) -> None:
    source, target = place
    target.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(source) as packed, target.open("wb") as out:
        shutil.copyfileobj(packed, out, 1 << 20)
    target.chmod(0o755)


def unpack(bundle: Path) -> None:
    """Put the tools where the project looks for them, and Debian's programs on PATH."""
    if not CACHE.exists():
        CACHE.mkdir(parents=True)
        call(["mount", "-t", "tmpfs", "-o", "size=24g,mode=755", "hvd-gpu", str(CACHE)])
    places = [
        (file, CACHE / "tools" / file.parent.name / file.stem)
        for file in bundle.glob("**/tools/*/*.xz")
    ]
    (programs,) = bundle.glob("**/programs.tar.xz")
    places.append((programs, WORK / "programs.tar"))
    with ProcessPoolExecutor(8) as pool:
        list(pool.map(unpack_one, places))
    with tarfile.open(WORK / "programs.tar") as tar:
        tar.extractall(WORK / "programs", filter="data")
    for program in (WORK / "programs/bin").iterdir():
        if not shutil.which(program.name):
            shutil.copy2(program, "/usr/local/bin")
    Path("/usr/lib/cni").mkdir(exist_ok=True)
    for program in (WORK / "programs/cni").iterdir():
        if not Path("/usr/lib/cni", program.name).exists():
            shutil.copy2(program, "/usr/lib/cni")
    known = call(["ldconfig", "-p"])
    for library in (WORK / "programs/lib").iterdir():
        if f"\t{library.name} " not in known:
            shutil.copy2(library, "/usr/local/lib")
    call(["ldconfig"])
    shims = {
        "go": GO,
        "helm": f'#!/bin/sh\nexec {the_one("tools/helm4-*/helm")} "$@"\n',
        "kubectl": f'#!/bin/sh\nexec {the_one("tools/kube-*/kube")} kubectl "$@"\n',
    }
    for name, text in shims.items():
        if not shutil.which(name):
            file = Path("/usr/local/bin", name)
            file.write_text(text)
            file.chmod(0o755)


def the_one(pattern: str) -> Path:
    (path,) = CACHE.glob(pattern)
    return path


def environment(bundle: Path) -> dict[str, str]:
    (go,) = bundle.glob("**/go-version")
    return {
        **os.environ,
        "HVD_CACHE": str(CACHE),
        "HVD_PROOF_GO": go.read_text().strip(),
        "PATH": f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin",
    }


def mount_cgroups() -> None:
    """Such a machine may have none mounted."""
    mounted = Path("/proc/self/mountinfo").read_text()
    if " - cgroup" not in mounted:
        Path("/sys/fs/cgroup").mkdir(exist_ok=True)
        call(["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"])
