"""Faults of each kind, one after another, in a training whose state is in its workers' memory.

Each fault is a context manager: what it takes away is back at the end of the block, if anything can
bring it back. Tests and benchmarks make them, also in trainings that others have started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import pairwise

import psutil

from devtools.common.waiting import wait_until
from tests.faults.node import cut_off, pod_processes
from tests.faults.training import Training

Fault = Callable[[Training], AbstractContextManager[None]]
# Steps that an attempt makes before the next fault.
BETWEEN = 20
KEPT = ["python3", "train.py", "--keep", "--steps"]
# As docs/keep.md recommends it where the state is in memory.
LAUNCH = {"mode": "direct"}
# More faults than a storm has: a rank that is killed counts as a failure.
MOST_FAULTS = 1000


def begin_run(training: Training, steps: int, **changes: object) -> None:
    """Start a run on two workers with a spare; it trains."""
    master = {"args": [*KEPT, str(steps)], "backoffLimit": MOST_FAULTS}
    training.unwritten = 1
    training.install(steps, worker={"spares": 1}, master=master, launch=LAUNCH, **changes)
    training.wait_for_step(BETWEEN)


def survive_fault(training: Training, fault: Fault) -> None:
    """Make a fault; returns when another attempt has trained for a while."""
    before = training.starts()
    with fault(training):
        wait_until(
            lambda: (
                fault is kill_warm_process or training.lines("result") or training.starts() > before
            ),
            600,
            "another attempt trains",
        )
    reached = training.steps()[-1].step
    training.wait_for_step(min(training.target, reached + BETWEEN))


@contextmanager
def kill_rank(training: Training) -> Iterator[None]:
    training.rank(1).kill()
    yield


def delete_pod_of(training: Training, rank: int, *options: str) -> None:
    name = training.host(rank)["metadata"]["name"]
    training.namespace.kubectl("delete", "pod", name, "--wait=false", *options)


@contextmanager
def delete_worker(training: Training) -> Iterator[None]:
    """A worker is deleted without grace."""
    delete_pod_of(training, 1, "--grace-period=0", "--force")
    yield


@contextmanager
def drain_worker(training: Training, rank: int = 0) -> Iterator[None]:
    """A worker is asked to end."""
    delete_pod_of(training, rank)
    yield


@contextmanager
def kill_warm_process(training: Training) -> Iterator[None]:
    """The process is killed that the ranks are forks of, which go on."""
    number = int(training.newest(1)["host"].rpartition("-")[2])

    def is_there() -> bool:
        return any(
            "warm/server.py" in " ".join(process.cmdline())
            for process in pod_processes(training.worker(number))
        )

    wait_until(is_there, 60, "a worker that has just been replaced has its warm process")
    warm = training.process(number, command="warm/server.py")
    for importing in warm.children():
        importing.kill()
    yield


@contextmanager
def cut_network(training: Training) -> Iterator[None]:
    with cut_off(training.host(1)):
        yield


@contextmanager
def stop_rank(training: Training) -> Iterator[None]:
    rank = training.rank(1)
    rank.suspend()
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            rank.resume()


@contextmanager
def delete_master(training: Training) -> Iterator[None]:
    training.namespace.kubectl("delete", "pod", training.master(), "--wait=false")
    yield


FAULTS: tuple[Fault, ...] = (
    kill_rank,
    delete_worker,
    drain_worker,
    kill_warm_process,
    cut_network,
    delete_master,
)


def finish_run(training: Training, since: float) -> dict[str, float]:
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
