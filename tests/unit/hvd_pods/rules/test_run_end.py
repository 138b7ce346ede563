"""How a run ends: its workers, and what another master of its Job continues with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hvd_pods.rules.effects import (
    AskRanksToEnd,
    CheckRanks,
    DetachLauncher,
    EndLauncher,
    ListPods,
    ReadJob,
    ReleaseRanks,
    ReleaseRecord,
    ScaleDown,
    StartLauncher,
    WriteRecord,
)
from hvd_pods.rules.events import PodsListed, RanksChecked, Terminated
from hvd_pods.rules.job_state import REPLACED, UNREADABLE
from hvd_pods.shared.notice_kinds import ENDED
from hvd_pods.shared.objects import format_time
from hvd_pods.shared.run import Run
from tests.support.world import BEING_DELETED, JOB, SUSPENDED, WALL, World, one_group
from tests.unit.hvd_pods.rules.trainings import (
    begin_training,
    go_on,
    launch_again,
    lose_worker,
    send_notice,
)

STARTED = {"startTime": "2026-01-01T10:00:00Z"}
EXCEEDED = {"metadata": {}, "spec": {"activeDeadlineSeconds": 60}, "status": STARTED}
FAILURE = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded"}
ENDED_BY_DEADLINE = {**EXCEEDED, "status": {"conditions": [FAILURE]}}
LAST = {**JOB, "status": {"failed": 2}}
# It may have been preempted, which is no failure.
QUEUED = {**LAST, "metadata": {"annotations": {"hvdchart/queue": "team"}}}
# Its deadline would pass in the pause before the next master.
ENDS_SOON = {**EXCEEDED, "status": {"startTime": format_time(WALL + 945)}}


def pod(phase: str, **metadata: str) -> Any:
    return {"metadata": metadata, "status": {"phase": phase}}


def preempted(job: Any = QUEUED) -> World:
    """A master that a queue has asked to end, and that has given the record back."""
    world = begin_training(grace_seconds=60)
    world.job = job
    world.put(Terminated())
    world.settle(until=ReleaseRecord)
    go_on(
        world,
        lambda: world.exit or any(isinstance(effect, ListPods) for effect, _ in world.answers),
    )
    return world


def see(world: World, *pods: Any) -> bool:
    """Let the pods be listed like this; whether the master ends then."""
    (effect,) = (effect for effect, _ in world.answers if isinstance(effect, ListPods))
    world.answers.clear()
    listed = {f"hvd-worker-{index}": pod for index, pod in enumerate(pods)}
    world.put(PodsListed(effect.attempt, listed), 0.01)
    return world.exit is not None


def sees_next(world: World, *pods: Any) -> bool:
    """As see(), when the pods are listed for the next time after this."""
    is_over = see(world, *pods)
    world.fire()
    return is_over


def keep_seeing(world: World, *pods: Any) -> None:
    """Let the pods be listed like this until the master ends."""
    while not (world.exit or see(world, *pods)):
        world.fire()


def terminate(world: World) -> None:
    """Ask the master to end, until it looks whether its ranks may stay, or asks them to end."""
    world.put(Terminated())
    while not world.of(CheckRanks) + world.of(AskRanksToEnd):
        world.answer()


def test_training_that_ends_as_its_master_is_asked_to_end_has_finished() -> None:
    world = begin_training()
    world.put(Terminated())
    world.end_launcher(0)
    assert world.end() == (0, "")
    assert world.of(WriteRecord)[-1].data["state"] == "Finished"


@pytest.mark.parametrize(
    ("cleanup", "upgraded", "code", "is_scaled"),
    [
        ("OnSuccess", "", 0, True),
        ("OnSuccess", "", 78, False),
        ("Always", "", 78, True),
        ("Never", "", 0, False),
        # What an upgrade made of it while the run went on.
        ("Always", "Never", 0, False),
    ],
)
def test_workers_are_scaled_down_as_cleanup_says(
    cleanup: str, upgraded: str, code: int, is_scaled: bool
) -> None:
    world = begin_training(cleanup=cleanup)
    world.job = {
        **JOB,
        "metadata": {"annotations": {"hvdchart/cleanup": upgraded}} if upgraded else {},
    }
    world.end_launcher(code)
    world.settle()
    assert bool(world.of(ScaleDown)) is is_scaled
    end = world.of(WriteRecord)[-1].data["state"]
    assert end == ("Finished" if code == 0 else "Failed")


def test_workers_stay_where_the_master_has_no_service_account() -> None:
    world = begin_training(has_api_access=False, backoff_limit=0, cleanup="Always")
    world.end_launcher(0)
    assert world.end() == (0, "")
    assert not world.of(ScaleDown)


EVICTED = "evicted"
TOO_LONG = "`master.activeDeadlineSeconds=60`"


@pytest.mark.parametrize(
    ("cleanup", "job", "reason", "state", "is_scaled"),
    [
        # The workers are those of the master or of the run that follows.
        ("Always", JOB, EVICTED, "Running", False),
        ("Always", REPLACED, "removed its Job", "Running", False),
        # No other master follows, by this clock or by the controller's.
        ("Always", EXCEEDED, TOO_LONG, "Failed", True),
        ("Always", ENDED_BY_DEADLINE, TOO_LONG, "Failed", True),
        # It may go on later.
        ("OnSuccess", BEING_DELETED, "deleted", "Running", True),
        ("Never", BEING_DELETED, "deleted", "Running", False),
        ("Never", SUSPENDED, "suspended", "Running", True),
    ],
)
def test_workers_of_a_run_that_is_stopped_stay_where_somebody_needs_them(
    cleanup: str, job: Any, reason: str, state: str, is_scaled: bool
) -> None:
    world = begin_training(cleanup=cleanup)
    world.job = job
    world.put(Terminated())
    assert reason in world.end()[1]
    assert world.of(WriteRecord)[-1].data["state"] == state
    assert bool(world.of(ScaleDown)) is is_scaled


ENDING = {"deletionTimestamp": "2026-01-31T12:00:00Z"}


def test_master_that_was_preempted_stays_until_the_queue_sees_another_worker() -> None:
    world = preempted()
    lasts = [pod("Running", **ENDING), pod("Failed", **ENDING), pod("Failed")]
    assert not any(sees_next(world, last) for last in lasts)
    keep_seeing(world, pod("Failed"), pod("Pending"))
    assert EVICTED in world.end()[1]


def test_worker_that_the_queue_has_not_deleted_yet_is_no_successor() -> None:
    world = preempted()
    lasts = [pod("Running"), pod("Running", **ENDING), pod("Running")]
    assert not any(sees_next(world, last) for last in lasts)


def test_master_that_was_preempted_stays_no_longer_than_it_may() -> None:
    world = preempted()
    keep_seeing(world, pod("Running", **ENDING))
    assert 50 < world.now - world.state.terminating_since < 60


def test_master_of_a_run_that_nobody_continues_does_not_wait_for_workers() -> None:
    world = preempted()
    began = world.now
    keep_seeing(world)
    assert 4 < world.now - began < 7


@pytest.mark.parametrize("job", [JOB, {**QUEUED, **BEING_DELETED}])
def test_master_out_of_a_queue_or_of_a_run_that_was_removed_ends_at_once(job: Any) -> None:
    assert preempted(job).exit


@pytest.mark.parametrize(
    ("run", "job", "may_continue"),
    [
        (one_group(mode="direct"), JOB, True),
        (one_group(mode="direct"), QUEUED, True),
        (one_group(mode="mpirun"), JOB, False),
        (one_group(1, mode="direct"), JOB, False),
        *(
            (one_group(mode="direct"), job, False)
            for job in (REPLACED, BEING_DELETED, SUSPENDED, EXCEEDED, UNREADABLE, LAST, ENDS_SOON)
        ),
    ],
)
def test_ranks_may_continue_only_if_another_master_follows(
    run: Run, job: Any, may_continue: bool
) -> None:
    world = begin_training(run)
    world.job = job
    terminate(world)
    assert bool(world.of(CheckRanks)) is may_continue
    assert bool(world.of(AskRanksToEnd)) is not may_continue


def test_ranks_are_asked_once_if_the_job_cannot_be_read_in_time() -> None:
    world = begin_training(mode="direct", grace_seconds=6)
    world.put(Terminated())
    world.fire()
    assert world.of(ReadJob)[-1].retry_seconds == 1, "a sixth of the grace period"
    world.answer_all()
    assert len(world.of(AskRanksToEnd)) == 1
    assert not world.of(CheckRanks)


def test_ranks_that_would_lose_steps_are_asked_to_end_all_the_same() -> None:
    world = begin_training(mode="direct")
    terminate(world)
    world.answers.clear()
    send_notice(world, ENDED, connection=5)
    world.put(RanksChecked(1, may_stay=False))
    assert len(world.of(AskRanksToEnd)) == 1
    assert not world.of(DetachLauncher)
    assert not world.of(ReleaseRanks), "not all of them have been asked yet"


def test_master_that_has_left_its_ranks_ends_neither_them_nor_the_run() -> None:
    world = begin_training(mode="direct", cleanup="Always")
    terminate(world)
    world.answers.clear()
    world.put(RanksChecked(1, may_stay=True))
    assert world.of(DetachLauncher)
    assert not world.of(EndLauncher) + world.of(AskRanksToEnd)
    world.end_launcher(138)
    assert EVICTED in world.end()[1]
    assert world.of(WriteRecord)[-1].data["state"] == "Running"
    assert not world.of(ScaleDown)


@pytest.mark.parametrize("may_stay", [True, False])
@pytest.mark.parametrize(
    "end", [World.end_launcher, lose_worker], ids=["ended before", "is ended for a lost worker"]
)
def test_answer_about_the_ranks_of_a_launch_that_is_over_changes_nothing(
    end: Callable[[World], None], may_stay: bool
) -> None:
    world = begin_training(mode="direct")
    terminate(world)
    world.answers.clear()
    end(world)
    timers = world.state.timers
    assert world.put(RanksChecked(1, may_stay)) == []
    assert world.state.timers == timers, "the launcher has no more time"


def test_an_upgrade_may_change_the_number_of_retries_during_the_run() -> None:
    world = begin_training()
    world.job = {**JOB, "spec": {"backoffLimit": 4}}

    def fail() -> None:
        world.end_launcher(1)
        launch_again(world)

    fail()
    fail()
    fail()
    fail()
    world.end_launcher(1)
    world.end()
    assert len(world.of(StartLauncher)) == 5


@pytest.mark.parametrize(("run", "number", "goes_on"), [("run-1", 5, False), ("run-0", 1, True)])
def test_new_master_counts_on_and_another_run_anew(run: str, number: int, goes_on: bool) -> None:
    """The master before was lost while it trained, which the Job counts."""
    before = {"run": run, "settingsHash": "settings-1", "attempts": "4", "failures": "1"}
    job = {**JOB, "status": {"failed": 1}}
    world = World(one_group(), record={**before, "state": "Running"}, job=job)
    assert world.train() == number
    world.effects.clear()
    world.end_launcher(1)
    world.settle(until=StartLauncher)
    assert bool(world.of(StartLauncher)) is goes_on
