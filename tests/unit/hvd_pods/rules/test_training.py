"""What happens to a launch while it runs, why it ended, and what follows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from hvd_pods.agent.banner import NoAnswer
from hvd_pods.cluster.shapes import format_time
from hvd_pods.common.errors import ConfigurationError, RunError
from hvd_pods.common.notices import (
    ASKED,
    DEBUGGED,
    ENDED,
    FAILED,
    FINISHED,
    IDLE,
    KEPT,
    LEAVING,
    RAISED,
    STOPPED,
)
from hvd_pods.common.record import STORED
from hvd_pods.common.run import Run
from hvd_pods.common.run_events import RunEvent
from hvd_pods.rules import messages as m
from hvd_pods.rules.ending import UNREADABLE
from hvd_pods.rules.messages import Cause
from hvd_pods.rules.state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.rules.training import (
    END_WITHIN,
    END_WITHOUT_HOSTS_WITHIN,
    NAME_AFTER,
    TERMINATED,
)
from tests.unit.hvd_pods.rules.world import DELETED, JOB, SUSPENDED, WALL, World, one_group, pod

CAUSE = Cause("rank 1 on w-0: ", "TypeError: no", is_sure_to_repeat=True)
STARTED = {"startTime": "2026-01-01T10:00:00Z"}
EXCEEDED = {"metadata": {}, "spec": {"activeDeadlineSeconds": 60}, "status": STARTED}
FAILURE = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded"}
ENDED_BY_DEADLINE = {**EXCEEDED, "status": {"conditions": [FAILURE]}}
LAST = {**JOB, "status": {"failed": 2}}
# It may have been preempted, which is no failure.
QUEUED = {**LAST, "metadata": {"annotations": {"horovod/queue": "team"}}}
# Its deadline would pass in the pause before the next master.
ENDS_SOON = {**EXCEEDED, "status": {"startTime": format_time(WALL + 945)}}


BOUND = {"to": "core", "coresPerRank": 2, "ranksPerSocket": 0}


def training(run: Run | None = None, **changes: Any) -> World:
    world = World(run or one_group(lostAfterSeconds=15, **changes))
    world.train()
    world.answer_all()
    return world


def notice(world: World, kind: str, host: str = "w-0", connection: int = 0, **more: Any) -> None:
    content = {"kind": kind, "host": host, "rank": 0, **more}
    world.put(m.NoticeTaken(world.state.attempt.number, content, connection))


def lose(world: World, host: str = "w-1") -> None:
    world.put(
        m.HostProblem(world.state.attempt.number, host, NoAnswer("port 2222 is closed"), 15.0)
    )


def judge(world: World) -> None:
    """Deliver answers until the master knows why the launcher has ended."""
    while world.state.activity == Activity.JUDGING:
        world.answer()


def end_with(world: World, code: int, cause: Cause | None = None) -> str:
    """Let the launcher end, and return why the attempt failed."""
    world.end_launcher(code)
    for number, (effect, _) in enumerate(world.answers):
        if isinstance(effect, m.FindCause):
            world.answers[number] = (effect, m.CauseFound(effect.attempt, cause))
    judge(world)
    return str(world.state.attempt.problem or "")


def test_launch_fails_for_the_cause_that_the_ranks_tell() -> None:
    assert end_with(training(), 1, CAUSE) == "rank 1 on w-0: TypeError: no"
    assert "ended with exit code 3: its last lines above" in end_with(training(), 3)
    assert end_with(training(), 0) == ""


@pytest.mark.parametrize(
    ("reached", "allowed", "mode", "ends"),
    [
        (
            False,
            False,
            "custom",
            (78, "custom ended with exit code 0 and started nothing in a worker"),
        ),
        (True, False, "custom", (0, "")),
        (False, True, "custom", (0, "")),
        (False, False, "mpirun", (0, "")),
    ],
)
def test_command_that_leaves_the_workers_idle_has_not_finished(
    reached: bool, allowed: bool, mode: str, ends: tuple[int, str]
) -> None:
    world = training(mode=mode, allowIdleWorkers=allowed)
    if reached:
        world.put(m.WorkerReached(world.state.attempt.number))
    world.end_launcher(0)
    code, problem = world.end()
    assert (code, problem[: len(ends[1])]) == ends
    assert bool(problem) == ("launch.allowIdleWorkers: true" in problem)


def test_log_and_events_name_the_attempt_that_begins() -> None:
    """Systems for logs tell the lines of attempts apart by it: the pods are the same."""
    world = training(mode="custom")
    world.put(m.WorkerReached(world.state.attempt.number))
    world.end_launcher(1)
    while world.state.attempt.number < 2:
        assert world.fire() or world.answers
        world.answer_all()
    assert "attempt 2" in world.logged()
    assert [e.event for e in world.of(m.CreateJobEvent) if "attempt 2" in e.message][:1] == [
        RunEvent.STARTED
    ]


def test_later_attempt_may_find_nothing_left_to_do() -> None:
    world = training(mode="custom")
    world.put(m.WorkerReached(world.state.attempt.number))
    world.end_launcher(1)
    world.settle(until=m.StartLauncher, most=40)
    while len(world.of(m.StartLauncher)) < 2:
        assert world.fire() or world.answers
        world.answer_all()
    world.end_launcher(0)
    assert world.end() == (0, "")


@pytest.mark.parametrize(("trained", "code"), [("uid-1", 0), ("uid-0", 78)])
def test_later_master_of_a_job_may_find_nothing_left_to_do(trained: str, code: int) -> None:
    """The one before, whose command has reached workers, was evicted."""
    world = World(one_group(mode="custom"), record={"trained": trained})
    world.train()
    world.answer_all()
    world.end_launcher(0)
    assert world.end()[0] == code


def test_cause_that_only_a_person_can_mend_ends_the_run() -> None:
    world = training()
    end_with(world, 255, CAUSE._replace(is_final=True))
    assert world.end()[0] == 78
    assert len(world.of(m.StartLauncher)) == 1


@pytest.mark.parametrize("is_gone", [True, False], ids=["is another pod", "is silent"])
def test_cause_of_a_host_that_is_not_there_any_more_is_not_final(is_gone: bool) -> None:
    """At its address, on the node's network, may be a worker of another release by now."""
    world = training()
    attempt = world.state.attempt.number
    if is_gone:
        world.put(m.HostGone(attempt, "w-1"))
    else:
        world.put(m.HostProblem(attempt, "w-1", NoAnswer("port 2222 is closed"), 0.0))
    problem = end_with(world, 255, CAUSE._replace(is_final=True))
    assert "lost w-1" in problem
    world.answer_all()
    assert world.state.attempts == 2


