"""Measures the time from a fault to the next training step.

python -m tests.bench.bench_recover [--turns 5] [--only chart,waiting]

Faults: rank 1 is killed (SIGKILL), its worker is deleted without grace; each twice in a run of
two workers of one rank on the local cluster, in turns with Kubeflow's MPI Operator.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.bench_start import read_stamp
from tests.bench.contestants import Contestant, add_options, choose, contestants, in_turns
from tests.bench.report import Measured, Rows, add_turn, write_report
from tests.waiting import wait_until

# A line for each stage, with the time and what identifies the attempt; a checkpoint a second, and a
# report of the progress, as hvd_progress.py makes it.
SCRIPT = """
import os, signal, time
began = time.time()
import tensorflow as tf
import horovod.tensorflow as hvd
imported = time.time()
hvd.init()
lines = open(f"/output/rank-{hvd.rank()}", "a", buffering=1)
def report(stage, at, step=0):
    lines.write(f"{stage} {at:.3f} {began:.3f} {step}\\n")
report("rank", began)
report("imported", imported)
with open(f"/output/host-{hvd.rank()}", "w") as file:
    file.write(os.uname().nodename)
saved, step = "/output/checkpoint", 0
if hvd.rank() == 0 and os.path.exists(saved):
    step = int(open(saved).read())
step = int(hvd.broadcast(tf.constant(step), 0))
written, metrics = time.time(), os.getenv("HVD_METRICS_DIR")
while True:
    hvd.allreduce(tf.ones(1), name="step")
    step += 1
    report("step", time.time(), step)
    if hvd.rank() == 0 and time.time() - written > 1:
        written = time.time()
        with open(saved + ".new", "w") as file:
            file.write(str(step))
        os.replace(saved + ".new", saved)
        if metrics:
            with open(metrics + "/.0", "w") as file:
                file.write(f"horovod_step {step}\\n")
            os.replace(metrics + "/.0", metrics + "/0")
    if hvd.rank() == 1 and os.path.exists("/output/kill"):
        os.unlink("/output/kill")
        report("fault", time.time())
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
"""
COMMAND = ("python3", "-c", SCRIPT)
KILLED, DELETED = "rank killed", "worker deleted"
ORDER = ("first", "second")
# What the chart's master logs at a stage.
LOGGED = {"launcher ended": r"\[hvd\] error", "launcher": r"\[hvd.*\] \$ (mpirun|horovodrun)"}
# Seconds: of training before a fault, so that its progress is known, and in which a run has to
# recover.
TRAINED, TIMEOUT = 5.0, 180.0


class Line(NamedTuple):
    """What a rank reported: the time, when its process began, and the number of the step."""

    stage: str
    at: float
    attempt: float
    step: int


class Recovery(NamedTuple):
    """Seconds from a fault: to each rank's stages, the last one's; the next step is `step`."""

    at: float
    stages: dict[str, float]


def read_lines(file: Path) -> list[Line]:
    """The complete lines that a rank has written so far."""
    text = file.read_text() if file.exists() else ""
    words = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
    return [Line(stage, float(at), float(began), int(step)) for stage, at, began, step in words]


class Training:
    """A run that writes to `output`, and the faults that are made in it."""

    def __init__(self, contestant: Contestant, output: Path) -> None:
        self.contestant, self.output = contestant, output

    def ranks(self) -> list[list[Line]]:
        """The lines of both ranks."""
        return [read_lines(self.output / f"rank-{rank}") for rank in range(2)]

    def wait_until_trained(self, since: float) -> None:
        """Wait until both ranks have trained for some seconds without a break."""

        def trained() -> bool:
            steps = [[line for line in lines if line.stage == "step"] for lines in self.ranks()]
            return all(
                of and of[-1].at > since
                and of[-1].at - min(line.at for line in of if line.attempt == of[-1].attempt)
                > TRAINED
                for of in steps
            )  # fmt: skip

        self._wait_until(trained, "it trains")

    def make_fault(self, kind: str) -> float:
        """Make a fault; when it happened."""
        if kind == DELETED:
            # With a spare, the ranks need not be on the first workers.
            pod = (self.output / "host-1").read_text()
            at = time.time()
            self.contestant.delete_worker(pod)
            return at
        before = time.time()
        (self.output / "kill").touch()

        def fault() -> list[Line]:
            lines = read_lines(self.output / "rank-1")
            return [line for line in lines if line.stage == "fault" and line.at > before]

        self._wait_until(fault, "rank 1 is killed")
        return fault()[0].at

    def recover(self, kind: str) -> Recovery:
        """Make a fault and wait until both ranks of the next attempt train."""
        at = self.make_fault(kind)

        def next_steps() -> dict[str, float]:
            last: dict[str, float] = {}
            for lines in self.ranks():
                own = {line.stage: line.at for line in reversed(lines) if line.attempt > at}
                if "step" not in own:
                    return {}
                for stage, when in own.items():
                    last[stage] = max(last.get(stage, 0.0), when - at)
            return last

        self._wait_until(next_steps, "it recovers")
        return Recovery(at, next_steps())

    def _wait_until(self, condition: Callable[[], object], what: str) -> None:
        try:
            wait_until(condition, TIMEOUT, what)
        except AssertionError:
            print(self.contestant.log())
            raise


@contextmanager
def running(contestant: Contestant) -> Iterator[Training]:
    """A run of the contestant that trains, until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="hvd-bench-") as name:
        output = Path(name)
        # The pods' user is another one.
        output.chmod(0o777)
        try:
            contestant.start(COMMAND, output)
            training = Training(contestant, output)
            training.wait_until_trained(0)
            yield training
        finally:
            contestant.remove()


def launches(log: str, recovery: Recovery) -> dict[str, float]:
    """Seconds from a fault to the next stages that the chart's master logs; others log none."""
    found: dict[str, float] = {}
    for line in log.splitlines():
        stamp, _, text = line.partition(" ")
        for stage, pattern in LOGGED.items():
            if re.search(pattern, text) and (after := read_stamp(stamp) - recovery.at) > 0:
                found.setdefault(stage, after)
    return found


def measure(contestant: Contestant, kind: str) -> list[dict[str, float]]:
    """The seconds from each of two faults to the stages of recovery."""
    recoveries: list[Recovery] = []
    with running(contestant) as training:
        for _ in ORDER:
            recoveries.append(training.recover(kind))
            training.wait_until_trained(recoveries[-1].at)
        log = contestant.log()
    return [{**launches(log, each), **each.stages} for each in recoveries]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    options = parser.parse_args()
    with contestants() as everyone:
        # What preload changes is the launch alone, which bench_start measures.
        everyone.pop("cold")
        chosen = [*choose(options.only, everyone).values()]
        measured: Measured = {}
        for contestant in in_turns(chosen, options.turns):
            for kind in (KILLED, DELETED):
                both = measure(contestant, kind)
                for order, stages in zip(ORDER, both, strict=True):
                    add_turn(measured, f"{contestant.name}: {kind}, {order} time", stages)
    write_report("bench-recover", tables(measured), measured, options.turns)


def tables(measured: Measured) -> dict[str, Rows]:
    """The figures by title, the most important ones first."""
    total = {name: [each["step"] for each in turns] for name, turns in sorted(measured.items())}
    warm = {
        name: [each["step"] - each["launcher"] for each in turns]
        for name, turns in measured.items()
        if KILLED in name and all("launcher" in each for each in turns)
    }
    titles = {"From a fault to the next training step, s": total}
    if warm:
        titles["The launcher's start to the first step on warm workers, s"] = warm
    return {**titles}


if __name__ == "__main__":
    main()
