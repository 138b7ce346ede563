"""Install the bundle's wheels, and compile Horovod for this machine's PyTorch and CUDA."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from devtools.common.repository import ROOT
from devtools.gpus.stages import BUNDLE, PREFIX, SITE, stage_variables

SWITCHES = {
    "HOROVOD_GPU": "CUDA",
    "HOROVOD_GPU_OPERATIONS": "NCCL",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_PYTORCH": "1",
}


def install_wheels(out: Path) -> None:
    """Install the wheels of the bundle; compile Horovod where none of them fits this PyTorch.

    Output goes to files in `out`. Raises subprocess.CalledProcessError when pip or the compiler
    fails.
    """
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    pip += ["--no-compile", "--ignore-installed", "--prefix", str(PREFIX)]
    if not (SITE / "horovod").exists():
        subprocess.run([*pip, *sorted(map(str, BUNDLE.glob("**/*.whl")))], check=True)
    test = [sys.executable, "-c", "import horovod.torch"]
    with (out / "import.txt").open("w") as log:
        tried = subprocess.run(test, env=stage_variables(), stdout=log, stderr=log, check=False)
    if tried.returncode != 0:
        shutil.rmtree(SITE / "horovod", ignore_errors=True)
        subprocess.run([*pip, str(compile_horovod(out / "compile.txt"))], check=True)


def compile_horovod(log: Path) -> Path:
    """Compile the source of the bundle, which takes 16 cores two minutes. Return the wheel."""
    (source,) = BUNDLE.glob("**/horovod-*.tar.gz")
    work = Path(tempfile.mkdtemp(prefix="hvd-compile-"))
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    os.environ["HOROVOD_BUILD_CUDA_CC_LIST"] = compute_capability()
    toolchain = runpy.run_path(str(ROOT / "images/nvidia/toolchain.py"))
    prepare = toolchain["prepare"]
    # The program's default paths are those of an image's build stage.
    prepare.__globals__["BROUGHT"] = Path(nvcc).resolve().parent.parent
    prepare.__globals__["LINKS"] = work / "links"
    cuda_variables = prepare(ROOT / "images/pytorch-cuda", home=work / "cuda")
    variables = {
        **stage_variables(),
        **cuda_variables,
        **SWITCHES,
        "MAKEFLAGS": f"-j{os.cpu_count()}",
    }
    if not shutil.which("make"):
        variables["CMAKE_GENERATOR"] = "Ninja"
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    with log.open("w") as out:
        subprocess.run(
            [*pip, "-w", str(work), str(source)], env=variables, stdout=out, stderr=out, check=True
        )
    (wheel,) = work.glob("*.whl")
    return wheel


def compute_capability() -> str:
    """Return the capability of the first GPU in the format of Horovod's build: 90."""
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    answer = subprocess.run(
        query, env=stage_variables(), check=True, capture_output=True, text=True
    ).stdout
    return answer.splitlines()[0].strip().replace(".", "")
