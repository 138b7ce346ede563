"""Merges values as Helm merges values files, and handles the nulls that delete defaults."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

from hvdchart.spec.overlays import merge
from hvdchart.spec.yaml_tree import Plain


def merge_values(base: Mapping[str, Plain], newer: Mapping[str, Plain]) -> dict[str, Plain]:
    """A copy of `base` with `newer` merged into it; a null in `newer` stays a null.

    To Helm a null means "delete the chart's default"; `omit_needless_nulls` removes those for
    which the chart has no default.
    """
    merged = merge(base, newer, _entries, lambda _, entries: entries)
    return copy.deepcopy(dict(merged))


def _entries(value: Plain) -> Mapping[str, Plain] | None:
    return value if isinstance(value, Mapping) else None


def omit_needless_nulls(values: Mapping[str, Plain], defaults: Plain) -> dict[str, Plain]:
    """`values` without the nulls that delete none of the chart's `defaults`.

    Helm would pass those on to the templates, which expect a value or no key at all.
    """
    known = defaults if isinstance(defaults, Mapping) else {}
    result = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            result[key] = omit_needless_nulls(value, known.get(key))
        elif value is not None or known.get(key) is not None:
            result[key] = value
    return result


def null_paths(
    values: Mapping[str, Plain], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """The paths of all nulls in maps of maps."""
    for key, value in values.items():
        if value is None:
            yield (*above, key)
        elif isinstance(value, Mapping):
            yield from null_paths(value, (*above, key))
