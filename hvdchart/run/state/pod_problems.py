"""What is wrong with the pods of a run, by the judgement that the master has, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hvd_pods.common.pod_problems import diagnose, diagnose_refusal
from hvdchart.run.state.release import Object, event_time
from hvdchart.run.state.stalls import seconds_of

# Seconds for which a Secret may be missing, and the keys of the release: its master makes these.
_SECRET_WITHIN = 5.0
_KEYS_WITHIN = 60.0
_KEYS = 'volume "keys"'


@dataclass(frozen=True)
class Problem:
    """What is wrong with a pod, and what a person can do about it; `remedy` may be empty.

    `is_permanent`: it lasts until somebody does something.
    """

    reason: str
    remedy: str
    is_permanent: bool = False


def problem_of(pod: Object, events: list[Object]) -> Problem | None:
    """What keeps a pod from doing its work; None while nothing does.

    `events` are those about this pod, oldest first.
    """
    found = diagnose(pod, [event for event in events if not may_pass(event)])
    if not found.is_problem:
        return None
    return Problem(found.reason, found.remedy, found.permanent)


def why_ended(pod: Object) -> Problem | None:
    """Why a container of a pod has ended, also of one that runs again; None where none has."""
    if not any(_terminated(pod)):
        return None
    found = diagnose(pod)
    return Problem(found.reason, found.remedy, found.permanent)


def may_pass(event: Object) -> bool:
    """Whether a Secret has been missing for a moment only, by the event's own times."""
    message = str(event.get("message", ""))
    if event.get("reason") != "FailedMount" or "secret" not in message.lower():
        return False
    first = seconds_of(str(event.get("firstTimestamp")))
    last = seconds_of(event_time(event))
    within = _KEYS_WITHIN if _KEYS in message else _SECRET_WITHIN
    return first > 0 and last > 0 and last - first < within


def remedy_for_refusal(message: str) -> str:
    """What to do when the API server refuses to create a pod."""
    known = diagnose_refusal(message).remedy
    return known or "the message names the rule: change the values or the rule"


def waits_for(pod: Object) -> str:
    """Kubernetes' word for what a pod waits for, such as ErrImagePull; empty when it is up."""
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return str(waiting.get("reason") or "Waiting")
    return "Pending" if pod.get("status", {}).get("phase") == "Pending" else ""


def last_failure(masters: Iterable[Object]) -> str:
    """The termination message of the last failed master; without one, its exit code.

    Empty when no master has failed.
    """
    # When each master ended, and what it said.
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


def _containers(pod: Object) -> Iterator[Object]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []


def _terminated(pod: Object) -> Iterator[Object]:
    """How the containers of a pod have ended: the present state and the one before it."""
    for container in pod.get("status", {}).get("containerStatuses") or []:
        for state in (container.get("lastState"), container.get("state")):
            if state and "terminated" in state:
                yield state["terminated"]


def _terminated_text(state: Object) -> str:
    if state.get("reason") == "OOMKilled":
        return "the master ran out of memory (OOMKilled): raise `master.resources.limits.memory`"
    message = str(state.get("message") or "").strip()
    return message or f"the master ended with exit code {state.get('exitCode')}"
