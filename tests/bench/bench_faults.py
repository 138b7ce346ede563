"""Measures what faults cost a training, and what its start costs, with this chart and with others.

python -m tests.bench.bench_faults [--only keep,waiting] [--parts start,each,storm]

Each contestant trains the same script on two ranks of the local cluster. `start`: the time from
the installation to the last rank's first allreduce. `each`: a step's time without faults, then each
fault once, each in a new run. `storm`: faults of all kinds at fixed times, in an order that follows
from the seed. At the end of each storm, all weights are compared, bit for bit, with those of an
undisturbed training. What is measured is added to build/bench-faults.json, so that contestants can
be measured one after another; the tables are made from all that the file has.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from devtools.common.repository import DOCS
from devtools.common.waiting import holds_within
from tests.bench import fault_figures as figures
from tests.bench.contestants import (
    NAME,
    Contestant,
    bench_namespace,
    chart_contestants,
    choose_contestants,
    in_turns,
)
from tests.bench.curves import draw_curves
from tests.bench.mpi_operator import Bare, MpiOperator, mpi_operator
from tests.bench.report import figures_file, measured_commit, publish_figures, write_section
from tests.bench.trainer import Trainer, trainer_controllers
from tests.faults import storm
from tests.faults.node import Pod
from tests.faults.training import SCRIPT, Training
from tests.support.controllers import running
from tests.support.namespace import Namespace

PICTURE = DOCS / "pictures" / "storm.svg"
# Each rank prints when it starts, when the frameworks are imported and when an allreduce is done.
FIRST = """
import sys, time
def report(stage):
    sys.stdout.write(f"AT {stage} {time.time():.3f}\\n")
