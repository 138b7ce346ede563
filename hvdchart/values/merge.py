"""Merge values as Helm merges values files, and handle the nulls that delete defaults."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from hvdchart.spec.overlays import merge_trees
from hvdchart.spec.yaml_tree import Plain


def merge_values(base: Mapping[str, Plain], newer: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return a copy of `base` with `newer` merged into it; a null in `newer` stays a null.

    For Helm, a null deletes the chart's default. `omit_needless_nulls` removes the nulls for which
    the chart has no default.
    """
    return copy.deepcopy(dict(merge_trees(base, newer)))


def merged_groups(values: Mapping[str, Plain]) -> list[dict[str, Plain]]:
    """Return the worker groups of complete values, each merged into `worker` as in the templates.

    A map merges key by key, and null, {} or [] clears the worker's value. Entries of env, volumes
    and volumeMounts are added to the entries of all workers. A digest belongs to its repository and
    tag. Without groups, the workers are one.
    The templates' rule is horovod.mergeGroup in charts/horovod/templates/facts/_groups.tpl.
    """
    worker = dict(values.get("worker") or {})
    worker |= {key: values.get(key) for key in ("volumes", "volumeMounts")}
    groups = []
    for entry in values.get("workerGroups") or [{"name": "worker"}]:
        group = dict(entry)
        for key in ("env", "volumes", "volumeMounts"):
            if entry.get(key):
                group[key] = [*(worker.get(key) or ()), *entry[key]]
        base = dict(worker)
        if "image" in worker:
            base["image"] = _inherited_image(worker["image"], entry.get("image"))
        groups.append(
            merge_trees(base, group, lambda path, value: value is None, empty_clears=True)
        )
    return groups


def merge_images(
    image: Mapping[str, Any] | None, overrides: Mapping[str, Any] | None
) -> dict[str, Plain]:
    """Return an image with some keys overridden.

    The templates' rule is horovod.mergedImage in charts/horovod/templates/common/_image.tpl.
    """
    changes = {key: value for key, value in (overrides or {}).items() if value}
    return _inherited_image(image, overrides) | changes


def _inherited_image(
    image: Mapping[str, Any] | None, overrides: Mapping[str, Any] | None
) -> dict[str, Plain]:
    """Return the keys of an image that stay when others are overridden.

    A digest belongs to its repository and tag.
    """
    inherited = dict(image or {})
    changed = {key for key, value in (overrides or {}).items() if value}
    if changed & {"repository", "tag", "digest"}:
        inherited.pop("digest", None)
    if "digest" in changed:
        inherited.pop("tag", None)
    return inherited


def omit_needless_nulls(values: Mapping[str, Plain], defaults: Plain) -> dict[str, Plain]:
    """Return `values` without the nulls that delete none of the chart's `defaults`.

    Helm would pass such nulls on to the templates, which expect a value or no key at all.
    """
    default_map = defaults if isinstance(defaults, Mapping) else {}
    result = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            result[key] = omit_needless_nulls(value, default_map.get(key))
        elif value is not None or default_map.get(key) is not None:
            result[key] = value
    return result


def has_null(values: Mapping[str, Plain]) -> bool:
    """Return whether there is a null in these maps of maps."""
    for value in values.values():
        if value is None or (isinstance(value, Mapping) and has_null(value)):
            return True
    return False


def drop_nulls(value: Plain) -> Plain:
    """Return `value` without the nulls in its maps."""
    if isinstance(value, Mapping):
        return {k: drop_nulls(child) for k, child in value.items() if child is not None}
    if isinstance(value, list):
        return [drop_nulls(child) for child in value]
    return value
