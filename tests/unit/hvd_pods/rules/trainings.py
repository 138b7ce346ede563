"""A training that a test drives: what ranks, workers and the launcher tell its master."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hvd_pods.rules.effects import CreateJobEvent, FindCause, StartLauncher
from hvd_pods.rules.events import (
    Cause,
    CauseFound,
    Event,
    NoticeTaken,
    ProgressReported,
    WorkerProblem,
)
from hvd_pods.rules.run_state import Activity
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.notice_kinds import KEPT
from hvd_pods.shared.run import Run
from hvd_pods.shared.run_events import RunEvent
from tests.support.world import World, one_group

CAUSE = Cause("rank 1 on w-0: ", "TypeError: no", is_sure_to_repeat=True)


def begin_training(run: Run | None = None, **changes: Any) -> World:
    world = World(run or one_group(lost_after_seconds=15, **changes))
    world.train()
    world.answer_all()
    return world


def put_each(world: World, events: Iterable[Event]) -> None:
    """Let events happen one after the other."""
    for event in events:
        world.put(event)


def send_notice(
    world: World, kind: str, worker: str = "w-0", connection: int = 0, **more: Any
) -> None:
    content: Any = {"kind": kind, "worker": worker, "rank": 0, **more}
    world.put(NoticeTaken(world.state.attempt.number, content, connection))


def send_notices(world: World, kind: str, ranks: Iterable[int], **more: Any) -> None:
    """Let each of these ranks send a notice, of which a worker has two."""
    for rank in ranks:
        send_notice(world, kind, f"w-{rank // 2}", rank=rank, **more)


def lose_worker(world: World, worker: str = "w-1") -> None:
    world.put(
        WorkerProblem(world.state.attempt.number, worker, NoAnswer("port 2222 is closed"), 15.0)
    )


def find_cause_of_end(world: World) -> None:
    """Deliver answers until the master knows why the launcher has ended."""
    while world.state.activity == Activity.FINDING_CAUSE:
        world.answer()


def end_with(world: World, code: int, cause: Cause | None = None) -> str:
    """Let the launcher end, and return why the attempt failed."""
    world.end_launcher(code)
    for number, (effect, _) in enumerate(world.answers):
        if isinstance(effect, FindCause):
            world.answers[number] = (effect, CauseFound(effect.attempt, cause))
    find_cause_of_end(world)
    return str(world.state.attempt.problem or "")


def report_step(world: World, step: int, *, after: float = 1.0, **more: Any) -> None:
    progress = {"step": step, **more}
    world.put(ProgressReported(world.state.attempt.number, progress), after)


def report_steps(world: World, steps: Iterable[int], /, *, after: float = 1.0, **more: Any) -> None:
    """Report one step after the other, each `after` seconds."""
    for step in steps:
        report_step(world, step, after=after, **more)


def keep_state(world: World, *, ranks: int = 4) -> None:
    """Let so many of the four ranks keep their state in memory."""
    send_notices(world, KEPT, range(ranks))


def wait_in_launch(world: World, seconds: float) -> None:
    """Let the timers of these seconds come."""
    until = world.now + seconds
    while world.state.timers and min(world.state.timers.values()) <= until:
        world.fire()
    world.now = until


def go_on(world: World, is_over: Callable[[], object], most: int = 400) -> None:
    """Deliver answers, and let timers come where there are none, until a condition holds.

    Raises AssertionError when it does not hold after `most` of them.
    """
    for _ in range(most):
        if is_over():
            return
        if world.answers:
            world.answer()
        else:
            world.fire()
    raise AssertionError(f"no end: the master waits {world.state.activity.value}")


def launch_again(world: World) -> None:
    """Go on until the next attempt starts its launcher."""
    before = len(world.of(StartLauncher))
    go_on(world, lambda: len(world.of(StartLauncher)) > before)


def name_stalls(world: World) -> None:
    """Let the timers come until the master has named the ranks that stall."""
    while TimerKind.STALLS in world.state.timers:
        world.fire()


def named_stalls(world: World) -> list[str]:
    """The messages of the Events of stalls."""
    events = world.of(CreateJobEvent)
    return [event.message for event in events if event.event == RunEvent.STALLED]
