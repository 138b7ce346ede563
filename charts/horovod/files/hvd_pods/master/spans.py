"""The spans of a run, for tracing systems: what the master did, and for how long.

`follow` compares the states of the loop, and no decision depends on its result. A span that is open
when its master is lost is lost, too; the next master continues the same trace.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Dict, Mapping, NamedTuple, Tuple, Union

from hvd_pods.cluster.objects import parse_time
from hvd_pods.rules.events import Moment
from hvd_pods.rules.run_end import is_withdrawn
from hvd_pods.rules.state import Activity, Assignment, RunState
from hvd_pods.shared.errors import InterruptedRunError, ResizedError, RunError, SupersededError
from hvd_pods.shared.record import FAILED, FINISHED, RecordKey
from hvd_pods.shared.untrusted import one_line

RUN = "run"
ATTEMPT = "attempt"
TRAIN = "train"
# From the launch to the first step that is reported.
START = "start ranks"
# From the end of an attempt's ranks to the first step of a later attempt.
RECOVER = "recover"
GATHER = "gather workers"
DELIVER = "deliver code"
STORE = "store results"
PHASES = {
    Activity.WAITING_FOR_WORKERS: GATHER,
    Activity.DELIVERING: DELIVER,
    Activity.TRAINING: TRAIN,
    Activity.PAUSING: "pause",
    Activity.STORING: STORE,
}
# The parent of a span, unless that is the run.
PARENTS = {GATHER: ATTEMPT, DELIVER: ATTEMPT, TRAIN: ATTEMPT, START: TRAIN}
OF_ATTEMPT = (
    Activity.WAITING_FOR_WORKERS,
    Activity.DELIVERING,
    Activity.TRAINING,
    Activity.FINDING_CAUSE,
)
ENDED = (Activity.KEEPING_WORKERS, Activity.HANDING_OVER, Activity.OVER)

Attributes = Dict[str, Union[str, int]]
# The name of a span, and the fence number of its attempt, which no other attempt has.
Name = Tuple[str, int]


class Span(NamedTuple):
    """A span that has ended. `began` and `ended` are in seconds since the epoch.

    The identifiers are hashes of the span's subject: a span that is sent twice is the same span.
    `failure` is empty without a failure.
    """

    name: str
    trace: str
    id: str
    parent: str
    began: float
    ended: float
    attributes: Attributes
    failure: str


@dataclass(frozen=True)
class Trace:
    """The last state, and the open spans with the times at which they began.

    `first` is the first moment of this master. All times are relative to it: the clock may be set.
    """

    seen: RunState
    first: Moment | None = None
    began: Mapping[Name, float] = field(default_factory=dict)


def follow(trace: Trace, state: RunState, moment: Moment) -> tuple[Trace, tuple[Span, ...]]:
    """Return the trace after an event that has made this state, and the spans that have ended."""
    first = trace.first or moment
    time = first.wall + moment.now - first.now
    present = _find_present(trace.began, state)
    spans = tuple(
        _end(trace.seen, state, name, began, time)
        for name, began in trace.began.items()
        if name not in present and _is_complete(name[0], state)
    )
    began = {name: trace.began.get(name, _begin(name[0], state, time)) for name in present}
    return Trace(state, first, began), spans


def _find_present(began: Mapping[Name, float], state: RunState) -> list[Name]:
    """Return the open spans of a state, each before its children."""
    activity = state.activity
    fence = state.record_lock.fence
    steps = activity == Activity.TRAINING and bool(state.progress.reported)
    present: list[Name] = []
    # A master that only repeats the end of a run makes no attempt.
    if state.attempt.number and activity not in ENDED:
        present.append((RUN, 0))
        recovering = [name for name in began if name[0] == RECOVER and not steps]
        if activity == Activity.FINDING_CAUSE and not recovering:
            recovering = [(RECOVER, fence)]
        present += recovering
    if activity in OF_ATTEMPT:
        present.append((ATTEMPT, fence))
    if activity in PHASES:
        present.append((PHASES[activity], fence))
    if activity == Activity.TRAINING and not steps:
        present.append((START, fence))
    return present


def _begin(name: str, state: RunState, time: float) -> float:
    """Return when a new span begins; a run begins with its Job, if that is known."""
    status = (state.job or {}).get("status", {})
    if name == RUN and status.get("startTime"):
        return min(parse_time(status["startTime"]), time)
    return time


def _is_complete(name: str, state: RunState) -> bool:
    """Return whether the activity of a span is complete when the span ends."""
    if name == RUN:
        return _has_ended(state)
    if name in (START, RECOVER):
        # Otherwise no step was made, or the script reports none.
        return bool(state.progress.reported) and state.activity == Activity.TRAINING
    return True


def _has_ended(state: RunState) -> bool:
    """Return whether the run of this Job has ended with this master.

    A run that another master continues has not ended.
    """
    job = state.job
    if state.entry.get(RecordKey.STATE) in (FINISHED, FAILED):
        return True
    if isinstance(state.problem, SupersededError):
        return False
    if state.run.has_api_access and (job is None or is_withdrawn(job)):
        # A suspended Job may continue; a deleted one does not.
        return job is None or "deletionTimestamp" in job["metadata"]
    return not isinstance(state.problem, InterruptedRunError)


def _end(before: RunState, state: RunState, name: Name, began: float, ended: float) -> Span:
    """Return the span that ended with the decision from one state to another."""
    what, fence = name
    assignment = state.assignment
    problem: RunError | None = None
    attributes: Attributes = {}
    parent = identify(assignment, (PARENTS[what], fence) if what in PARENTS else (RUN, 0))
    if what == RUN:
        parent = ""
        is_finished = state.entry.get(RecordKey.STATE) == FINISHED
        problem = None if is_finished else state.problem
        attributes = {
            "hvdchart.state": FAILED if problem else FINISHED,
            "hvdchart.mode": state.run.mode,
            "hvdchart.ranks": state.run.ranks,
            "hvdchart.workers": sum(state.run.needed_workers.values()),
            "hvdchart.attempts": state.attempts,
            "hvdchart.failures": state.failures,
        }
    elif what != STORE:
        attributes = {"hvdchart.attempt": before.attempt.number}
    if what == ATTEMPT:
        problem = _find_problem(before, state)
        of_attempt = state if state.attempt.number == before.attempt.number else before
        launch = of_attempt.attempt.launch
        attributes["hvdchart.ranks"] = of_attempt.ranks
        attributes["hvdchart.workers"] = len(launch.workers) if launch else 0
    if problem:
        attributes["error.type"] = type(problem).__name__
        attributes["process.exit.code"] = problem.exit_code
    failure = (one_line(str(problem)) or type(problem).__name__) if problem else ""
    ids = (_hash(assignment)[:32], identify(assignment, name), parent)
    return Span(what, *ids, began, ended, attributes, failure)


def _find_problem(before: RunState, state: RunState) -> RunError | None:
    """Return why an attempt failed; None for an attempt that ended for more workers."""
    if state.attempt.number == before.attempt.number:
        problem = state.attempt.problem or state.problem
    else:
        # Without access to the API, the next attempt may begin with the same decision.
        problem = before.attempt.problem or RunError(state.last_failure)
    return None if isinstance(problem, ResizedError) else problem


def identify(assignment: Assignment, name: Name) -> str:
    """Return the identifier of a span in its trace."""
    return _hash(assignment, *name)[:16]


def _hash(assignment: Assignment, *words: object) -> str:
    """Return a span's hash, the same for all masters of the Job; without words, its trace's."""
    text = "\n".join(map(str, (assignment.job, assignment.uid, assignment.run.id, *words)))
    return hashlib.sha256(text.encode()).hexdigest()
