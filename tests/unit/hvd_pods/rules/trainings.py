"""A training that a test drives: what ranks, workers and the launcher tell its master."""

from __future__ import annotations

from typing import Any

from hvd_pods.agent.banner import NoAnswer
from hvd_pods.common.notices import KEPT
from hvd_pods.common.run import Run
from hvd_pods.rules.effects import FindCause
from hvd_pods.rules.events import Cause, CauseFound, NoticeTaken, ProgressReported, WorkerProblem
from hvd_pods.rules.state import Activity
from tests.support.world import World, one_group

CAUSE = Cause("rank 1 on w-0: ", "TypeError: no", is_sure_to_repeat=True)


def training(run: Run | None = None, **changes: Any) -> World:
    world = World(run or one_group(lostAfterSeconds=15, **changes))
    world.train()
    world.answer_all()
    return world


def notice(world: World, kind: str, worker: str = "w-0", connection: int = 0, **more: Any) -> None:
    content = {"kind": kind, "worker": worker, "rank": 0, **more}
    world.put(NoticeTaken(world.state.attempt.number, content, connection))


def lose(world: World, worker: str = "w-1") -> None:
    world.put(
        WorkerProblem(world.state.attempt.number, worker, NoAnswer("port 2222 is closed"), 15.0)
    )


def judge(world: World) -> None:
    """Deliver answers until the master knows why the launcher has ended."""
    while world.state.activity == Activity.JUDGING:
        world.answer()


def end_with(world: World, code: int, cause: Cause | None = None) -> str:
    """Let the launcher end, and return why the attempt failed."""
    world.end_launcher(code)
    for number, (effect, _) in enumerate(world.answers):
        if isinstance(effect, FindCause):
            world.answers[number] = (effect, CauseFound(effect.attempt, cause))
    judge(world)
    return str(world.state.attempt.problem or "")


def report(world: World, step: int, **more: Any) -> None:
    progress = {"step": step, **more}
    world.put(ProgressReported(world.state.attempt.number, progress), 1.0)


def keep_state(world: World, *, ranks: int = 4) -> None:
    """Let so many of the four ranks keep their state in memory."""
    for rank in range(ranks):
        notice(world, KEPT, f"w-{rank // 2}", rank=rank)


def wait_in_launch(world: World, seconds: float) -> None:
    """Let the timers of these seconds come."""
    until = world.now + seconds
    while world.state.timers and min(world.state.timers.values()) <= until:
        world.fire()
    world.now = until
