"""The lease of a session: what a command has forgotten is ended, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from hvd_pods.rules.effects import (
    CreateJobEvent,
    ReadLease,
    ReleaseRecord,
    ScaleDown,
    WriteRecord,
)
from hvd_pods.rules.events import (
    JobRead,
    LeaseRead,
    RecordChanged,
    RecordPurpose,
    RecordWritten,
    Started,
    Terminated,
    WorkersScaled,
)
from hvd_pods.rules.job_state import REPLACED, UNREADABLE, read_found_job
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.objects import format_time
from hvd_pods.shared.record import LEASE_KEPT
from hvd_pods.shared.run_events import RunEvent
from tests.support.world import BEING_DELETED, JOB, OTHER, WALL, World, leased_job, one_group
from tests.unit.hvd_pods.rules.trainings import go_on, launch_again, wait_in_launch

SECONDS = 600
# The spec of a Job with one attempt.
ONCE = {"spec": {"backoffLimit": 0}}


def session() -> World:
    """A run that a command keeps; its workers stay when it ends."""
    return World(one_group(cleanup="Never"), job=leased_job(SECONDS))


def pass_time(
    world: World, seconds: float, *, renews: bool = False, answers: bool = True, **job: Any
) -> None:
    """Let time pass. The command `renews` its lease, or not; and the API server `answers`.

    job: what differs in the Job whose lease is renewed.
    """
    until = world.now + seconds
    while world.exit is None and min(world.state.timers.values()) <= until:
        if renews:
            world.job = {**leased_job(SECONDS, str(world.now)), **job}
        world.fire()
        while world.answers:
            effect = world.answers[0][0]
            world.answer(is_usual=answers or not isinstance(effect, ReadLease))


def ended(world: World, code: int = 0) -> World:
    """The run has ended, and its workers have stayed."""
    world.train()
    world.answer_all()
    world.end_launcher(code)
    world.answer_all()
    return world


def test_training_that_its_command_has_forgotten_is_ended_with_its_workers() -> None:
    world = session()
    world.train()
    pass_time(world, SECONDS + 100)
    code, text = world.end()
    assert code == 78
    assert "lease" in text
    assert len(world.of(ScaleDown)) == 1, "although cleanup is Never"
    (end,) = [
        write.data for write in world.of(WriteRecord) if write.purpose == RecordPurpose.END_RUN
    ]
    assert (end["state"], end["reason"]) == ("Failed", text)


def test_training_continues_while_its_command_renews_the_lease() -> None:
    world = session()
    world.train()
    pass_time(world, 10 * SECONDS, renews=True)
    assert world.is_running
    began = world.now
    pass_time(world, 2 * SECONDS)
    (reported,) = [emit for emit in world.of(CreateJobEvent) if emit.event == RunEvent.LEASE_ENDED]
    assert not world.is_running
    assert world.now - began >= SECONDS, reported


def test_time_in_which_the_job_cannot_be_read_does_not_count() -> None:
    """The command may not reach the API server, either."""
    world = session()
    world.train()
    pass_time(world, 5 * SECONDS, answers=False)
    assert world.is_running
    pass_time(world, SECONDS / 2)
    assert world.is_running


def test_run_without_a_lease_is_never_looked_after() -> None:
    world = World(one_group(cleanup="Never"), job=JOB)
    world.train()
    pass_time(world, 10 * SECONDS)
    assert world.is_running
    assert not world.of(ReadLease)


def test_waiting_for_workers_ends_with_the_lease_too() -> None:
    world = session()
    world.run = one_group()
    world.put(Started())
    world.answers = []
    world.put(RecordWritten(RecordPurpose.TAKE))
    world.put(JobRead(read_found_job(leased_job(SECONDS))))
    world.answers = []
    pass_time(world, SECONDS + 100)
    world.answer_all()
    assert world.of(ScaleDown)


def test_no_attempt_follows_a_lease_that_ends_before_it() -> None:
    """Although it takes long to scale the workers down."""
    world = session()
    world.job["spec"] = {"backoffLimit": 5}
    world.train()
    world.end_launcher(1)
    launch_again(world)
    world.end_launcher(1)
    go_on(world, lambda: world.state.activity == Activity.PAUSING)
    attempts = world.state.attempts
    world.put(LeaseRead(world.job_reading), SECONDS + 1)
    world.settle(until=ScaleDown)
    world.answers.clear()
    wait_in_launch(world, SECONDS)
    assert world.state.attempts == attempts
    world.put(WorkersScaled())
    assert world.end()[0] == 78


@pytest.mark.parametrize("code", [0, 1])
def test_workers_stay_for_the_next_run_until_the_lease_ends(code: int) -> None:
    world = session()
    world.job["spec"] = {"backoffLimit": 0}
    ended(world, code)
    assert world.state.activity == Activity.KEEPING_WORKERS
    assert world.of(WriteRecord)[-1].data["lease"] == LEASE_KEPT
    pass_time(world, 3 * SECONDS, renews=True)
    assert not world.of(ScaleDown)
    pass_time(world, 2 * SECONDS)
    assert world.of(ScaleDown)
    assert world.end()[0] == code
    assert world.of(ReleaseRecord)[0].data["lease"] not in ("", LEASE_KEPT)


def test_workers_stay_although_the_job_cannot_be_read_at_the_end() -> None:
    world = session()
    world.train()
    world.answer_all()
    world.job = UNREADABLE
    world.end_launcher(0)
    world.answer_all()
    assert world.state.activity == Activity.KEEPING_WORKERS
    world.job = leased_job(SECONDS)
    pass_time(world, 2 * SECONDS)
    assert world.of(ScaleDown)


@pytest.mark.parametrize(
    ("job", "takes"),
    [
        pytest.param(REPLACED, False, id="another one takes its place"),
        pytest.param(UNREADABLE, False, id="another one may do so"),
        pytest.param(BEING_DELETED, True, id="deleted"),
        pytest.param(leased_job(SECONDS), True, id="its pod is drained"),
    ],
)
def test_staying_master_scales_down_only_its_own_workers(job: Any, takes: bool) -> None:
    """The Job of a run that has finished makes no other master."""
    world = ended(session())
    world.job = job
    world.put(Terminated())
    world.answer_all()
    assert world.exit
    assert bool(world.of(ScaleDown)) is takes
    (release,) = world.of(ReleaseRecord)
    assert (release.data["lease"] == LEASE_KEPT) is not takes


@pytest.mark.parametrize(
    ("job", "takes"),
    [
        pytest.param(REPLACED, False, id="another one takes its place"),
        pytest.param(UNREADABLE, False, id="another one may do so"),
        pytest.param({**BEING_DELETED, **ONCE}, True, id="deleted"),
        pytest.param({**leased_job(SECONDS), **ONCE}, True, id="its pod is drained"),
    ],
)
@pytest.mark.parametrize("code", [0, 1])
def test_run_that_ends_while_its_pod_terminates_takes_its_workers_along(
    job: Any, takes: bool, code: int
) -> None:
    """No master follows that would look after the lease."""
    world = session()
    world.job["spec"] = {"backoffLimit": 0}
    world.train()
    world.answer_all()
    world.job = job
    world.put(Terminated())
    world.end_launcher(code)
    world.end()
    assert len(world.of(ScaleDown)) == takes


def test_run_that_another_master_continues_keeps_its_workers() -> None:
    world = session()
    world.train()
    world.answer_all()
    world.put(Terminated())
    world.end_launcher(1)
    world.end()
    assert not world.of(ScaleDown)


def test_master_that_stays_leaves_the_workers_of_another_one() -> None:
    world = ended(session())
    world.record = dict(OTHER)
    pass_time(world, 3 * SECONDS)
    assert world.exit
    assert not world.of(ScaleDown)


def test_master_that_was_replaced_neither_stays_nor_takes_the_workers_along() -> None:
    world = session()
    world.train()
    world.answer_all()
    world.put(RecordChanged(RecordPurpose.RENEW, dict(OTHER), 1))
    world.record = dict(OTHER)
    world.end_launcher(1)
    world.answer_all()
    assert world.exit
    assert not world.of(ScaleDown)


def test_master_that_stays_ends_when_an_upgrade_takes_the_lease_away() -> None:
    world = ended(session())
    world.job = JOB
    pass_time(world, 100)
    assert world.end() == (0, "")
    assert not world.of(ScaleDown)
    assert world.of(ReleaseRecord)[0].data["lease"] == ""


def test_master_that_stays_ends_its_workers_before_the_jobs_deadline() -> None:
    world = session()
    limited = {**world.job["spec"], "activeDeadlineSeconds": 10**9 * 2}
    world.job = {**world.job, "spec": limited, "status": {"startTime": "1970-01-01T00:01:40Z"}}
    ended(world)
    pass_time(world, 300)
    assert TimerKind.KEEP_WORKERS in world.state.timers


def test_deadline_of_the_lease_is_watched_once_it_can_be_read() -> None:
    world = session()
    world.train()
    world.answer_all()
    job = world.job
    world.job = UNREADABLE
    world.end_launcher(0)
    world.answer_all()
    assert world.state.activity == Activity.KEEPING_WORKERS
    limited = {**job["spec"], "activeDeadlineSeconds": 3 * SECONDS}
    started = {"startTime": format_time(WALL + world.now)}
    began = world.now
    pass_time(world, 5 * SECONDS, renews=True, spec=limited, status=started)
    assert len(world.of(ScaleDown)) == 1
    assert world.now < began + 3 * SECONDS
