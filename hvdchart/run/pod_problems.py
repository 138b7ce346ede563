"""What is wrong with the pods of a run, by the judgement that the master has, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hvd_pods.common.pod_problems import diagnose, diagnose_refusal
from hvdchart.run.release import Object, is_event_of


@dataclass(frozen=True)
class Problem:
    """What is wrong with a pod, and what a person can do about it; `advice` may be empty.

    `is_permanent`: it lasts until somebody does something.
    """

    reason: str
    advice: str
    is_permanent: bool = False


def problem_of(pod: Object, events: list[Object]) -> Problem | None:
    """What keeps a pod from doing its work; None while nothing does. Events come oldest first."""
    found = diagnose(pod, [event for event in events if is_event_of(event, pod)])
    if not found.is_problem:
        return None
    return Problem(found.reason, found.remedy, found.permanent)


def advice_for_refusal(message: str) -> str:
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


def _containers(pod: Object) -> Iterator[Object]:
    status = pod.get("status", {})
    yield from status.get("initContainerStatuses") or []
    yield from status.get("containerStatuses") or []
