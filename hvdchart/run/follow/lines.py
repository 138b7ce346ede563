"""What of the pods' lines a person reads: which rank or pod they are of, without noise. Pure.

Launchers put boxes around each error, whose cause the master says in one line, TensorFlow tells in
each rank how it computes, and an agent logs each connection. Such lines are left out; `--raw`
shows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from hvd_pods.common.launcher_output import HYDRA_REPORT, REPORT, TENSORFLOW_NOTES
from hvdchart.run.follow.logs import LogLine
from hvdchart.run.state.newest import NewestRun
from hvdchart.run.state.ranks import split_line
from hvdchart.text import plain_line

# A line of dashes begins a box, if one of these lines follows; the next such line ends it.
_EDGE = re.compile(r"-{60,}$")
_BOX = re.compile(
    rf"{REPORT}|An MPI communication peer process has unexpectedly disconnected"
    r"|A system call failed during shared memory"
)
_HYDRA = re.compile(rf"=   (?:{HYDRA_REPORT}|RANK \d+ PID|KILLED BY|EXIT CODE|CLEANING UP|YOU CAN)")
# No box of a launcher has more lines.
_MOST_LINES = 20
_NOTES = re.compile(
    rf"{TENSORFLOW_NOTES}|To enable the following instructions: "
    r"|Unable to register cu(?:FFT|DNN|BLAS) factory|computation placer already registered"
    r"|failed call to cuInit: |Could not find cuda drivers on your machine"
    r"|Failed call to cudaGetRuntimeVersion"
)
_LEFT_OUT = "lines of the launcher, the agents and TensorFlow are left out: --raw shows them"
# What an agent logs about each connection, for who looks after the cluster (worker/agent.py).
_CONNECTION = re.compile(r"\[hvd \S+\] agent connection from \S+: fence number ")
T = TypeVar("T")


class WithoutNoise(Generic[T]):
    """Leaves out the noise in the lines of one rank, one pod or one launcher."""

    def __init__(self) -> None:
        # A line of dashes that may begin a box, and how many lines more the present box may have.
        self._held: list[T] = []
        self._left = 0
        self.has_left_out = False

    def take(self, text: str, item: T) -> list[T]:
        """What is to be shown now that the next line is `text`, which `item` stands for."""
        is_edge = bool(_EDGE.match(text))
        if self._left:
            self._left = 0 if is_edge else self._left - 1
            return []
        if self._held and _BOX.match(text):
            self._held = []
            self._left = _MOST_LINES
            self.has_left_out = True
            return []
        shown = self.end()
        if is_edge:
            self._held = [item]
        elif _HYDRA.match(text) or _NOTES.search(text) or _CONNECTION.match(text):
            self.has_left_out = True
        else:
            shown.append(item)
        return shown

    def end(self) -> list[T]:
        """What is still to be shown when no line follows."""
        shown = self._held
        self._held = []
        return shown


def readable_lines(
    lines: Iterable[LogLine],
    run: NewestRun,
    report: Callable[[str], object] = lambda text: None,
) -> Iterator[LogLine]:
    """The lines without noise, each with its rank where that is known, or its pod's short name.

    Those of the master have no name. What the chart's own programs say has the words of the run's
    user, and `report` gets a remark when the first line is left out.
    """
    # By pod and rank.
    filters: dict[tuple[str, int | None], WithoutNoise[LogLine]] = {}
    is_reported = False
    for line in lines:
        rank, text = split_line(line.text)
        name = _short(line.pod, run.release.name) if rank is None else str(rank)
        shown = LogLine(name, run.rephrase(text) if text.startswith("[hvd") else text)
        own = filters.setdefault((line.pod, rank), WithoutNoise())
        yield from own.take(text, shown)
        if own.has_left_out and not is_reported:
            report(_LEFT_OUT)
            is_reported = True
    for own in filters.values():
        yield from own.end()


def plain_lines(lines: Iterable[str], run: NewestRun, rank: int | None = None) -> list[str]:
    """The lines of a master's log as plain text, without noise: `[1] loss 0.5` of rank 1.

    Those of a `rank` alone, if it has any.
    """
    master = f"{run.release.name}-master"
    readable = list(readable_lines((LogLine(master, line) for line in lines), run))
    shown = [line for line in readable if line.pod == str(rank)] or readable
    return [f"[{line.pod}] " * bool(line.pod) + plain_line(line.text) for line in shown]


def _short(pod: str, release: str) -> str:
    """worker-0 of train-worker-0; empty for a master."""
    name = pod.removeprefix(f"{release}-")
    return "" if re.match("master(-|$)", name) else name
