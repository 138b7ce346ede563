"""The workers' StatefulSets: how many pods they want, and why one was not made."""

from __future__ import annotations

from typing import Mapping

from kube import Api, Object


def scale(api: Api, replicas: Mapping[str, int]) -> None:
    """Set the number of each StatefulSet's workers."""
    for name, number in replicas.items():
        api.merge_patch(f"apps/statefulsets/{name}/scale", {"spec": {"replicas": number}})


def wake(api: Api, name: str, number: int) -> bool:
    """Ask for `number` workers where none are asked for; was it so?

    An attempt that took itself for the last let them go; an eviction or a roll-back brings another.
    """
    if api.get(f"apps/statefulsets/{name}/scale")["spec"].get("replicas", 0):
        return False
    scale(api, {name: number})
    return True


def refusal(api: Api, name: str, pod: str) -> str:
    """What the API server said when the StatefulSet last tried to make the pod; empty for nothing.

    A quota, Pod Security, a priority class or runtime class that is not there.
    """
    selector = f"involvedObject.kind=StatefulSet,involvedObject.name={name},reason=FailedCreate"
    events = api.get("core/events", {"fieldSelector": selector})["items"]
    return newest_about(events, pod)


def newest_about(events: list[Object], pod: str) -> str:
    """The newest message, of those that name the pod where there are any."""
    own = [event for event in events if pod in event.get("message", "")]
    newest = max(own or events, key=_time, default={})
    return str(newest.get("message", ""))


def _time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
