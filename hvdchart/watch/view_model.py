"""The view of a run at one moment: plain data, the same for each format.

All texts in it are untrusted, but have no control characters for a terminal. Times are in seconds
since 1970. An unknown value is None or empty, and is not shown.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from hvd_pods.shared.run_events import Kind
from hvdchart.run.state.progress import Progress
from hvdchart.run.state.stalls import Stall
from hvdchart.run.state.status import State

Period: TypeAlias = Literal["waiting", "training", "lost", "ending"]


@dataclass(frozen=True)
class Row:
    """A rank, or a pod without ranks such as the master, whose `rank` is None.

    CPU, memory and GPUs are the pod's, in the row of its first rank. `gpu_shares` are the lowest
    and the highest utilization of its GPUs, from 0 to 1. `gpu_memory` are the bytes of the fullest
    one: used, and in all. `state` is one word.
    """

    rank: int | None
    pod: str
    node: str
    state: str
    step: int | None = None
    rate: float | None = None
    cpus: float | None = None
    memory: int | None = None
    gpu_shares: tuple[float, float] | None = None
    gpu_memory: tuple[int, int] | None = None


@dataclass(frozen=True)
class Mark:
    """An event of the run: its time, its kind, and a text."""

    at: float
    kind: Kind
    text: str


@dataclass(frozen=True)
class Span:
    """A period of the time line, and its attempt (0 before the first one)."""

    begin: float
    end: float
    period: Period
    attempt: int


@dataclass(frozen=True)
class View:
    """A run at the moment `now`.

    `losses` are pairs of step and loss. `rows` are those of the first ranks, and `more_rows` is the
    number of further ones. `usage_problem` says why CPU and memory are unknown.
    """

    name: str
    namespace: str
    state: State
    reason: str
    remedy: str
    now: float
    started: float | None
    ended: float | None
    attempt: int
    attempts: int
    workers_ready: int
    workers_wanted: int
    progress: Progress | None
    losses: tuple[tuple[int, float], ...]
    rows: tuple[Row, ...]
    more_rows: int
    marks: tuple[Mark, ...]
    spans: tuple[Span, ...]
    stall: Stall | None
    log: tuple[str, ...]
    usage_problem: str = ""

    @property
    def over(self) -> bool:
        """Whether the run is over, so that the view does not change."""
        return self.state in ("finished", "failed", "not found")

    @property
    def seconds(self) -> float | None:
        """Return the duration of the run, until its end or now; None if unknown."""
        if self.started is None:
            return None
        return max(0.0, (self.ended or self.now) - self.started)

    def document(self) -> dict[str, Any]:
        """Return the view as plain data, for JSON."""
        return {**asdict(self), "over": self.over, "seconds": self.seconds}
