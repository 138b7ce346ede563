"""The status of a run: its state, the reason, what to do, its pods. Plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from hvdchart.run.state.progress import Progress
from hvdchart.run.state.stalls import Stall, seconds_of

State: TypeAlias = Literal[
    "not found",
    "suspended",
    "waiting",
    "running",
    "retrying",
    "finishing",
    "finished",
    "failed",
]


@dataclass(frozen=True)
class PodStatus:
    """One pod; `state` is the phase or waiting reason that `kubectl get pods` shows.

    `node` and `problem` are empty if there is none.
    """

    name: str
    state: str
    node: str
    restarts: int
    problem: str


@dataclass(frozen=True)
class Status:
    """A run: its state, the reason for it and what to do (`remedy`); texts may be empty.

    The number of workers is what the ranks need, in whichever pods; further pods are spares.
    `attempt` counts from 1, and `attempts` is the maximum; both are 0 without a Job. `progress` is
    the script's last report, None before the first one. `stall` is the rank that the others wait
    for now. `failed_rank` is the rank that ended the run, if its lines in the log are known.
    `started` and `ended` are in RFC 3339, and empty if unknown.
    """

    name: str
    state: State
    reason: str
    remedy: str
    job: str
    attempt: int
    attempts: int
    workers_ready: int
    workers_wanted: int
    spares_ready: int
    spares_wanted: int
    pods: tuple[PodStatus, ...]
    progress: Progress | None = None
    # The problem of a run that continues, or has finished.
    warning: str = ""
    # Whether its master cannot start until a user intervenes: nothing else ends the run.
    is_stuck: bool = False
    # Whether the command `run` created it.
    is_of_script: bool = False
    stall: Stall | None = None
    failed_rank: int | None = None
    started: str = ""
    ended: str = ""

    def seconds(self, now: float) -> float | None:
        """Return the duration of the run, until its end or `now`; None if unknown."""
        began = seconds_of(self.started)
        until = seconds_of(self.ended) if self.over else now
        return max(0.0, until - began) if began and until else None

    @property
    def workers_left(self) -> bool:
        """Whether there are workers without an active run."""
        return not (self.job and not self.over) and self.workers_wanted + self.spares_wanted > 0

    @property
    def lacks_master(self) -> bool:
        """Whether no component of the cluster ends the workers: the run has no Job, and no end."""
        return self.workers_left and not self.over

    @property
    def is_active(self) -> bool:
        """Whether the run has a Job that has not ended; a suspended one counts."""
        return bool(self.job) and not self.over

    @property
    def over(self) -> bool:
        """Whether the run has finished or failed."""
        return self.state in ("finished", "failed")

    def document(self) -> dict[str, Any]:
        """Return the status as plain data, for JSON."""
        return asdict(self)
