"""What holds of a run in whichever order things happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from hvd_pods.rules.events import (
    Event,
    LauncherEnded,
    RecordChanged,
    RecordPurpose,
    Started,
    Terminated,
)
from hvd_pods.shared.contract import QUEUE
from hvd_pods.shared.run import Run
from hvd_pods.shared.run_events import RunEvent
from tests.support.world import BEING_DELETED, JOB, OTHER, SUSPENDED, World, leased_job, one_group
from tests.unit.hvd_pods.rules.random_events import put_random_event

RUNS: dict[str, Run] = {
    "plain": one_group(lost_after_seconds=15),
    "spare": one_group(1, 2, lost_after_seconds=15, cleanup="Always", fail_on_nan=True),
    "direct": one_group(mode="direct", lost_after_seconds=3),
    "minimum": one_group(3, 4, 1, mode="direct", lost_after_seconds=3, shrink_after_seconds=5),
    "custom": one_group(mode="custom"),
    "no API": one_group(has_api_access=False, backoff_limit=2),
    "lease": one_group(cleanup="Never"),
    "queue": one_group(grace_seconds=20),
    "stall": one_group(stall_timeout_seconds=90),
}
# An earlier master of the Job has left ranks that went on.
LEFT = {"run": RUNS["direct"].id, "state": "Running", "trained": "uid-1", "orphanFence": "7"}
# The record and the Job of a run, where they differ.
BEFORE: dict[str, tuple[dict[str, str], Any]] = {
    "direct": (LEFT, JOB),
    "lease": ({}, leased_job(60)),
    "queue": ({}, {**JOB, "metadata": {"annotations": {QUEUE: "team"}}}),
}


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
            assert not self.state.record_lock.lost_to, "the workers are another master's"
        if isinstance(effect, WriteRecord) and self.ends:
            assert effect.data["state"] == self.ends[-1], "the record's end is overwritten"
        if isinstance(effect, WriteRecord) and effect.purpose == RecordPurpose.END_RUN:
            self.ends.append(effect.data["state"])
        self.finished += isinstance(effect, CreateJobEvent) and effect.event == RunEvent.FINISHED


def begin(name: str) -> DrivenOnce:
    """A run whose master has started."""
    record, job = BEFORE.get(name, ({}, JOB))
    world = DrivenOnce(RUNS[name], record=dict(record), job=job)
    world.put(Started())
    return world


def lose_record(world: World) -> None:
    if world.state.record_lock.is_held:
        world.record = dict(OTHER)
        world.put(RecordChanged(RecordPurpose.RENEW, dict(OTHER), 1))


def stop(world: World, job: Any) -> None:
    """Ask the master to end. Its Job keeps its metadata."""
    world.job = {**job, "metadata": {**world.job["metadata"], **job["metadata"]}}
    world.put(Terminated())


def drive(world: World, choices: list[int], events: dict[int, list[Callable[[], None]]]) -> None:
    """Let things happen, and before the choice of a number what `events` has for it."""
    for number, choice in enumerate(choices):
        for event in events.get(number, []):
            if not world.exit:
                event()
        if not world.exit:
            put_random_event(world, choice)


def go_as_usual(world: World) -> None:
    """Let the run come to its end, whatever has happened before."""
    for _ in range(300):
        if world.exit:
            return
        if world.answers:
            world.answer()
        elif world.is_running:
            world.end_launcher(0, 100.0)
        else:
            world.fire()


def leaves_workers(world: World) -> bool:
    """Whether a run that was withdrawn has left workers that its master should have ended."""
    is_withdrawn = world.state.job.is_withdrawn
    assert world.exit
    if not (is_withdrawn and world.exit.problem) or not world.state.record_lock.is_held:
        return False
    scaled = [
        effect for effect in world.effects if isinstance(effect, (Prepare, ScaleUp, ScaleDown))
    ]
    return not world.state.record_lock.lost_to and not isinstance(scaled[-1], ScaleDown)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
@settings(max_examples=200, deadline=None)
@given(
    choices=st.lists(st.integers(0, 14 * 200), max_size=120),
    stopped_at=st.integers(-1, 40),
    lost_at=st.integers(-1, 40),
    job=st.sampled_from([JOB, SUSPENDED, BEING_DELETED]),
)
def test_a_run_is_driven_once_and_always_ends(
    name: str, choices: list[int], stopped_at: int, lost_at: int, job: Any
) -> None:
    """This pod is asked to end, and another master takes the record, before these choices.

    `job`: what has become of the Job by then.
    """
    world = begin(name)
    events: dict[int, list[Callable[[], None]]] = {stopped_at: [lambda: stop(world, job)]}
    events.setdefault(lost_at, []).append(lambda: lose_record(world))
    drive(world, [*choices, *[0] * 40], events)
    go_as_usual(world)
    assert world.exit, f"the master still waits {world.state.activity.value}"
    assert len(world.of(ScaleDown)) <= 1
    assert world.exit.problem or world.finished == 1
    assert not leaves_workers(world)
