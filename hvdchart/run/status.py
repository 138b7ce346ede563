"""Determines the state of a release's run, the reason and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from hvd_pods.common.hostile import parse_count
from hvd_pods.common.lease import LEASE_KEPT
from hvdchart.run.pod_problems import advice_for_refusal, problem_of, waits_for
from hvdchart.run.progress import Progress, read_progress, step_time
from hvdchart.run.ranks import count_workers
from hvdchart.run.release import Object, Release, component_of, event_time, is_event_of
from hvdchart.run.stalls import Stall, parse_stall, place_of, seconds_of
from hvdchart.spec.run_options import COMMAND, RUN, in_options
from hvdchart.text import join_names

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
_MASTER = "master"
# Upper limit of the attempts and spares that a record or an annotation may give.
_MOST = 1_000_000
_NOT_A_NUMBER = "the loss is NaN; launch.failOnNaN=true ends such a run"
# The reason of the event that a Job or StatefulSet controller writes when a pod is refused.
_REFUSED = "FailedCreate"
# The master's events after which no rank of before keeps others waiting.
_GOES_ON = ("Training", "Failed", "Finished")
# Seconds to which the times of steps and events are rounded.
_ROUNDING = 1.0


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
    """A run: its state, the reason for it and what to do (`advice`); texts may be empty.

    Workers are as many as the ranks need, whichever pods these are; further ones are spares.
    `attempt` counts from 1 and `attempts` is how many are allowed; both are 0 without a Job.
    `progress` is what the script has reported, None before it does; `stall` is the rank that the
    others wait for now. `started` and `ended` are in RFC 3339, and empty where they are not known.
    """

    name: str
    state: State
    reason: str
    advice: str
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
    started: str = ""
    ended: str = ""

    def seconds(self, now: float) -> float | None:
        """How long the run has lasted, until its end or `now`; None where that is not known."""
        began = seconds_of(self.started)
        until = seconds_of(self.ended) if self.over else now
        return max(0.0, until - began) if began and until else None

    def with_place(self, lines: Iterable[str]) -> Status:
        """This status with where the stalled rank is, as the lines of its master's log say."""
        if self.stall is None:
            return self
        return replace(self, stall=replace(self.stall, place=place_of(self.stall.rank, lines)))

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


def run_status(release: Release) -> Status:
    """The status of a release's newest run."""
    job = newest_job(release)
    pods = [pod for pod in release.pods if job is None or not belongs_to_other_job(pod, job)]
    record = run_record(release)
    workers = _count_workers(release, pods, count_workers(record))
    state, reason, advice = _judge(release, job, pods, workers)
    is_of_script = made_by_run(job)
    word = in_options if is_of_script else str
    name = ""
    attempt = 0
    attempts = 0
    if job:
        name = str(job["metadata"]["name"])
        # Six is Kubernetes' own default.
        attempts = int(job["spec"].get("backoffLimit", 6)) + 1
        # The record counts the master's attempts; the Job counts only masters that were lost.
        failed = int(job.get("status", {}).get("failed", 0))
        attempt = parse_count(record.get("attempts", ""), _MOST) or min(failed + 1, attempts)
    progress = read_progress(record)
    return Status(
        name=release.name,
        state=state,
        reason=word(reason),
        advice=word(advice),
        job=name,
        attempt=attempt,
        attempts=attempts,
        workers_ready=workers.ready,
        workers_wanted=workers.wanted,
        spares_ready=workers.spares_ready,
        spares_wanted=workers.spares_wanted,
        pods=tuple(_pod_status(pod, release) for pod in sorted(pods, key=_by_name)),
        progress=progress,
        stall=_stall(release, job, record) if job and state == "running" else None,
        started=str(job["metadata"].get("creationTimestamp") or "") if job else "",
        ended=_ended(job, record) if state in ("finished", "failed") else "",
        warning=word(_NOT_A_NUMBER) if progress and progress.loss == "nan" else "",
        is_stuck=state == "waiting" and _is_stuck(release, pods),
        is_of_script=is_of_script,
    )


def _is_stuck(release: Release, pods: list[Object]) -> bool:
    masters = [pod for pod in pods if component_of(pod) == _MASTER]
    problems = [problem_of(pod, release.events) for pod in masters]
    return bool(problems) and all(problem and problem.is_permanent for problem in problems)


