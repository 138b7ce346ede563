"""The events that the master's loop handles. Events are data.

Sources put events on one queue, and `decide` (rules/decide.py) turns an event and the state into
effects (rules/effects.py). Workers are named by their pods. An event of an attempt has the
attempt's number, so that late events are recognized.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Callable, Mapping, NamedTuple, Sequence, TypedDict

from hvd_pods.rules.job_state import JobReading
from hvd_pods.rules.timers import TimerKind
from hvd_pods.shared.errors import RunError
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.objects import Object
from hvd_pods.shared.run import Pod


class Moment(NamedTuple):
    """When an event is decided, in seconds: `now` by time.monotonic(), `wall` by time.time().

    Timers use `now`. `wall` is for data that other programs read or have written.
    """

    now: float
    wall: float


class Cause(NamedTuple):
    """Why an attempt failed: the rank, its error, and whether that is sure to happen again."""

    who: str
    what: str
    is_sure_to_repeat: bool
    # No attempt can succeed until somebody changes something: in any case, and unless this attempt
    # had trained.
    is_final: bool = False
    is_permanent: bool = False
    # The worker whose GPU is broken or needs a reset.
    broken_worker: str = ""

    @property
    def text(self) -> str:
        """Return the cause in one line."""
        return self.who + self.what


class RecordPurpose(Enum):
    """Why the master reads or writes the record."""

    READ = "read"
    # The lock: to take it, to renew it, and to release it for another master.
    TAKE = "take"
    RENEW = "renew"
    RELEASE = "release"
    # The entry: an attempt or its launch begins, ranks stall, the run ends, or its workers stay
    # for the session's next run.
    BEGIN_ATTEMPT = "begin attempt"
    BEGIN_LAUNCH = "begin launch"
    REPORT_STALL = "report stall"
    END_RUN = "end run"
    KEEP_WORKERS = "keep workers"


@dataclass(frozen=True)
class Event:
    """An event that has occurred."""


# Events of this pod:


@dataclass(frozen=True)
class Started(Event):
    """This master has started."""


@dataclass(frozen=True)
class Terminated(Event):
    """This pod has received SIGTERM, or the time of `helm test` is over."""


@dataclass(frozen=True)
class Timer(Event):
    """A timer has fired (RunState.timers)."""

    kind: TimerKind


# Events of the API server:


@dataclass(frozen=True)
class RecordRead(Event):
    """The record was read from the API server."""

    data: Mapping[str, str]


@dataclass(frozen=True)
class RecordWritten(Event):
    """A write of the record has succeeded; `purpose` is the purpose of the effect."""

    purpose: RecordPurpose


@dataclass(frozen=True)
class RecordChanged(Event):
    """A write was refused because another client has changed the record; `data` is its new data."""

    purpose: RecordPurpose
    data: Mapping[str, str]
    # The number of such changes so far.
    changes: int = 0
    # The record belongs to a later release of this name.
    is_other: bool = False


@dataclass(frozen=True)
class RecordFailed(Event):
    """A call for the record has failed; `purpose` is READ or the purpose of the write.

    The other fields are copied from the ApiError (cluster/kube.py).
    """

    purpose: RecordPurpose
    status: int
    message: str
    is_temporary: bool = True


@dataclass(frozen=True)
class JobRead(Event):
    """The Job was read, or could not be read."""

    job: JobReading
    # The value of `is_for_orphans` in the ReadJob effect that this event answers.
    is_for_orphans: bool = False
    # The present data of the record; None if it could not be read.
    record: Mapping[str, str] | None = None


@dataclass(frozen=True)
class LeaseRead(Event):
    """The session's lease was read with the Job, unless this master's Job was not found."""

    job: JobReading


# Events that decisions cause:


@dataclass(frozen=True)
class AttemptDue(Event):
    """A decision causes an attempt, the first or another one."""


@dataclass(frozen=True)
class AttemptOver(Event):
    """The attempt is over; `problem` is None if the training has finished.

    A decision causes this event.
    """

    problem: RunError | None


@dataclass(frozen=True)
class EndReached(Event):
    """A decision ends this master, and leaves record and workers as they are."""

    problem: RunError


# Events of an attempt:


@dataclass(frozen=True)
class AttemptEvent(Event):
    """An event in an attempt; `attempt` is its number."""

    attempt: int


@dataclass(frozen=True)
class Prepared(AttemptEvent):
    """The keys, the code and the launcher are ready; `problem` when one of them is not."""

    problem: RunError | None = None


@dataclass(frozen=True)
class WorkerAnswers(AttemptEvent):
    """A worker's agent answers as an agent of this run."""

    worker: str
    pod: Pod


