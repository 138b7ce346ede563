"""Trainings in which a rank keeps the others waiting go on without it after a time."""

from __future__ import annotations

import re
import time

import pytest

from tests.faults.training import FAULT_STEP, TRAINING_STEPS, Training

# Horovod and the workers look for such ranks at half of this time.
LAUNCH = {"stallTimeoutSeconds": 8}


def finish(training: Training, fault: float, what: str) -> str:
    """Wait for the end; return the log. The rank was named once, and that is the cause."""
    training.finish(fault)
    (stalled,) = training.namespace.master_events("Stalled")
    assert re.fullmatch(rf"{what} for (at least )?\d+ s", stalled["message"])
    (failed,) = training.namespace.master_events("Failed")
    assert failed["message"].startswith(stalled["message"].rpartition(" for ")[0])
    assert failed["message"].endswith("s, longer than `launch.stallTimeoutSeconds=8`")
    assert len(training.namespace.master_pods("hvd")) == 1, "a stalled rank cost the master"
    return training.namespace.log("hvd")


@pytest.mark.rare
@pytest.mark.fault("rank stopped for good")
def test_stopped_rank(training: Training) -> None:
    fault = training.run_to(FAULT_STEP, TRAINING_STEPS, launch=LAUNCH)
    training.rank(1).suspend()
    finish(training, fault, "rank 1 on hvd-worker-1 is stopped by a signal")


@pytest.mark.rare
@pytest.mark.fault("rank that does not join an allreduce")
def test_rank_that_does_not_join(training: Training) -> None:
    args = training.values(TRAINING_STEPS)["master"]["args"]
    hang = ["--fail", "hang", "--rank", "1", "--at", str(FAULT_STEP + 1)]
    training.run_to(FAULT_STEP, TRAINING_STEPS, launch=LAUNCH, master={"args": [*args, *hang]})
    # All of TensorFlow's eager operations have this name.
    log = finish(training, time.time(), "rank 1 on hvd-worker-1 has not joined HorovodAllreduce")
    assert re.search(r"train\.py\", line \d+ in fail$", log, re.MULTILINE), "its Python stack"