def test_failed_delivery_to_a_host_that_is_not_there_any_more_is_not_final() -> None:
    world = World(one_group())
    world.put(m.Started())
    world.settle(until=m.Deliver)
    world.answers.clear()
    attempt = world.state.attempt.number
    world.put(m.HostGone(attempt, "w-1"))
    wrong = ConfigurationError("w-1: its certificate is of another release")
    world.put(m.Delivered(attempt, ["w-0"], wrong))
    world.answer_all()
    assert world.state.attempts == 2


def test_failed_delivery_to_a_host_that_is_there_is_final() -> None:
    world = World(one_group())
    world.put(m.Started())
    world.settle(until=m.Deliver)
    world.answers.clear()
    wrong = ConfigurationError("w-1: its certificate is of another release")
    world.put(m.Delivered(world.state.attempt.number, ["w-0"], wrong))
    assert world.end() == (78, str(wrong))


def test_lost_host_ends_the_launch() -> None:
    world = training()
    lose(world)
    (ending,) = world.of(m.EndLauncher)
    assert not ending.kills
    assert world.state.timers[TimerKind.KILL] == pytest.approx(world.now + END_WITHOUT_HOSTS_WITHIN)


def test_lost_host_explains_the_end_of_the_attempt() -> None:
    world = training()
    lose(world)
    (listing,) = world.of(m.ListPods)
    assert listing.missing == ["w-1"]
    world.settle(until=m.FollowProgress)
    assert end_with(world, 143) == "lost w-1: port 2222 is closed"
    assert "lost w-1: " in world.logged()
    assert not world.of(m.DeletePods), "another master may use the workers"


def test_ranks_that_end_in_the_moment_in_which_a_host_is_lost_have_finished() -> None:
    world = training()
    lose(world)
    world.answers.clear()
    assert end_with(world, 0) == ""


def test_workers_that_leave_are_waited_for_as_long_as_they_may_save() -> None:
    world = training()
    notice(world, LEAVING, "w-1", seconds=20.0)
    lose(world)
    began = world.now
    while not world.of(m.EndLauncher):
        world.fire()
    assert world.now - began >= 20.0


@pytest.mark.parametrize(
    ("why", "problem", "failures"),
    [
        # Otherwise each attempt would fill the same disk again.
        ('Usage of EmptyDir volume "scratch" exceeds the limit "1Gi".', "w-1 was evicted: {}", 1),
        ("The node was low on resource: memory.", "w-1 was evicted: {}", 0),
        ("", f"w-1 was {TERMINATED}", 0),
    ],
    ids=["own", "node", "drained"],
)
def test_only_a_worker_that_the_kubelet_evicted_for_its_own_use_has_failed(
    why: str, problem: str, failures: int
) -> None:
    world = training()
    notice(world, LEAVING, "w-1", seconds=20.0)
    world.end_launcher(137)
    (search,) = world.of(m.FindCause)
    assert search.terminated == {"w-1": "uid of w-1"}
    world.answers = [(search, m.CauseFound(1, CAUSE, evictions={"w-1": why} if why else {}))]
    while len(world.of(m.StartLauncher)) == 1:
        world.answer()
    assert str(world.of(m.ReportFailure)[0].problem) == problem.format(why)
    assert world.state.failures == failures


@pytest.mark.parametrize("is_over", [False, True])
def test_ranks_that_were_asked_to_end_report_their_end_together(is_over: bool) -> None:
    """And nothing waits for the end of a launch that is over."""
    world = training()
    for rank in (0, 1):
        notice(world, ASKED, rank=rank)
    notice(world, ENDED, connection=5)
    assert not world.of(m.ReleaseRanks)
    if is_over:
        world.end_launcher(1)
    else:
        notice(world, ENDED, connection=6, rank=1)
    (release,) = world.of(m.ReleaseRanks)
    assert release.connections == ((5,) if is_over else (5, 6))


def asking(number: int, **changes: Any) -> World:
    """A master that is asked to end; it has asked so many ranks to end."""
    world = training(**changes)
    world.put(m.Terminated())
    world.answers.clear()
    world.put(m.RanksAsked(1, number))
    return world


def test_ranks_are_released_when_all_of_them_have_been_asked_to_end() -> None:
    world = training()
    world.put(m.Terminated())
    (effect,) = world.of(m.AskRanks)
    assert effect.hosts == ("w-0", "w-1")
    notice(world, ENDED, connection=5)
    assert not world.of(m.ReleaseRanks), "not all of them have been asked yet"
    world.answers.clear()
    world.put(m.RanksAsked(1, 4))
    assert world.of(m.ReleaseRanks)


def test_master_that_is_asked_to_end_lets_the_ranks_save() -> None:
    world = asking(4, gracePeriodSeconds=60)
    assert not world.of(m.EndLauncher)
    began = world.now
    while not world.of(m.EndLauncher):
        world.fire()
    assert world.now - began == pytest.approx(45.0)


def test_ranks_that_know_sigterm_only_are_ended_through_their_launcher() -> None:
    assert asking(0).of(m.EndLauncher)


def test_training_that_ends_as_its_master_is_asked_to_end_has_finished() -> None:
    world = training()
    world.put(m.Terminated())
    world.end_launcher(0)
    assert world.end() == (0, "")
    assert world.of(m.WriteRecord)[-1].data["state"] == "Finished"


def report(world: World, step: int, **more: Any) -> None:
    progress = {"step": step, **more}
    world.put(m.ProgressReported(world.state.attempt.number, progress), 1.0)


def progressed() -> World:
    """A training that has made 50 of 100 steps, 10 in each second."""
    world = training()
    for step in range(1, 6):
        report(world, 10 * step, steps=100, loss=0.5, imagesPerSecond=2.5, size=4)
    return world


