"""What the master's loop asks for: effects, which are data.

`decide` (rules/decide.py) turns an event (rules/events.py) and the state into effects, and
master/run_effects.py carries these out. The answer to an effect is another event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from hvd_pods.common.errors import RunError
from hvd_pods.common.run import Pod
from hvd_pods.common.run_events import RunEvent


@dataclass(frozen=True)
class Effect:
    """Something to be done."""


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
    """Write `data` to the record. A holder's write is refused if somebody else has changed it.

    RecordWritten, RecordChanged or RecordFailed says how it went.

    `holds`: this master holds the record, which each write renews. `changes`: the number of the
    last RecordChanged that was decided about; a write with another number is dropped. `within`:
    seconds for which the write is tried again; None for as long as any other call.
    """

    purpose: str
    data: Mapping[str, str]
    fence: int
    holds: bool
    changes: int = 0
    within: float | None = 0.0


@dataclass(frozen=True)
class ReadLease(Effect):
    """Read the session's lease: a LeaseRead follows."""


@dataclass(frozen=True)
class ReadJob(Effect):
    """Read the Job: JobRead follows."""

    # Seconds for which the call is tried again; None for as long as any other call.
    within: float | None
    # To know whether ranks may go on without this master.
    leaves: bool = False


# Effects on workers and pods:


@dataclass(frozen=True)
class Prepare(Effect):
    """Let ranks and workers know an attempt's number and fence number, and prepare its launcher.

    Prepared follows. `fits`: each StatefulSet gets the number of workers that the run starts with.
    """

    attempt: int
    fence: int
    fits: bool


@dataclass(frozen=True)
class WatchWorkers(Effect):
    """Ask all workers whether they answer, until StopWatching."""

    attempt: int


@dataclass(frozen=True)
class FreezeAddresses(Effect):
    """Follow the workers' addresses no longer: those known now are the attempt's.

    `workers`: only the addresses of these, while others may still come; None for all.
    """

    workers: Sequence[str] | None = None


@dataclass(frozen=True)
class LoseWorkersAfter(Effect):
    """Notice within so many seconds, for the rest of this attempt, that a worker is silent."""

    attempt: int
    seconds: float


@dataclass(frozen=True)
class StopWatching(Effect):
    """Ask the workers no longer."""


@dataclass(frozen=True)
class ListPods(Effect):
    """List the release's pods: PodsListed follows. `missing`: workers whose absence it explains."""

    attempt: int
    missing: Sequence[str]


@dataclass(frozen=True)
class DeletePods(Effect):
    """Delete pods, by name, if they still have these UIDs.

    `grace` is in seconds; 0 does not wait for their nodes, and None is the pods' own.
    """

    uids: Mapping[str, str]
    grace: int | None = None


@dataclass(frozen=True)
class ScaleUp(Effect):
    """Scale a StatefulSet to a number of workers if it has fewer than `below`."""

    stateful_set: str
    number: int
    below: int


@dataclass(frozen=True)
class WorkerEffect(Effect):
    """Something to do on workers in an attempt; `addresses` says where they are from now on."""

    attempt: int
    addresses: Mapping[str, str]


@dataclass(frozen=True)
class Deliver(WorkerEffect):
    """Hand the workers of `pods` the user's code: Delivered follows."""

    pods: Mapping[str, Pod]
    # First let all workers at these addresses save what another run has left in their memory.
    saves: bool = False
    # First look whether the ranks with this fence number have finished at one of these addresses.
    detached_fence: int = 0
    # How many ranks that launch had.
    detached_ranks: int = 0


@dataclass(frozen=True)
class PrepareNewcomers(WorkerEffect):
    """Prepare workers that have come for the next launch, while this one runs: NewcomersReady
    follows. They get the user's code, and import what the script does.
    """

    pods: Mapping[str, Pod]
    # Those of this launch, whose ranks are asked whether they keep their state.
    workers: Sequence[str]


# Effects on launcher and ranks:


@dataclass(frozen=True)
class StartLauncher(Effect):
    """Start the launcher on these workers: LauncherEnded or LauncherNotStarted follows.

    One that has gone in this moment has no address.
    """

    attempt: int
    workers: Sequence[str]
    addresses: Mapping[str, str]
    # Seconds in which ranks that are left alone wait for another master.
    stay: float


@dataclass(frozen=True)
class EndLauncher(Effect):
    """Send the launcher SIGTERM, or SIGKILL."""

    kills: bool = False


@dataclass(frozen=True)
class FindCause(Effect):
    """Look for why the launcher ended with `code`: CauseFound follows."""

    attempt: int
    code: int
    workers: Sequence[str]
    # Notices of exceptions that have ended ranks, and of their exit codes and signals.
    raised: Sequence[Mapping[str, Any]]
    failed: Sequence[Mapping[str, Any]]
    # The UIDs of workers that were terminated, by their names.
    terminated: Mapping[str, str] = field(default_factory=dict)
    # Ask the workers also whether they can bind their ranks.
    asks_for_binding: bool = False


@dataclass(frozen=True)
class AskRanks(Effect):
    """Ask all ranks on these workers to end: RanksAsked follows."""

    attempt: int
    workers: Sequence[str]
    # Leave them alone if all keep their state: another master follows.
    may_stay: bool = False


@dataclass(frozen=True)
class ReleaseRanks(Effect):
    """Answer ranks that wait to report their end."""

    connections: Sequence[int]


@dataclass(frozen=True)
class ShowStacks(Effect):
    """Let ranks write what their Python code does to the log: StacksShown follows.

    `ranks`: the numbers of the ranks on each worker.
    """

    attempt: int
    ranks: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class EndLeftovers(WorkerEffect):
    """End what earlier attempts have left on workers that this one does not use."""

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
    """Scale the workers to zero, or to what a test has found: WorkersScaled follows."""


@dataclass(frozen=True)
class StoreResults(Effect):
    """Let the sidecar store the results within some seconds: ResultsStored follows."""

    within: float


@dataclass(frozen=True)
class Interrupt(Effect):
    """This pod is asked to end: calls that wait give up soon."""


@dataclass(frozen=True)
class ReleaseRecord(Effect):
    """Give the record back with these last data: RecordReleased follows."""

    data: Mapping[str, str]
    fence: int


@dataclass(frozen=True)
class Exit(Effect):
    """End this master; `problem` is None when the run has finished."""

    problem: RunError | None