report("rank")
import tensorflow as tf
import horovod.tensorflow as hvd
report("imported")
hvd.init()
hvd.allreduce(tf.ones(1))
report("allreduce")
"""


FAULTS: dict[str, storm.Fault] = {
    "rank killed": storm.kill_rank,
    "worker deleted": storm.delete_worker,
    "worker drained": partial(storm.drain_worker, rank=1),
    "network cut": storm.cut_network,
    "rank stopped": storm.stop_rank,
    "master deleted": storm.delete_master,
}
# Those that are over when what they took away is back, and the seconds until it is.
LASTING = ("network cut", "rank stopped")
LASTS = 30.0
# The steps of a training without faults, and of one that is told its end.
CALM_STEPS = 400
ENDLESS = 1_000_000
# How many steps ahead a training is told its last one.
AHEAD = 40


@dataclass
class Run(Training):
    """A training that a contestant runs."""

    contestant: Contestant = field(kw_only=True)

    def host(self, rank: int) -> Pod:
        name = self.newest(rank)["host"]
        return max(
            (
                pod
                for pod in self.namespace.get("pods")["items"]
                if name in (pod["metadata"]["name"], pod["spec"].get("hostname"))
            ),
            key=lambda pod: str(pod["metadata"]["creationTimestamp"]),
        )

    def master(self) -> str:
        return str(self.contestant.launcher()["metadata"]["name"])

    def who(self) -> tuple[str, ...]:
        """What names rank 1."""
        return (r"\brank 1\b", r"\brank\(s\) 1\b", re.escape(self.newest(1)["host"]))

    def finish_soon(self) -> bool:
        """Let the training end in a few steps; whether the weights are right then."""
        new = self.folder / "end.new"
        new.write_text(str(self.steps()[-1].step + AHEAD))
        new.rename(self.folder / "end")
        if not holds_within(lambda: self.lines("result"), figures.LIMIT):
            return False
        return bool(self.lines("result")[-1]["equal"])


@contextmanager
def training(contestant: Contestant, *options: str) -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="hvd-bench-") as name:
        run = Run(contestant.namespace, Path(name), print, NAME, contestant=contestant)
        (run.folder / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
        script = ("python3", f"/output/{SCRIPT.name}", "--steps", str(ENDLESS))
        try:
            contestant.prepare(run.folder)
            contestant.start((*script, *contestant.options, *options), run.folder)
            run.wait_for_step(storm.BETWEEN)
            yield run
        except AssertionError:
            print(contestant.reported(0))
            raise
        finally:
            contestant.remove()


def disturb(run: Run, name: str) -> figures.Outcome:
    """Make a fault, and wait until the run trains for a while with what the fault took away."""
    before = run.starts()
    at = time.time()
    back = float("inf")
    with FAULTS[name](run):
        holds_within(lambda: run.starts() - before, LASTS)
    if name in LASTING:
        back = time.time()

    def trains() -> bool:
        steps = [step for step in run.steps() if step.start not in before or step.at > back]
        return len(steps) >= storm.BETWEEN

    if not holds_within(trains, figures.LIMIT):
        return figures.Outcome(None, 0)
    return figures.longest_pause(run.steps(), at)


def measure_start(contestant: Contestant) -> dict[str, float]:
    """Start a run; the seconds to each stage, of the last rank."""
    contestant.prepare()
    began = time.time()
    contestant.start(("python3", "-c", FIRST))
    seconds = {"started": time.time() - began}
    contestant.wait_for_end()
    for stage, at in re.findall(r"AT (\w+) ([0-9.]+)", contestant.log()):
        seconds[stage] = max(seconds.get(stage, 0.0), float(at) - began)
    contestant.remove()
    return seconds


def measure_calm(contestant: Contestant) -> dict[str, Any]:
    """Train without faults and without pauses between the steps."""
    with training(contestant, "--seconds", "0") as run:
        pods = len(run.namespace.get("pods")["items"])
        run.wait_for_step(CALM_STEPS)
        steps = run.steps()[storm.BETWEEN : CALM_STEPS]
        equal = run.finish_soon()
    seconds = (steps[-1].at - steps[0].at) / (len(steps) - 1)
    return {"step": seconds, "pods": pods, "equal": equal}


def measure_fault(contestant: Contestant, name: str) -> figures.Outcome:
    with training(contestant) as run:
        run.wait_for_step(3 * storm.BETWEEN)
        who = run.who()
        at = time.time()
        if name == "master deleted":
            who = (re.escape(run.master()), r"\b(?:master|launcher)\b")
        outcome = disturb(run, name)
        reported = contestant.reported(at)
        outcome = outcome._replace(
            cause=figures.find_named_lines(reported, who, figures.NAMED_BY[name])
        )
        print(f"{contestant.name}: {name}: {outcome}", flush=True)
        if not outcome.cause:
            print("  reported: " + reported.replace("\n", "\n  ")[-3000:], flush=True)
    return outcome


def measure_storm(contestant: Contestant, options: argparse.Namespace) -> dict[str, Any]:
    """Faults at fixed times. One that is due while the run recovers comes when it has."""
    # The same faults for all: nothing here is a secret.
    order = random.Random(options.seed)  # noqa: S311
    tape: list[str] = []
    while len(tape) * options.every < options.seconds:
        tape += order.sample([*FAULTS], len(FAULTS))
    paused: list[tuple[str, figures.Outcome]] = []
    with training(contestant) as run:
        began = run.steps()[-1].at
        for number, name in enumerate(tape, 1):
            due = began + number * options.every
            if max(time.time(), due) >= began + options.seconds:
                break
            time.sleep(max(0.0, due - time.time()))
            paused.append((name, disturb(run, name)))
            print(f"{contestant.name}: {time.time() - began:.0f} s: {paused[-1]}", flush=True)
            if paused[-1][1].seconds is None:
                break
        time.sleep(max(0.0, began + options.seconds - time.time()))
        steps = [step for step in run.steps() if step.at >= began]
        equal = run.finish_soon()
    return {
        **figures.training_progress(steps, began, options.seconds),
        "faults": [(name, outcome.seconds, outcome.again) for name, outcome in paused],
        "equal": equal,
        "seconds": options.seconds,
        "every": options.every,
        "seed": options.seed,
    }


def everyone(namespace: Namespace) -> dict[str, Contestant]:
    waiting = "WaitForWorkersReady"
    return {
        **chart_contestants(namespace),
        "default": MpiOperator("MPI Operator, AtStartup", namespace),
        "waiting": MpiOperator(f"MPI Operator, {waiting}", namespace, policy=waiting),
        "policy": Trainer("Trainer, failure policy", namespace),
        "bare": Bare("mpirun in one pod", namespace),
    }


def about() -> dict[str, Any]:
    """What is measured, when, and how busy the machine is with this and other programs."""
    now = time.strftime("%F %T", time.gmtime())
    return {"commit": measured_commit(), "time": now, "load": os.getloadavg()[0]}


def measure(
    chosen: Mapping[str, Contestant], options: argparse.Namespace, measured: dict[str, Any]
) -> Iterator[None]:
    """Measure the parts, and yield after each figure that is added to what is measured."""
    for short, contestant in chosen.items():
        results = measured.setdefault(short, {})
        results |= {"name": contestant.name, "version": contestant.version}
        if "start" in options.parts:
            results["start"] = {**about(), "turns": []}
    for short in in_turns([*chosen], options.turns if "start" in options.parts else 0):
        measured[short]["start"]["turns"].append(measure_start(chosen[short]))
        print(short, measured[short]["start"]["turns"][-1], flush=True)
        yield
    for short, contestant in chosen.items():
        if "each" in options.parts:
            by_fault: dict[str, Any] = {**about(), "calm": measure_calm(contestant), "faults": {}}
            measured[short]["each"] = by_fault
            print(contestant.name, by_fault["calm"], flush=True)
            for name in FAULTS:
                by_fault["faults"][name] = measure_fault(contestant, name)._asdict()
                yield
        if "storm" in options.parts:
            measured[short]["storm"] = {**about(), **measure_storm(contestant, options)}
            yield


def main() -> None:
    """Measure, and publish the figures in docs/ and build/bench-faults.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="NAMES", help="chart,spare,keep,waiting,...")
    parser.add_argument("--parts", default="start,each,storm")
    parser.add_argument("--turns", type=int, default=5, help="of the start")
    parser.add_argument("--seconds", type=float, default=300.0, help="of a storm")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=32, help="of the order of the faults")
    options = parser.parse_args()
    # Whoever ends this leaves neither controllers nor webhooks behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    file = figures_file("bench-faults")
    measured = {}
    if file.exists():
        measured = json.loads(file.read_text())["contestants"]
    with bench_namespace() as namespace, ExitStack() as stack:
        contestants = everyone(namespace)
        chosen = choose_contestants(options.only, contestants)
        controllers = []
        if any(isinstance(contestant, MpiOperator) for contestant in chosen.values()):
            controllers.append(mpi_operator())
        if any(isinstance(contestant, Trainer) for contestant in chosen.values()):
            controllers += trainer_controllers()
        stack.enter_context(running(namespace, controllers))
        for _ in measure(chosen, options, measured):
            known = {short: measured[short] for short in contestants if short in measured}
            in_storm = figures.storm_table(known)
            start = figures.start_table(known)
            text = [figures.sources(known), start, figures.fault_tables(known), in_storm]
            turns = max(
                len(results.get("start", {}).get("turns", ())) for results in known.values()
            )
            if publish_figures(
                "bench-faults",
                "performance.md",
                turns,
                {"contestants": known},
                "\n\n".join(filter(None, text)),
            ):
                write_section("bench-faults", "comparison.md", figures.selection_table(known))
            storms = [results for results in known.values() if "curve" in results.get("storm", {})]
            if storms:
                curves = {results["name"]: results["storm"]["curve"] for results in storms}
                PICTURE.write_text(
                    draw_curves("Steps in a storm of faults", "steps that count", curves)
                )


if __name__ == "__main__":
    main()
