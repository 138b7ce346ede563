"""What may happen to a run, chosen by a number."""

from __future__ import annotations

import random
from typing import Any

from hvd_pods.rules.events import (
    NoticeTaken,
    ProgressReported,
    WorkerAnswers,
    WorkerGone,
    WorkerProblem,
    WorkerReached,
)
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.notice_kinds import ASKED, ENDED, FAILED, LEAVING, RAISED, STOPPED
from tests.support.world import World, pod

NOTICES: list[dict[str, Any]] = [
    {"kind": RAISED, "text": "ValueError: no", "rank": 1},
    {"kind": FAILED, "status": -9, "rank": 1},
    {"kind": ASKED, "rank": 0},
    {"kind": ENDED, "rank": 0},
    {"kind": STOPPED, "rank": 1, "seconds": 100.0, "period": 60.0},
    {"kind": LEAVING, "rank": 0, "seconds": 30.0},
]


def happen_by(world: World, chance: random.Random, times: int) -> None:
    """Let something happen so many times, by chance."""
    for _ in range(times):
        put_random_event(world, chance.randrange(14 * 200))


def put_random_event(world: World, choice: int) -> None:
    """Let something happen that may happen now."""
    attempt = world.state.attempt.number
    workers = world.run.workers
    kind = choice % 14
    rest = choice // 14
    worker = workers[rest % len(workers)].name
    if (kind < 4 or kind > 9) and world.answers:
        world.answer(rest % len(world.answers))
    elif kind == 4 and world.answers:
        world.answer(rest % len(world.answers), is_usual=False)
    elif kind == 5 and world.is_running:
        world.end_launcher((0, 1, 137, 143)[rest % 4], float(rest % 200))
    elif kind == 6:
        world.put(
            WorkerProblem(attempt, worker, NoAnswer("closed"), float(rest % 100), rest % 7 == 0),
            0.5,
        )
    elif kind == 7:
        event = (
            WorkerGone(attempt, worker) if rest % 2 else WorkerAnswers(attempt, worker, pod(worker))
        )
        world.put(event, 0.5)
    elif kind == 8:
        notice: Any = {**NOTICES[rest % len(NOTICES)], "worker": worker}
        world.put(NoticeTaken(attempt, notice, rest % 3), 0.1)
    elif kind == 9:
        loss = "nan" if rest % 5 == 0 else 0.5
        world.put(ProgressReported(attempt, {"step": rest % 50, "loss": loss}), 1.0)
        world.put(WorkerReached(attempt))
    else:
        world.fire()