def test_nothing_is_recorded_before_progress_is_reported() -> None:
    assert training().state.news()["progress"] == ""


def test_progress_is_recorded_with_its_speed_and_what_is_left() -> None:
    shown = json.loads(progressed().state.news()["progress"])
    assert (shown["step"], shown["loss"], shown["imagesPerSecond"]) == (50, 0.5, 10.0)
    assert shown["secondsLeft"] == 5


def test_losses_of_the_whole_run_are_recorded_in_a_few_pairs() -> None:
    world = training()
    for step in range(1, 1001):
        report(world, step, loss=1000.0 - step)
    losses = json.loads(world.state.news()["progress"])["losses"]
    steps = [step for step, _ in losses]
    assert steps == sorted(set(steps))
    assert all(loss == 1000.0 - step for step, loss in losses)
    assert (steps[0], steps[-1] > 950, 40 <= len(steps) <= 100) == (1, True, True)
    # No part of the curve is left out.
    assert max(b - a for a, b in pairwise(steps)) < 50


def test_a_step_that_is_made_again_has_the_loss_of_the_last_attempt() -> None:
    world = progressed()
    world.end_launcher(1, seconds=90.0)
    world.settle(until=m.StartLauncher)
    report(world, 30, loss=0.25)
    report(world, 40, loss="nan")
    losses = json.loads(world.state.news()["progress"])["losses"]
    assert losses == [[10, 0.5], [20, 0.5], [30, 0.25]]


def test_time_that_is_left_is_not_known_when_ranks_begin_anew() -> None:
    world = progressed()
    report(world, 3, steps=100)
    shown = json.loads(world.state.news()["progress"])
    assert shown["step"] == 3
    assert "secondsLeft" not in shown


def test_the_time_until_an_attempt_comes_further_than_the_one_before_is_lost() -> None:
    world = training()
    report(world, 10)
    report(world, 20)
    began = world.now
    world.end_launcher(1, seconds=90.0)
    world.effects.clear()
    world.settle(until=m.StartLauncher)
    for step in (10, 20):
        report(world, step)
        assert world.state.progress.lost == 0, "these steps were made before"
    report(world, 21)
    lost = world.now - began
    assert lost > 3
    report(world, 22)
    assert world.state.progress.lost == lost


@pytest.mark.parametrize("is_wanted", [True, False])
def test_loss_that_is_nan_ends_only_a_run_that_asks_for_that(is_wanted: bool) -> None:
    world = training(failOnNaN=is_wanted)
    report(world, 3, loss="nan")
    assert bool(world.of(m.EndLauncher)) is is_wanted


def test_loss_that_is_nan_is_told_once_where_the_run_goes_on() -> None:
    world = training(failOnNaN=False)
    for step in (3, 4):
        report(world, step, loss="nan")
    told = [
        effect for effect in world.of(m.CreateJobEvent) if effect.event == RunEvent.NOT_A_NUMBER
    ]
    assert len(told) == 1
    assert "step 3" in told[0].message


@pytest.mark.parametrize("is_wanted", [True, False])
def test_loss_that_only_the_last_report_tells_counts_as_well(is_wanted: bool) -> None:
    world = training(failOnNaN=is_wanted)
    world.end_launcher(0)
    world.answers.insert(0, (m.ReadRecord(), m.ProgressReported(1, {"step": 3, "loss": "nan"})))
    judge(world)
    assert (world.state.attempt.problem is not None) is is_wanted


def test_stalled_ranks_are_named_once_with_their_stacks() -> None:
    world = training()
    for period in range(4):
        for rank in (1, 3):
            world.put(m.RankMissing(1, rank, "has not joined grads", 60.0 * (period + 1)))
        while TimerKind.STALLS in world.state.timers:
            world.fire()
        world.now += 60
    named = [
        effect.message for effect in world.of(m.CreateJobEvent) if effect.event == RunEvent.STALLED
    ]
    assert named == [
        "rank 1 on w-0 has not joined grads for at least 60 s; "
        "rank 3 on w-1 has not joined grads for at least 60 s"
    ]
    assert [effect.ranks for effect in world.of(m.ShowStacks)] == [{"w-0": [1], "w-1": [3]}]
    assert not world.of(m.EndLauncher), "launch.stallTimeoutSeconds is 0"


def test_stall_is_told_with_the_time_since_the_last_step() -> None:
    """Horovod, which looks now and then, says only that it has lasted for a while."""
    world = training()
    report(world, 1)
    world.put(m.RankMissing(1, 3, "has not joined grads", 15.0), after=58.0)
    while TimerKind.STALLS in world.state.timers:
        world.fire()
    told = next(e.message for e in world.of(m.CreateJobEvent) if e.event == RunEvent.STALLED)
    assert "for at least 15 s" in told
    assert re.search(r"last step was 5[89] s ago", told), told


def recorded_stall(world: World) -> dict[str, Any]:
    """What the last write of the record says of a stall."""
    found: dict[str, Any] = json.loads(world.of(m.WriteRecord)[-1].data["stall"] or "{}")
    return found


def renew(world: World, after: float = 0.0) -> None:
    """Let the master write the record after some seconds, as it does now and then."""
    world.answer_all()
    world.put(m.Timer(TimerKind.RENEW), after)


def test_stalled_rank_is_in_the_record_at_once_and_then_where_it_is() -> None:
    world = training()
    began = world.now
    world.put(m.RankMissing(1, 3, "has not joined grads", 60.0))
    while TimerKind.STALLS in world.state.timers:
        world.fire()
    expected = {
        "rank": 3,
        "host": "w-1",
        "what": "has not joined grads",
        "since": format_time(WALL + began - 60),
        "place": "",
    }
    assert recorded_stall(world) == expected
    world.put(m.StacksShown(1, [(3, "train.py:41 in load"), (1, "x")]))
    renew(world)
    assert recorded_stall(world) == {**expected, "place": "train.py:41 in load"}
    # Horovod names it again.
    world.put(m.RankMissing(1, 3, "has not joined grads", 60.0), after=60.0)
    while TimerKind.STALLS in world.state.timers:
        world.fire()
    renew(world)
    assert recorded_stall(world) == {**expected, "place": "train.py:41 in load"}


