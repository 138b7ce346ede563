"""The effects that the master's loop requests. Effects are data.

`decide` (rules/decide.py) turns an event (rules/events.py) and the state into effects, and
master/run_effects.py carries these out. The result of an effect is another event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Sequence

from hvd_pods.rules.events import Notice, RecordPurpose
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.run import Pod
from hvd_pods.shared.run_events import RunEvent

# Seconds for which a call before the training is repeated; the training starts without it.
START_RETRY_SECONDS = 10.0
# Seconds for which a call between two attempts is repeated, and the longest wait for its response.
RESTART_RETRY_SECONDS = 2.0


@dataclass(frozen=True)
class Effect:
    """An action to carry out."""


# Effects that report:


@dataclass(frozen=True)
class Log(Effect):
    """Print a line."""

    message: str


@dataclass(frozen=True)
class CreateJobEvent(Effect):
    """Create a Kubernetes event."""

    event: RunEvent
    message: str


@dataclass(frozen=True)
class ReportFailure(Effect):
    """Write why the run failed to the log and the termination message."""

    problem: RunError


# Effects on the record and the Job:


@dataclass(frozen=True)
class ReadRecord(Effect):
    """Read the record: RecordRead or RecordFailed follows."""


@dataclass(frozen=True)
class WriteRecord(Effect):
    """Write `data` to the record.

    The API server refuses a holder's write if another client has changed the record.

    RecordWritten, RecordChanged or RecordFailed follows.

    `is_holder`: this master holds the record, and each write renews the lock. `changes`: the number
    of the last RecordChanged event that was handled; a write with another number is dropped.
    `retry_seconds`: for how long the write is retried; None for as long as any other call.
    """

    purpose: RecordPurpose
    data: Mapping[str, str]
    fence: int
    is_holder: bool
    changes: int = 0
    retry_seconds: float | None = 0.0


@dataclass(frozen=True)
class ReadLease(Effect):
    """Read the session's lease: LeaseRead follows."""


@dataclass(frozen=True)
class ReadJob(Effect):
    """Read the Job: JobRead follows."""

    # Seconds for which the call is retried; None for as long as any other call.
    retry_seconds: float | None
    # Read it to decide whether ranks may go on without this master.
    is_for_orphans: bool = False


# Effects on workers and pods:


@dataclass(frozen=True)
class Prepare(Effect):
    """Set an attempt's number and fence number for ranks and workers, and prepare its launcher.

    Prepared follows. `scales_workers`: each StatefulSet gets the number of workers that the run
    starts with.
    """

    attempt: int
    fence: int
    scales_workers: bool


@dataclass(frozen=True)
class WatchWorkers(Effect):
    """Probe all workers until StopWatching."""

    attempt: int


@dataclass(frozen=True)
class FreezeAddresses(Effect):
    """Stop following the workers' addresses: the attempt keeps the present ones.

    `workers`: only the addresses of these, while others may still come; None for all.
    """

    workers: Sequence[str] | None = None


@dataclass(frozen=True)
class LoseWorkersAfter(Effect):
    """Detect a silent worker within this many seconds, for the rest of this attempt."""

    attempt: int
    seconds: float


@dataclass(frozen=True)
class StopWatching(Effect):
    """Stop probing the workers."""


@dataclass(frozen=True)
class ListPods(Effect):
    """List the release's pods: PodsListed follows. `missing`: workers to explain."""

    attempt: int
    missing: Sequence[str]


@dataclass(frozen=True)
class DeletePods(Effect):
    """Delete pods, by name, if they still have these UIDs.

    `grace_period_seconds`: 0 does not wait for their nodes, and None is the pods' own.
    """

    uids: Mapping[str, str]
    grace_period_seconds: int | None = None


@dataclass(frozen=True)
class ScaleUp(Effect):
    """Scale a StatefulSet to a number of workers if it has fewer than `below`."""

    stateful_set: str
    number: int
    below: int


@dataclass(frozen=True)
class WorkerEffect(Effect):
    """An effect on workers in an attempt; `addresses` has their addresses from now on."""

    attempt: int
    addresses: Mapping[str, str]


