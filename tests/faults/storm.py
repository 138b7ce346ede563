"""Faults of each kind, one after another, in a training whose state is in its workers' memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from tests.faults.node import cut_off
from tests.faults.training import Training
from tests.waiting import wait_until

# Steps that an attempt makes before the next fault.
BETWEEN = 20
KEPT = ["python3", "train.py", "--keep", "--steps"]


def begin(training: Training, steps: int, **changes: object) -> None:
    """Start a run on two workers with a spare; it trains."""
    command = {"args": [*KEPT, str(steps)]}
    training.install(steps, worker={"spares": 1}, master=command, **changes)
    training.wait_for_step(BETWEEN)


@contextmanager
def recovering(training: Training) -> Iterator[None]:
    """Make a fault inside; returns when another attempt has trained for a while."""
    before = training.starts()
    yield
    wait_until(lambda: training.starts() > before, 180, "another attempt trains")
    training.wait_for_step(training.steps()[-1].step + BETWEEN)


def kill_rank(training: Training) -> None:
    """A rank is killed."""
    with recovering(training):
        training.rank(1).kill()


def delete_worker(training: Training) -> None:
    """A worker is deleted without grace."""
    with recovering(training):
        name = training.newest(1)["host"]
        training.namespace.kubectl("delete", "pod", name, "--grace-period=0", "--force")


def drain_worker(training: Training) -> None:
    """A worker is asked to end."""
    with recovering(training):
        name = training.newest(0)["host"]
        training.namespace.kubectl("delete", "pod", name, "--wait=false")


def kill_warm_process(training: Training) -> None:
    """The process is killed that the ranks are forks of, which go on."""
    name = training.newest(1)["host"]
    warm = training.process(int(name.rpartition("-")[2]), command="warm/server.py")
    for importing in warm.children():
        importing.kill()


def cut_network(training: Training) -> None:
    """The network of a worker is cut until another one has taken its place."""
    with recovering(training), cut_off(training.host(1)):
        before = training.starts()
        wait_until(lambda: training.starts() > before, 180, "a spare takes its place")


def delete_master(training: Training) -> None:
    """The master is deleted."""
    with recovering(training):
        training.namespace.kubectl("delete", "pod", training.master(), "--wait=false")


FAULTS: tuple[Callable[[Training], None], ...] = (
    kill_rank, delete_worker, drain_worker, kill_warm_process, cut_network, delete_master,
)  # fmt: skip


def finish(training: Training, since: float) -> dict[str, float]:
    """Wait for the end, and return what the faults since then have cost.

    All weights are those of a training that nothing has disturbed.
    """
    result = training.result(seconds=300)
    assert result["equal"], "the weights are not those of an undisturbed training"
    steps = training.steps()
    made_again = len(steps) - len({step.step for step in steps})
    pauses = {
        after.start: after.at - before.at
        for before, after in pairwise(steps)
        if after.start != before.start
    }
    elapsed = steps[-1].at - since
    return {
        "lost": made_again,
        "attempts": len(pauses) + 1,
        "next": round(max(pauses.values()), 1),
        "effective": round(1 - sum(pauses.values()) / elapsed, 4),
        "until": round(time.time() - since, 1),
    }
