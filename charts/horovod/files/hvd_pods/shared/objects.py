"""The parts of the API server's objects that the rules use."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Dict

from hvd_pods.shared.contract import CLEANUP, LEASE, QUEUE, RENEWED

# An object of the API server.
Object = Dict[str, Any]
# Annotations of a Job.
KEPT_ANNOTATIONS = (CLEANUP, QUEUE, LEASE, RENEWED)
# The fields of a pod or a Job that decisions need: its environment and other annotations may
# contain secrets.
DECISIVE_FIELDS = {
    "metadata": ("name", "uid", "labels", "deletionTimestamp"),
    "spec": ("nodeName", "schedulingGates", "backoffLimit", "activeDeadlineSeconds", "suspend"),
}


def shorten_object(item: Object) -> Object:
    """Return the parts of an object that decisions need: DECISIVE_FIELDS, annotations, status.

    Of the annotations, only KEPT_ANNOTATIONS are kept. Parts that the object lacks are empty.
    """
    parts = {
        part: {name: value for name, value in item.get(part, {}).items() if name in names}
        for part, names in DECISIVE_FIELDS.items()
    }
    annotations = item["metadata"].get("annotations", {})
    notes = {name: annotations[name] for name in KEPT_ANNOTATIONS if name in annotations}
    if notes:
        parts["metadata"]["annotations"] = notes
    return {**parts, "status": item.get("status", {})}


def parse_time(text: str) -> float:
    """Parse a time of the API server into seconds since the epoch.

    Raises ValueError for any other form than `2026-01-31T12:00:00Z`.
    """
    parsed = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return parsed.timestamp()


def format_precise_time(moment: datetime) -> str:
    """Return a time of UTC as the API writes it where microseconds count."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def format_time(wall: float) -> str:
    """Return a time in seconds since the epoch as the API writes it, to the second."""
    return datetime.fromtimestamp(wall, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