def test_rank_that_others_have_waited_for_longest_is_in_the_record() -> None:
    world = training()
    notice(world, STOPPED, "w-1", rank=3, seconds=40.0, period=15.0)
    notice(world, STOPPED, "w-0", rank=1, seconds=90.0, period=15.0)
    while TimerKind.STALLS in world.state.timers:
        world.fire()
    assert recorded_stall(world)["rank"] == 1


@pytest.mark.parametrize("how", ["a step", "it is no longer named", "the attempt ends"])
def test_stall_leaves_the_record_when_the_training_goes_on(how: str) -> None:
    world = training()
    report(world, 1)
    world.put(m.RankMissing(1, 3, "has not joined grads", 15.0), after=20.0)
    while TimerKind.STALLS in world.state.timers:
        world.fire()
    report(world, 1)
    renew(world, 30.0)
    assert recorded_stall(world), "neither a report of the same step nor some time ends it"
    if how == "a step":
        report(world, 2)
    elif how == "the attempt ends":
        world.answer_all()
        world.end_launcher(1)
        world.answers.clear()
    renew(world, 30.0 if how == "it is no longer named" else 1.0)
    assert not recorded_stall(world)


def test_rank_that_does_not_end_is_in_the_record_until_a_step() -> None:
    world = training()
    notice(world, FINISHED, "w-0", rank=0)
    for rank in (1, 2):
        notice(world, FINISHED, f"w-{rank // 2}", rank=rank)
    wait_in_launch(world, NAME_AFTER + 1)
    world.put(m.StacksShown(1, [(3, "train.py:41 in load")]))
    renew(world, 500.0)
    stall = recorded_stall(world)
    assert (stall["rank"], stall["host"], stall["place"]) == (3, "w-1", "train.py:41 in load")
    assert stall["what"] == "has not ended after rank 0 on w-0"
    report(world, 1)
    renew(world)
    assert not recorded_stall(world)


def test_rank_that_is_late_in_each_step_does_not_stall_from_the_first_one_on() -> None:
    """Horovod names it in each step, and a slow run is no stalled one."""
    world = training(stallTimeoutSeconds=600)
    for number in range(1, 41):
        world.put(m.RankMissing(1, 3, "has not joined grads", 15.0), after=20.0)
        while TimerKind.STALLS in world.state.timers:
            world.fire()
        stepped = world.now = world.now + 10
        report(world, number)
    world.put(m.RankMissing(1, 3, "has not joined grads", 15.0), after=20.0)
    while TimerKind.STALLS in world.state.timers:
        world.fire()
    assert not world.of(m.EndLauncher)
    stall = world.state.find_stall(world.now)
    assert stall
    assert stall.since >= stepped


def test_where_no_rank_computes_the_one_that_began_to_wait_first_is_in_the_record() -> None:
    world = training(stallTimeoutSeconds=600)
    for rank in range(4):
        seconds = 121.0 if rank == 3 else 101.0
        notice(world, IDLE, f"w-{rank // 2}", rank=rank, seconds=seconds, period=15.0)
    while TimerKind.STALLS in world.state.timers:
        world.fire()
    stall = world.state.find_stall(world.now)
    assert stall
    assert stall.rank == 3


def test_metrics_count_launches_and_stalls_and_have_the_stage() -> None:
    def counted() -> tuple[int, int, RunEvent | None]:
        return world.state.launches, world.state.stalls, world.state.stage

    world = stalled()
    assert counted() == (1, 1, RunEvent.TRAINING), "a stall is no stage"
    end_with(world, 143)
    world.effects.clear()
    world.settle(until=m.StartLauncher)
    assert counted() == (2, 1, RunEvent.TRAINING)
    world.end_launcher()
    world.settle()
    assert counted() == (2, 1, RunEvent.FINISHED)


def test_stopped_rank_is_named_once_until_it_stops_anew() -> None:
    """Although notices take a moment to arrive."""
    world = training()
    named = []
    for after, seconds in ((20.0, 20.0), (15.5, 35.0), (20.0, 6.0)):
        world.now += after
        notice(world, STOPPED, "w-1", rank=3, seconds=seconds, period=15.0)
        while TimerKind.STALLS in world.state.timers:
            world.fire()
        named.append(len([e for e in world.of(m.CreateJobEvent) if e.event == RunEvent.STALLED]))
    assert named == [1, 1, 2]


def stalled() -> World:
    """A training with a rank that is stopped for too long; its stack was asked for."""
    world = training(stallTimeoutSeconds=100)
    notice(world, STOPPED, "w-1", rank=3, seconds=120.0, period=15.0)
    while not world.of(m.ShowStacks):
        world.fire()
    return world


@pytest.mark.parametrize(
    ("kind", "steps", "seconds", "ends"),
    [
        pytest.param(STOPPED, (), 590, False, id="no steps are reported"),
        pytest.param(STOPPED, (), 610, True, id="ten minutes"),
        pytest.param(STOPPED, (1, 2, 3), 29, False, id="short steps, and some seconds at least"),
        pytest.param(STOPPED, (1, 2, 3), 31, True, id="short steps"),
        pytest.param(STOPPED, (10, 20, 30), 190, False, id="within twenty steps"),
        pytest.param(STOPPED, (10, 20, 30), 210, True, id="beyond twenty steps"),
        pytest.param(STOPPED, (100, 200, 300), 610, True, id="long steps, ten minutes at most"),
        pytest.param(DEBUGGED, (1, 2, 3), 3590, False, id="somebody looks at it"),
        pytest.param(DEBUGGED, (1, 2, 3), 3610, True, id="for too long"),
    ],
)
def test_rank_that_a_signal_has_stopped_is_waited_for_as_long_as_steps_take(
    kind: str, steps: tuple[float, ...], seconds: float, ends: bool
) -> None:
    world = training(stallTimeoutSeconds=3600, stopsFollowSteps=True)
    began = world.now
    for number, at in enumerate(steps, 1):
        world.now = began + at
        report(world, number)
    world.now += seconds
    notice(world, kind, "w-1", rank=3, seconds=float(seconds), period=15.0)
    while world.state.timers.get(TimerKind.STALLS, float("inf")) < world.now + 5:
        world.fire()
    if ends:
        world.settle(until=m.EndLauncher)
    assert bool(world.of(m.EndLauncher)) is ends