@dataclass(frozen=True)
class Deliver(WorkerEffect):
    """Send the user's code to the workers of `pods`: Delivered follows."""

    pods: Mapping[str, Pod]
    # First make all workers at these addresses save the state of another run in their memory.
    saves_other_states: bool = False


@dataclass(frozen=True)
class CountFinished(WorkerEffect):
    """Count the finished ranks of an orphaned launch: FinishedCounted follows."""

    fence: int


@dataclass(frozen=True)
class PrepareNewcomers(WorkerEffect):
    """Prepare new workers for the next launch, while this one runs: NewcomersReady follows.

    They get the user's code, and import the script's modules.
    """

    pods: Mapping[str, Pod]
    # The workers of this launch: ask their ranks whether they keep their state.
    workers: Sequence[str]


# Effects on launcher and ranks:


@dataclass(frozen=True)
class StartLauncher(Effect):
    """Start the launcher on these workers: LauncherEnded or LauncherNotStarted follows.

    A worker that has just gone has no address.
    """

    attempt: int
    workers: Sequence[str]
    addresses: Mapping[str, str]
    # Seconds for which ranks without a master wait for another one.
    orphan_seconds: float


@dataclass(frozen=True)
class EndLauncher(Effect):
    """Send the launcher SIGTERM, or SIGKILL."""

    kills: bool = False


@dataclass(frozen=True)
class FindCause(Effect):
    """Find why the launcher ended with `exit_code`: CauseFound follows."""

    attempt: int
    exit_code: int
    workers: Sequence[str]
    # Notices of exceptions that have ended ranks, and of their exit codes and signals.
    exception_notices: Sequence[Notice]
    exit_notices: Sequence[Notice]
    # The UIDs of workers that were terminated, by their names.
    terminated: Mapping[str, str] = field(default_factory=dict)
    # Ask the workers also whether they can bind their ranks.
    asks_for_binding: bool = False


@dataclass(frozen=True)
class AskRanksToEnd(Effect):
    """Ask all ranks on these workers to end: RanksAskedToEnd follows."""

    attempt: int
    workers: Sequence[str]


@dataclass(frozen=True)
class CheckRanks(Effect):
    """Ask workers whether all their ranks may go on without a master: RanksChecked follows."""

    attempt: int
    workers: Sequence[str]


@dataclass(frozen=True)
class DetachLauncher(Effect):
    """Make the launcher of mode `direct` exit, and leave the ranks running."""


@dataclass(frozen=True)
class ReleaseRanks(Effect):
    """Respond to ranks that wait to report their end."""

    connections: Sequence[int]


@dataclass(frozen=True)
class ShowStacks(Effect):
    """Write the Python stacks of ranks to the log: StacksShown follows.

    `ranks`: the numbers of the ranks on each worker.
    """

    attempt: int
    ranks: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class EndLeftovers(WorkerEffect):
    """End processes that earlier attempts left on workers that this attempt does not use."""

    workers: Sequence[str]


@dataclass(frozen=True)
class FollowProgress(Effect):
    """Read the progress that ranks report from one of these workers at a time."""

    attempt: int
    workers: Sequence[str]


@dataclass(frozen=True)
class StopProgress(Effect):
    """Stop reading progress, with `wait_for_last_step` after that step: ProgressStopped follows."""

    attempt: int
    wait_for_last_step: bool


# Effects of the end:


@dataclass(frozen=True)
class ScaleDown(Effect):
    """Scale the workers to zero, or to their number before a test: WorkersScaled follows."""


@dataclass(frozen=True)
class Interrupt(Effect):
    """Make waiting calls give up soon: this pod is asked to end."""


@dataclass(frozen=True)
class ReleaseRecord(Effect):
    """Release the record with this last data: RecordReleased follows."""

    data: Mapping[str, str]
    fence: int


@dataclass(frozen=True)
class Exit(Effect):
    """End this master; `problem` is None when the run has finished."""

    problem: RunError | None
