"""Compile Horovod's source for this machine's PyTorch and CUDA: `compile SOURCE TARGET`."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from images.gpus.proof.places import PROJECT

SWITCHES = {
    "HOROVOD_GPU": "CUDA",
    "HOROVOD_GPU_OPERATIONS": "NCCL",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_PYTORCH": "1",
}


def compute_capability() -> str:
    """The capability of the first GPU, as Horovod's build takes it: 90."""
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    answer = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    return answer.splitlines()[0].strip().replace(".", "")


def main() -> None:
    source, target = sys.argv[1:3]
    work = Path(tempfile.mkdtemp(prefix="hvd-compile-"))
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    os.environ["HOROVOD_BUILD_CUDA_CC_LIST"] = compute_capability()
    toolchain = runpy.run_path(str(PROJECT / "images/nvidia/toolchain.py"))
    prepare = toolchain["prepare"]
    # Its places are those of an image's build stage.
    prepare.__globals__["BROUGHT"] = Path(nvcc).resolve().parents[1]
    prepare.__globals__["LINKS"] = work / "links"
    found = prepare(PROJECT / "images/pytorch-cuda", home=work / "cuda")
    variables = {**os.environ, **found, **SWITCHES, "MAKEFLAGS": f"-j{os.cpu_count()}"}
    if not shutil.which("make"):
        variables["CMAKE_GENERATOR"] = "Ninja"
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "-w", target, source], env=variables, check=True)


if __name__ == "__main__":
    main()