@dataclass(frozen=True)
class WorkerProblem(AttemptEvent):
    """A worker does not answer, for this reason."""

    worker: str
    why: NoAnswer
    # Seconds since its last response, 0 for a worker that has not answered yet.
    silent: float = 0.0
    # Every other worker with an open connection is silent, too.
    all_workers_silent: bool = False


@dataclass(frozen=True)
class WorkerGone(AttemptEvent):
    """A worker's address was removed or has changed: its pod ends, or is another pod."""

    worker: str


@dataclass(frozen=True)
class PodsListed(AttemptEvent):
    """The release's pods were listed, with the problems of StatefulSets that lack pods."""

    pods: Mapping[str, Object] = field(default_factory=dict)
    # Why the newest pod of a StatefulSet was not created; empty for no known reason.
    refusals: Mapping[str, str] = field(default_factory=dict)
    # StatefulSets that lack pods because they do not exist.
    gone: Sequence[str] = ()
    # Why the pods could not be read.
    problem: str = ""


@dataclass(frozen=True)
class Delivered(AttemptEvent):
    """These workers have the user's code; `problem` explains why others do not."""

    workers: Sequence[str]
    problem: RunError | None = None


@dataclass(frozen=True)
class FinishedCounted(AttemptEvent):
    """So many ranks of the orphaned launch have ended with 0, on workers where all have."""

    number: int


@dataclass(frozen=True)
class NewcomersReady(AttemptEvent):
    """These workers are ready for ranks; `problem` explains why others are not.

    `is_state_kept`: all ranks keep their state in memory (library/keep), so that ending them loses
    no step.
    """

    workers: Sequence[str]
    is_state_kept: bool
    problem: RunError | None = None


@dataclass(frozen=True)
class WorkerReached(AttemptEvent):
    """A program of this pod, such as a launcher, has asked a worker's agent to start a program."""


@dataclass(frozen=True)
class LauncherEnded(AttemptEvent):
    """The launcher has ended with this exit code (128 + N for signal N) after some seconds."""

    exit_code: int
    seconds: float


@dataclass(frozen=True)
class LauncherNotStarted(AttemptEvent):
    """The launcher could not be started, for this reason."""

    problem: RunError


@dataclass(frozen=True)
class CauseFound(AttemptEvent):
    """The cause of the launcher's failure, as far as its output and the ranks' notices show it.

    `key_problem`: why a worker has refused this master's keys, or the master a worker's.
    `binding_problem`: why a worker cannot bind its ranks. Both are empty if there is no evidence of
    it.
    """

    cause: Cause | None
    key_problem: str = ""
    binding_problem: str = ""
    # Why the kubelet has evicted workers that were terminated.
    evictions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RankMissing(AttemptEvent):
    """Horovod's first rank reports that a rank has not joined `what` for `seconds`."""

    rank: int
    what: str
    seconds: float


class Notice(TypedDict, total=False):
    """A notice of a worker or a rank, with the fields that its kind has (master/notice_server.py).

    `rank` is -1 in a notice without one. `at`: when the loop has taken it, by the moments'
    clock.
    """

    kind: str
    worker: str
    rank: int
    text: str
    status: int
    seconds: float
    period: float
    limit: float
    at: float


@dataclass(frozen=True)
class NoticeTaken(AttemptEvent):
    """A worker or a rank has sent a notice (pod/notices.py).

    `connection` is the number of the connection that waits for a response, 0 if none waits.
    """

    notice: Notice
    connection: int = 0


@dataclass(frozen=True)
class RanksAskedToEnd(AttemptEvent):
    """`number` ranks were asked to end."""

    number: int


@dataclass(frozen=True)
class RanksChecked(AttemptEvent):
    """`may_stay`: all ranks run, and lose nothing if they are killed later."""

    may_stay: bool


@dataclass(frozen=True)
class StacksShown(AttemptEvent):
    """The stacks of stalled ranks are in the log, if their workers have responded.

    `places`: ranks, each with the place of its script.
    """

    places: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True)
class ProgressReported(AttemptEvent):
    """A rank has reported its progress; pod/metrics.py has parsed it."""

    progress: Mapping[str, Any]


@dataclass(frozen=True)
class ProgressStopped(AttemptEvent):
    """The progress of this attempt is no longer followed: all of it was reported."""


# Events of the end:


@dataclass(frozen=True)
class WorkersScaled(Event):
    """The workers were scaled down, or the log names the failures."""


@dataclass(frozen=True)
class RecordReleased(Event):
    """The record was released, or the API server did not accept the release in time."""


@dataclass(frozen=True)
class InternalError(Event):
    """A defect of the master has raised an exception; `traceback` is its traceback."""

    traceback: str


# Takes an event for the loop; any thread may call it.
EventSink = Callable[[Event], None]
