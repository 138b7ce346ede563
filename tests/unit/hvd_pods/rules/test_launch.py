"""What happens to a launch while it runs, why it ended, and what follows."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from hvd_pods.rules.effects import (
    AskRanksToEnd,
    CountFinished,
    CreateJobEvent,
    DeletePods,
    Deliver,
    EndLauncher,
    EndLeftovers,
    FindCause,
    FollowProgress,
    ListPods,
    LoseWorkersAfter,
    Prepare,
    ReadRecord,
    ReleaseRanks,
    ReportFailure,
    StartLauncher,
    WatchWorkers,
    WriteRecord,
)
from hvd_pods.rules.events import (
    Cause,
    CauseFound,
    Delivered,
    Event,
    FinishedCounted,
    LauncherNotStarted,
    ProgressReported,
    RanksAskedToEnd,
    Started,
    Terminated,
    WorkerAnswers,
    WorkerGone,
    WorkerProblem,
    WorkerReached,
)
from hvd_pods.rules.launch import TERMINATED
from hvd_pods.rules.launch_abort import RESTART_GRACE_PERIOD_SECONDS
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.notice_kinds import ASKED, ENDED, FAILED, FINISHED, KEPT, LEAVING, RAISED
from hvd_pods.shared.run_events import RunEvent
from tests.support.world import World, one_group, pod
from tests.unit.hvd_pods.rules.trainings import (
    CAUSE,
    begin_training,
    end_with,
    find_cause_of_end,
    go_on,
    keep_state,
    launch_again,
    lose_worker,
    put_each,
    report_step,
    report_steps,
    send_notice,
    send_notices,
)

BOUND = {"to": "core", "cores_per_rank": 2, "ranks_per_socket": 0}


@pytest.fixture
def delivering() -> World:
    """A master that gives its workers the code."""
    world = World(one_group())
    world.put(Started())
    world.settle(until=Deliver)
    world.answers.clear()
    return world


def asking(number: int, **changes: Any) -> World:
    """A master that is asked to end; it has asked so many ranks to end."""
    world = begin_training(**changes)
    world.put(Terminated())
    world.answers.clear()
    world.put(RanksAskedToEnd(1, number))
    return world


def progressed() -> World:
    """A training that has made 50 of 100 steps, 10 in each second."""
    world = begin_training()
    for step in range(1, 6):
        report_step(world, 10 * step, steps=100, loss=0.5, samplesPerSecond=2.5, size=4)
    return world


def left_by_another_master(**record: str) -> World:
    """The run of a master that another one of its Job precedes, and its workers answer."""
    run = one_group(2, 3, mode="direct")
    entry = {"run": run.id, "settingsHash": run.settings_hash, "state": "Running", "attempts": "1"}
    entry |= {"trained": "uid-1", "orphanFence": "7", **record}
    world = World(run, record=entry)
    world.put(Started())
    world.settle(until=WatchWorkers)
    return world


def test_launch_fails_for_the_cause_that_the_ranks_report() -> None:
    assert end_with(begin_training(), 1, CAUSE) == "rank 1 on w-0: TypeError: no"
    assert "exit code 3" in end_with(begin_training(), 3)
    assert end_with(begin_training(), 0) == ""


@pytest.mark.parametrize(
    ("allowed", "mode", "code", "remedy"),
    [
        (False, "custom", 78, "launch.allowIdleWorkers: true"),
        (True, "custom", 0, ""),
        (False, "mpirun", 0, ""),
    ],
)
def test_command_may_leave_workers_idle_only_where_allowed(
    allowed: bool, mode: str, code: int, remedy: str
) -> None:
    world = begin_training(mode=mode, allow_idle_workers=allowed)
    world.end_launcher(0)
    found, said = world.end()
    assert found == code
    assert remedy in said


def test_command_that_has_reached_a_worker_has_finished() -> None:
    world = begin_training(mode="custom")
    world.put(WorkerReached(world.state.attempt.number))
    world.end_launcher(0)
    assert world.end() == (0, "")


def test_log_and_events_name_the_attempt_that_begins() -> None:
    """Systems for logs tell the lines of attempts apart by it: the pods are the same."""
    world = begin_training(mode="custom")
    world.put(WorkerReached(world.state.attempt.number))
    world.end_launcher(1)
    go_on(world, lambda: world.state.attempt.number == 2)
    assert "attempt 2" in world.logged()
    assert [effect.event for effect in world.of(CreateJobEvent) if "attempt 2" in effect.message][
        :1
    ] == [RunEvent.STARTED]


def test_later_attempt_may_find_nothing_left_to_do() -> None:
    world = begin_training(mode="custom")
    world.put(WorkerReached(world.state.attempt.number))
    world.end_launcher(1)
    launch_again(world)
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
    world = begin_training()
    end_with(world, 255, CAUSE._replace(is_final=True))
    assert world.end()[0] == 78
    assert len(world.of(StartLauncher)) == 1


def test_launch_whose_ranks_cannot_start_ends_the_run() -> None:
    """Such as for a command that the image does not have."""
    world = begin_training()
    end_with(world, 78)
    assert world.end()[0] == 78
    assert len(world.of(StartLauncher)) == 1


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(WorkerGone(1, "w-1"), id="is another pod"),
        pytest.param(WorkerProblem(1, "w-1", NoAnswer("closed"), 0.0), id="is silent"),
    ],
)
def test_cause_of_a_worker_that_is_not_there_any_more_is_not_final(event: Event) -> None:
    """At its address, on the node's network, may be a worker of another release by now."""
    world = begin_training()
    world.put(event)
    problem = end_with(world, 255, CAUSE._replace(is_final=True))
    assert "lost w-1" in problem
    world.answer_all()
    assert world.state.attempts == 2