def keep_state(world: World, *, ranks: int = 4) -> None:
    """Let so many of the four ranks keep their state in memory."""
    for rank in range(ranks):
        notice(world, KEPT, f"w-{rank // 2}", rank=rank)


def test_steps_that_were_only_counted_say_nothing_about_how_far_the_run_is() -> None:
    """Only the script knows where the next attempt resumes."""
    world = training(failOnNaN=False)
    world.put(m.ProgressReported(1, {"step": 40, "isCounted": True, "loss": "nan"}), 1.0)
    progress = world.state.progress
    assert (progress.step, progress.furthest) == (0, (0.0, 0))
    assert "the loss is NaN at step 40 of this attempt" in world.logged()


def test_time_left_is_that_of_the_steps_that_the_script_reports() -> None:
    """It may have counted others before, from which nothing follows."""
    world = training()
    for step in (40, 80):
        world.put(m.ProgressReported(1, {"step": step, "isCounted": True}), 1.0)
    for step in (100_100, 100_140):
        world.put(m.ProgressReported(1, {"step": step, "steps": 200_140}), 1.0)
    assert json.loads(world.state.progress.entry())["secondsLeft"] == 2500


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_that_there_is_not_keeps_nothing(rank: int) -> None:
    world = training()
    notice(world, KEPT, rank=rank)
    launch = world.state.attempt.launch
    assert launch is not None
    assert not launch.kept


@pytest.mark.parametrize(
    ("ranks", "seconds", "ends"),
    [
        pytest.param(4, 2, False, id="for a moment"),
        pytest.param(4, 4, True, id="no step is lost"),
        pytest.param(3, 4, False, id="one rank keeps nothing"),
    ],
)
def test_stopped_rank_is_waited_for_only_seconds_where_every_rank_keeps_its_state(
    ranks: int, seconds: float, ends: bool
) -> None:
    world = training(stallTimeoutSeconds=3600, stopsFollowSteps=True)
    for number in (1, 2, 3):
        world.put(m.ProgressReported(1, {"step": number}), 0.05)
    keep_state(world, ranks=ranks)
    world.now += seconds
    notice(world, STOPPED, "w-1", rank=3, seconds=seconds, period=1.0)
    while world.state.timers.get(TimerKind.STALLS, float("inf")) < world.now + 5:
        world.fire()
    if ends:
        world.settle(until=m.EndLauncher)
    assert bool(world.of(m.EndLauncher)) is ends


def test_attempt_knows_how_long_steps_take_before_it_has_made_some() -> None:
    world = training(stallTimeoutSeconds=3600, stopsFollowSteps=True)
    for number in (1, 2, 3):
        world.put(m.ProgressReported(1, {"step": number}), 0.05)
    lose(world)
    world.end_launcher(1)
    while len(world.of(m.StartLauncher)) == 1:
        world.answer() if world.answers else world.fire()
    number = world.state.attempt.number
    for rank in range(4):
        notice(world, KEPT, f"w-{rank // 2}", rank=rank)
    began = world.now
    ended = len(world.of(m.EndLauncher))
    notice(world, STOPPED, "w-1", rank=3, seconds=4.0, period=1.0)
    while len(world.of(m.EndLauncher)) == ended and world.now < began + 5:
        world.answer() if world.answers else world.fire()
    assert (world.state.attempt.number, world.now < began + 5) == (number, True)


def test_stop_that_goes_on_is_not_held_back_as_lines_of_output_are() -> None:
    """The next report of those comes five seconds later: a script could write them without end."""
    world = training(stallTimeoutSeconds=3600, stopsFollowSteps=True)
    for number in (1, 2, 3):
        world.put(m.ProgressReported(1, {"step": number}), 0.05)
    keep_state(world)
    began = world.now
    for seconds in (1.0, 2.0, 3.0):
        world.now = began + seconds
        notice(world, STOPPED, "w-1", rank=3, seconds=seconds, period=1.0)
        world.fire()
    world.settle(until=m.EndLauncher)
    assert world.now - began < 4


def test_rank_that_is_named_each_second_ends_the_attempt_in_time() -> None:
    """With HOROVOD_STALL_CHECK_TIME_SECONDS=1, names come more often than the log has them."""
    world = training(stallTimeoutSeconds=30)
    began = world.now
    while not world.of(m.EndLauncher) and world.now < began + 60:
        world.put(m.RankMissing(1, 3, "has not joined grads", 1.0), after=1.0)
        for _ in range(3):
            if world.answers:
                world.answer()
            elif min(world.state.timers.values(), default=world.now + 1) <= world.now:
                world.fire()
    assert 28 <= world.now - began <= 34
    assert len([e for e in world.of(m.CreateJobEvent) if e.event == RunEvent.STALLED]) == 1


@pytest.mark.parametrize(
    ("ranks", "is_default", "ends"),
    [
        pytest.param(4, True, True, id="no step is lost"),
        pytest.param(3, True, False, id="one rank keeps nothing"),
        pytest.param(4, False, False, id="somebody has set the time"),
    ],
)
def test_silent_host_is_lost_after_seconds_where_every_rank_keeps_its_state(
    ranks: int, is_default: bool, ends: bool
) -> None:
    world = training(one_group(lostAfterSeconds=12, lossFollowsState=is_default))
    keep_state(world, ranks=ranks)
    assert [effect.seconds for effect in world.of(m.LoseHostsAfter)] == [3.0] * ends
    world.put(m.HostProblem(1, "w-1", NoAnswer("port 2222 is closed"), 3.5))
    assert bool(world.of(m.EndLauncher)) is ends


def test_next_attempt_knows_nothing_of_the_state_of_its_ranks() -> None:
    """Before they have said so themselves: another worker may have taken a place."""
    world = training(one_group(lostAfterSeconds=12, lossFollowsState=True))
    keep_state(world)
    lose(world)
    world.end_launcher(1)
    while len(world.of(m.StartLauncher)) == 1:
        world.answer() if world.answers else world.fire()
    assert world.state.lost_after == 12.0


def test_stall_that_lasts_ends_the_attempt_after_its_stacks() -> None:
    world = stalled()
    assert not world.of(m.EndLauncher)
    world.settle(until=m.EndLauncher)
    problem = end_with(world, 0)
    assert "rank 3 on w-1 is stopped" in problem, "whatever its handlers make of the end"


