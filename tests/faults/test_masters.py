"""Trainings whose master is lost or replaced go on where they were."""

from __future__ import annotations

import time

import pytest

from tests.faults.training import FAULT_STEP, TRAINING_STEPS, Training


@pytest.mark.fault("master deleted")
def test_deleted_master(training: Training) -> None:
    with training.disturbed():
        training.run_to(FAULT_STEP, TRAINING_STEPS)
        first = training.master()
        fault = time.time()
        training.namespace.kubectl("delete", "pod", first, "--wait=false")
    training.finish(fault)
    assert training.master() != first


@pytest.mark.fault("upgrade to more workers")
def test_upgrade_to_more_workers(training: Training) -> None:
    with training.disturbed():
        fault = training.run_to(FAULT_STEP, TRAINING_STEPS)
        training.upgrade(TRAINING_STEPS, workers=3)
    training.finish(fault)
    assert training.lines("result")[0]["ranks"] == 3