OF_OTHER_RELEASE = ConfigurationError("w-1: its certificate is of another release")


def test_failed_delivery_to_a_worker_that_is_not_there_any_more_is_not_final(
    delivering: World,
) -> None:
    attempt = delivering.state.attempt.number
    delivering.put(WorkerGone(attempt, "w-1"))
    delivering.put(Delivered(attempt, ["w-0"], OF_OTHER_RELEASE))
    delivering.answer_all()
    assert delivering.state.attempts == 2


def test_failed_delivery_to_a_worker_that_is_there_is_final(delivering: World) -> None:
    delivering.put(Delivered(delivering.state.attempt.number, ["w-0"], OF_OTHER_RELEASE))
    assert delivering.end() == (78, str(OF_OTHER_RELEASE))


def test_lost_worker_ends_the_launch() -> None:
    world = begin_training()
    lose_worker(world)
    (ending,) = world.of(EndLauncher)
    assert not ending.kills
    assert world.state.timers[TimerKind.KILL] == pytest.approx(
        world.now + RESTART_GRACE_PERIOD_SECONDS
    )


def test_lost_worker_explains_the_end_of_the_attempt() -> None:
    world = begin_training()
    lose_worker(world)
    (listing,) = world.of(ListPods)
    assert listing.missing == ["w-1"]
    world.settle(until=FollowProgress)
    assert end_with(world, 143) == "lost w-1: port 2222 is closed"
    assert "lost w-1: " in world.logged()
    assert not world.of(DeletePods), "another master may use the workers"


def test_ranks_that_end_as_a_worker_is_lost_have_finished() -> None:
    world = begin_training()
    lose_worker(world)
    world.answers.clear()
    assert end_with(world, 0) == ""


def test_workers_that_leave_are_waited_for_as_long_as_they_may_save() -> None:
    world = begin_training()
    send_notice(world, LEAVING, "w-1", seconds=20.0)
    lose_worker(world)
    began = world.now
    world.settle(until=EndLauncher)
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
    world = begin_training()
    send_notice(world, LEAVING, "w-1", seconds=20.0)
    world.end_launcher(137)
    (search,) = world.of(FindCause)
    assert search.terminated == {"w-1": "uid of w-1"}
    world.answers = [(search, CauseFound(1, CAUSE, evictions={"w-1": why} if why else {}))]
    launch_again(world)
    assert str(world.of(ReportFailure)[0].problem) == problem.format(why)
    assert world.state.failures == failures


def test_ranks_that_were_asked_to_end_report_their_end_together() -> None:
    world = begin_training()
    send_notices(world, ASKED, (0, 1))
    send_notice(world, ENDED, connection=5)
    assert not world.of(ReleaseRanks)
    send_notice(world, ENDED, connection=6, rank=1)
    (release,) = world.of(ReleaseRanks)
    assert release.connections == (5, 6)


