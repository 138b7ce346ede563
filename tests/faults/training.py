"""A training that a test disturbs, and what can be read off the files that it leaves."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import psutil

from devtools.common.waiting import wait_until
from tests.faults.node import Pod, find_process
from tests.support.namespace import Namespace, Values

SCRIPT = Path(__file__).with_name("train.py")
# Of the images that the training does not see.
ACCURACY = 0.88
# Ranks add up their shares in another order than one rank alone.
TOLERANCE = 1e-9
CHECKPOINT_EVERY = 10
# The steps of a training that is disturbed, and the one after which the fault comes: in the middle,
# and between two checkpoints.
TRAINING_STEPS = 120
FAULT_STEP = 45


class Step(NamedTuple):
    """A step that is done, when, and since when its rank runs, which tells attempts apart."""

    at: float
    step: int
    start: float


class Pause(NamedTuple):
    """The longest time without a step from a fault on, and how many steps were done twice."""

    seconds: float
    lost: int


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file of JSON, which may be written meanwhile, or not be there yet."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Place(NamedTuple):
    """Where a training runs and writes, and who gets what is measured."""

    namespace: Namespace
    folder: Path
    report: Callable[[dict[str, Any]], None]


@dataclass
class Training:
    """A release that trains tests/faults/train.py, with its output in a folder of this machine.

    `claimed`: the folder of the claim `output`, in which each release has its own. `report` gets
    what is measured. `unwritten`: how many steps may miss before an attempt, which rank 0 has made
    without writing its line, and another rank has kept.
    """

    namespace: Namespace
    claimed: Path
    report: Callable[[dict[str, Any]], None]
    release: str = "hvd"
    target: int = 0
    unwritten: int = 0
    scripts: ClassVar[tuple[Path, ...]] = (SCRIPT,)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.folder.chmod(0o777)

    @property
    def folder(self) -> Path:
        return self.claimed / self.release

    def values(self, steps: int, workers: int = 2, **changes: Any) -> Values:
        """Values of a run to `steps`; a key of `changes` is merged with what is there."""
        self.target = steps
        base: Values = {
            "worker": {"number": workers, "env": [{"name": "OUTPUT_PATH", "value": "/output"}]},
            "master": {"args": self.command(steps)},
            "code": {"files": {script.name: script.read_text() for script in self.scripts}},
            # The modules that the image names are imported before the ranks start.
            "launch": {"preload": None},
            "volumes": [{"name": "output", "persistentVolumeClaim": {"claimName": "output"}}],
            "volumeMounts": [{"name": "output", "mountPath": "/output", "subPath": self.release}],
            "cleanup": "Always",
        }
        for key, change in changes.items():
            base[key] = {**base.get(key, {}), **change} if isinstance(change, dict) else change
        return base

    def command(self, steps: int) -> list[str]:
        return ["python3", "train.py", "--steps", str(steps)]

    def install(self, steps: int, **changes: Any) -> None:
        self.namespace.install(self.release, self.values(steps, **changes))

    def run_to(self, step: int, steps: int, **changes: Any) -> float:
        """Start a run of `steps`, and wait until the step `step` is done; return the time."""
        self.install(steps, **changes)
        self.wait_for_step(step)
        return time.time()

    def upgrade(self, steps: int, **changes: Any) -> None:
        self.namespace.upgrade(self.release, self.values(steps, **changes))

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The complete lines of a file that the ranks write."""
        return read_lines(self.folder / f"{name}.jsonl")

    def steps(self) -> list[Step]:
        """The steps so far, in the order in which they were done."""
        return [Step(**line) for line in self.lines("steps")]

    def wait_for_step(self, number: int, seconds: float = 300) -> None:
        """Wait until this step, or a later one, is done. Raises AssertionError after `seconds`."""
        wait_until(
            lambda: any(step.step >= number for step in self.steps()), seconds, f"step {number}"
        )

    def worker(self, ordinal: int) -> Pod:
        return self.namespace.get("pod", f"{self.release}-worker-{ordinal}")

    def process(self, ordinal: int, number: int = 0, command: str = "") -> psutil.Process:
        """A process of a worker, by its number in the container or a part of its command line.

        Raises AssertionError when the worker has none.
        """
        return find_process(self.worker(ordinal), number, command)

    def master(self) -> str:
        """The name of the master's newest pod."""
        pods = self.namespace.master_pods(self.release)
        return str(
            max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])["metadata"]["name"]
        )

    def newest(self, rank: int) -> dict[str, Any]:
        """What a rank wrote when it began, in the attempt that is the newest."""
        return [line for line in self.lines("ranks") if line["rank"] == rank][-1]

    def host(self, rank: int) -> Pod:
        """The pod of the worker that a rank trains on: with spares, it may be any."""
        return self.namespace.get("pod", self.newest(rank)["host"])

    def rank(self, number: int) -> psutil.Process:
        """The process of a rank that trains, as this machine sees it."""
        return find_process(self.host(number), self.newest(number)["pid"])

    def pause_after(self, fault: float, until: float = math.inf) -> Pause:
        """What a fault cost.

        fault: when it was, in seconds since 1970. until: when another fault came after it.
        """
        steps = [step for step in self.steps() if fault - 60 < step.at <= until]
        before = [step for step in steps if step.at <= fault]
        following = [*before[-1:], *(step for step in steps if step.at > fault)]
        if not before:
            return Pause(following[0].at - fault, 0)
        last, first = max(pairwise(following), key=lambda pair: pair[1].at - pair[0].at)
        return Pause(first.at - max(fault, last.at), max(0, last.step - first.step + 1))

    def result(self, seconds: int = 480) -> dict[str, Any]:
        """Wait for the end, at which the target is reached; return what rank 0 wrote there."""
        end = self.wait_for_end(seconds)
        assert end == "Complete", self.namespace.describe(self.release)
        (result,) = self.lines("result")
        assert result["step"] == self.target
        self.assert_steps_are_in_order()
        return result

    def finish(self, fault: float, seconds: int = 480) -> Pause:
        """Wait for the end: the target is reached, with the weights of an undisturbed training."""
        result = self.result(seconds)
        assert result["accuracy"] > ACCURACY
        assert result["accuracy"] == result["undisturbed"]
        assert result["difference"] < TOLERANCE, "the weights are not those of all images"
        pause = self.pause_after(fault)
        self.tell(pause)
        return pause

    def tell(self, pause: Pause, **more: Any) -> None:
        """Report what a fault cost: not more steps than are between two checkpoints."""
        self.report({"next": round(pause.seconds, 1), "lost": pause.lost, **more})
        assert pause.lost <= CHECKPOINT_EVERY, "a checkpoint was lost"

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Make a fault in the block that ends the attempt.

        The attempt does not finish before, however slow the machine is. The end of the block waits
        until the next attempt trains.
        """
        stay = self.folder / "stay"
        stay.touch()
        yield
        wait_until(lambda: len(self.starts()) > 1, 480, "another attempt trains")
        stay.unlink()

    def starts(self) -> set[float]:
        """When the attempts that trained were started."""
        return {step.start for step in self.steps()}

    def wait_for_end(self, seconds: int) -> str:
        """Wait for the end of the run that is the release's now: Complete or Failed."""
        return self.namespace.wait_for_end(self.release, seconds)

    def assert_steps_are_in_order(self) -> None:
        """Each attempt begins after a step of the one before, and leaves none out."""
        steps = self.steps()
        for before, step in pairwise(steps):
            expected = before.step + 1
            if step.start == before.start:
                assert step.step == expected, f"steps {before} and {step} of one attempt"
            else:
                expected += self.unwritten
                assert step.step <= expected, f"a step was left out: {before}, {step}"
        assert steps[-1].step == self.target

    def end(self, began: float, seconds: int = 480) -> str:
        """Wait for the end of a run that cannot finish; return the reason that a person is told."""
        assert self.wait_for_end(seconds) == "Failed"
        seconds_to_end = round(time.time() - began, 1)
        (master,) = self.namespace.master_pods(self.release)
        reason = str(master["status"]["containerStatuses"][0]["state"]["terminated"]["message"])
        self.report({"end": seconds_to_end, "reason": reason.strip()})
        return reason.strip()