def _ended(job: Object | None, record: Mapping[str, str]) -> str:
    """When a run ended: by its Job, else by the record."""
    status = job.get("status", {}) if job else {}
    for condition in status.get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition.get("status") == "True":
            said = status.get("completionTime") or condition.get("lastTransitionTime")
            return str(said or record.get("time", ""))
    return record.get("time", "")


def _stall(release: Release, job: Object, record: Mapping[str, str]) -> Stall | None:
    """The rank that the others wait for: nothing has gone on since the master has named it."""
    stall = None
    for event in release.events:
        if not is_event_of(event, job):
            continue
        if event.get("reason") == "Stalled":
            stall = parse_stall(str(event.get("message", "")), event_time(event)) or stall
        elif event.get("reason") in _GOES_ON:
            stall = None
    stepped = seconds_of(step_time(record))
    if stall is None or stepped > stall.named + _ROUNDING:
        return None
    return replace(stall, is_sure=stepped > 0)


def newest_job(release: Release) -> Object | None:
    """The Job of the newest run; None without one.

    An upgrade deletes the older Job, which may take a moment.
    """
    present = [job for job in release.jobs if "deletionTimestamp" not in job["metadata"]]
    return max(present, key=lambda job: str(job["metadata"]["creationTimestamp"]), default=None)


def run_record(release: Release) -> Mapping[str, str]:
    """The record of the newest run; that of an earlier run says nothing about this one.

    Without a Job, the run is that of the record.
    """
    job = newest_job(release)
    record = release.record
    if job is None:
        return record
    metadata = job["metadata"]
    is_own = record.get("job") == metadata["name"]
    uids = {record.get("uid", ""), metadata.get("uid", "")} - {""}
    return record if is_own and len(uids) < 2 else {}


def made_by_run(job: Object | None) -> bool:
    """Whether the command `run` has made the Job: its user has no spec, and knows no values."""
    if job is None:
        return False
    annotations = job["spec"]["template"].get("metadata", {}).get("annotations") or {}
    return bool(annotations.get(COMMAND) == RUN)


# State, reason, advice.
Judgement: TypeAlias = tuple[State, str, str]


def _judge(
    release: Release, job: Object | None, pods: list[Object], workers: _Workers
) -> Judgement:
    if job is None:
        if not release.exists:
            reason = "this namespace has no objects of the release"
            return "not found", reason, "list all runs: hvdchart list --all-namespaces"
        # For a Job that its time to live or a person has deleted.
        if release.record.get("state") == "Finished":
            return "finished", _what_lacks(release), ""
        if release.record.get("state") == "Failed":
            return "failed", release.record.get("reason", ""), ""
        if release.record.get("job"):
            return "not found", "the run's Job was deleted", "deploy it again to start a new run"
        return "not found", _why_no_job(release), "deploy it again, or remove what is there"
    conditions = {c["type"]: c for c in job.get("status", {}).get("conditions") or []}
    masters = [pod for pod in pods if component_of(pod) == _MASTER]
    if _is_true(conditions, "Complete"):
        return "finished", _what_lacks(release), ""
    if _is_true(conditions, "Failed"):
        return _failed(conditions["Failed"], masters, pods, release)
    record = run_record(release)
    if record.get("lease") == LEASE_KEPT and record.get("state") == "Finished":
        return "finished", _what_lacks(release), ""
    if record.get("lease") == LEASE_KEPT and record.get("state") == "Failed":
        return "failed", record.get("reason", ""), ""
    if job["spec"].get("suspend"):
        return "suspended", "the run is stopped", f"continue it: {_restart(release, job)}"
    if record.get("state") in ("Finished", "Failed"):
        # The master stores results and scales the workers down, which are needed no more.
        return "finishing", record.get("reason", ""), ""
    if not release.stateful_sets:
        again = f"create them again: {_restart(release, job)}"
        return "waiting", "the StatefulSets of the run's workers were deleted", again
    needed = [pod for pod in pods if pod not in workers.dispensable]
    reason, advice = _problems(release, needed, _refusals(release, job, needed))
    if reason:
        return "waiting", reason, advice
    last = record.get("reason") or _last_failure(masters)
    if last and not any(pod.get("status", {}).get("phase") == "Running" for pod in masters):
        return "retrying", f"the last attempt failed: {last}", ""
    if not workers.are_enough or not masters:
        waiting: dict[str, list[str]] = {}
        for pod in needed:
            what = waits_for(pod)
            if what:
                waiting.setdefault(what, []).append(pod["metadata"]["name"])
        reason = f"{workers.ready} of {workers.wanted} workers are up"
        if waiting:
            reason += f"; {_group_names(waiting)}"
        return "waiting", reason, ""
    # Spares that do not come up keep nothing from training.
    spare, advice = _problems(release, workers.dispensable)
    reasons = []
    if workers.used and workers.used < workers.wanted:
        reasons.append(f"it trains on {workers.used} of {workers.wanted} workers")
    if last:
        reasons.append(f"an earlier attempt failed: {last}")
    if spare:
        reasons.append(spare)
    return "running", "; ".join(reasons), advice


