"""What holds of a run in whichever order things happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_pods.common.contract import QUEUE
from hvd_pods.common.run import Run
from hvd_pods.common.run_events import RunEvent
from hvd_pods.rules import ending
from hvd_pods.rules.effects import (
    CreateJobEvent,
    DeletePods,
    Effect,
    Prepare,
    ScaleDown,
    ScaleUp,
    StartLauncher,
    WriteRecord,
)
from hvd_pods.rules.events import Event, LauncherEnded, RecordChanged, Started, Terminated
from hvd_pods.rules.state import END
from tests.support.world import (
    DELETED,
    JOB,
    OTHER,
    SUSPENDED,
    World,
    leased,
    one_group,
)
from tests.unit.hvd_pods.rules.happenings import happen

RUNS: dict[str, Run] = {
    "plain": one_group(lostAfterSeconds=15),
    "spare": one_group(1, 2, lostAfterSeconds=15, cleanup="Always", failOnNaN=True),
    "direct": one_group(mode="direct", lostAfterSeconds=3),
    "minimum": one_group(3, 4, 1, mode="direct", lostAfterSeconds=3, shrinkAfterSeconds=5),
    "custom": one_group(mode="custom"),
    "no API": one_group(api=False, retries=2),
    "lease": one_group(cleanup="Never", results={"timeoutSeconds": 60}),
    "queue": one_group(gracePeriodSeconds=20),
    "results": one_group(results={"timeoutSeconds": 60, "onFailure": True}, stallTimeoutSeconds=90),
}
# An earlier master of the Job has left ranks that went on.
LEFT = {"run": RUNS["direct"].id, "state": "Running", "trained": "uid-1", "launched": "7"}


def check_workers(run: Run, launch: StartLauncher) -> None:
    """A launch has at least the minimum of each group, and at most the number."""
    for name, most in run.needed_workers.items():
        used = sum(worker.rpartition("-")[0] == name for worker in launch.workers)
        assert run.least_workers[name] <= used <= most, "a number that nobody asked for"


@dataclass
class DrivenOnce(World):
    """A world that fails as soon as a run is driven twice, or by a master that does not hold it."""

    has_launched: bool = False
    is_stopped: bool = False
    finished: int = 0
    ends: list[str] = field(default_factory=list)

    def put(self, event: Event, after: float = 0.0) -> list[Effect]:
        self.has_launched = self.has_launched and not isinstance(event, LauncherEnded)
        self.is_stopped = self.is_stopped or isinstance(event, Terminated)
        effects = super().put(event, after)
        for effect in effects:
            self._check(effect)
        return effects

    def _check(self, effect: Effect) -> None:
        if isinstance(effect, StartLauncher):
            assert not self.has_launched, "two launches at once"
            assert not self.is_stopped, "a launch after SIGTERM"
            assert not self.finished, "a training that has finished is repeated"
            self.has_launched = True
            check_workers(self.run, effect)
        if isinstance(effect, (ScaleDown, ScaleUp, DeletePods)):
            assert not self.state.hold.lost_to, "the workers are another master's"
        if isinstance(effect, WriteRecord) and self.ends:
            assert effect.data["state"] == self.ends[-1], "the record's end is overwritten"
        if isinstance(effect, WriteRecord) and effect.purpose == END:
            self.ends.append(effect.data["state"])
        self.finished += isinstance(effect, CreateJobEvent) and effect.event == RunEvent.FINISHED


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
@settings(max_examples=200, deadline=None)
@given(
    choices=st.lists(st.integers(0, 14 * 200), max_size=120),
    stopped_at=st.none() | st.integers(0, 40),
    lost_at=st.none() | st.integers(0, 40),
    job=st.sampled_from([JOB, SUSPENDED, DELETED]),
)
def test_a_run_is_driven_once_and_always_ends(
    name: str, choices: list[int], stopped_at: int | None, lost_at: int | None, job: Any
) -> None:
    """This pod is asked to end, and another master takes the record, before these choices.

    `job`: what has become of the Job by then.
    """
    world = DrivenOnce(RUNS[name], record=dict(LEFT) if name == "direct" else {})
    if name == "lease":
        world.job = leased(60)
        job = {**job, "metadata": {**world.job["metadata"], **job["metadata"]}}
    if name == "queue":
        queued = {"annotations": {QUEUE: "team"}}
        world.job = {**world.job, "metadata": {**world.job["metadata"], **queued}}
        job = {**job, "metadata": {**queued, **job["metadata"]}}
    world.put(Started())
    for number, choice in enumerate([*choices, *[0] * 40]):
        if world.exit:
            break
        if number == stopped_at:
            world.job = job
            world.put(Terminated())
        if number == lost_at and world.state.hold.is_held:
            world.record = dict(OTHER)
            world.put(RecordChanged("renew", dict(OTHER), 1))
        happen(world, choice)
    # Whatever has happened: from now on all goes as usual, and the run comes to its end.
    for _ in range(300):
        if world.exit:
            break
        if world.answers:
            world.answer()
        elif world.is_running:
            world.end_launcher(0, 100.0)
        else:
            world.fire()
    assert world.exit, f"the master still waits {world.state.activity.value}"
    assert len(world.of(ScaleDown)) <= 1
    if world.exit.problem is None:
        assert world.finished == 1
    is_withdrawn = world.state.job and ending.is_withdrawn(world.state.job) and world.exit.problem
    if is_withdrawn and world.state.hold.is_held and not world.state.hold.lost_to:
        scaled = (Prepare, ScaleUp, ScaleDown)
        last = [effect for effect in world.effects if isinstance(effect, scaled)][-1]
        assert isinstance(last, ScaleDown), "workers are left of a run that was stopped"
