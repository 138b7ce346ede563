"""Counts the workers of a release that are ready, and its spares. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hvdchart.run.release import Object, Release


@dataclass
class Workers:
    """How many workers and spares there are; `dispensable` pods are not up, and not needed."""

    ready: int = 0
    wanted: int = 0
    spares_ready: int = 0
    spares_wanted: int = 0
    dispensable: list[Object] = field(default_factory=list)


def count_workers(release: Release, pods: Sequence[Object]) -> Workers:
    """Count workers: as many of each StatefulSet as the ranks need, whichever pods these are."""
    workers = Workers()
    for stateful_set in release.stateful_sets:
        metadata = stateful_set["metadata"]
        replicas = int(stateful_set["spec"].get("replicas", 0))
        # The chart notes how many of the replicas are spares. Scaled to 0, there are none.
        spares = min(int((metadata.get("annotations") or {}).get("horovod/spares", 0)), replicas)
        own = [pod for pod in pods if is_child(pod, metadata["name"])]
        ready, wanted = sum(map(is_ready, own)), replicas - spares
        workers.ready += min(ready, wanted) if spares else ready
        workers.wanted += wanted
        workers.spares_ready += min(max(ready - wanted, 0), spares)
        workers.spares_wanted += spares
        if spares and ready >= wanted:
            workers.dispensable += [pod for pod in own if not is_ready(pod)]
    return workers


def is_child(pod: Object, owner: str) -> bool:
    """Whether a pod is of the controller of this name."""
    owners = pod["metadata"].get("ownerReferences") or []
    return any(reference.get("name") == owner for reference in owners)


def is_ready(pod: Object) -> bool:
    """Whether a pod's readiness was seen."""
    return is_true({c["type"]: c for c in pod.get("status", {}).get("conditions") or []}, "Ready")


def is_true(conditions: Mapping[str, Object], kind: str) -> bool:
    """Whether a condition holds, of conditions by their type."""
    return bool(conditions.get(kind, {}).get("status") == "True")
