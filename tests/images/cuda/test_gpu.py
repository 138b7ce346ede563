"""What of the image for NVIDIA's GPUs needs a GPU; left out, and said in the proof, where there is
none. One rank a GPU.
"""

from __future__ import annotations

import pytest

from images.catalogue import Image
from tests.images.checks import RANKS, STALLS, install, results, wrong
from tests.images.sandbox import OWN_UID, Sandbox

# As a training script has it: each rank on its own GPU.
ALLREDUCE = """
import tensorflow as tf, horovod.tensorflow as hvd
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
with tf.device("/GPU:0"):
    ones = tf.fill([1 << 20], float(hvd.rank() + 1))
    total = hvd.allreduce(ones, op=hvd.Sum)
wanted = hvd.size() * (hvd.size() + 1) / 2
right = float(tf.reduce_min(total)) == float(tf.reduce_max(total)) == wanted
print(f"rank {hvd.rank()} of {hvd.size()}: {'right' if right else total} on {total.device}")
"""


@pytest.fixture(scope="module")
def gpus(on_gpu: Sandbox) -> int:
    """How many GPUs TensorFlow finds, which is to be all that the driver shows."""
    found = on_gpu.python(
        "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    )
    shown = on_gpu.succeed("nvidia-smi", "--list-gpus").splitlines()
    assert int(found) == len(shown) > 0
    return len(shown)


def launcher(gpus: int) -> tuple[str, ...]:
    return ("mpirun", "-np", str(gpus), "--bind-to", "none", "--oversubscribe")


def test_all_gpus_allreduce_over_nccl(image: Image, on_gpu: Sandbox, gpus: int) -> None:
    done = on_gpu.run(
        *launcher(gpus), "-x", "NCCL_DEBUG", "python3", "-c", ALLREDUCE,
        uid=OWN_UID, NCCL_DEBUG="INFO", **STALLS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("rank")]
    assert len(lines) == gpus
    assert all(": right on " in line and line.endswith("GPU:0") for line in lines), lines
    # NCCL did it, and the one that the image says it has.
    log = done.stdout + done.stderr
    assert f"NCCL version {image.versions['nvidia-nccl-cu12']}+" in log
    assert log.count("Init COMPLETE") == gpus


def test_training_on_gpus_is_training_with_all_batches(on_gpu: Sandbox, gpus: int) -> None:
    """The weights of one process that has the batches of all ranks."""
    install(on_gpu)
    check = "an_optimizer_trains_as_one_process_with_all_batches"
    # The checks leave the choice of the GPU to the environment.
    each = f"CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec python3 -m {RANKS.name} {check}"
    done = on_gpu.run(
        *launcher(gpus), "sh", "-c", each, uid=OWN_UID, PYTHONPATH="/output", **STALLS
    )
    found = results(done)
    assert wrong(found) == ""
    assert set(found) == {check}
