"""Measures trainings in short turns, so that a drift of the machine affects all of them equally.

All trainings are started at once and wait. Then they train in turns of a few steps. Speeds are
compared within a turn, as `hvdchart tune` does.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from devtools.images.build import build
from devtools.trials.sandbox import Sandbox, sandbox
from hvdchart.tune.grid import Measurement, benchmark_command, relative_gain
from tests.bench.report import print_figures

Speeds = dict[str, list[float]]
One = TypeVar("One")


@dataclass(frozen=True)
class Candidate:
    """An image of versions.yaml, its build's overrides, and the environment of its training."""

    name: str
    image: str = "cpu"
    overrides: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    policy: str = "float32"


@dataclass(frozen=True)
class Work:
    """What each turn trains."""

    model: str
    batch_size: int
    steps: int


def in_turns(chosen: Sequence[One], turns: int) -> Iterator[One]:
    """All items, `turns` times; each turn begins with the next item."""
    for number in range(turns):
        first = number % len(chosen)
        yield from (*chosen[first:], *chosen[:first])


def measure(candidates: Sequence[Candidate], work: Work, turns: int) -> Speeds:
    """Images/s of each candidate, one figure per turn; the order changes from turn to turn."""
    speeds: Speeds = {candidate.name: [] for candidate in candidates}
    with ExitStack() as stack:
        running = {candidate.name: _start(candidate, work, stack) for candidate in candidates}
        for number, candidate in enumerate(in_turns(candidates, turns), 1):
            speeds[candidate.name].append(_train(running[candidate.name]))
            if number % len(candidates) == 0:
                shown = ", ".join(f"{each[-1]:.2f}" for each in speeds.values())
                print(f"turn {number // len(candidates)}: {shown}")
    return speeds


def _start(candidate: Candidate, work: Work, stack: ExitStack) -> subprocess.Popen[str]:
    built = build(candidate.image, overrides=candidate.overrides)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hvd-bench-")))
    inside: Sandbox = stack.enter_context(sandbox(built, folder / "output"))
    command = benchmark_command(work.model, work.batch_size, work.steps)
    command += ["--turns", "--warm-up", "1", "--policy", candidate.policy]
    process = inside.start(*command, **candidate.environment)
    # It ends when its input does, and before its root file system is unmounted.
    stack.callback(process.communicate)
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if line != "ready":
        raise SystemExit(f"{candidate.name} did not start: {line or 'see above'}")
    return process


def _train(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def gains(speeds: Speeds, base: str) -> dict[str, float]:
    """How much faster each candidate is than `base` (0.1: 10 %)."""
    measured = {name: Measurement({}, tuple(each), ()) for name, each in speeds.items()}
    return {name: relative_gain(measured[base], each) for name, each in measured.items()}


def print_speeds(title: str, speeds: Speeds) -> None:
    """Print the speeds of each candidate, and its gain over the first one."""
    shares = gains(speeds, next(iter(speeds)))
    print_figures(
        f"{title}; images/s", speeds, gain={name: f"{share:+.1%}" for name, share in shares.items()}
    )
