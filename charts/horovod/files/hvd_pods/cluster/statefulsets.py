"""The workers' StatefulSets: how many pods they have, and why one was not created."""

from __future__ import annotations

from http import HTTPStatus
from typing import Container, Mapping, Sequence

from hvd_pods.cluster.kube import Api, ApiError
from hvd_pods.pod.reporting import log
from hvd_pods.shared.objects import Object
from hvd_pods.shared.run import Run
from hvd_pods.shared.untrusted import one_line


def scale(api: Api, replicas: Mapping[str, int], retry_seconds: float | None = None) -> None:
    """Set the number of workers of each StatefulSet.

    Raises ApiError for the first one that cannot be scaled: those before it are scaled, those after
    it are not. `retry_seconds` applies to each call (cluster/kube.py).
    """
    for name, number in replicas.items():
        body = {"spec": {"replicas": number}}
        api.merge_patch(f"apps/statefulsets/{name}/scale", body, retry_seconds)


def scale_to_zero(api: Api, names: Sequence[str]) -> None:
    """Scale StatefulSets to 0.

    A failure is logged, with the command to do it by hand: it does not change how the run ended.
    """
    failed = []
    for name in names:
        try:
            scale(api, {name: 0})
        except ApiError as problem:
            # A StatefulSet that does not exist has no workers.
            if problem.status != HTTPStatus.NOT_FOUND:
                failed.append(name)
                log(f"cannot scale {name} to 0: {problem}")
    if failed:
        command = f"kubectl scale statefulset --replicas 0 {' '.join(failed)}"
        log(f"these workers still run: scale them down yourself with {command}")
    else:
        log("workers scaled to 0")


def fit_to_run(api: Api, run: Run, retry_seconds: float) -> None:
    """Give each StatefulSet the number of workers that the run starts with.

    Helm does so, but GitOps tools ignore the number, because the master changes it. A run that goes
    on with fewer workers keeps a number that a person or an autoscaler chose. A failure is logged.
    While the API server is unavailable, wait `retry_seconds` for only one StatefulSet: there may be
    many, and the training may begin without it. Workers that are then missing are scaled up later,
    during the wait for them.
    """
    for name, number in run.initial_workers.items():
        try:
            accepted = range(run.least_workers[name], number)
            set_number(api, name, number, retry_seconds, accepted)
        except ApiError as problem:
            log(f"cannot scale {name} to {number}: {problem}")
            if problem.is_temporary:
                log("the API server is away: workers beyond the run's numbers stay")
                return


def provide(api: Api, needed: Mapping[str, int], before: dict[str, int]) -> None:
    """Create missing workers; `before` gets the earlier numbers of the scaled StatefulSets.

    Workers of a failed run are used as they are. Raises ApiError, when some StatefulSets may be
    scaled up already: `before` has these.
    """
    for name, number in needed.items():
        current = api.get(f"apps/statefulsets/{name}/scale").get("spec", {}).get("replicas", 0)
        if current < number:
            before[name] = current
            scale(api, {name: number})


def set_number(
    api: Api, name: str, number: int, retry_seconds: float, accepted: Container[int] = ()
) -> None:
    """Scale a StatefulSet, and log it, unless it has this number of workers or one that is kept.

    Raises ApiError when the number can be neither read nor set within `retry_seconds`.
    """
    scale_object = api.get(f"apps/statefulsets/{name}/scale", retry_seconds=retry_seconds)
    current = scale_object.get("spec", {}).get("replicas", 0)
    if current != number and current not in accepted:
        scale(api, {name: number}, retry_seconds)
        log(f"{name} had {current} workers: scaled to {number}")


def is_gone(api: Api, name: str) -> bool:
    """Return whether no StatefulSet has this name; False if the API server does not respond."""
    try:
        api.get(f"apps/statefulsets/{name}/scale", retry_seconds=0.0)
    except ApiError as problem:
        return problem.status == HTTPStatus.NOT_FOUND
    return False


def creation_failure(api: Api, name: str) -> str:
    """Return the API server's message when the StatefulSet last failed to create a pod.

    Empty when it did not fail. Reasons are a quota, Pod Security, or a priority class or runtime
    class that does not exist. If events cannot be read, return the reason of that. Events about an
    earlier StatefulSet of this name, which have another UID, do not count.
    """
    selector = f"involvedObject.kind=StatefulSet,involvedObject.name={name},reason=FailedCreate"
    try:
        events, _ = api.list_all("core/events", {"fieldSelector": selector}, retry_seconds=0.0)
        scale_ = api.get(f"apps/statefulsets/{name}/scale", retry_seconds=0.0) if events else {}
    except ApiError as problem:
        return str(problem)
    uid = scale_.get("metadata", {}).get("uid")
    return newest_message([event for event in events if _is_of(event, uid)])


def find_evictions(api: Api, uids: Mapping[str, str], timeout_seconds: float) -> dict[str, str]:
    """Return why the kubelet has evicted pods, by their names; `uids` has their UIDs by name.

    Pods that were not evicted are left out, and so are pods without a UID: events of earlier pods
    have the same name. A failure is logged, and the result is then empty. `timeout_seconds`
    is that for the API server's response.
    """
    query = {"fieldSelector": "involvedObject.kind=Pod,reason=Evicted"}
    try:
        events, _ = api.list_all("core/events", query, retry_seconds=0.0, timeout=timeout_seconds)
    except ApiError as problem:
        log(f"cannot read whether workers were evicted: {problem}")
        return {}
    evictions = {}
    for name, uid in uids.items():
        pod_events = [event for event in events if _is_about(event, name, uid)]
        if pod_events:
            evictions[name] = one_line(newest_message(pod_events))
    return evictions


def _is_about(event: Object, name: str, uid: str) -> bool:
    """Return whether an event is about the pod of this name and UID."""
    pod = event.get("involvedObject", {})
    return bool(pod.get("name") == name and pod.get("uid") == uid)


def _is_of(event: Object, uid: str | None) -> bool:
    """Return whether an event is about the object of this UID; one without a UID counts."""
    about = event.get("involvedObject", {}).get("uid")
    return not uid or not about or bool(about == uid)


def newest_message(events: list[Object]) -> str:
    """Return the newest message; empty without events.

    For refused pods this message applies to all: the controller stops at the first one.
    """
    newest = max(events, key=_time_of, default={})
    return str(newest.get("message", ""))


def _time_of(event: Object) -> str:
    """Return the last time of an event, in a form that sorts by time; empty if it has none."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
