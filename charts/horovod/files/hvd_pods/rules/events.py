"""What the master's loop takes: events that happened, which are data.

Sources put events on one queue, and `decide` (rules/decide.py) turns an event and the state into
effects (rules/effects.py). Workers are named by their pods. An event of an attempt has the
attempt's number, so that one that comes too late is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from hvd_pods.agent.banner import NoAnswer
from hvd_pods.cluster.objects import Object
from hvd_pods.common.errors import RunError
from hvd_pods.common.run import Pod
from hvd_pods.rules.timers import TimerKind


class Moment(NamedTuple):
    """When an event is decided, in seconds: `now` by time.monotonic(), `wall` by time.time().

    Spans and timers go by `now`. `wall` is for what others read or have written.
    """

    now: float
    wall: float


class Cause(NamedTuple):
    """Why an attempt failed: the rank, what it met, and whether that is sure to happen again."""

    who: str
    what: str
    is_sure_to_repeat: bool
    # No attempt can succeed before somebody has changed something: at all, and unless this one had
    # trained.
    is_final: bool = False
    is_permanent: bool = False
    # The worker whose GPU is broken or needs a reset.
    broken_worker: str = ""

    @property
    def text(self) -> str:
        """The cause in one line."""
        return self.who + self.what


@dataclass(frozen=True)
class Event:
    """Something that happened."""


# Events of this pod:


@dataclass(frozen=True)
class Started(Event):
    """This master begins."""


@dataclass(frozen=True)
class Terminated(Event):
    """This pod is asked to end by SIGTERM, or has used up the time of `helm test`."""


@dataclass(frozen=True)
class Timer(Event):
    """The time of a timer has come (RunState.timers)."""

    kind: TimerKind


# Events of the API server:


@dataclass(frozen=True)
class RecordRead(Event):
    """The record as the API server has it."""

    data: Mapping[str, str]


@dataclass(frozen=True)
class RecordWritten(Event):
    """A write of the record has succeeded; `purpose` is that of the effect."""

    purpose: str


@dataclass(frozen=True)
class RecordChanged(Event):
    """A write was refused because somebody has changed the record: what it has now."""

    purpose: str
    data: Mapping[str, str]
    # How often that has happened.
    changes: int = 0
    # The record is that of a later release of this name.
    is_other: bool = False


@dataclass(frozen=True)
class RecordFailed(Event):
    """A call for the record has failed; `purpose` is "read" or that of the write.

    The other fields are those of the ApiError (cluster/kube.py).
    """

    purpose: str
    status: int
    message: str
    is_temporary: bool = True


@dataclass(frozen=True)
class JobRead(Event):
    """The Job, UNREADABLE or DELETED (rules/ending.py); None if another Job has replaced it."""

    job: Object | None
    # The value of `leaves` in the ReadJob effect that this event answers.
    leaves: bool = False
    # What the record says at this moment; None where it could not be read.
    record: Mapping[str, str] | None = None


@dataclass(frozen=True)
class LeaseRead(Event):
    """The Job with the session's lease; None when it could not be read."""

    job: Object | None


# Events that decisions cause:


@dataclass(frozen=True)
class AttemptDue(Event):
    """Follows a decision: make an attempt, the first or another one."""


@dataclass(frozen=True)
class AttemptOver(Event):
    """The attempt is over, without a problem when the training has finished.

    It follows a decision.
    """

    problem: RunError | None


@dataclass(frozen=True)
class EndReached(Event):
    """Follows a decision: this master ends, and leaves record and workers as they are."""

    problem: RunError


# Events of an attempt:


@dataclass(frozen=True)
class AttemptEvent(Event):
    """Something that happened in an attempt; `attempt` is its number."""

    attempt: int


@dataclass(frozen=True)
class Prepared(AttemptEvent):
    """The keys, the code and the launcher are ready; `problem` when one of them is not."""

    problem: RunError | None = None


@dataclass(frozen=True)
class WorkerAnswers(AttemptEvent):
    """A worker's agent answers, as one of this run."""

    worker: str
    pod: Pod


