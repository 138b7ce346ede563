"""What needs a GPU and is TensorFlow's."""

from __future__ import annotations

from devtools.trials.checks import RANKS, STALLS, install, results, wrong
from devtools.trials.sandbox import OWN_UID, Sandbox, a_rank_a_gpu


def test_training_on_gpus_is_training_with_all_batches(on_gpu: Sandbox, gpus: int) -> None:
    """The weights of one process that has the batches of all ranks."""
    install(on_gpu)
    check = "an_optimizer_trains_as_one_process_with_all_batches"
    # The checks leave the choice of the GPU to the environment.
    each = f"CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec python3 -m {RANKS.name} {check}"
    done = on_gpu.run(
        *a_rank_a_gpu(gpus), "sh", "-c", each, uid=OWN_UID, PYTHONPATH="/output", **STALLS
    )
    found = results(done)
    assert wrong(found) == ""
    assert set(found) == {check}