def test_launcher_that_does_not_end_is_killed() -> None:
    world = stalled()
    world.settle(until=m.EndLauncher)
    assert world.state.timers[TimerKind.KILL] == pytest.approx(world.now + END_WITHIN, abs=0.1)
    world.answers.clear()
    world.fire()
    assert world.of(m.EndLauncher)[-1].kills


@pytest.mark.parametrize(
    ("first", "pause", "is_stall"),
    [((0, 1, 2), 0, True), ((0, 1), 0, False), ((0, 1, 2), 60, False)],
)
def test_ranks_stall_when_none_of_them_computes(
    first: tuple[int, ...], pause: int, is_stall: bool
) -> None:
    """One that computes may be what the others wait for, for as long as it likes."""
    world = training(stallTimeoutSeconds=100)
    for rank in first:
        notice(world, IDLE, f"w-{rank // 2}", rank=rank, seconds=101.0, period=15.0)
    world.now += pause
    notice(world, IDLE, "w-1", rank=3, seconds=101.0, period=15.0)
    assert (TimerKind.STALLS in world.state.timers) is is_stall
    if is_stall:
        world.settle(until=m.EndLauncher)
        assert [e.ranks for e in world.of(m.ShowStacks)] == [{"w-0": [0, 1], "w-1": [2, 3]}]
        assert "rank 2 on w-1 uses no CPU for 101 s" in end_with(world, 143)


@pytest.mark.parametrize(("idle", "times_named"), [(28.0, 0), (70.0, 5)])
def test_pauses_of_all_ranks_do_not_add_up(idle: float, times_named: int) -> None:
    """Such as those of a training that waits for its data; each stall names all ranks."""
    world = training(stallTimeoutSeconds=100)
    for _ in range(5):
        world.now += idle + 6.0
        for rank in range(4):
            notice(world, IDLE, f"w-{rank // 2}", rank=rank, seconds=idle, period=15.0)
        world.answer_all()
        while TimerKind.STALLS in world.state.timers:
            world.fire()
    named = [e.message for e in world.of(m.CreateJobEvent) if e.event == RunEvent.STALLED]
    assert len(named) == times_named
    assert all(f"rank {rank} on" in message for message in named for rank in range(4))
    assert not world.of(m.EndLauncher)


def test_ranks_that_there_are_not_are_not_kept() -> None:
    world = training()
    for rank in range(3, 50):
        world.put(m.RankMissing(1, rank, "has not joined grads", 60.0))
    assert world.state.attempt.launch
    assert [*world.state.attempt.launch.stalls.new] == [3]


def test_stalls_that_are_new_all_the_time_are_reported_now_and_then() -> None:
    world = training()
    began = world.now
    while world.now < began + 60:
        world.put(m.RankMissing(1, 3, "has not joined grads", 60.0), after=0.2)
        world.put(m.RankMissing(1, 3, "has not joined grads", 1.0), after=0.2)
        if world.state.timers.get(TimerKind.STALLS, world.now + 1) <= world.now:
            world.fire()
    assert len([e for e in world.of(m.CreateJobEvent) if e.event == RunEvent.STALLED]) <= 13


def test_ranks_that_had_left_with_0_are_named_beside_the_one_that_failed() -> None:
    """An empty shard, or a break: the other ranks wait for them in vain (issue 44)."""
    world = training()
    notice(world, FINISHED, "w-0", rank=1)
    notice(world, FAILED, rank=0, status=1)
    world.end_launcher(1)
    cause = m.Cause("rank 0 on w-0: ", "exit code 1", is_sure_to_repeat=False)
    world.put(m.CauseFound(world.state.attempt.number, cause))
    problem = world.state.attempt.problem
    assert str(problem) == "rank 0 on w-0: exit code 1; rank 1 on w-0 had ended with exit code 0"


@pytest.mark.parametrize(
    "found",
    [
        m.CauseFound(1, CAUSE, key_problem="the reason"),
        m.CauseFound(1, CAUSE, binding_problem="the reason"),
    ],
    ids=["keys", "binding"],
)
def test_what_keeps_ranks_from_starting_explains_an_end_before_their_output(
    found: m.CauseFound,
) -> None:
    world = training()
    world.end_launcher(1)
    world.put(found)
    problem = world.state.attempt.problem
    assert isinstance(problem, ConfigurationError)
    assert "the reason" in str(problem)


@pytest.mark.parametrize(
    ("changes", "notices", "asks"),
    [
        ({"binding": BOUND}, (), True),
        ({"binding": BOUND}, (RAISED,), False),
        ({"binding": BOUND, "mode": "custom"}, (), False),
        ({}, (), False),
    ],
    ids=["no rank has started", "a rank has", "a command", "not bound"],
)
def test_workers_are_asked_for_binding_only_where_mpirun_may_have_failed_by_it(
    changes: dict[str, Any], notices: Sequence[str], asks: bool
) -> None:
    world = training(**changes)
    for kind in notices:
        notice(world, kind, text="TypeError: no")
    world.end_launcher(205)
    (search,) = world.of(m.FindCause)
    assert search.asks_for_binding is asks


def test_launcher_that_cannot_be_started_ends_its_own_attempt_alone() -> None:
    world = training()
    number = world.state.attempt.number
    problem = RunError("no worker is left")
    world.put(m.LauncherNotStarted(number - 1, problem))
    assert world.state.activity == Activity.TRAINING
    world.put(m.LauncherNotStarted(number, problem))
    assert world.state.attempt.problem is problem


def wait_in_launch(world: World, seconds: float) -> None:
    """Let the timers of these seconds come."""
    until = world.now + seconds
    while world.state.timers and min(world.state.timers.values()) <= until:
        world.fire()
    world.now = until