def _restart(release: Release, job: Object) -> str:
    """The command that starts the run again."""
    return f"hvdchart restart {release.name} -n {job['metadata'].get('namespace', 'default')}"


def _why_no_job(release: Release) -> str:
    """Why a release has no Job although no master has ever written its record."""
    for event in release.events:
        about = event.get("involvedObject", {})
        if about.get("kind") == "Job" and event.get("reason") == "SuccessfulCreate":
            return "the run's Job was deleted before its master began"
    return (
        "the run has no Job, so that no master starts it or ends its workers: the API server may "
        "have refused the Job, as a quota or a webhook does"
    )


def _what_lacks(release: Release) -> str:
    """Why a run that finished has no results or workers; empty where nothing is wrong."""
    how = release.record.get("results", "")
    note = release.record.get("lease", "")
    reasons = []
    if how not in ("", "Stored"):
        reasons.append(f"the results could not be stored: {how}")
    if note not in ("", LEASE_KEPT):
        reasons.append(f"its workers were removed: {note}")
    return "; ".join(reasons)


def _failed(
    condition: Object, masters: list[Object], pods: list[Object], release: Release
) -> Judgement:
    """Why a run has failed: what its last master said, the time limit, a worker's problem."""
    reason = _last_failure(masters)
    advice = ""
    if condition.get("reason") == "DeadlineExceeded":
        reason = f"{condition.get('message', '')}; {reason}".strip("; ")
        advice = "raise master.activeDeadlineSeconds (train.deadlineSeconds in a spec)"
    for pod in pods:
        problem = problem_of(pod, release.events)
        if problem and component_of(pod) != _MASTER:
            reason = f"{reason}; {pod['metadata']['name']}: {problem.reason}".strip("; ")
            advice = advice or problem.advice
            break
    return "failed", reason or str(condition.get("message", "")), advice


def _problems(
    release: Release, pods: list[Object], refusals: Iterable[tuple[str, str]] = ()
) -> tuple[str, str]:
    """What keeps pods from running, each reason once with its pods; and the advice for each."""
    problems: dict[str, list[str]] = {}
    remedies: dict[str, str] = {}
    # Refusals first: without a master, the present pods may be those of an earlier run.
    for owner, reason in refusals:
        problems.setdefault(reason, []).append(owner)
        remedies.setdefault(reason, advice_for_refusal(reason))
    for pod in pods:
        problem = problem_of(pod, release.events)
        if problem and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            problems.setdefault(problem.reason, []).append(pod["metadata"]["name"])
            remedies[problem.reason] = problem.advice
    return _group_names(problems), "; ".join(dict.fromkeys(filter(None, remedies.values())))


def _refusals(release: Release, job: Object, pods: list[Object]) -> Iterator[tuple[str, str]]:
    """Owners whose pods the API server refuses, and why: quota, Pod Security, a webhook."""
    for owner in [job, *release.stateful_sets]:
        name = owner["metadata"]["name"]
        if any(_is_child(pod, name) for pod in pods):
            continue
        for event in reversed(release.events):
            if event.get("reason") == _REFUSED and is_event_of(event, owner):
                yield name, f"cannot create a pod: {event.get('message', '')}"
                break


def _last_failure(masters: list[Object]) -> str:
    """The termination message of the last failed attempt; without one, its exit code.

    Empty when no attempt has failed.
    """
    # When each attempt ended, and what it said.
    ended: list[tuple[str, str]] = []
    evicted: list[str] = []
    for pod in masters:
        states = list(_terminated(pod))
        for state in states:
            if state.get("exitCode"):
                ended.append((str(state.get("finishedAt", "")), _terminated_text(state)))
        status = pod.get("status", {})
        if status.get("phase") == "Failed" and not states:
            text = f"{status.get('reason', '')}: {status.get('message', '')}"
            evicted.append(text.strip(": "))
    if ended:
        _, last = max(ended)
        return last
    return max(evicted, default="")


