"""Trainings whose pods are asked to end save first, and go on from that very step."""

from __future__ import annotations

import time

import pytest

from tests.faults.training import FAULT_STEP, TRAINING_STEPS, Training


def begin(training: Training, spares: int = 0) -> None:
    """Start a run whose ranks save when they are asked to end; wait until it is in the middle."""
    args = training.values(TRAINING_STEPS)["master"]["args"]
    master = {"args": [*args, "--notice"]}
    training.run_to(FAULT_STEP, TRAINING_STEPS, worker={"spares": spares}, master=master)


def finish(training: Training, pod: str) -> set[int]:
    """Delete a pod and wait for the end of the training; return the ranks that have saved."""
    fault = time.time()
    training.namespace.kubectl("delete", "pod", pod, "--wait=false")
    pause = training.finish(fault)
    assert pause.lost == 0, "steps after the last checkpoint were lost"
    first, second = sorted({step.start for step in training.steps()})
    last = max(step.step for step in training.steps() if step.start == first)
    assert min(step.step for step in training.steps() if step.start == second) == last + 1
    saved = training.lines("saved")
    assert {line["step"] for line in saved} == {last}
    return {line["rank"] for line in saved}


@pytest.mark.rare
@pytest.mark.parametrize(
    "spares",
    [
        pytest.param(0, marks=pytest.mark.fault("worker terminated gracefully")),
        pytest.param(1, marks=pytest.mark.fault("worker terminated gracefully, with a spare")),
    ],
)
def test_gracefully_terminated_worker(training: Training, spares: int) -> None:
    begin(training, spares)
    leaving = training.newest(1)["host"]
    assert finish(training, leaving) == {1}
    assert (training.newest(1)["host"] == leaving) == (spares == 0)
    (failed,) = training.namespace.master_events("Failed")
    assert failed["message"].startswith(f"{leaving} was terminated: ")
    assert training.namespace.get("configmap", "hvd-run")["data"]["failures"] == "0"


@pytest.mark.rare
@pytest.mark.fault("master terminated gracefully")
def test_gracefully_terminated_master(training: Training) -> None:
    begin(training)
    first = training.master()
    # The first rank that ends ends the others, which may have saved by then.
    assert finish(training, first)
    assert training.master() != first
