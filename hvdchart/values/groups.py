"""The groups of workers in complete values, merged as the chart merges them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The lists to which a group's own entries are added; any other list replaces the workers' own.
_ADDED = ("env", "volumes", "volumeMounts")


def worker_groups(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each group with all keys of `worker`, as `horovod.mergeGroup` of the chart makes it.

    Without `workerGroups` there is one group, which is named `worker`.
    """
    groups = []
    for own in values.get("workerGroups") or [{"name": "worker"}]:
        group = dict(values.get("worker") or {})
        group |= {key: values.get(key) or [] for key in ("volumes", "volumeMounts")}
        added = {key: [*(group.get(key) or []), *own[key]] for key in _ADDED if own.get(key)}
        groups.append(_override(group, {**own, **added}))
    return groups


def _override(into: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge maps key by key; null deletes a key, and an empty map or list clears it."""
    merged = dict(into)
    for key, value in own.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and value:
            present = merged.get(key)
            merged[key] = _override(present if isinstance(present, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged
