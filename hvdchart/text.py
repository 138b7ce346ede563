"""Wording that several reports share."""

from __future__ import annotations

from collections.abc import Iterable


def join_names(names: Iterable[str], limit: int = 3) -> str:
    """The first `limit` names, and how many more there are: a, b, c and 2 more."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