def test_asked_rank_does_not_wait_after_its_launch() -> None:
    world = begin_training()
    send_notices(world, ASKED, (0, 1))
    send_notice(world, ENDED, connection=5)
    world.end_launcher(1)
    (release,) = world.of(ReleaseRanks)
    assert release.connections == (5,)


def test_ranks_are_released_when_all_of_them_have_been_asked_to_end() -> None:
    world = begin_training()
    world.put(Terminated())
    (effect,) = world.of(AskRanksToEnd)
    assert effect.workers == ("w-0", "w-1")
    send_notice(world, ENDED, connection=5)
    assert not world.of(ReleaseRanks), "not all of them have been asked yet"
    world.answers.clear()
    world.put(RanksAskedToEnd(1, 4))
    assert world.of(ReleaseRanks)


def test_master_that_is_asked_to_end_lets_the_ranks_save() -> None:
    world = asking(4, grace_seconds=60)
    assert not world.of(EndLauncher)
    began = world.now
    world.settle(until=EndLauncher)
    assert world.now - began == pytest.approx(45.0)


def test_ranks_that_know_sigterm_only_are_ended_through_their_launcher() -> None:
    assert asking(0).of(EndLauncher)


def test_nothing_is_recorded_before_progress_is_reported() -> None:
    assert begin_training().state.record_data()["progress"] == ""


def test_progress_is_recorded_with_its_speed_and_what_is_left() -> None:
    shown = json.loads(progressed().state.record_data()["progress"])
    assert (shown["step"], shown["loss"], shown["samplesPerSecond"]) == (50, 0.5, 10.0)
    assert shown["secondsLeft"] == 5


def test_losses_of_the_whole_run_are_recorded_in_a_few_pairs() -> None:
    world = begin_training()
    report_steps(world, range(1, 1001), loss=0.5)
    losses = json.loads(world.state.record_data()["progress"])["losses"]
    steps = [step for step, _ in losses]
    assert steps == sorted(set(steps))
    assert {loss for _, loss in losses} == {0.5}
    assert steps[0] == 1
    assert steps[-1] > 950
    assert 40 <= len(steps) <= 100
    # No part of the curve is left out.
    assert max(later - earlier for earlier, later in pairwise(steps)) < 50


def test_a_step_that_is_made_again_has_the_loss_of_the_last_attempt() -> None:
    world = progressed()
    world.end_launcher(1, seconds=90.0)
    world.settle(until=StartLauncher)
    report_step(world, 30, loss=0.25)
    report_step(world, 40, loss="nan")
    losses = json.loads(world.state.record_data()["progress"])["losses"]
    assert losses == [[10, 0.5], [20, 0.5], [30, 0.25]]


def test_time_that_is_left_is_not_known_when_ranks_begin_anew() -> None:
    world = progressed()
    report_step(world, 3, steps=100)
    shown = json.loads(world.state.record_data()["progress"])
    assert shown["step"] == 3
    assert "secondsLeft" not in shown


def test_the_time_until_an_attempt_comes_further_than_the_one_before_is_lost() -> None:
    world = begin_training()
    report_step(world, 10)
    report_step(world, 20)
    began = world.now
    world.end_launcher(1, seconds=90.0)
    world.effects.clear()
    world.settle(until=StartLauncher)
    report_steps(world, (10, 20))
    assert world.state.progress.lost == 0, "these steps were made before"
    report_step(world, 21)
    lost = world.now - began
    assert lost > 3
    report_step(world, 22)
    assert world.state.progress.lost == lost


@pytest.mark.parametrize("is_wanted", [True, False])
def test_loss_that_is_nan_ends_only_a_run_that_asks_for_that(is_wanted: bool) -> None:
    world = begin_training(fail_on_nan=is_wanted)
    report_step(world, 3, loss="nan")
    assert bool(world.of(EndLauncher)) is is_wanted


