"""Faults of each kind, one after another, in a training whose state is in its workers' memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from tests.faults.node import cut_off, pod_processes
from tests.faults.training import Training
from tests.waiting import wait_until

# Steps that an attempt makes before the next fault.
BETWEEN = 20
KEPT = ["python3", "train.py", "--keep", "--steps"]
# As docs/keep.md recommends it where the state is in memory.
LAUNCH = {"mode": "direct", "lostAfterSeconds": 2}
# More faults than a storm has: a rank that is killed counts as a failure.
MOST_FAULTS = 1000
# Each master records its events in a file of its own.
RECORDED = [{"name": "HOROVOD_EVENTS_FILE", "value": "/output/events-$(HVD_POD_IP).jsonl"}]
# The stages of a recovery, and the events of the master that may be the first to show each of them.
STAGES = {
    "seen": (
        *("HostGone", "HostProblem", "LauncherEnded", "NoticeTaken", "Terminated"),
        *("RecordChanged", "Started"),
    ),
    "launcher ended": ("LauncherEnded",),
    "launched": ("Delivered",),
}


def begin(training: Training, steps: int, **changes: object) -> None:
    """Start a run on two workers with a spare; it trains."""
    master = {"args": [*KEPT, str(steps)], "env": RECORDED, "backoffLimit": MOST_FAULTS}
    training.unwritten = 1
    training.install(steps, worker={"spares": 1}, master=master, launch=LAUNCH, **changes)
    training.wait_for_step(BETWEEN)


@contextmanager
def recovering(training: Training) -> Iterator[None]:
    """Make a fault inside; returns when another attempt has trained for a while."""
    before = training.starts()
    yield
    reached = training.steps()[-1].step
    wait_until(
        lambda: training.lines("result") or training.starts() > before,
        600,
        "another attempt trains",
    )
    training.wait_for_step(min(training.target, reached + BETWEEN))


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


def stages(training: Training, fault: float) -> dict[str, float]:
    """Seconds from the last fault to each stage of the recovery; none if the ranks went on."""
    steps = training.steps()
    before = [step for step in steps if step.at <= fault][-1]
    after = next((step for step in steps if step.at > fault and step.start != before.start), None)
    if after is None:
        return {}
    found = {"last step": max(step.at for step in steps if step.start == before.start)}
    recordings = [path.stem for path in training.folder.glob("events-*.jsonl")]
    lines = [line for name in recordings for line in training.lines(name) if "event" in line]
    for at, event in sorted((line["at"][1], line["event"]) for line in lines):
        for stage, shown_by in STAGES.items():
            if event in shown_by and fault < at < after.at:
                found.setdefault(stage, at)
    joined = [line["at"] for line in training.lines("ranks") if fault < line["at"] < after.at]
    found |= {"ranks joined": max(joined), "next step": after.at}
    return {stage: max(0.0, at - fault) for stage, at in found.items()}
