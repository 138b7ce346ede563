"""Tests that need a GPU, with one rank for each GPU.

Without a GPU they are skipped, and the test results of the image count them.
"""

from __future__ import annotations

import pytest

from images.builder.catalogue import Image
from tests.support.in_image.checks import COMMON, STALLS, assert_all_pass
from tests.support.in_image.sandbox import OWN_UID, Result, Sandbox, launch_ranks, output_of

# As a training script has it: each rank on its own GPU.
ALLREDUCE = {
    "tensorflow": """
import tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
with tf.device("/GPU:0"):
    ones = tf.fill([1 << 20], float(hvd.rank() + 1))
    total = hvd.allreduce(ones, op=hvd.Sum)
least, most, device = float(tf.reduce_min(total)), float(tf.reduce_max(total)), total.device
""",
    "torch": """
import torch, horovod.torch as hvd
hvd.init()
torch.cuda.set_device(hvd.local_rank())
total = hvd.allreduce(torch.full((1 << 20,), hvd.rank() + 1.0, device="cuda"), op=hvd.Sum)
least, most, device = float(total.min()), float(total.max()), total.device
""",
}
SAY = """
right = least == most == hvd.size() * (hvd.size() + 1) / 2
print(f"rank {hvd.rank()} of {hvd.size()}: {'right' if right else total} on {device}")
"""
COUNT = {
    "tensorflow": "import tensorflow; print(len(tensorflow.config.list_physical_devices('GPU')))",
    "torch": "import torch; print(torch.cuda.device_count())",
}
# The weights of one process that has the batches of all ranks.
TRAIN = """
import os
import horovod.torch as hvd, torch
hvd.init()
# A rank that is alone reduces nothing, unless others may join.
if hvd.size() == 1:
    os.environ["HOROVOD_ELASTIC"] = "1"
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


@pytest.fixture(scope="session")
def reduced(image: Image, on_gpu: Sandbox, gpus: int) -> Result:
    """An allreduce with one rank for each GPU, and NCCL's log."""
    done = on_gpu.run(
        *launch_ranks(gpus),
        "-x",
        "NCCL_DEBUG",
        "python3",
        "-c",
        ALLREDUCE[image.framework or ""] + SAY,
        uid=OWN_UID,
        NCCL_DEBUG="INFO",
        **STALLS,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_framework_sees_all_gpus(image: Image, on_gpu: Sandbox, gpus: int) -> None:
    assert int(on_gpu.python(COUNT[image.framework or ""])) == gpus


def test_allreduce_is_right_on_all_gpus(reduced: Result, gpus: int) -> None:
    lines = [line for line in reduced.stdout.splitlines() if line.startswith("rank")]
    assert len(lines) == gpus
    assert all(": right on " in line and "cpu" not in line.lower() for line in lines), lines


def test_allreduce_is_over_the_nccl_that_the_image_says_it_has(
    image: Image, reduced: Result, gpus: int
) -> None:
    log = output_of(reduced)
    (version,) = (value for name, value in image.versions.items() if "-nccl-" in name)
    assert f"NCCL version {version}+" in log
    assert log.count("Init COMPLETE") == gpus


def train_with_torch(on_gpu: Sandbox, gpus: int) -> None:
    ranks = launch_ranks(gpus)
    printed = on_gpu.succeed(*ranks, "python3", "-c", TRAIN, uid=OWN_UID, **STALLS)
    assert printed.count("RIGHT") == gpus


def train_with_tensorflow(on_gpu: Sandbox, gpus: int) -> None:
    # The checks leave the choice of the GPU to the environment.
    own_gpu = ("sh", "-c", 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$@"', "sh")
    assert_all_pass(on_gpu, (*launch_ranks(gpus), *own_gpu), COMMON[0])


def test_training_on_gpus_equals_one_process_with_all_batches(
    image: Image, on_gpu: Sandbox, gpus: int
) -> None:
    {"torch": train_with_torch, "tensorflow": train_with_tensorflow}[image.framework or ""](
        on_gpu, gpus
    )
