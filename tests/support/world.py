"""A simulation that answers the effects of the master's loop, in any order that a test chooses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hvd_pods.rules.decide import decide
from hvd_pods.rules.effects import (
    AskRanksToEnd,
    CheckRanks,
    CountFinished,
    Deliver,
    Effect,
    EndLauncher,
    Exit,
    FindCause,
    ListPods,
    Log,
    Prepare,
    PrepareNewcomers,
    ReadJob,
    ReadLease,
    ReadRecord,
    ReleaseRecord,
    ScaleDown,
    ShowStacks,
    StartLauncher,
    StopProgress,
    WatchWorkers,
    WriteRecord,
)
from hvd_pods.rules.events import (
    Cause,
    CauseFound,
    Delivered,
    Event,
    FinishedCounted,
    JobRead,
    LauncherEnded,
    LeaseRead,
    Moment,
    NewcomersReady,
    PodsListed,
    Prepared,
    ProgressStopped,
    RanksAskedToEnd,
    RanksChecked,
    RecordChanged,
    RecordFailed,
    RecordPurpose,
    RecordRead,
    RecordReleased,
    RecordWritten,
    StacksShown,
    Started,
    Timer,
    WorkerAnswers,
    WorkersScaled,
)
from hvd_pods.rules.job_state import REPLACED, UNREADABLE, JobReading, read_found_job
from hvd_pods.rules.retries import Retries
from hvd_pods.rules.run_state import Assignment, RunState
from hvd_pods.shared.contract import CLEANUP, LEASE, RENEWED
from hvd_pods.shared.errors import ConfigurationError, RunError
from hvd_pods.shared.run import Pod, Run
from tests.support.runs import make_run

BEING_DELETED = {"metadata": {"deletionTimestamp": "2026-01-01T10:00:00Z"}, "spec": {}}
SUSPENDED = {"metadata": {}, "spec": {"suspend": True}}
JOB: dict[str, Any] = {"metadata": {}, "spec": {"backoffLimit": 2}, "status": {}}
WALL = 1_790_000_000.0
# A fence number of a later moment, as from the clock of another node.
LATER = int(WALL * 1000) + 10**7
OTHER = {"holder": "other", "holderJob": "job-2", "holderUid": "uid-2", "fence": str(LATER)}


def leased_job(seconds: int, renewal: str = "1") -> dict[str, Any]:
    """Return the Job of a session with its lease after a renewal."""
    notes = {LEASE: str(seconds), RENEWED: renewal, CLEANUP: "Never"}
    return {**JOB, "metadata": {"annotations": notes}}


def one_group(number: int = 2, maximum: int = 0, minimum: int = 0, **changes: Any) -> Run:
    """Return a run of one group of workers with two slots each."""
    group = {"stateful_set": "w", "number": number, "maximum": maximum or number}
    group["minimum"] = minimum or number
    return make_run(groups=[{**group, "slots": 2, "revision": "r1"}], **changes)


def pod(worker: str) -> Pod:
    """Return the pod of a worker."""
    return Pod(f"10.0.0.{worker.rpartition('-')[2]}", f"uid of {worker}", f"node of {worker}")


@dataclass
class World:
    """The loop's state, its effects, and the pending answers.

    `job` is the Job that can be read, or a JobReading. `record` is the record's content. Another
    master may take it.
    """

    run: Run
    job: Any = field(default_factory=lambda: JOB)
    record: dict[str, str] = field(default_factory=dict)
    now: float = 1000.0
    effects: list[Effect] = field(default_factory=list)
    history: list[tuple[Moment, Event, tuple[Effect, ...]]] = field(default_factory=list)
    # Each answer with its effect.
    answers: list[tuple[Effect, Event]] = field(default_factory=list)
    is_running: bool = False
    exit: Exit | None = None

    def __post_init__(self) -> None:
        assignment = Assignment(self.run, "own", "job-1", "uid-1")
        self.state = RunState(
            assignment, retries=Retries(None if self.run.has_api_access else self.run.backoff_limit)
        )

    @property
    def job_reading(self) -> JobReading:
        """What a read of the Job shows now."""
        return self.job if isinstance(self.job, JobReading) else read_found_job(self.job)

    def put(self, event: Event, after: float = 0.0) -> list[Effect]:
        """Apply an event. Return the effects that follow."""
        self.now += after
        moment = Moment(self.now, WALL + self.now)
        self.state, effects = decide(self.state, event, moment)
        self.history.append((moment, event, effects))
        for effect in effects:
            self.effects.append(effect)
            self._take(effect)
        return list(effects)

    def answer(self, number: int = 0, *, is_usual: bool = True) -> None:
        """Deliver a pending answer, or another answer to the same effect."""
        effect, answer = self.answers.pop(number)
        others = self.answers_to(effect)
        self.put(answer if is_usual or len(others) < 2 else others[-1], 0.01)

    def answer_all(self) -> None:
        """Deliver the pending answers, and those that follow from them."""
        while self.answers:
            self.answer()

    def end(self) -> tuple[int, str]:
        """Run the master to its end. Return its exit code and its problem."""
        self.settle()
        assert self.exit
        problem = self.exit.problem
        return (problem.exit_code, str(problem)) if problem else (0, "")

    def settle(self, *, until: type[Effect] = Exit) -> None:
        """Deliver answers and fire timers until an effect is requested, or nothing is left."""
        for _ in range(400):
            if any(isinstance(effect, until) for effect in self.effects):
                return
            if self.answers:
                self.answer()
            elif not self.fire():
                return
        raise AssertionError(f"no end: the master waits {self.state.activity.value}")

    def fire(self) -> bool:
        """Fire the next timer. Return False when there is none."""
        timers = self.state.timers
        if not timers:
            return False
        kind = min(timers, key=lambda kind: timers[kind])
        self.now = max(self.now, timers[kind])
        self.put(Timer(kind))
        return True

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the effects of a kind, in their order."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def logged(self) -> str:
        return "\n".join(effect.message for effect in self.of(Log))

    def end_launcher(self, code: int = 0, seconds: float = 1.0) -> None:
        self.is_running = False
        self.put(LauncherEnded(self.state.attempt.number, code, seconds))

    def train(self) -> int:
        """Advance to the training. Return the attempt's number."""
        self.put(Started())
        self.settle(until=StartLauncher)
        return self.state.attempt.number

    def answers_to(self, effect: Effect) -> list[Event]:
        """Return the possible answers to an effect, the usual answer first."""
        answer = _ANSWERS.get(type(effect))
        return answer(self, effect) if answer else []

    def _take(self, effect: Effect) -> None:
        if isinstance(effect, StartLauncher):
            self.is_running = True
        if isinstance(effect, Exit):
            self.exit = effect
        if isinstance(effect, WriteRecord) and effect.purpose == RecordPurpose.TAKE:
            # The other master has ended.
            self.record = {}
        if isinstance(effect, WatchWorkers):
            self.answers += [(effect, event) for event in self.answers_to(effect)]
        elif isinstance(effect, EndLauncher):
            if self.is_running:
                self.is_running = False
                ended = LauncherEnded(self.state.attempt.number, 143, 1.0)
                self.answers.append((effect, ended))
        else:
            self.answers += [(effect, event) for event in self.answers_to(effect)[:1]]


