"""A migration as text: the values file with what to check at its head, and the report. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from hvdchart.migrate.convert import Migration
from hvdchart.migrate.ledger import FATES, Line
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
        head += ["Check first:", *(f"- {check}" for check in migration.checks)]
    comments = "".join(f"# {line}\n" for line in head)
    return comments + dump(dict(migration.values), {})


def report_text(migration: Migration) -> str:
    """What became of each value, one line each, dropped ones last, and what to check."""
    return "".join(f"{line}\n" for line in _report(migration))


def _report(migration: Migration) -> Iterator[str]:
    for fate in FATES:
        lines = [line for line in migration.lines if line.fate == fate]
        if lines:
            yield f"{fate}: {len(lines)}"
            for _, alike in itertools.groupby(lines, _item_of):
                yield f"  {_shown(list(alike))}"
    if migration.checks:
        yield f"to check: {len(migration.checks)}"
        yield from (f"  {check}" for check in migration.checks)


def _item_of(line: Line) -> tuple[str, str, str]:
    """What lines of one list have in common; a line that is not of a list is alone with itself."""
    return _ITEM.sub("", line.old), _ITEM.sub("", line.new), line.why


def _shown(alike: list[Line]) -> str:
    """One line, or the items of one list that met one fate: args[0] to [3] -> ..."""
    first, last = alike[0], _ITEM.search(alike[-1].old)
    old = f"{first.old} to {last[0]}" if len(alike) > 1 and last else first.old
    moved = f" -> {_ITEM.sub('', first.new) if len(alike) > 1 else first.new}"
    gone = not first.new or first.fate == "kept"
    return old + ("" if gone else moved) + (f" ({first.why})" if first.why else "")
