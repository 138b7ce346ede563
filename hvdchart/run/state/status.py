"""What is said of a run: its state, the reason, what to do, its pods. Plain data."""

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

    `node` and `problem` are empty for a pod without a node, and without a problem.
    """

    name: str
    state: str
    node: str
    restarts: int
    problem: str


@dataclass(frozen=True)
class Status:
    """A run: its state, the reason for it and what to do (`remedy`); texts may be empty.

    Workers are as many as the ranks need, whichever pods these are; further ones are spares.
    `attempt` counts from 1 and `attempts` is how many are allowed; both are 0 without a Job.
    `progress` is what the script has reported, None before it does; `stall` is the rank that the
    others wait for now. `failed_rank` is the one that has ended the run, where its lines in the log
    are known. `started` and `ended` are in RFC 3339, and empty where they are not known.
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
    # What is wrong with a run that goes on, or has finished.
    warning: str = ""
    # Whether its master cannot start before somebody does something: nothing else ends the run.
    is_stuck: bool = False
    # Whether the command `run` has made it.
    is_of_script: bool = False
    stall: Stall | None = None
    failed_rank: int | None = None
    started: str = ""
    ended: str = ""

    def seconds(self, now: float) -> float | None:
        """How long the run has lasted, until its end or `now`; None where that is not known."""
        began = seconds_of(self.started)
        until = seconds_of(self.ended) if self.over else now
        return max(0.0, until - began) if began and until else None

    @property
    def workers_left(self) -> bool:
        """Whether workers are there for which no run is under way."""
        return not (self.job and not self.over) and self.workers_wanted + self.spares_wanted > 0

    @property
    def lacks_master(self) -> bool:
        """Whether nothing in the cluster ends the workers: their run has no Job, and no end."""
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
        """The status as plain data, for JSON."""
        return asdict(self)
