"""Make the pods' lines readable: add the rank or pod of each, and leave out noise. Pure.

Noise is of three kinds. Launchers print boxes around each error; the master prints its cause in one
line. TensorFlow prints in each rank how it computes. An agent logs each connection. Such lines are
left out; `--raw` shows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from hvd_pods.shared.launcher_output import HYDRA_REPORT, REPORT, TENSORFLOW_NOTES
from hvdchart.run.follow.logs import LogLine
from hvdchart.run.state.newest import NewestRun
from hvdchart.run.state.ranks import split_line
from hvdchart.text import plain_line

# A line of dashes begins a box if one of these lines follows; the next such line ends it.
_EDGE = re.compile(r"-{60,}$")
_BOX = re.compile(
    rf"{REPORT}|An MPI communication peer process has unexpectedly disconnected"
    r"|A system call failed during shared memory"
)
_HYDRA = re.compile(rf"=   (?:{HYDRA_REPORT}|RANK \d+ PID|KILLED BY|EXIT CODE|CLEANING UP|YOU CAN)")
# The maximum number of lines in a launcher's box.
_MAX_BOX_LINES = 20
_FRAMEWORK_NOTES = re.compile(
    rf"{TENSORFLOW_NOTES}|To enable the following instructions: "
    r"|Unable to register cu(?:FFT|DNN|BLAS) factory|computation placer already registered"
    r"|failed call to cuInit: |Could not find cuda drivers on your machine"
    r"|Failed call to cudaGetRuntimeVersion"
)
_LEFT_OUT = "lines of the launcher, the agents and TensorFlow are left out: --raw shows them"
# The agent's log lines about each connection, for the administrator of the cluster
# (worker/agent_connections.py).
_CONNECTION = re.compile(r"\[hvd \S+\] agent connection from \S+: fence number ")
T = TypeVar("T")


class NoiseFilter(Generic[T]):
    """Filters the noise out of the lines of one rank, one pod or one launcher."""

    def __init__(self) -> None:
        # A line of dashes that may begin a box, and the maximum number of remaining lines in the
        # current box.
        self._held: list[T] = []
        self._left = 0
        self.has_left_out = False

    def take(self, text: str, item: T) -> list[T]:
        """Return the items to show after the next line, `text`, whose item is `item`."""
        is_edge = bool(_EDGE.match(text))
        if self._left:
            self._left = 0 if is_edge else self._left - 1
            return []
        if self._held and _BOX.match(text):
            self._held = []
            self._left = _MAX_BOX_LINES
            self.has_left_out = True
            return []
        shown = self.end()
        if is_edge:
            self._held = [item]
        elif _HYDRA.match(text) or _FRAMEWORK_NOTES.search(text) or _CONNECTION.match(text):
            self.has_left_out = True
        else:
            shown.append(item)
        return shown

    def end(self) -> list[T]:
        """Return the items to show after the last line."""
        shown = self._held
        self._held = []
        return shown


def readable_lines(
    lines: Iterable[LogLine],
    run: NewestRun,
    report: Callable[[str], object] = lambda text: None,
) -> Iterator[LogLine]:
    """Yield the lines without noise, each with its rank if known, or its pod's short name.

    The master's lines have no name. Lines of the chart's own programs are reworded for the run's
    user. `report` gets a remark when the first line is left out.
    """
    # By pod and rank.
    filters: dict[tuple[str, int | None], NoiseFilter[LogLine]] = {}
    is_reported = False
    for line in lines:
        rank, text = split_line(line.text)
        name = _short(line.pod, run.release.prefix) if rank is None else str(rank)
        shown = LogLine(name, run.rephrase(text) if text.startswith("[hvd") else text)
        filter_ = filters.setdefault((line.pod, rank), NoiseFilter())
        yield from filter_.take(text, shown)
        if filter_.has_left_out and not is_reported:
            report(_LEFT_OUT)
            is_reported = True
    for filter_ in filters.values():
        yield from filter_.end()


def plain_lines(lines: Iterable[str], run: NewestRun, rank: int | None = None) -> list[str]:
    """Yield the lines of a master's log as plain text, without noise: `[1] loss 0.5` of rank 1.

    With `rank`, only the lines of this rank, if it has any.
    """
    master = f"{run.release.prefix}-master"
    readable = list(readable_lines((LogLine(master, line) for line in lines), run))
    shown = [line for line in readable if line.pod == str(rank)] or readable
    return [f"[{line.pod}] " * bool(line.pod) + plain_line(line.text) for line in shown]


def _short(pod: str, prefix: str) -> str:
    """Return worker-0 for train-worker-0; return an empty text for a master."""
    name = pod.removeprefix(f"{prefix}-")
    return "" if re.match("master(-|$)", name) else name