def test_rank_that_does_not_end_after_another_one_is_named_with_its_stack() -> None:
    world = training(stallTimeoutSeconds=600)
    notice(world, FINISHED, "w-0", rank=0)
    wait_in_launch(world, NAME_AFTER + 1)
    for rank in (1, 2):
        notice(world, FINISHED, f"w-{rank // 2}", rank=rank)
    wait_in_launch(world, NAME_AFTER)
    (told,) = [
        effect.message for effect in world.of(m.CreateJobEvent) if effect.event == RunEvent.STALLED
    ]
    assert "rank 0 on w-0" in told
    assert "rank 3 on w-1" in told
    shown = next(iter(world.of(m.ShowStacks)))
    assert dict(shown.ranks)["w-1"] == [2, 3]
    assert not world.of(m.EndLauncher)


@pytest.mark.parametrize(
    ("limit", "seconds", "ends"),
    [
        pytest.param(100, 99, False, id="within the limit"),
        pytest.param(100, 101, True, id="beyond the limit"),
        pytest.param(5, 59, False, id="ranks need some time to end"),
        pytest.param(5, 61, True, id="a short limit"),
        pytest.param(0, 90000, False, id="no limit"),
    ],
)
def test_rank_that_never_ends_after_another_one_ends_the_attempt_at_the_stalls_limit(
    limit: int, seconds: float, ends: bool
) -> None:
    world = training(stallTimeoutSeconds=limit)
    notice(world, FINISHED, "w-0", rank=0)
    wait_in_launch(world, seconds)
    assert bool(world.of(m.EndLauncher)) is ends
    problem = end_with(world, 143)
    assert ("rank 0 on w-0 ended with exit code 0" in problem) is ends


def test_ranks_that_make_steps_may_go_on_after_another_one() -> None:
    """Each may have work of its own."""
    world = training(stallTimeoutSeconds=100)
    notice(world, FINISHED, "w-0", rank=0)
    for number in range(1, 7):
        report(world, number)
        wait_in_launch(world, 50)
    assert not world.of(m.EndLauncher)
    wait_in_launch(world, 101)
    assert world.of(m.EndLauncher)


def test_ranks_that_have_left_do_not_hide_that_no_other_computes() -> None:
    world = training(stallTimeoutSeconds=100)
    notice(world, FINISHED, "w-0", rank=0)
    for rank in (1, 2, 3):
        notice(world, IDLE, f"w-{rank // 2}", rank=rank, seconds=101.0, period=15.0)
    world.settle(until=m.EndLauncher)
    assert "uses no CPU for 101 s" in end_with(world, 143)


@pytest.mark.parametrize("kind", [FINISHED, ENDED])
def test_command_may_launch_ranks_as_often_as_it_likes(kind: str) -> None:
    """Such as hvdchart.launch, whose calls may also have nothing to do for hours."""
    world = training(mode="custom", stallTimeoutSeconds=100)
    for rank in range(4):
        notice(world, kind, f"w-{rank // 2}", rank=rank)
    wait_in_launch(world, 1000)
    notice(world, IDLE, "w-0", rank=1, seconds=101.0, period=15.0)
    wait_in_launch(world, 10)
    assert not [effect for effect in world.of(m.CreateJobEvent) if effect.event == RunEvent.STALLED]
    assert not world.of(m.EndLauncher)
    assert "ended with exit code 0" not in end_with(world, 1, CAUSE)


def test_notices_of_failed_ranks_reach_the_search_for_the_cause() -> None:
    world = training()
    notice(world, RAISED, text="ValueError: a")
    notice(world, FAILED, rank=1, status=-9)
    notice(world, FAILED, rank=2, status=1)
    world.end_launcher(1)
    (search,) = world.of(m.FindCause)
    assert [item["text"] for item in search.raised] == ["ValueError: a"]
    assert [item["rank"] for item in search.failed] == [1, 2]


def test_idle_workers_end_what_earlier_attempts_have_left() -> None:
    world = training(one_group(1, 2, lostAfterSeconds=15))
    (effect,) = world.of(m.EndLeftovers)
    assert effect.hosts == ["w-1"]
    lose(world)
    world.put(m.HostAnswers(1, "w-1", pod("w-1")))
    assert len(world.of(m.EndLeftovers)) == 2, "it comes back with what it did"
    assert not world.of(m.EndLauncher), "a spare is no loss"


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
    world = training(cleanup=cleanup)
    world.job = {
        **JOB,
        "metadata": {"annotations": {"horovod/cleanup": upgraded}} if upgraded else {},
    }
    world.end_launcher(code)
    world.settle()
    assert bool(world.of(m.ScaleDown)) is is_scaled
    end = world.of(m.WriteRecord)[-1].data["state"]
    assert end == ("Finished" if code == 0 else "Failed")


EVICTED = "its pod was deleted or evicted"
TOO_LONG = "longer than master.activeDeadlineSeconds=60"


@pytest.mark.parametrize(
    ("cleanup", "job", "reason", "state", "is_scaled"),
    [
        # The workers are those of the master or of the run that follows.
        ("Always", JOB, EVICTED, "Running", False),
        ("Always", None, "an upgrade or an uninstall removed its Job", "Running", False),
        # No other master follows, by this clock or by the controller's.
        ("Always", EXCEEDED, TOO_LONG, "Failed", True),
        ("Always", ENDED_BY_DEADLINE, TOO_LONG, "Failed", True),
        # It may go on later.
        ("OnSuccess", DELETED, "deleted", "Running", True),
        ("Never", DELETED, "deleted", "Running", False),
        ("Never", SUSPENDED, "suspended", "Running", True),
    ],
)
def test_workers_of_a_run_that_is_stopped_stay_where_somebody_needs_them(
    cleanup: str, job: Any, reason: str, state: str, is_scaled: bool
) -> None:
    world = training(cleanup=cleanup)
    world.job = job
    world.put(m.Terminated())
    assert reason in world.end()[1]
    assert world.of(m.WriteRecord)[-1].data["state"] == state
    assert bool(world.of(m.ScaleDown)) is is_scaled


def ask(world: World) -> m.AskRanks:
    """Let the master be asked to end, and what it asks the ranks then."""
    world.put(m.Terminated())
    while not world.of(m.AskRanks):
        world.answer()
    (asking,) = world.of(m.AskRanks)
    assert isinstance(asking, m.AskRanks)
    return asking


