"""Trainings measured in short turns, so that what drifts in a machine meets all of them alike.

All of them are started at once and wait; then each takes a few steps, one after the other, again
and again. A machine that is 20 % slower for a minute is so for each of them. What is compared are
the runs of one turn.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from devtools.images.build import build
from devtools.trials.sandbox import Sandbox, sandbox
from hvdchart.tune.grid import Measured, gain

TRAINER = (Path(__file__).parent / "trainer.py").read_text("utf-8")
Speeds = dict[str, list[float]]


@dataclass(frozen=True)
class Rival:
    """An image of versions.yaml, what it is built with, and what its training is given."""

    name: str
    image: str = "cpu"
    overrides: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    policy: str = "float32"


@dataclass(frozen=True)
class Work:
    """What each turn consists of."""

    model: str
    batch_size: int
    steps: int


def measure(rivals: Sequence[Rival], work: Work, turns: int) -> Speeds:
    """Images/s of each rival, one figure a turn; the order changes from turn to turn."""
    speeds: Speeds = {rival.name: [] for rival in rivals}
    with ExitStack() as stack:
        running = {rival.name: _start(rival, work, stack) for rival in rivals}
        for turn in range(turns):
            ahead = turn % len(rivals)
            for rival in (*rivals[ahead:], *rivals[:ahead]):
                speeds[rival.name].append(float(_ask(running[rival.name])))
            print(f"turn {turn + 1}: {', '.join(f'{s[-1]:.2f}' for s in speeds.values())}")
    return speeds


def _start(rival: Rival, work: Work, stack: ExitStack) -> subprocess.Popen[str]:
    built = build(rival.image, overrides=rival.overrides)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hvd-bench-")))
    inside: Sandbox = stack.enter_context(sandbox(built, folder / "output"))
    words = ["--model", work.model, "--batch-size", str(work.batch_size)]
    words += ["--steps", str(work.steps), "--policy", rival.policy]
    process = inside.start("python3", "-c", TRAINER, *words, **rival.environment)
    # It ends when its input does, and before its root goes away.
    stack.callback(process.communicate)
    assert process.stdout is not None
    said = process.stdout.readline().strip()
    if said != "ready":
        raise SystemExit(f"{rival.name} did not start: {said or 'see above'}")
    return process


def _ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return process.stdout.readline()


def compared(speeds: Speeds, own: str) -> dict[str, float]:
    """How much faster each is than `own`, as a share: as `hvdchart tune` judges its turns."""
    measured = {name: Measured({}, tuple(found), ()) for name, found in speeds.items()}
    return {name: gain(measured[own], found) for name, found in measured.items()}


def table(speeds: Speeds, own: str) -> str:
    """Median, spread and difference from `own`, a line for each."""
    width = max(map(len, speeds))
    shares = compared(speeds, own)
    lines = [f"{'':{width}}  median    min    max  against the first, by turns"]
    for name, found in speeds.items():
        figures = (statistics.median(found), min(found), max(found))
        lines.append(
            f"{name:{width}}  "
            + " ".join(f"{figure:6.2f}" for figure in figures)
            + f"  {shares[name]:+.1%}"
        )
    return "\n".join(lines)