def _answer_write(world: World, effect: WriteRecord) -> list[Event]:
    is_other = world.record.get("holder") == OTHER["holder"]
    if effect.is_holder and is_other and effect.purpose != RecordPurpose.TAKE:
        return [RecordChanged(effect.purpose, dict(world.record), effect.changes + 1)]
    return [RecordWritten(effect.purpose), RecordFailed(effect.purpose, 503, "away")]


def _answer_read(world: World, effect: ReadRecord) -> list[Event]:
    return [RecordRead(dict(world.record)), RecordFailed(RecordPurpose.READ, 403, "no")]


def _answer_release(world: World, effect: ReleaseRecord) -> list[Event]:
    return [RecordReleased()]


def _answer_job(world: World, effect: ReadJob) -> list[Event]:
    return [
        JobRead(world.job_reading, effect.is_for_orphans, dict(world.record)),
        JobRead(REPLACED, effect.is_for_orphans, dict(world.record)),
        JobRead(UNREADABLE, effect.is_for_orphans, None),
    ]


def _answer_lease(world: World, effect: ReadLease) -> list[Event]:
    return [LeaseRead(world.job_reading), LeaseRead(UNREADABLE)]


def _answer_watch(world: World, effect: WatchWorkers) -> list[Event]:
    """Unlike other answers, all of these follow."""
    names = [worker.name for worker in world.run.workers]
    return [WorkerAnswers(effect.attempt, name, pod(name)) for name in names]