@dataclass(frozen=True)
class WorkerProblem(AttemptEvent):
    """A worker does not answer, for this reason."""

    worker: str
    why: NoAnswer
    # Seconds since it was heard, 0 for a worker that has not answered yet.
    silent: float = 0.0
    # Every other worker with an open connection is silent, too.
    all_workers_silent: bool = False


@dataclass(frozen=True)
class WorkerGone(AttemptEvent):
    """A worker has no address any more, or another one: its pod ends, or is another pod."""

    worker: str


@dataclass(frozen=True)
class PodsListed(AttemptEvent):
    """The release's pods by name, and what the API server says of the StatefulSets without some."""

    pods: Mapping[str, Object] = field(default_factory=dict)
    # Why the newest pod of a StatefulSet was not created; empty for no known reason.
    refusals: Mapping[str, str] = field(default_factory=dict)
    # StatefulSets without some that do not exist.
    gone: Sequence[str] = ()
    # Why the pods could not be read.
    problem: str = ""


@dataclass(frozen=True)
class Delivered(AttemptEvent):
    """These workers have the user's code; `problem` is why others do not."""

    workers: Sequence[str]
    problem: RunError | None = None
    # All ranks that the master before this one has started have ended with 0.
    is_finished: bool = False


@dataclass(frozen=True)
class NewcomersReady(AttemptEvent):
    """These workers could have ranks at once; `problem` is why others could not.

    `is_kept`: all ranks keep their state in memory (library/keep), so that no step is lost when
    they are ended.
    """

    workers: Sequence[str]
    is_kept: bool
    problem: RunError | None = None


@dataclass(frozen=True)
class WorkerReached(AttemptEvent):
    """A program of this pod, such as a launcher, has asked a worker's agent to start a program."""


@dataclass(frozen=True)
class LauncherEnded(AttemptEvent):
    """The launcher has ended with this exit code (128 + N for signal N) after some seconds."""

    code: int
    seconds: float


@dataclass(frozen=True)
class LauncherNotStarted(AttemptEvent):
    """The launcher could not be started, for this reason."""

    problem: RunError


@dataclass(frozen=True)
class CauseFound(AttemptEvent):
    """Why the launcher failed, as far as its output and the ranks' notices say it.

    `key_problem`: why a worker has refused this master's keys, or the master a worker's.
    `binding_problem`: why a worker cannot bind its ranks. Both are empty where nothing says so.
    """

    cause: Cause | None
    key_problem: str = ""
    binding_problem: str = ""
    # Why the kubelet has evicted workers that were terminated.
    evictions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RankMissing(AttemptEvent):
    """Horovod's first rank says that a rank has not joined `what` for `seconds`."""

    rank: int
    what: str
    seconds: float


@dataclass(frozen=True)
class NoticeTaken(AttemptEvent):
    """A worker or a rank has sent a notice (common/notices.py).

    `connection` is the number of the one that waits for an answer, 0 where none does.
    """

    notice: Mapping[str, Any]
    connection: int = 0


@dataclass(frozen=True)
class RanksAsked(AttemptEvent):
    """`number` ranks were asked to end; with `go_on`, none was asked, and all go on."""

    number: int
    go_on: bool = False


@dataclass(frozen=True)
class StacksShown(AttemptEvent):
    """The stacks of stalled ranks are in the log, as far as their workers have answered.

    `places`: ranks, each with where its script is.
    """

    places: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True)
class ProgressReported(AttemptEvent):
    """A rank has reported its progress, as common/metrics.py has parsed it."""

    progress: Mapping[str, Any]


@dataclass(frozen=True)
class ProgressStopped(AttemptEvent):
    """The progress of this attempt is no longer followed: all of it was reported."""


# Events of the end:


@dataclass(frozen=True)
class WorkersScaled(Event):
    """Workers were scaled down, or the log says which were not."""


@dataclass(frozen=True)
class ResultsStored(Event):
    """The sidecar has stored the results; `failure` says why it has not, else it is empty."""

    failure: str


@dataclass(frozen=True)
class RecordReleased(Event):
    """The record was given back, or the API server did not take it in time."""


@dataclass(frozen=True)
class InternalError(Event):
    """Something failed that should not: its traceback."""

    traceback: str


Put = Callable[[Event], None]
