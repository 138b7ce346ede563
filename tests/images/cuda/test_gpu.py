"""What needs a GPU and is TensorFlow's."""

from __future__ import annotations

from devtools.trials.checks import RANKS, STALLS, describe_failures, install_checks, parse_results
from devtools.trials.sandbox import OWN_UID, Sandbox, one_rank_per_gpu


def test_training_on_gpus_equals_one_process_with_all_batches(on_gpu: Sandbox, gpus: int) -> None:
    """The weights of one process that has the batches of all ranks."""
    install_checks(on_gpu)
    check = "an_optimizer_trains_as_one_process_with_all_batches"
    # The checks leave the choice of the GPU to the environment.
    each = f"CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK exec python3 -m {RANKS.name} {check}"
    done = on_gpu.run(
        *one_rank_per_gpu(gpus), "sh", "-c", each, uid=OWN_UID, PYTHONPATH="/output", **STALLS
    )
    results = parse_results(done)
    assert describe_failures(results) == ""
    assert set(results) == {check}
