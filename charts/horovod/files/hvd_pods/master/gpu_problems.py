"""Interprets messages of CUDA and NCCL: the meaning for a run, and the remedy.

The messages about two ranks on one GPU and about a missing GPU are from an H200 with CUDA 13.0 and
NCCL 2.28 (docs/gpus.md); the others are from the sources of PyTorch 2.11 and NCCL 2.30, and from
the texts of `cudaError_t` in CUDA's runtime.
"""

from __future__ import annotations

from typing import NamedTuple


class GpuProblem(NamedTuple):
    """Words of a message, and the remedy.

    is_permanent: no attempt can succeed until somebody changes something. is_broken: the GPU is
    broken, and other workers may succeed.
    """

    words: tuple[str, ...]
    remedy: str
    is_permanent: bool = True
    is_broken: bool = False


SELECT = (
    "select the one of hvd.local_rank() in the script, as with torch.cuda.set_device, and set "
    "`worker.slots` to the number of GPUs of a worker"
)
PROBLEMS = (
    GpuProblem(
        ("Duplicate GPU detected", "Multiple Ranks are using the same GPU"),
        f"two ranks use the same GPU: {SELECT}",
    ),
    GpuProblem(
        ("ncclCommInitRank failed: invalid usage",),
        f"NCCL does not connect the ranks, mostly because two of them use the same GPU: {SELECT}",
        is_permanent=False,
    ),
    GpuProblem(
        ("invalid device ordinal",),
        "the worker has fewer GPUs than ranks: set `worker.slots` to the number of GPUs in "
        "`worker.resources.limits`",
    ),
    GpuProblem(
        (
            "CUDA driver version is insufficient for CUDA runtime version",
            "The NVIDIA driver on your system is too old",
        ),
        "the node's driver is older than the CUDA of the image needs: update the driver, select "
        "other nodes with `worker.nodeSelector`, or use an image with an older CUDA",
    ),
    GpuProblem(
        ("no kernel image is available for execution on the device",),
        "the image was not built for this kind of GPU: use another image, or select other nodes "
        "with `worker.nodeSelector`",
    ),
    GpuProblem(
        ("no CUDA-capable device is detected", "Found no NVIDIA driver on your system"),
        "the worker sees no GPU: set nvidia.com/gpu in `worker.resources.limits`, and "
        "`worker.podSpec.runtimeClassName` where the cluster needs one",
    ),
    GpuProblem(
        ("ProcessGroupNCCL is only supported with GPUs",),
        "the worker has no GPU: give it one (`--gpus`, or gpus of a spec's nodes), or give "
        "init_process_group the backend gloo",
    ),
    GpuProblem(
        (
            "unsupported display driver / cuda driver combination",
            "forward compatibility was attempted on non supported HW",
        ),
        "a libcuda of the image (cuda-compat) does not fit the node's driver or GPU: take it out "
        "of LD_LIBRARY_PATH, or use another image",
        is_permanent=False,
    ),
    GpuProblem(
        ("system not yet initialized",),
        "NVIDIA's fabric manager does not run on the node, or not yet: if that lasts, keep runs "
        "off it with kubectl cordon, and report it to who looks after the nodes",
        is_permanent=False,
    ),
    GpuProblem(
        (
            "uncorrectable ECC error encountered",
            "uncorrectable NVLink error",
            "GPU has fallen off the bus",
            "GPU is lost",
        ),
        "the GPU is broken or needs a reset: keep runs off its node with kubectl cordon, delete "
        "the worker's pod, and report it to who looks after the nodes",
        is_permanent=False,
        is_broken=True,
    ),
)


def find_gpu_problem(text: str) -> GpuProblem | None:
    """Return the GPU problem in the message of an exception; None if there is no known one."""
    for problem in PROBLEMS:
        if any(words in text for words in problem.words):
            return problem
    return None
