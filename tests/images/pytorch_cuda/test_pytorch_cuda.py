"""Horovod with PyTorch for NVIDIA's GPUs. The last of these needs one."""

from __future__ import annotations

import pytest

from devtools.trials.checks import STALLS, assert_all_pass
from devtools.trials.sandbox import OWN_UID, TWO_RANKS, TWO_RANKS_OVER_GLOO, Sandbox, launch_ranks

NVIDIA = "/usr/local/lib/python3.11/site-packages/nvidia"
# The weights of one process that has the batches of all ranks.
TRAIN = """
import horovod.torch as hvd, torch
hvd.init()
torch.cuda.set_device(hvd.local_rank())
torch.manual_seed(1)
model, one = torch.nn.Linear(4, 2).cuda(), torch.nn.Linear(4, 2).cuda()
one.load_state_dict(model.state_dict())
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
batches = torch.randn(hvd.size(), 8, 4, device="cuda")
(model(batches[hvd.rank()]) ** 2).mean().backward()
optimizer.step()
alone = torch.optim.SGD(one.parameters(), 0.1)
(one(batches.reshape(-1, 4)) ** 2).mean().backward()
alone.step()
torch.testing.assert_close(model.weight, one.weight)
print("RIGHT")
"""


@pytest.mark.parametrize("launcher", [TWO_RANKS, TWO_RANKS_OVER_GLOO], ids=["mpi", "gloo"])
def test_training_works_without_a_gpu(inside: Sandbox, launcher: tuple[str, ...]) -> None:
    assert_all_pass(inside, launcher)


# What cuDNN opens by name once there is a driver, and cuBLAS' and NVRTC's other halves.
@pytest.mark.parametrize(
    "name",
    [
        *("cublasLt", "cudnn_adv", "cudnn_cnn", "cudnn_engines_precompiled", "cudnn_graph"),
        *("cudnn_engines_runtime_compiled", "cudnn_heuristic", "cudnn_ops"),
        *("cupti", "cusolver", "nvJitLink", "nvrtc", "nvrtc-builtins"),
    ],
)
def test_library_that_pytorch_opens_loads(inside: Sandbox, name: str) -> None:
    inside.python(
        "import ctypes, pathlib, torch\n"
        f"(file,) = pathlib.Path('{NVIDIA}').glob('*/lib/lib{name}.so.*[0-9]')\n"
        "ctypes.CDLL(str(file))"
    )


def test_removed_files_are_not_needed(inside: Sandbox) -> None:
    inside.python(
        "import torch, horovod.torch, horovod.runner, triton, triton.profiler;"
        "import torch.distributed, torch.onnx, torch.utils.cpp_extension, torch.profiler;"
        "import numpy.random, numpy.testing, networkx;"
        "torch.linalg.inv(torch.eye(3) * 2); torch.jit.script(torch.nn.Linear(2, 2));"
        "torch.compile(torch.nn.Linear(2, 2), backend='eager')(torch.ones(1, 2))"
    )


def test_training_on_gpus_equals_one_process_with_all_batches(on_gpu: Sandbox, gpus: int) -> None:
    done = on_gpu.run(*launch_ranks(gpus), "python3", "-c", TRAIN, uid=OWN_UID, **STALLS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("RIGHT") == gpus