def test_loss_that_is_nan_is_reported_once_where_the_run_continues() -> None:
    world = begin_training(fail_on_nan=False)
    report_steps(world, (3, 4), loss="nan")
    reported = [
        effect for effect in world.of(CreateJobEvent) if effect.event == RunEvent.NOT_A_NUMBER
    ]
    assert len(reported) == 1
    assert "step 3" in reported[0].message


@pytest.mark.parametrize("is_wanted", [True, False])
def test_loss_that_only_the_last_report_has_counts_as_well(is_wanted: bool) -> None:
    world = begin_training(fail_on_nan=is_wanted)
    world.end_launcher(0)
    world.answers.insert(0, (ReadRecord(), ProgressReported(1, {"step": 3, "loss": "nan"})))
    find_cause_of_end(world)
    assert (world.state.attempt.problem is not None) is is_wanted


def test_steps_that_were_only_counted_say_nothing_about_how_far_the_run_is() -> None:
    """Only the script knows where the next attempt resumes."""
    world = begin_training(fail_on_nan=False)
    world.put(ProgressReported(1, {"step": 40, "isCounted": True, "loss": "nan"}), 1.0)
    progress = world.state.progress
    assert (progress.step, progress.furthest) == (0, (0.0, 0))
    assert "NaN at step 40 " in world.logged()


def test_time_left_is_that_of_the_steps_that_the_script_reports() -> None:
    """It may have counted others before, from which nothing follows."""
    world = begin_training()
    report_steps(world, (40, 80), isCounted=True)
    report_steps(world, (100_100, 100_140), steps=200_140)
    assert json.loads(world.state.progress.entry())["secondsLeft"] == 2500


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_that_there_is_not_keeps_nothing(rank: int) -> None:
    world = begin_training()
    send_notice(world, KEPT, rank=rank)
    launch = world.state.attempt.launch
    assert launch is not None
    assert not launch.kept


@pytest.mark.parametrize(
    ("ranks", "is_default", "ends"),
    [
        pytest.param(4, True, True, id="no step is lost"),
        pytest.param(3, True, False, id="one rank keeps nothing"),
        pytest.param(4, False, False, id="somebody has set the time"),
    ],
)
def test_silent_worker_of_a_kept_state_is_lost_within_seconds(
    ranks: int, is_default: bool, ends: bool
) -> None:
    world = begin_training(one_group(lost_after_seconds=12, is_lost_after_default=is_default))
    keep_state(world, ranks=ranks)
    assert [effect.seconds for effect in world.of(LoseWorkersAfter)] == [3.0] * ends
    world.put(WorkerProblem(1, "w-1", NoAnswer("port 2222 is closed"), 3.5))
    assert bool(world.of(EndLauncher)) is ends


def test_next_attempt_knows_nothing_of_the_state_of_its_ranks() -> None:
    """Before they have said so themselves: another worker may have taken a place."""
    world = begin_training(one_group(lost_after_seconds=12, is_lost_after_default=True))
    keep_state(world)
    lose_worker(world)
    world.end_launcher(1)
    launch_again(world)
    assert world.state.lost_after_seconds == 12.0


def test_ranks_that_had_left_with_0_are_named_beside_the_one_that_failed() -> None:
    """An empty shard, or a break: the other ranks wait for them in vain."""
    world = begin_training()
    send_notice(world, FINISHED, "w-0", rank=1)
    send_notice(world, FAILED, rank=0, status=1)
    world.end_launcher(1)
    cause = Cause("rank 0 on w-0: ", "exit code 1", is_sure_to_repeat=False)
    world.put(CauseFound(world.state.attempt.number, cause))
    problem = world.state.attempt.problem
    failed, left = str(problem).split("; ")
    assert failed == "rank 0 on w-0: exit code 1"
    assert left.startswith("rank 1 on w-0 ")
    assert left.endswith("exit code 0")


@pytest.mark.parametrize(
    "found",
    [
        CauseFound(1, CAUSE, key_problem="the reason"),
        CauseFound(1, CAUSE, binding_problem="the reason"),
    ],
    ids=["keys", "binding"],
)
def test_what_keeps_ranks_from_starting_explains_an_end_before_their_output(
    found: CauseFound,
) -> None:
    world = begin_training()
    world.end_launcher(1)
    world.put(found)
    problem = world.state.attempt.problem
    assert isinstance(problem, ConfigurationError)
    assert "the reason" in str(problem)