def _answer_deliver(world: World, effect: Deliver) -> list[Event]:
    names = list(effect.pods)
    return [
        Delivered(effect.attempt, names),
        Delivered(effect.attempt, names[1:], RunError("no luck")),
    ]


def _answer_prepare(world: World, effect: Prepare) -> list[Event]:
    return [
        Prepared(effect.attempt),
        Prepared(effect.attempt, ConfigurationError("no mpirun")),
    ]


def _answer_newcomers(world: World, effect: PrepareNewcomers) -> list[Event]:
    names = list(effect.pods)
    problem = RunError("no luck")
    return [
        NewcomersReady(effect.attempt, names, is_state_kept=True),
        NewcomersReady(effect.attempt, names, is_state_kept=False),
        NewcomersReady(effect.attempt, [], is_state_kept=True, problem=problem),
    ]


def _answer_pods(world: World, effect: ListPods) -> list[Event]:
    pods = {
        worker.name: {"metadata": {"name": worker.name, "uid": f"{worker.name} {worker.revision}"}}
        for worker in world.run.workers[1:]
    }
    return [PodsListed(effect.attempt, pods), PodsListed(effect.attempt, problem="away")]


def _answer_cause(world: World, effect: FindCause) -> list[Event]:
    cause = Cause("rank 1 on w-0: ", "TypeError: no", is_sure_to_repeat=True)
    if effect.attempt % 2:
        cause = Cause("rank 1 on w-0: ", "ECC error", False, broken_worker="w-0")
    return [CauseFound(effect.attempt, None), CauseFound(effect.attempt, cause)]


def _answer_end_of_ranks(world: World, effect: AskRanksToEnd) -> list[Event]:
    return [RanksAskedToEnd(effect.attempt, 4), RanksAskedToEnd(effect.attempt, 0)]


def _answer_finished(world: World, effect: CountFinished) -> list[Event]:
    # All ranks of one_group() have finished.
    return [FinishedCounted(effect.attempt, 0), FinishedCounted(effect.attempt, 4)]


def _answer_ranks(world: World, effect: CheckRanks) -> list[Event]:
    return [RanksChecked(effect.attempt, False), RanksChecked(effect.attempt, True)]


def _answer_stacks(world: World, effect: ShowStacks) -> list[Event]:
    return [StacksShown(effect.attempt)]


def _answer_progress(world: World, effect: StopProgress) -> list[Event]:
    return [ProgressStopped(effect.attempt)]


def _answer_scale(world: World, effect: ScaleDown) -> list[Event]:
    return [WorkersScaled()]


_ANSWERS: dict[type[Any], Callable[[World, Any], list[Event]]] = {
    WriteRecord: _answer_write,
    ReadRecord: _answer_read,
    ReleaseRecord: _answer_release,
    ReadJob: _answer_job,
    ReadLease: _answer_lease,
    WatchWorkers: _answer_watch,
    Deliver: _answer_deliver,
    Prepare: _answer_prepare,
    PrepareNewcomers: _answer_newcomers,
    ListPods: _answer_pods,
    FindCause: _answer_cause,
    AskRanksToEnd: _answer_end_of_ranks,
    CountFinished: _answer_finished,
    CheckRanks: _answer_ranks,
    ShowStacks: _answer_stacks,
    StopProgress: _answer_progress,
    ScaleDown: _answer_scale,
}