def _terminated(pod: Object) -> Iterator[Object]:
    """How the containers of a pod have ended: the present state and the one before it."""
    for container in pod.get("status", {}).get("containerStatuses") or []:
        for state in (container.get("lastState"), container.get("state")):
            if state and "terminated" in state:
                yield state["terminated"]


def _terminated_text(state: Object) -> str:
    if state.get("reason") == "OOMKilled":
        return "the master ran out of memory (OOMKilled): raise master.resources.limits.memory"
    message = str(state.get("message") or "").strip()
    return message or f"the master ended with exit code {state.get('exitCode')}"


def _group_names(names: dict[str, list[str]]) -> str:
    """hvd-worker-0, hvd-worker-1: Pending; hvd-worker-2: ErrImagePull."""
    return "; ".join(f"{join_names(sorted(own))}: {reason}" for reason, own in names.items())


def _pod_status(pod: Object, release: Release) -> PodStatus:
    status = pod.get("status", {})
    problem = problem_of(pod, release.events)
    restarts = sum(int(c.get("restartCount", 0)) for c in status.get("containerStatuses") or [])
    deleting = "deletionTimestamp" in pod["metadata"]
    state = "Terminating" if deleting else waits_for(pod) or str(status.get("phase", "Unknown"))
    node = str(pod.get("spec", {}).get("nodeName") or "")
    return PodStatus(
        pod["metadata"]["name"], state, node, restarts, problem.reason if problem else ""
    )


def belongs_to_other_job(pod: Object, job: Object) -> bool:
    """Whether a pod is the master of another run than the Job's."""
    labels = pod["metadata"].get("labels") or {}
    owner = labels.get("batch.kubernetes.io/job-name")
    return owner is not None and owner != job["metadata"]["name"]


def _by_name(pod: Object) -> tuple[str, int, str]:
    """Sort key: worker-2 comes before worker-10."""
    name = str(pod["metadata"]["name"])
    prefix, _, ordinal = name.rpartition("-")
    return (prefix, int(ordinal), "") if ordinal.isdecimal() else (name, 0, name)


@dataclass
class _Workers:
    """How many workers and spares there are; `dispensable` pods are not up, and not needed.

    `used`: how many have ranks, of a run that may go on with fewer than it wants; else 0.
    """

    used: int = 0
    are_enough: bool = True
    ready: int = 0
    wanted: int = 0
    spares_ready: int = 0
    spares_wanted: int = 0
    dispensable: list[Object] = field(default_factory=list)


def _count_workers(release: Release, pods: Sequence[Object], used: int) -> _Workers:
    """Count workers: as many of each StatefulSet as the ranks need, whichever pods these are.

    `used`: how many have ranks as the record says, 0 before the run has trained.
    """
    workers = _Workers()
    for stateful_set in release.stateful_sets:
        metadata = stateful_set["metadata"]
        replicas = int(stateful_set["spec"].get("replicas", 0))
        # The chart notes how many of the replicas are spares. Scaled to 0, there are none.
        notes = metadata.get("annotations") or {}
        spares = min(parse_count(str(notes.get("horovod/spares", "")), _MOST) or 0, replicas)
        minimum = parse_count(str(notes.get("horovod/minimum", "")), _MOST)
        own = [pod for pod in pods if _is_child(pod, metadata["name"])]
        ready = sum(map(is_ready, own))
        wanted = replicas - spares
        needed = wanted
        if minimum and used:
            workers.used = used
            needed = min(minimum, wanted)
        workers.are_enough = workers.are_enough and ready >= needed
        workers.ready += min(ready, wanted) if spares else ready
        workers.wanted += wanted
        workers.spares_ready += min(max(ready - wanted, 0), spares)
        workers.spares_wanted += spares
        if (spares or needed < wanted) and ready >= needed:
            workers.dispensable += [pod for pod in own if not is_ready(pod)]
    return workers


def _is_child(pod: Object, owner: str) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return any(reference.get("name") == owner for reference in owners)


def is_ready(pod: Object) -> bool:
    """Whether a pod serves."""
    conditions = {c["type"]: c for c in pod.get("status", {}).get("conditions") or []}
    return _is_true(conditions, "Ready")


def _is_true(conditions: Mapping[str, Object], kind: str) -> bool:
    return bool(conditions.get(kind, {}).get("status") == "True")
