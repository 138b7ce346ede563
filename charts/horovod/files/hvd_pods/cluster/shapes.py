"""The shape of the API server's objects, as far as this package reads them.

Everything that it answers goes through `fit`: what comes after it may rely on the types here.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Dict

Object = Dict[str, Any]
# The text that says that no EndpointSlice is left: a run without its Service cannot go on for long.
# A Service's controller keeps an empty slice of one without pods.
NO_SERVICE = "there is no EndpointSlice of Service"
# Seconds for which a call before the training is repeated; the training starts without it.
START_RETRY_SECONDS = 10.0
# Seconds for which a call between two attempts is repeated, and the longest wait for its answer.
AGAIN_RETRY_SECONDS = 2.0
# The API's numbers have 64 bits.
LARGEST = 1 << 63


def parse_time(text: str) -> float:
    """Return a time of the API server's, in seconds since the epoch. Raises ValueError."""
    parsed = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    return parsed.timestamp()


def format_time(wall: float) -> str:
    """Return a time in seconds since the epoch as the API writes it, to the second."""
    return datetime.fromtimestamp(wall, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Texts:
    """The shape of a map from texts to texts."""


METADATA = {
    **dict.fromkeys(("name", "uid", "resourceVersion", "continue"), str),
    "labels": Texts,
    "annotations": Texts,
    "deletionTimestamp": parse_time,
}
WHY = {"reason": str, "message": str}
STATE = {"waiting": WHY, "terminated": {"exitCode": int, **WHY}, "running": {}}
CONTAINER = {"name!": str, "image": str, "state": STATE, "lastState": STATE}
OBJECT: dict[str, Any] = {
    **WHY,
    "metadata!": METADATA,
    "data": Texts,
    "lastTimestamp": str,
    "eventTime": str,
    "involvedObject": {"name": str, "uid": str},
    "spec": {
        **dict.fromkeys(("replicas", "backoffLimit", "activeDeadlineSeconds"), int),
        "suspend": bool,
        "nodeName": str,
        "schedulingGates": [{"name!": str}],
    },
    "status": {
        **WHY,
        "phase": str,
        "failed": int,
        "startTime": parse_time,
        "conditions": [{"type!": str, "status!": str, **WHY}],
        "containerStatuses": [CONTAINER],
        "initContainerStatuses": [CONTAINER],
    },
    "addressType": str,
    "endpoints": [
        {
            "addresses!": [str],
            "conditions": {"serving": bool, "terminating": bool},
            "nodeName": str,
            "targetRef": {"kind": str, "name": str, "uid": str},
        }
    ],
}
ITEM = {**OBJECT, "metadata!": {**METADATA, "name!": str}}
LIST = {"metadata!": METADATA, "items": [ITEM]}


def fit(value: Any, shape: Any, place: str = "it") -> Any:
    """Return a value without nulls if it has this shape. Raises ValueError.

    Fields with `!` must be there; fields that the shape does not name may be anything.
    """
    if isinstance(shape, dict):
        _require(value, dict, place)
        kept = {name: item for name, item in value.items() if item is not None}
        for field, inner in shape.items():
            name = field.rstrip("!")
            if name in kept:
                kept[name] = fit(kept[name], inner, f"{place}.{name}")
            elif field != name:
                raise ValueError(f"{place} has no {name}")
        return kept
    if isinstance(shape, list):
        return [fit(item, shape[0], f"{place}[]") for item in _require(value, list, place)]
    if shape is Texts:
        for text in _require(value, dict, place).values():
            _require(text, str, place)
    elif shape is parse_time:
        parse_time(_require(value, str, place))
    elif isinstance(_require(value, shape, place), int) and abs(value) >= LARGEST:
        raise ValueError(f"{place} is too large")
    return value


def _require(value: Any, kind: type, place: str) -> Any:
    # In Python, True is a number.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{place} is no {kind.__name__}")
    return value
