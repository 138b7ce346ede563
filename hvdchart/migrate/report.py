"""Writes a migration as text: the values file with what to check, and the report. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from hvdchart.migrate.convert import Migration
from hvdchart.migrate.ledger import OUTCOMES, Entry
from hvdchart.values.render import dump

_ITEM = re.compile(r"\[[0-9]+\]$")


def values_text(migration: Migration, origin: str) -> str:
    """The values file; `origin` names the file that it was made from."""
    release = migration.release or "NAME"
    namespace = f" --namespace {migration.namespace}" if migration.namespace else ""
    head = [
        f"Migrated from {origin} by `python -m hvdchart migrate`. To install it:",
        f"  helm install {release} charts/horovod{namespace} --values THIS-FILE",
    ]
    if migration.checks:
        head += ["Check by hand first:", *(f"- {check}" for check in migration.checks)]
    comments = "".join(f"# {line}\n" for line in head)
    return comments + dump(dict(migration.values), {})


def report_text(migration: Migration) -> str:
    """What became of each value, one line each, dropped ones last, and what to check by hand."""
    return "".join(f"{line}\n" for line in _report_lines(migration))


def _report_lines(migration: Migration) -> Iterator[str]:
    for outcome in OUTCOMES:
        entries = [entry for entry in migration.entries if entry.outcome == outcome]
        if entries:
            yield f"{outcome}: {len(entries)}"
            for _, items in itertools.groupby(entries, _group_key):
                yield f"  {_format_entries(list(items))}"
    if migration.checks:
        yield f"to check by hand: {len(migration.checks)}"
        yield from (f"  {check}" for check in migration.checks)


def _group_key(entry: Entry) -> tuple[str, str, str]:
    """What the items of one list have in common."""
    return _ITEM.sub("", entry.old), _ITEM.sub("", entry.new), entry.reason


def _format_entries(items: list[Entry]) -> str:
    """One entry, or the items of one list with the same outcome: args[0] to [3] -> ..."""
    first, last = items[0], _ITEM.search(items[-1].old)
    old, new = first.old, first.new
    if len(items) > 1 and last:
        old, new = f"{old} to {last[0]}", _ITEM.sub("", new)
    arrow = f" -> {new}" if new and first.outcome != "carried over" else ""
    return old + arrow + (f" ({first.reason})" if first.reason else "")
