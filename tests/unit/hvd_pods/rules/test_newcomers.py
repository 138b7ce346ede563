"""A run with a minimum: it continues with fewer workers, and takes those that come."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from hvd_pods.rules.attempt_workers import (
    EARLIER_WORKERS_TIMEOUT_SECONDS,
    TRAINING_POD_POLL_INTERVAL_SECONDS,
)
from hvd_pods.rules.effects import (
    CountFinished,
    CreateJobEvent,
    DeletePods,
    Effect,
    EndLauncher,
    FreezeAddresses,
    ListPods,
    PrepareNewcomers,
    ScaleUp,
    StartLauncher,
    WatchWorkers,
    WriteRecord,
)
from hvd_pods.rules.events import (
    Event,
    FinishedCounted,
    NewcomersReady,
    NoticeTaken,
    PodsListed,
    Started,
    Terminated,
    Timer,
    WorkerAnswers,
    WorkerProblem,
)
from hvd_pods.rules.newcomers import (
    GROWTH_INTERVAL_SECONDS,
    PREPARE_RETRY_DELAY_SECONDS,
    SETTLE_SECONDS,
)
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.notice_kinds import FINISHED, LEAVING
from hvd_pods.shared.run_events import RunEvent
from tests.support.world import WALL, World, one_group, pod

SHRINK_DELAY_SECONDS = 30.0


def worker(name: str, **changes: Any) -> tuple[str, dict[str, Any]]:
    """The name of a pod, and the pod."""
    labels = {"hvdchart/revision": "r1"}
    return name, {"metadata": {"name": name, "uid": f"uid of {name}", "labels": labels, **changes}}


class Adaptive(World):
    """A run of four workers, two of which are enough. Only some of its workers answer."""

    def __init__(
        self,
        *there: int,
        spares: int = 0,
        workers_timeout_seconds: int = 60,
        record: dict[str, str] | None = None,
    ) -> None:
        times = {
            "shrink_after_seconds": SHRINK_DELAY_SECONDS,
            "workers_timeout_seconds": workers_timeout_seconds,
        }
        run = one_group(4, 4 + spares, 2, mode="direct", lost_after_seconds=3, **times)
        super().__init__(run, record=record or {})
        self.there = {f"w-{number}" for number in there}
        # The ranks keep their state.
        self.are_kept = True
        # Pods that do not answer.
        self.others: dict[str, Any] = {}

    def answers_to(self, effect: Effect) -> list[Event]:
        answers = super().answers_to(effect)
        if isinstance(effect, WatchWorkers):
            return [
                answer
                for answer in answers
                if isinstance(answer, WorkerAnswers) and answer.worker in self.there
            ]
        if isinstance(effect, PrepareNewcomers):
            return [NewcomersReady(effect.attempt, [*effect.pods], self.are_kept)]
        if isinstance(effect, ListPods):
            return [PodsListed(effect.attempt, {**dict(map(worker, self.there)), **self.others})]
        return answers

    def run_for(self, seconds: float) -> Adaptive:
        """Let this time pass, with all that happens by itself meanwhile."""
        until = self.now + seconds
        while self.answers or min(self.state.timers.values(), default=until + 1) <= until:
            if self.answers:
                self.answer()
            else:
                self.fire()
        self.now = max(self.now, until)
        return self

    def begin(self) -> Adaptive:
        self.put(Started())
        return self.run_for(0.5)

    def lose(self, *numbers: int) -> None:
        for number in numbers:
            self.there.discard(f"w-{number}")
            self.put(
                WorkerProblem(self.state.attempt.number, f"w-{number}", NoAnswer("closed"), 3.0)
            )

    def bring(self, *numbers: int) -> None:
        for number in numbers:
            self.there.add(f"w-{number}")
            attempt = self.state.attempt.number
            self.put(WorkerAnswers(attempt, f"w-{number}", pod(f"w-{number}")))

    def launched(self) -> list[str]:
        """The ordinals of the workers of each launch."""
        return [
            "".join(name[2:] for name in sorted(launch.workers))
            for launch in self.of(StartLauncher)
        ]

    def reported(self, event: RunEvent) -> list[str]:
        return [effect.message for effect in self.of(CreateJobEvent) if effect.event == event]


def come_and_go(world: Adaptive, times: int) -> None:
    """Let a worker come and be lost again and again."""
    for _ in range(times):
        world.bring(3)
        world.run_for(SETTLE_SECONDS + 1)
        world.lose(3)
        world.run_for(1)


def test_a_run_starts_with_what_is_there_after_a_while() -> None:
    world = Adaptive(0, 2, 3).begin()
    assert world.launched() == []
    world.run_for(SHRINK_DELAY_SECONDS)
    assert world.launched() == ["023"]
    (message,) = world.reported(RunEvent.SHRUNK)
    assert re.findall(r"\d+", message) == ["6", "3", "4"]
    assert json.loads(world.of(WriteRecord)[-1].data["workers"]) == {"w": "0,2-3"}


def test_run_waits_only_for_its_minimum_of_workers() -> None:
    assert Adaptive(0, 1, 2, 3).begin().launched() == ["0123"]
    assert Adaptive(1).begin().run_for(SHRINK_DELAY_SECONDS + 20).launched() == []


def test_workers_timeout_ends_the_wait_for_others_and_not_the_run() -> None:
    world = Adaptive(0, 1, workers_timeout_seconds=5)
    assert world.begin().run_for(6).launched() == ["01"]


@pytest.mark.parametrize(("spares", "after"), [(0, "012"), (1, "0124")])
def test_a_lost_worker_costs_no_wait_and_no_retry(spares: int, after: str) -> None:
    world = Adaptive(*range(4 + spares), spares=spares).begin()
    before = world.now
    world.lose(3)
    world.run_for(0.5)
    assert world.now - before < EARLIER_WORKERS_TIMEOUT_SECONDS
    assert world.launched() == ["0123", after]
    assert (world.state.failures, world.state.last_failure, world.reported(RunEvent.FAILED)) == (
        0,
        "",
        [],
    )
    assert bool(world.reported(RunEvent.SHRUNK)) is (spares == 0)
    assert world.reported(RunEvent.WORKER_LOST)


def test_a_worker_that_is_drained_is_not_waited_for() -> None:
    """Its agent may still answer for a moment."""
    world = Adaptive(0, 1, 2, 3).begin()
    world.put(NoticeTaken(1, {"kind": LEAVING, "worker": "w-1", "rank": 2, "seconds": 30.0}))
    world.there.remove("w-1")
    world.end_launcher(143)
    assert world.run_for(0.5).launched() == ["0123", "023"]


def test_a_worker_that_should_answer_is_waited_for_a_moment() -> None:
    """Nobody has seen yet that it is lost, or it is slow."""
    world = Adaptive(0, 1, 2, 3).begin()
    world.there.remove("w-2")
    world.end_launcher(1)
    assert world.run_for(EARLIER_WORKERS_TIMEOUT_SECONDS / 2).launched() == ["0123"]
    assert world.run_for(EARLIER_WORKERS_TIMEOUT_SECONDS).launched() == ["0123", "013"]


def test_fewer_than_the_minimum_are_waited_for() -> None:
    world = Adaptive(0, 1, 2, 3).begin()
    world.lose(1, 2, 3)
    assert world.run_for(SHRINK_DELAY_SECONDS).launched() == ["0123"]
    world.bring(2)
    assert world.run_for(EARLIER_WORKERS_TIMEOUT_SECONDS + 0.1).launched() == ["0123", "02"]


def test_workers_that_come_are_taken_together_without_a_failure() -> None:
    world = Adaptive(0, 1).begin().run_for(SHRINK_DELAY_SECONDS)
    world.bring(2)
    world.run_for(SETTLE_SECONDS / 2)
    world.bring(3)
    assert world.run_for(SETTLE_SECONDS).launched() == ["01", "0123"]
    (message,) = world.reported(RunEvent.GROWN)
    assert re.findall(r"\d+", message) == ["8", "4", "4"]
    assert not world.reported(RunEvent.FAILED)
    assert (world.state.failures, world.state.last_failure) == (0, "")


def test_addresses_of_the_launch_are_frozen_while_others_may_come() -> None:
    world = Adaptive(0, 1).begin().run_for(SHRINK_DELAY_SECONDS)
    assert [effect.workers for effect in world.of(FreezeAddresses)] == [["w-0", "w-1"]]
    world.bring(2, 3)
    world.run_for(SETTLE_SECONDS)
    assert world.of(FreezeAddresses)[-1].workers is None


def test_worker_that_goes_again_is_not_taken() -> None:
    world = Adaptive(0, 1, 2).begin().run_for(SHRINK_DELAY_SECONDS)
    world.bring(3)
    world.run_for(SETTLE_SECONDS / 2)
    world.lose(3)
    assert world.run_for(60).launched() == ["012"]
    assert not world.of(PrepareNewcomers)


def test_worker_that_comes_and_goes_does_not_stop_the_training() -> None:
    world = Adaptive(0, 1, 2).begin().run_for(SHRINK_DELAY_SECONDS)
    began = world.now
    come_and_go(world, times=400)
    grown = len([workers for workers in world.launched() if workers == "0123"])
    assert world.now - began > 4 * 400
    assert 3 < grown < 8
    assert world.state.failures == 0


def test_ranks_that_keep_nothing_are_not_ended_for_a_worker() -> None:
    world = Adaptive(0, 1, 2).begin().run_for(SHRINK_DELAY_SECONDS)
    world.bring(3)
    world.are_kept = False
    world.run_for(10 * SETTLE_SECONDS)
    assert "w-3 wait" not in world.logged(), "they may have begun a moment ago"
    world.run_for(4 * PREPARE_RETRY_DELAY_SECONDS)
    assert "w-3 wait" in world.logged()
    assert world.launched() == ["012"]
    world.are_kept = True
    assert world.run_for(PREPARE_RETRY_DELAY_SECONDS).launched() == ["012", "0123"]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(NoticeTaken(1, {"kind": FINISHED, "worker": "w-0", "rank": 0}), id="finished"),
        pytest.param(Terminated(), id="terminated"),
        pytest.param(WorkerProblem(1, "w-1", NoAnswer("closed"), 3.0), id="lost"),
    ],
)
def test_nothing_is_begun_for_a_worker_when_the_launch_ends_anyway(event: Event) -> None:
    world = Adaptive(0, 1, 2).begin().run_for(SHRINK_DELAY_SECONDS)
    world.bring(3)
    world.put(event)
    world.put(Timer(TimerKind.GROW))
    assert not world.of(PrepareNewcomers)


def test_ranks_that_end_with_0_meanwhile_have_finished() -> None:
    world = Adaptive(0, 1, 2).begin().run_for(SHRINK_DELAY_SECONDS)
    world.bring(3)
    world.settle(until=EndLauncher)
    world.answers.clear()
    world.end_launcher(0)
    assert world.end() == (0, "")


# What a master left that trained on two of the workers.
RECORD = {
    "run": "run-1",
    "settingsHash": "settings-1",
    "trained": "uid-1",
    "workers": '{"w": "1-2"}',
}


def test_next_master_continues_with_the_workers_of_the_one_before() -> None:
    world = Adaptive(1, 2, record=RECORD).begin()
    assert world.launched() == ["12"]
    assert not world.reported(RunEvent.SHRUNK)


@pytest.mark.parametrize(("finished", "is_over"), [(4, True), (3, False), (8, False)])
def test_next_master_compares_finished_ranks_with_those_of_the_launch_before(
    finished: int, is_over: bool
) -> None:
    """The record names two workers, and all four answer."""
    world = Adaptive(0, 1, 2, 3, record={**RECORD, "orphanFence": "7"})
    world.put(Started())
    world.settle(until=CountFinished)
    (effect,) = world.of(CountFinished)
    assert effect.fence == 7
    world.answers = [answer for answer in world.answers if answer[0] is not effect]
    world.put(FinishedCounted(effect.attempt, finished))
    world.run_for(0.5)
    assert bool(world.launched()) is not is_over


def test_pod_of_a_dead_node_is_replaced_while_others_train() -> None:
    world = Adaptive(0, 1, 2).begin().run_for(SHRINK_DELAY_SECONDS + 1)
    assert world.state.activity == Activity.TRAINING
    assert WALL > 1_789_957_000, "which is long ago"
    world.others = dict([worker("w-3", deletionTimestamp="2026-09-21T00:00:00Z")])
    world.run_for(TRAINING_POD_POLL_INTERVAL_SECONDS)
    replaced = [(effect.uids, effect.grace_period_seconds) for effect in world.of(DeletePods)]
    assert replaced == [({"w-3": "uid of w-3"}, 0)]


def test_number_of_workers_that_a_person_has_chosen_stays() -> None:
    world = Adaptive(0).begin()
    world.run_for(10)
    assert {(effect.number, effect.below) for effect in world.of(ScaleUp)} == {(4, 2)}


def test_growth_waits_after_the_last_one() -> None:
    world = Adaptive(0, 1).begin().run_for(SHRINK_DELAY_SECONDS)
    world.bring(2)
    world.run_for(SETTLE_SECONDS + 0.1)
    world.bring(3)
    assert world.run_for(GROWTH_INTERVAL_SECONDS / 2).launched() == ["01", "012"]
    assert world.run_for(GROWTH_INTERVAL_SECONDS / 2).launched() == ["01", "012", "0123"]
