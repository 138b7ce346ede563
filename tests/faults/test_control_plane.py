"""Trainings go on while a part of the control plane is away."""

from __future__ import annotations

import time

import pytest

from devtools.common.waiting import wait_until
from tests.faults.node import paused, restart_runtime
from tests.faults.training import FAULT_STEP, TRAINING_STEPS, Training

# The fault is that nothing happens for so long: there is no event to wait for.
AWAY = 20.0


@pytest.mark.rare
@pytest.mark.fault("API server unavailable for 20 s at the start")
def test_api_server_unavailable_at_the_start(training: Training) -> None:
    training.install(TRAINING_STEPS)
    training.namespace.client.wait_for_job_start(training.namespace.job("hvd"), 180)
    fault = time.time()
    with paused("apiserver"):
        time.sleep(AWAY)
    training.finish(fault)


@pytest.mark.rare
@pytest.mark.fault("API server unavailable for 20 s in training")
def test_api_server_unavailable_in_training(training: Training) -> None:
    steps = TRAINING_STEPS + int(AWAY / 0.05)
    fault = training.run_to(FAULT_STEP, steps)
    with paused("apiserver"):
        time.sleep(AWAY)
    assert training.steps()[-1].step < steps, "the training ended before the fault did"
    training.finish(fault)
    assert len(training.starts()) == 1, "the ranks were started again"


@pytest.mark.rare
@pytest.mark.fault("API server unavailable for 20 s at the end")
def test_api_server_unavailable_at_the_end(training: Training) -> None:
    fault = training.run_to(TRAINING_STEPS - 5, TRAINING_STEPS)
    with paused("apiserver"):
        wait_until(lambda: training.lines("result"), 180, "the training ends")
        time.sleep(AWAY)
    training.finish(fault)
    assert len(training.namespace.master_pods("hvd")) == 1
    training.namespace.wait_for_no_workers("hvd")


@pytest.mark.rare
@pytest.mark.fault("container runtime restarted")
def test_restarted_container_runtime(training: Training) -> None:
    fault = training.run_to(FAULT_STEP, TRAINING_STEPS)
    restart_runtime()
    training.finish(fault)
    assert len(training.starts()) == 1, "the ranks were started again"
