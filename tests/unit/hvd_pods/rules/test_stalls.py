"""Which ranks stall, how they are told, and when that ends an attempt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest

from hvd_pods.rules.effects import EndLauncher, ShowStacks, StartLauncher, WriteRecord
from hvd_pods.rules.events import RankMissing, StacksShown, Timer
from hvd_pods.rules.launch_abort import LAUNCHER_GRACE_PERIOD_SECONDS
from hvd_pods.rules.stalls import NAMING_DELAY_SECONDS
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.notice_kinds import DEBUGGED, ENDED, FINISHED, IDLE, STOPPED
from hvd_pods.shared.objects import format_time
from hvd_pods.shared.run_events import RunEvent
from tests.support.world import WALL, World
from tests.unit.hvd_pods.rules.trainings import (
    CAUSE,
    begin_training,
    end_with,
    keep_state,
    launch_again,
    lose_worker,
    name_stalls,
    named_stalls,
    report_step,
    report_steps,
    send_notice,
    send_notices,
    wait_in_launch,
)


def miss(world: World, *ranks: int, seconds: float = 15.0, after: float = 0.0) -> None:
    """Let Horovod name ranks that have not joined for these seconds."""
    world.now += after
    for rank in ranks:
        world.put(RankMissing(1, rank, "has not joined grads", seconds))


def recorded_stall(world: World) -> dict[str, Any]:
    """What the last write of the record says of a stall."""
    found: dict[str, Any] = json.loads(world.of(WriteRecord)[-1].data["stall"] or "{}")
    return found


def renew(world: World, after: float = 0.0) -> None:
    """Let the master write the record after some seconds, as it does now and then."""
    world.answer_all()
    world.put(Timer(TimerKind.RENEW), after)


@pytest.fixture
def with_recorded_stall() -> World:
    """A training in whose first step a rank has stalled."""
    world = begin_training()
    report_step(world, 1)
    miss(world, 3, after=20.0)
    name_stalls(world)
    return world


def stalled() -> World:
    """A training with a rank that is stopped for too long; its stack was asked for."""
    world = begin_training(stall_timeout_seconds=100)
    send_notice(world, STOPPED, "w-1", rank=3, seconds=120.0, period=15.0)
    while not world.of(ShowStacks):
        world.fire()
    return world


def ends_at_once(world: World) -> bool:
    """Whether the master ends the attempt for a stall that it names within five seconds."""
    wait_in_launch(world, 5)
    world.answer_all()
    return bool(world.of(EndLauncher))


def test_stalled_ranks_are_named_once_with_their_stacks() -> None:
    world = begin_training()
    miss(world, 1, 3, seconds=60.0)
    name_stalls(world)
    miss(world, 1, 3, seconds=120.0, after=60.0)
    name_stalls(world)
    (named,) = named_stalls(world)
    missing = r"rank {} has not joined grads .*60 s.*"
    both = "; ".join(missing.format(who) for who in ("1 on w-0", "3 on w-1"))
    assert re.fullmatch(both, named)
    assert [effect.ranks for effect in world.of(ShowStacks)] == [{"w-0": [1], "w-1": [3]}]
    assert not world.of(EndLauncher), "launch.stallTimeoutSeconds is 0"


def test_stall_is_reported_with_the_time_since_the_last_step() -> None:
    """Horovod, which looks now and then, says only that it has lasted for a while."""
    world = begin_training()
    report_step(world, 1)
    miss(world, 3, after=58.0)
    name_stalls(world)
    message = named_stalls(world)[0]
    assert " 15 s" in message
    assert re.search(r"\b5[89] s\b", message), message


def test_stalled_rank_is_in_the_record_at_once_and_then_where_it_is() -> None:
    world = begin_training()
    began = world.now
    miss(world, 3, seconds=60.0)
    name_stalls(world)
    expected = {
        "rank": 3,
        "worker": "w-1",
        "what": "has not joined grads",
        "since": format_time(WALL + began - 60),
        "place": "",
    }
    assert recorded_stall(world) == expected
    world.put(StacksShown(1, [(3, "train.py:41 in load"), (1, "x")]))
    renew(world)
    assert recorded_stall(world) == {**expected, "place": "train.py:41 in load"}
    # Horovod names it again.
    miss(world, 3, seconds=60.0, after=60.0)
    name_stalls(world)
    renew(world)
    assert recorded_stall(world) == {**expected, "place": "train.py:41 in load"}


def test_rank_that_others_have_waited_for_longest_is_in_the_record() -> None:
    world = begin_training()
    send_notice(world, STOPPED, "w-1", rank=3, seconds=40.0, period=15.0)
    send_notice(world, STOPPED, "w-0", rank=1, seconds=90.0, period=15.0)
    name_stalls(world)
    assert recorded_stall(world)["rank"] == 1


def test_recorded_stall_survives_a_repeated_step(
    with_recorded_stall: World,
) -> None:
    report_step(with_recorded_stall, 1)
    renew(with_recorded_stall, 30.0)
    assert recorded_stall(with_recorded_stall)


def test_stall_leaves_the_record_with_a_step(with_recorded_stall: World) -> None:
    report_step(with_recorded_stall, 2)
    renew(with_recorded_stall)
    assert not recorded_stall(with_recorded_stall)


def test_stall_leaves_the_record_when_its_rank_is_no_longer_named(
    with_recorded_stall: World,
) -> None:
    renew(with_recorded_stall, 60.0)
    assert not recorded_stall(with_recorded_stall)


def test_stall_leaves_the_record_with_its_attempt(with_recorded_stall: World) -> None:
    with_recorded_stall.answer_all()
    with_recorded_stall.end_launcher(1)
    with_recorded_stall.answers.clear()
    renew(with_recorded_stall)
    assert not recorded_stall(with_recorded_stall)


def test_rank_that_does_not_end_is_in_the_record_until_a_step() -> None:
    world = begin_training()
    send_notices(world, FINISHED, range(3))
    wait_in_launch(world, NAMING_DELAY_SECONDS + 1)
    world.put(StacksShown(1, [(3, "train.py:41 in load")]))
    renew(world, 500.0)
    stall = recorded_stall(world)
    assert (stall["rank"], stall["worker"], stall["place"]) == (3, "w-1", "train.py:41 in load")
    assert stall["what"] == "has not ended after rank 0 on w-0"
    report_step(world, 1)
    renew(world)
    assert not recorded_stall(world)


def test_rank_that_is_late_in_each_step_does_not_stall_from_the_first_one_on() -> None:
    """Horovod names it in each step, and a slow run is no stalled one."""
    world = begin_training(stall_timeout_seconds=600)

    def make_steps(steps: Iterable[int]) -> None:
        for step in steps:
            miss(world, 3, after=20.0)
            name_stalls(world)
            world.now += 10
            report_step(world, step)

    make_steps(range(1, 41))
    stepped = world.now - 1
    miss(world, 3, after=20.0)
    name_stalls(world)
    assert not world.of(EndLauncher)
    stall = world.state.find_stall(world.now)
    assert stall
    assert stall.since >= stepped


def test_rank_that_waits_first_is_recorded_if_none_computes() -> None:
    world = begin_training(stall_timeout_seconds=600)
    send_notices(world, IDLE, range(3), seconds=101.0, period=15.0)
    send_notices(world, IDLE, [3], seconds=121.0, period=15.0)
    name_stalls(world)
    stall = world.state.find_stall(world.now)
    assert stall
    assert stall.rank == 3


def test_metrics_count_launches_and_stalls_and_have_the_stage() -> None:
    def counted() -> tuple[int, int, RunEvent | None]:
        return world.state.launches, world.state.stall_count, world.state.stage

    world = stalled()
    assert counted() == (1, 1, RunEvent.TRAINING), "a stall is no stage"
    end_with(world, 143)
    world.effects.clear()
    world.settle(until=StartLauncher)
    assert counted() == (2, 1, RunEvent.TRAINING)
    world.end_launcher()
    world.settle()
    assert counted() == (2, 1, RunEvent.FINISHED)


def test_stopped_rank_is_named_once_until_it_stops_anew() -> None:
    """Although notices take a moment to arrive."""
    world = begin_training()

    def named_after(after: float, seconds: float) -> int:
        world.now += after
        send_notice(world, STOPPED, "w-1", rank=3, seconds=seconds, period=15.0)
        name_stalls(world)
        return len(named_stalls(world))

    assert [named_after(20.0, 20.0), named_after(15.5, 35.0), named_after(20.0, 6.0)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("kind", "steps", "step_seconds", "seconds", "ends"),
    [
        pytest.param(STOPPED, 0, 0, 590, False, id="no steps are reported"),
        pytest.param(STOPPED, 0, 0, 610, True, id="ten minutes"),
        pytest.param(STOPPED, 3, 1, 29, False, id="short steps, and some seconds at least"),
        pytest.param(STOPPED, 3, 1, 31, True, id="short steps"),
        pytest.param(STOPPED, 3, 10, 190, False, id="within twenty steps"),
        pytest.param(STOPPED, 3, 10, 210, True, id="beyond twenty steps"),
        pytest.param(STOPPED, 3, 100, 610, True, id="long steps, ten minutes at most"),
        pytest.param(DEBUGGED, 3, 1, 3590, False, id="somebody looks at it"),
        pytest.param(DEBUGGED, 3, 1, 3610, True, id="for too long"),
    ],
)
def test_rank_that_a_signal_has_stopped_is_waited_for_as_long_as_steps_take(
    kind: str, steps: int, step_seconds: float, seconds: float, ends: bool
) -> None:
    world = begin_training(stall_timeout_seconds=3600, is_stall_timeout_default=True)
    report_steps(world, range(1, steps + 1), after=step_seconds)
    world.now += seconds
    send_notice(world, kind, "w-1", rank=3, seconds=float(seconds), period=15.0)
    assert ends_at_once(world) is ends


@pytest.mark.parametrize(
    ("ranks", "seconds", "ends"),
    [
        pytest.param(4, 1.5, False, id="for a moment"),
        pytest.param(4, 2.5, True, id="no step is lost"),
        pytest.param(3, 2.5, False, id="one rank keeps nothing"),
    ],
)
def test_stopped_rank_of_a_kept_state_is_waited_for_briefly(
    ranks: int, seconds: float, ends: bool
) -> None:
    world = begin_training(stall_timeout_seconds=3600, is_stall_timeout_default=True)
    report_steps(world, (1, 2, 3), after=0.05)
    keep_state(world, ranks=ranks)
    world.now += seconds
    send_notice(world, STOPPED, "w-1", rank=3, seconds=seconds, period=1.0)
    assert ends_at_once(world) is ends


def test_attempt_knows_how_long_steps_take_before_it_has_made_some() -> None:
    world = begin_training(stall_timeout_seconds=3600, is_stall_timeout_default=True)
    report_steps(world, (1, 2, 3), after=0.05)
    lose_worker(world)
    world.end_launcher(1)
    launch_again(world)
    keep_state(world)
    world.effects.clear()
    send_notice(world, STOPPED, "w-1", rank=3, seconds=4.0, period=1.0)
    assert ends_at_once(world)


def test_stop_that_continues_is_not_held_back_as_lines_of_output_are() -> None:
    """The next report of those comes five seconds later: a script could write them without end."""
    world = begin_training(stall_timeout_seconds=3600, is_stall_timeout_default=True)
    report_steps(world, (1, 2, 3), after=0.05)
    keep_state(world)
    began = world.now

    def tell(seconds: float) -> None:
        world.now = began + seconds
        send_notice(world, STOPPED, "w-1", rank=3, seconds=seconds, period=1.0)
        world.fire()

    tell(1.0)
    tell(2.0)
    tell(3.0)
    world.settle(until=EndLauncher)
    assert world.now - began < 4


def test_rank_that_is_named_each_second_ends_the_attempt_in_time() -> None:
    """With HOROVOD_STALL_CHECK_TIME_SECONDS=1, names come more often than the log has them."""
    world = begin_training(stall_timeout_seconds=30)

    def name_for(seconds: int) -> None:
        for _ in range(seconds):
            miss(world, 3, seconds=1.0)
            wait_in_launch(world, 1.0)
            world.answer_all()

    name_for(28)
    assert not world.of(EndLauncher)
    name_for(6)
    assert world.of(EndLauncher)
    assert len(named_stalls(world)) == 1


def test_stall_that_lasts_ends_the_attempt_after_its_stacks() -> None:
    world = stalled()
    assert not world.of(EndLauncher)
    world.settle(until=EndLauncher)
    problem = end_with(world, 0)
    assert "rank 3 on w-1 is stopped" in problem, "whatever its handlers make of the end"


def test_launcher_that_does_not_end_is_killed() -> None:
    world = stalled()
    world.settle(until=EndLauncher)
    assert world.state.timers[TimerKind.KILL] == pytest.approx(
        world.now + LAUNCHER_GRACE_PERIOD_SECONDS, abs=0.1
    )
    world.answers.clear()
    world.fire()
    assert world.of(EndLauncher)[-1].kills


def test_ranks_stall_when_none_of_them_computes() -> None:
    world = begin_training(stall_timeout_seconds=100)
    send_notices(world, IDLE, range(4), seconds=101.0, period=15.0)
    world.settle(until=EndLauncher)
    assert [effect.ranks for effect in world.of(ShowStacks)] == [{"w-0": [0, 1], "w-1": [2, 3]}]
    assert "rank 2 on w-1 uses no CPU for 101 s" in end_with(world, 143)


@pytest.mark.parametrize(
    ("first", "pause"), [((0, 1), 0), ((0, 1, 2), 60)], ids=["one computes", "one did until now"]
)
def test_ranks_do_not_stall_while_one_of_them_computes(first: tuple[int, ...], pause: int) -> None:
    """It may be what the others wait for, for as long as it likes."""
    world = begin_training(stall_timeout_seconds=100)
    send_notices(world, IDLE, first, seconds=101.0, period=15.0)
    world.now += pause
    send_notices(world, IDLE, [3], seconds=101.0, period=15.0)
    assert TimerKind.STALLS not in world.state.timers


@pytest.mark.parametrize(("idle", "times_named"), [(28.0, 0), (70.0, 2)])
def test_pauses_of_all_ranks_do_not_add_up(idle: float, times_named: int) -> None:
    """Such as those of a training that waits for its data; each stall names all ranks."""
    world = begin_training(stall_timeout_seconds=100)

    def pause() -> None:
        world.now += idle + 6.0
        send_notices(world, IDLE, range(4), seconds=idle, period=15.0)
        world.answer_all()
        name_stalls(world)

    pause()
    pause()
    named = named_stalls(world)
    assert len(named) == times_named
    assert all(f"rank {rank} on" in message for message in named for rank in range(4))
    assert not world.of(EndLauncher)


def test_ranks_that_there_are_not_are_not_kept() -> None:
    world = begin_training()
    miss(world, *range(3, 50))
    assert world.state.attempt.launch
    assert [*world.state.attempt.launch.stalls.new] == [3]


def test_stalls_that_are_new_all_the_time_are_reported_now_and_then() -> None:
    world = begin_training()

    def begin_anew(times: int) -> None:
        for _ in range(times):
            miss(world, 3, seconds=60.0)
            wait_in_launch(world, 0.2)
            miss(world, 3, seconds=1.0)
            wait_in_launch(world, 0.2)

    begin_anew(150)
    assert len(named_stalls(world)) <= 13, "in one minute"


def test_rank_that_does_not_end_after_another_one_is_named_with_its_stack() -> None:
    world = begin_training(stall_timeout_seconds=600)
    send_notice(world, FINISHED, "w-0", rank=0)
    wait_in_launch(world, NAMING_DELAY_SECONDS + 1)
    send_notices(world, FINISHED, (1, 2))
    wait_in_launch(world, NAMING_DELAY_SECONDS)
    (message,) = named_stalls(world)
    assert "rank 0 on w-0" in message
    assert "rank 3 on w-1" in message
    shown = next(iter(world.of(ShowStacks)))
    assert dict(shown.ranks)["w-1"] == [2, 3]
    assert not world.of(EndLauncher)


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
def test_rank_that_outlives_the_others_ends_the_attempt_at_the_limit(
    limit: int, seconds: float, ends: bool
) -> None:
    world = begin_training(stall_timeout_seconds=limit)
    send_notice(world, FINISHED, "w-0", rank=0)
    wait_in_launch(world, seconds)
    assert bool(world.of(EndLauncher)) is ends
    problem = end_with(world, 143)
    assert ("rank 0 on w-0 " in problem) is ends


def test_ranks_that_make_steps_may_continue_after_another_one() -> None:
    """Each may have work of its own."""
    world = begin_training(stall_timeout_seconds=100)
    send_notice(world, FINISHED, "w-0", rank=0)

    def make_step(number: int) -> None:
        report_step(world, number)
        wait_in_launch(world, 50)

    make_step(1)
    make_step(2)
    make_step(3)
    assert not world.of(EndLauncher)
    wait_in_launch(world, 101)
    assert world.of(EndLauncher)


def test_ranks_that_have_left_do_not_hide_that_no_other_computes() -> None:
    world = begin_training(stall_timeout_seconds=100)
    send_notice(world, FINISHED, "w-0", rank=0)
    send_notices(world, IDLE, (1, 2, 3), seconds=101.0, period=15.0)
    world.settle(until=EndLauncher)
    assert "for 101 s" in end_with(world, 143)


@pytest.mark.parametrize("kind", [FINISHED, ENDED])
def test_command_may_launch_ranks_as_often_as_it_likes(kind: str) -> None:
    """Such as hvdchart.launch, whose calls may also have nothing to do for hours."""
    world = begin_training(mode="custom", stall_timeout_seconds=100)
    send_notices(world, kind, range(4))
    wait_in_launch(world, 1000)
    send_notice(world, IDLE, "w-0", rank=1, seconds=101.0, period=15.0)
    wait_in_launch(world, 10)
    assert not named_stalls(world)
    assert not world.of(EndLauncher)
    assert "exit code 0" not in end_with(world, 1, CAUSE)
