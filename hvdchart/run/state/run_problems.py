"""Find problems of a run's pods; the master uses the same rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hvd_pods.shared.pod_problems import diagnose, diagnose_refusal
from hvdchart.run.state.release import Object, event_time
from hvdchart.run.state.stalls import seconds_of

# Seconds for which a Secret with the release's keys may be missing: the master creates it.
_SECRET_GRACE_PERIOD_SECONDS = 5.0
_KEYS_GRACE_PERIOD_SECONDS = 60.0
_KEYS_VOLUME = 'volume "keys"'


@dataclass(frozen=True)
class Problem:
    """A problem of a pod, and what a user can do about it; `remedy` may be empty.

    `is_permanent`: it lasts until a user intervenes.
    """

    reason: str
    remedy: str
    is_permanent: bool = False


def problem_of(pod: Object, events: list[Object]) -> Problem | None:
    """Return what keeps a pod from doing its work; None if there is no problem.

    `events` are those about this pod, oldest first.
    """
    diagnosis = diagnose(pod, [event for event in events if not may_pass(event)])
    if not diagnosis.is_problem:
        return None
    return Problem(diagnosis.reason, diagnosis.remedy, diagnosis.is_permanent)


def why_ended(pod: Object) -> Problem | None:
    """Explain why a container of a pod ended, even if it runs again; None if no container ended."""
    if not any(_list_ends(pod)):
        return None
    diagnosis = diagnose(pod)
    return Problem(diagnosis.reason, diagnosis.remedy, diagnosis.is_permanent)


def may_pass(event: Object) -> bool:
    """Return whether a Secret has been missing for a short time only, by the event's own times."""
    message = str(event.get("message", ""))
    if event.get("reason") != "FailedMount" or "secret" not in message.lower():
        return False
    first = seconds_of(str(event.get("firstTimestamp")))
    last = seconds_of(event_time(event))
    seconds = (
        _KEYS_GRACE_PERIOD_SECONDS if _KEYS_VOLUME in message else _SECRET_GRACE_PERIOD_SECONDS
    )
    return first > 0 and last > 0 and last - first < seconds


def remedy_for_refusal(message: str) -> str:
    """Return what to do when the API server refuses to create a pod."""
    remedy = diagnose_refusal(message).remedy
    return remedy or "the message names the rule: change the values or the rule"


def waits_for(pod: Object) -> str:
    """Return Kubernetes' reason why a pod waits, such as ErrImagePull; empty when it is up."""
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return str(waiting.get("reason") or "Waiting")
    return "Pending" if pod.get("status", {}).get("phase") == "Pending" else ""


def last_failure(masters: Iterable[Object]) -> str:
    """Return the termination message of the last failed master; without one, its exit code.

    Empty if no master failed.
    """
    # When each master ended, and its message.
    ended: list[tuple[str, str]] = []
    evicted: list[str] = []
    for pod in masters:
        states = list(_list_ends(pod))
        for state in states:
            if state.get("exitCode"):
                ended.append((str(state.get("finishedAt", "")), _terminated_text(pod, state)))
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


def _list_ends(pod: Object) -> Iterator[Object]:
    """Yield the ends of a pod's containers: the current state and the previous one."""
    for container in pod.get("status", {}).get("containerStatuses") or []:
        for state in (container.get("lastState"), container.get("state")):
            if state and "terminated" in state:
                yield state["terminated"]


def _terminated_text(pod: Object, state: Object) -> str:
    if state.get("reason") == "OOMKilled":
        return f"the master ran out of memory (OOMKilled): {diagnose(pod).remedy}"
    message = str(state.get("message") or "").strip()
    return message or f"the master ended with exit code {state.get('exitCode')}"
