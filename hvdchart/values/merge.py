"""Maps laid on maps as Helm lays one values file on another. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

from hvdchart.spec.yaml_tree import Plain


def laid_over(base: Mapping[str, Plain], over: Mapping[str, Plain]) -> dict[str, Plain]:
    """`over` laid on `base`: maps merge, lists and scalars replace, a null stays as a null.

    A null is Helm's word for "delete", which Helm acts on when it comes to the chart's defaults;
    `settled` does so for what the chart has no default for.
    """
    result = copy.deepcopy(dict(base))
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            result[key] = laid_over(old, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def settled(values: Mapping[str, Plain], defaults: Plain) -> dict[str, Plain]:
    """`values` without the nulls that delete nothing of the chart's `defaults`.

    Helm would pass those on, and a template or the API server would read them as it likes.
    """
    known = defaults if isinstance(defaults, Mapping) else {}
    result = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            result[key] = settled(value, known.get(key))
        elif value is not None or known.get(key) is not None:
            result[key] = value
    return result


def nulls(values: Mapping[str, Plain], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all nulls in maps of maps."""
    for key, value in values.items():
        if value is None:
            yield (*above, key)
        elif isinstance(value, Mapping):
            yield from nulls(value, (*above, key))
