"""Trainings whose master is lost or replaced go on where they were."""

from __future__ import annotations

import time

import pytest

from tests.faults.training import Training

STEPS = 120
FAULT_AT = 45
# More than a training does before it is given a lower target.
MANY = 100_000
# More than it does until the run of an upgrade has its workers: 20 seconds of steps.
MEANWHILE = 400
UPGRADES = 50
EACH_THAT_CHANGES_THE_RUN = 10


@pytest.mark.fault("master deleted")
def test_deleted_master(training: Training) -> None:
    with training.disturbed():
        training.run_to(FAULT_AT, STEPS)
        first = training.master()
        fault = time.time()
        training.namespace.kubectl("delete", "pod", first, "--wait=false")
    training.finish(fault)
    assert training.master() != first


@pytest.mark.fault("upgrade to more workers")
def test_upgrade_to_more_workers(training: Training) -> None:
    with training.disturbed():
        fault = training.run_to(FAULT_AT, STEPS)
        training.upgrade(STEPS, workers=3)
    training.finish(fault)
    assert training.lines("result")[0]["ranks"] == 3


@pytest.mark.rare
@pytest.mark.fault("50 upgrades")
def test_many_upgrades(training: Training) -> None:
    training.run_to(FAULT_AT, MANY)
    keys = training.namespace.keys("hvd")
    fault = time.time()
    for number in range(1, UPGRADES):
        # How often a failed run is tried again concerns no run; other settings replace it.
        run = str(number // EACH_THAT_CHANGES_THE_RUN)
        training.upgrade(MANY, master={"backoffLimit": number}, podLabels={"run": run})
    training.upgrade(training.steps()[-1].step + MEANWHILE)
    training.finish(fault)
    assert training.namespace.keys("hvd") == keys
    starts = len(training.starts())
    # The first one, one for each label, and the last one.
    assert starts <= 2 + UPGRADES // EACH_THAT_CHANGES_THE_RUN, "an upgrade disturbed the run"
