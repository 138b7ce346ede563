"""The objects of one release of the chart: Jobs, StatefulSets, pods, events. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from hvd_pods.shared.contract import COMPONENT_LABEL, INSTANCE_LABEL, NAME_LABEL

Object: TypeAlias = dict[str, Any]
# The label selector of the objects of all releases of the chart.
CHART_SELECTOR = f"{NAME_LABEL}=horovod"


@dataclass(frozen=True)
class Release:
    """One release, with its objects as plain dicts in the Kubernetes API's own form."""

    name: str
    jobs: list[Object]
    stateful_sets: list[Object]
    pods: list[Object]
    events: list[Object] = field(default_factory=list)
    # The last run's state, attempts and outcome, which the master writes (the chart's
    # hvd_pods/shared/record.py).
    record: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def prefix(self) -> str:
        """The prefix of the objects' names: the release's name, or its `fullnameOverride`."""
        jobs = sorted(self.jobs, key=lambda job: str(job["metadata"].get("creationTimestamp", "")))
        prefixes = [str(job["metadata"]["name"]).rpartition("-master-")[0] for job in jobs[-1:]]
        # The Job has a time to live. StatefulSets name the chart's Service: its name is the prefix.
        prefixes += [
            str(stateful_set["spec"].get("serviceName", "")) for stateful_set in self.stateful_sets
        ]
        return next(filter(None, prefixes), self.name)

    def has_event(self, event: Object) -> bool:
        """Return whether an event is about one of the objects, deleted ones included."""
        name = str(event.get("involvedObject", {}).get("name", ""))
        return name == self.prefix or name.startswith(f"{self.prefix}-")

    @property
    def exists(self) -> bool:
        """Whether the release has any object in the namespace."""
        return bool(self.jobs or self.stateful_sets or self.pods)


def lacks_image(node: Object, reference: str) -> bool:
    """Return whether a node does not list an image.

    resnet:1 is listed as docker.io/library/resnet:1, and team/resnet:1 as docker.io/team/resnet:1.
    """
    known_as = {reference, f"docker.io/{reference}", f"docker.io/library/{reference}"}
    images = node.get("status", {}).get("images") or []
    return known_as.isdisjoint(name for image in images for name in image.get("names") or [])


def component_of(pod: Object) -> str:
    """Return the pod's component and main container: master, worker, tensorboard."""
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(COMPONENT_LABEL, "worker"))


def is_child(item: Object, owner: str) -> bool:
    """Return whether a controller of this name owns an object."""
    owners = item["metadata"].get("ownerReferences") or []
    return any(reference.get("name") == owner for reference in owners)


def condition_of(item: Object, kind: str) -> Object | None:
    """Return the condition of a kind in an object's status; None unless it is true."""
    for condition in item.get("status", {}).get("conditions") or []:
        if condition["type"] == kind and condition.get("status") == "True":
            matching: Object = condition
            return matching
    return None


def is_ready(pod: Object) -> bool:
    """Return whether a pod is ready."""
    return condition_of(pod, "Ready") is not None


def release_selector(name: str) -> str:
    """Return the label selector of a release's objects."""
    return f"{CHART_SELECTOR},{INSTANCE_LABEL}={name}"


def is_event_of(event: Object, item: Object) -> bool:
    """Return whether an event is about this object, and not about an earlier one of the same name.

    An event without a UID matches.
    """
    about = event.get("involvedObject", {})
    metadata = item["metadata"]
    uids = ("", metadata.get("uid", ""))
    return bool(about.get("name") == metadata["name"] and about.get("uid", "") in uids)


def event_time(event: Object) -> str:
    """Return the last time of an event, in RFC 3339; empty if it has none."""
    series = event.get("series") or {}
    time = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(time or event["metadata"].get("creationTimestamp", ""))


def event_order(event: Object) -> tuple[str, str]:
    """Sort key: the time, then the name; the master numbers its events within a second."""
    return event_time(event), str(event["metadata"].get("name", ""))