@pytest.mark.parametrize(
    ("run", "job", "may_stay"),
    [
        (one_group(mode="direct"), JOB, True),
        (one_group(mode="direct"), QUEUED, True),
        (one_group(mode="mpirun"), JOB, False),
        (one_group(1, mode="direct"), JOB, False),
        *(
            (one_group(mode="direct"), job, False)
            for job in (None, DELETED, SUSPENDED, EXCEEDED, UNREADABLE, LAST, ENDS_SOON)
        ),
    ],
)
def test_ranks_may_go_on_only_if_another_master_follows(run: Run, job: Any, may_stay: bool) -> None:
    world = training(run)
    world.job = job
    assert ask(world).may_stay is may_stay


def test_ranks_are_asked_once_if_the_job_cannot_be_read_in_time() -> None:
    world = training(mode="direct", gracePeriodSeconds=6)
    world.put(m.Terminated())
    world.fire()
    assert world.of(m.ReadJob)[-1].within == 1, "a sixth of the grace period"
    world.answer_all()
    assert [effect.may_stay for effect in world.of(m.AskRanks)] == [False]


def test_master_that_has_left_its_ranks_ends_neither_them_nor_the_run() -> None:
    world = training(mode="direct", cleanup="Always")
    ask(world)
    world.answers.clear()
    world.put(m.RanksAsked(1, 0, go_on=True))
    assert not world.of(m.EndLauncher)
    world.end_launcher(138)
    assert EVICTED in world.end()[1]
    assert world.of(m.WriteRecord)[-1].data["state"] == "Running"
    assert not world.of(m.ScaleDown)


def left_by_another_master(**record: str) -> World:
    """The run of a master that another one of its Job precedes, and its hosts answer."""
    run = one_group(2, 3, mode="direct")
    entry = {"run": run.id, "settings": run.settings, "state": "Running", "attempts": "1"}
    entry |= {"trained": "uid-1", "launched": "7", **record}
    world = World(run, record=entry)
    world.put(m.Started())
    world.settle(until=m.WatchHosts)
    return world


@pytest.mark.parametrize(
    ("record", "left"), [({}, 7), ({"trained": "uid-0"}, 0), ({"launched": "x"}, 0)]
)
def test_first_attempt_of_a_master_looks_whether_its_job_s_ranks_have_finished(
    record: dict[str, str], left: int
) -> None:
    world = left_by_another_master(**record)
    world.settle(until=m.StartLauncher)
    assert world.now < 1001
    world.end_launcher(1)
    world.answer_all()
    world.fire()
    world.answer_all()
    first, *later = world.of(m.Deliver)
    assert (first.orphan_fence, {*first.addresses}) == (left, {"w-0", "w-1", "w-2"})
    assert [effect.orphan_fence for effect in later] == [0]
    launched = [effect.data.get("launched") for effect in world.of(m.WriteRecord)]
    assert launched[-1] == str(world.of(m.Prepare)[-1].fence)


def test_host_whose_ranks_may_have_finished_is_waited_for() -> None:
    world = left_by_another_master()
    world.answers = [one for one in world.answers if getattr(one[1], "host", "") != "w-2"]
    began = world.now
    world.answer_all()
    assert not world.of(m.Deliver)
    world.settle(until=m.Deliver)
    assert 4.9 < world.now - began < 5.1


@pytest.mark.parametrize("is_stopped", [False, True])
def test_training_that_has_finished_without_a_master_is_not_repeated(is_stopped: bool) -> None:
    world = left_by_another_master()
    world.settle(until=m.Deliver)
    if is_stopped:
        world.put(m.Terminated())
    world.answers = [one for one in world.answers if not isinstance(one[0], m.Deliver)]
    world.put(m.Delivered(world.state.attempt.number, [], is_finished=True))
    code, problem = world.end()
    assert (code == 0) is not is_stopped, problem
    assert not world.of(m.StartLauncher)
    state = world.of(m.WriteRecord)[-1].data
    assert (state["state"], state["launched"]) == ("Running" if is_stopped else "Finished", "7")


def test_an_upgrade_may_change_the_number_of_retries_during_the_run() -> None:
    world = training()
    world.job = {**JOB, "spec": {"backoffLimit": 4}}
    while not world.exit:
        if world.is_running:
            world.end_launcher(1)
        world.answer() if world.answers else world.fire()
    assert len(world.of(m.StartLauncher)) == 5


@pytest.mark.parametrize(("run", "number", "goes_on"), [("run-1", 5, False), ("run-0", 1, True)])
def test_new_master_counts_on_and_another_run_anew(run: str, number: int, goes_on: bool) -> None:
    """The master before was lost while it trained, which the Job counts."""
    before = {"run": run, "settings": "settings-1", "attempts": "4", "failures": "1"}
    job = {**JOB, "status": {"failed": 1}}
    world = World(one_group(), record={**before, "state": "Running"}, job=job)
    assert world.train() == number
    world.effects.clear()
    world.end_launcher(1)
    world.settle(until=m.StartLauncher)
    assert bool(world.of(m.StartLauncher)) is goes_on


@pytest.mark.parametrize(("code", "on_failure"), [(0, False), (78, False), (78, True)])
def test_results_are_stored_once_after_the_end_is_recorded(code: int, on_failure: bool) -> None:
    run = one_group(results={"timeoutSeconds": 60, "onFailure": on_failure}, cleanup="Always")
    world = training(run)
    world.end_launcher(code)
    world.end()
    is_stored = code == 0 or on_failure
    assert bool(world.of(m.StoreResults)) is is_stored
    record = world.of(m.ReleaseRecord)[0].data
    assert record.get("results") == (STORED if is_stored else "")
    kinds = [type(effect) for effect in world.effects]
    assert not is_stored or kinds.index(m.ScaleDown) < kinds.index(m.StoreResults)
    again = World(run, record={**record, "uid": "uid-0"})
    again.put(m.Started())
    again.end()
    assert not again.of(m.StoreResults), "the record says that they are stored"


def test_storing_ends_before_the_jobs_deadline() -> None:
    """Kubernetes would otherwise call a run failed that has finished."""
    world = training(results={"timeoutSeconds": 60, "onFailure": False})
    began = {"startTime": format_time(WALL + world.now)}
    world.job = {**JOB, "spec": {"activeDeadlineSeconds": 50}, "status": began}
    world.end_launcher(0)
    world.end()
    assert world.of(m.StoreResults)[0].within <= 50 - 15