@pytest.mark.parametrize(
    ("changes", "started", "asks"),
    [
        ({"binding": BOUND}, [], True),
        ({"binding": BOUND}, [0], False),
        ({"binding": BOUND, "mode": "custom"}, [], False),
        ({}, [], False),
    ],
    ids=["no rank has started", "a rank has", "a command", "not bound"],
)
def test_workers_are_asked_for_binding_only_after_a_failed_mpirun(
    changes: dict[str, Any], started: list[int], asks: bool
) -> None:
    world = begin_training(**changes)
    send_notices(world, RAISED, started, text="TypeError: no")
    world.end_launcher(205)
    (search,) = world.of(FindCause)
    assert search.asks_for_binding is asks


def test_launcher_that_cannot_be_started_ends_its_own_attempt_alone() -> None:
    world = begin_training()
    number = world.state.attempt.number
    problem = RunError("no worker is left")
    world.put(LauncherNotStarted(number - 1, problem))
    assert world.state.activity == Activity.TRAINING
    world.put(LauncherNotStarted(number, problem))
    assert world.state.attempt.problem is problem


def test_notices_of_failed_ranks_reach_the_search_for_the_cause() -> None:
    world = begin_training()
    send_notice(world, RAISED, text="ValueError: a")
    send_notice(world, FAILED, rank=1, status=-9)
    send_notice(world, FAILED, rank=2, status=1)
    world.end_launcher(1)
    (search,) = world.of(FindCause)
    assert [notice["text"] for notice in search.exception_notices] == ["ValueError: a"]
    assert [notice["rank"] for notice in search.exit_notices] == [1, 2]


def test_idle_workers_end_what_earlier_attempts_have_left() -> None:
    world = begin_training(one_group(1, 2, lost_after_seconds=15))
    (effect,) = world.of(EndLeftovers)
    assert effect.workers == ["w-1"]
    lose_worker(world)
    world.put(WorkerAnswers(1, "w-1", pod("w-1")))
    assert len(world.of(EndLeftovers)) == 2, "it comes back with what it did"
    assert not world.of(EndLauncher), "a spare is no loss"


@pytest.mark.parametrize(
    ("record", "left"), [({}, 7), ({"trained": "uid-0"}, 0), ({"orphanFence": "x"}, 0)]
)
def test_first_attempt_of_a_master_looks_for_finished_ranks(
    record: dict[str, str], left: int
) -> None:
    world = left_by_another_master(**record)
    world.settle(until=StartLauncher)
    assert world.now < 1001
    world.end_launcher(1)
    world.answer_all()
    world.fire()
    world.answer_all()
    counted = [(effect.fence, {*effect.addresses}) for effect in world.of(CountFinished)]
    assert counted == ([(left, {"w-0", "w-1", "w-2"})] if left else [])
    assert len(world.of(Deliver)) == len(world.of(StartLauncher)) == 2
    launched = [effect.data.get("orphanFence") for effect in world.of(WriteRecord)]
    assert launched[-1] == str(world.of(Prepare)[-1].fence)


def test_worker_whose_ranks_may_have_finished_is_waited_for() -> None:
    world = left_by_another_master()
    world.answers = [
        answer for answer in world.answers if getattr(answer[1], "worker", "") != "w-2"
    ]
    began = world.now
    world.answer_all()
    assert not world.of(CountFinished)
    world.settle(until=CountFinished)
    assert 4.9 < world.now - began < 5.1


@pytest.mark.parametrize(
    ("events", "code", "state"),
    [([], 0, "Finished"), ([Terminated()], 143, "Running")],
    ids=["at once", "by the next master"],
)
def test_training_that_has_finished_without_a_master_is_not_repeated(
    events: list[Event], code: int, state: str
) -> None:
    world = left_by_another_master()
    world.settle(until=CountFinished)
    put_each(world, events)
    world.answers = [answer for answer in world.answers if not isinstance(answer[0], CountFinished)]
    world.put(FinishedCounted(world.state.attempt.number, 4))
    assert world.end()[0] == code
    assert not world.of(Deliver) + world.of(StartLauncher)
    written = world.of(WriteRecord)[-1].data
    assert (written["state"], written["orphanFence"]) == (state, "7")
