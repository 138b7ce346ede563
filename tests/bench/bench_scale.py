"""Measures what a second rank of a machine costs: python -m tests.bench.bench_scale [--turns 18]

ResNet-50 in the examples' image on two ranks that are bound to a CPU each: with MPI and with Gloo,
with the variables that the chart sets for them, and without averaging. CPUs that share a core,
memory or power slow each other without any communication: the last case shows by how much. All of
them run all the time and make one step in turns; the others are stopped meanwhile. Needs root,
Buildah and an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from devtools.docs_gen.generated import table
from devtools.images.build import build
from devtools.trials.sandbox import (
    TWO_RANKS,
    TWO_RANKS_OVER_GLOO,
    Sandbox,
    launch_ranks,
    sandbox,
)
from hvd_pods.common.fusion import BY_RANKS, choose
from tests.bench import interleaved_training
from tests.bench.contestants import in_turns
from tests.bench.report import as_share, publish, verdict

NETWORK, BATCH, SIZE = "resnet50", 4, 160
APART = "without averaging"
GOALS = {"MPI": 0.97, "Gloo": 0.93}
# Gloo's own 30 s would be over when ranks go on that were stopped.
GLOO = (*TWO_RANKS_OVER_GLOO, "--gloo-timeout-seconds", "3600")
# The launchers' command lines and the variables of the chart.
LAUNCHES = {
    "MPI": (TWO_RANKS, choose(2, {BY_RANKS: "1"})),
    "Gloo": (GLOO, choose(2, {BY_RANKS: "1", "HOROVOD_CPU_OPERATIONS": "GLOO"})),
}
Figures = dict[str, list[float]]


@contextmanager
def everyone(inside: Sandbox) -> Iterator[interleaved_training.Parties]:
    """The ranks of all cases, ready, alike and bound to a CPU each."""
    with ExitStack() as stack:
        meeting = stack.enter_context(interleaved_training.Meeting(inside.folder))
        processes: list[tuple[str, subprocess.Popen[str]]] = []

        def check() -> None:
            for case, process in processes:
                if process.poll() is not None:
                    raise SystemExit(f"{case}: the training ended with {process.returncode}")

        single: tuple[tuple[str, ...], dict[str, str]] = (launch_ranks(1), {})
        for case, (launch, chosen) in [(APART, single), (APART, single), *LAUNCHES.items()]:
            words = interleaved_training.command(case, {NETWORK: (BATCH, SIZE)})
            variables = {**interleaved_training.ENVIRONMENT, **chosen}
            processes.append((case, inside.start(*launch, *words, **variables)))
        # They end when their connections do.
        for _, process in processes:
            stack.callback(process.wait, 60)
        stack.callback(meeting.close)
        parties = meeting.wait_for({APART: 2, **dict.fromkeys(LAUNCHES, 2)}, check)
        interleaved_training.refuse_unless_alike(parties)
        interleaved_training.pin(parties)
        yield parties


def measure(parties: interleaved_training.Parties, turns: int) -> Figures:
    """The seconds of a step, by case."""
    seconds: Figures = {case: [] for case in parties}
    for case in in_turns(tuple(parties), turns):
        seconds[case].append(interleaved_training.train(parties[case], NETWORK, 1))
    return seconds


def efficiencies(seconds: Mapping[str, Sequence[float]], case: str) -> list[float]:
    """The speed of a case as a share of that without averaging, turn by turn."""
    return [apart / own for apart, own in zip(seconds[APART], seconds[case], strict=True)]


def scale_table(seconds: Mapping[str, Sequence[float]]) -> str:
    """Speeds and efficiencies as a table of Markdown."""
    rows = []
    for case, each in seconds.items():
        speed = f"{2 * BATCH * len(each) / sum(each):.2f}"
        if case in GOALS:
            shares = efficiencies(seconds, case)
            goal = f"{GOALS[case]:.0%}: {verdict(shares, GOALS[case])}"
            rows.append((case, speed, as_share(shares), goal))
        else:
            rows.append((case, speed, "", ""))
    return table(("Two ranks", "images/s", "Efficiency", "Goal"), rows)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=18)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hvd-bench-") as folder,
        sandbox(build("examples"), Path(folder) / "output") as inside,
    ):
        shutil.copy(interleaved_training.SCRIPT, inside.folder)
        with everyone(inside) as parties:
            seconds = measure(parties, options.turns)
    publish("bench-scale", "scaling.md", options.turns, seconds, scale_table(seconds))


if __name__ == "__main__":
    main()
