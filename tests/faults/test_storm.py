"""A training loses no step to faults when its state is in its workers' memory (docs/keep.md)."""

from __future__ import annotations

import time

import pytest

from tests.faults.storm import (
    BETWEEN,
    FAULTS,
    begin_run,
    cut_network,
    finish_run,
    stop_rank,
    survive_fault,
)
from tests.faults.training import Training

# More than the training makes until all faults are over.
STORM_STEPS = 1200


@pytest.mark.rare
@pytest.mark.fault("one fault after another, the state in memory")
def test_no_step_is_lost_in_a_storm(training: Training) -> None:
    began = time.time()
    begin_run(training, STORM_STEPS)
    for fault in FAULTS:
        survive_fault(training, fault)
    reached = training.steps()[-1].step
    assert reached < STORM_STEPS, "the faults came too late"
    measured = finish_run(training, began)
    training.report(measured)
    # A commit that was under way on the rank that was killed is made again.
    assert measured["lost"] <= 1
    assert not list(training.folder.glob("keep-*")), "nothing was written to disk"


@pytest.mark.fault("master deleted, and the training finishes before the next one comes")
def test_training_that_finishes_without_a_master_is_not_repeated(training: Training) -> None:
    begin_run(training, 4 * BETWEEN)
    training.namespace.kubectl("delete", "pod", training.master(), "--wait=false")
    training.wait_for_step(training.target)
    training.result()
    assert len(training.starts()) == 1


@pytest.mark.fault("rank stopped, and network cut, with default times and the state in memory")
def test_faults_that_nobody_reports_cost_seconds_where_no_step_is_lost(training: Training) -> None:
    """A rank that is stopped would cost ten minutes, as no step is reported, and a network 12 s."""
    began = time.time()
    begin_run(training, STORM_STEPS // 2)
    for fault in (stop_rank, cut_network):
        # The workers look every five seconds whether their ranks keep their state.
        training.wait_for_step(training.steps()[-1].step + 8 * BETWEEN)
        survive_fault(training, fault)
    measured = finish_run(training, began)
    training.report(measured)
    assert measured["next"] < 15
