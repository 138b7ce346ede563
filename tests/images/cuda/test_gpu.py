"""What needs a GPU and is TensorFlow's."""

from __future__ import annotations

from devtools.trials.checks import assert_all_pass
from devtools.trials.sandbox import Sandbox, launch_ranks


def test_training_on_gpus_equals_one_process_with_all_batches(on_gpu: Sandbox, gpus: int) -> None:
    """The weights of one process that has the batches of all ranks."""
    # The checks leave the choice of the GPU to the environment.
    own_gpu = ("sh", "-c", 'CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec "$@"', "sh")
    check = "an_optimizer_trains_as_one_process_with_all_batches"
    assert_all_pass(on_gpu, (*launch_ranks(gpus), *own_gpu), check)
