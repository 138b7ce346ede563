"""Writes a migration as text: the values file with what to check, and the report. Pure.

The report begins with what to check by hand. Values with the same outcome and reason share a line,
and a map or list whose values all share it is named as a whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from hvd_pods.common.hostile import printable
from hvdchart.migrate.convert import Migration
from hvdchart.migrate.ledger import Entry, Outcome
from hvdchart.spec.paths import KeyPath, dotted
from hvdchart.values.render import dump

# Dropped values first: they are what a reader looks for.
_ORDER: tuple[Outcome, ...] = ("dropped", "changed", "renamed", "carried over")
_STEP = re.compile(r"\[[0-9]+\]|\.?[^.\[\]]+")
_PART = ": "


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
    comments = "".join(f"# {printable(line, keeps='')}\n" for line in head)
    return comments + dump(dict(migration.values), {})


def report_text(migration: Migration) -> str:
    """What to check by hand, then what became of the values: dropped ones first."""
    return "".join(f"{printable(line, keeps='')}\n" for line in _report_lines(migration))


def _report_lines(migration: Migration) -> Iterator[str]:
    counts = Counter(entry.outcome for entry in migration.entries)
    totals = ", ".join(f"{counts[outcome]} {outcome}" for outcome in _ORDER if counts[outcome])
    yield f"read as {migration.source}: {totals or 'no values'}"
    if migration.checks:
        yield f"to check by hand: {len(migration.checks)}"
        yield from (f"  {number}. {check}" for number, check in enumerate(migration.checks, 1))
    for outcome in _ORDER:
        entries = [entry for entry in migration.entries if entry.outcome == outcome]
        if entries:
            yield f"{outcome}: {len(entries)}"
            yield from (f"  {line}" for line in _group_lines(entries, migration.entries))


def _group_lines(entries: Iterable[Entry], every: Iterable[Entry]) -> Iterator[str]:
    """One line for all values with the same reason that went to the same place."""
    total = Counter(prefix for entry in every for prefix in _prefixes(entry.path))
    groups: dict[tuple[str, str, str, bool], list[Entry]] = {}
    for entry in entries:
        if entry.path:
            old, new = _ends(entry)
            groups.setdefault((entry.reason, old, new, False), []).append(entry)
        else:
            subject = entry.old.partition(_PART)[0]
            groups.setdefault((entry.reason, subject, entry.new, True), []).append(entry)
    for (reason, old, new, is_part), members in groups.items():
        note = f" ({reason})" if reason else ""
        if is_part:
            parts = ", ".join(entry.old.partition(_PART)[2] for entry in members)
            yield f"{old}: {parts}{f' -> {new}' if new else ''}{note}"
            continue
        whole = _whole_paths([entry.path for entry in members], total)
        arrow = ""
        if new and members[0].outcome == "renamed" and len(whole) == 1:
            # The value, or the map around it that has nothing else.
            moved = dotted(whole[0])
            arrow = f" -> {new}{moved.removeprefix(old) if moved.startswith(old) else ''}"
        elif new and members[0].outcome == "renamed":
            arrow = f" -> {new}..."
        elif new and members[0].outcome == "changed":
            arrow = f" -> {new}"
        yield ", ".join(dotted(path) for path in whole) + arrow + note


def _ends(entry: Entry) -> tuple[str, str]:
    """What differs at the beginning of the old and the new path; for a move without a rename."""
    if entry.outcome != "renamed":
        return "", entry.new
    old, new = _STEP.findall(entry.old), _STEP.findall(entry.new)
    same = 0
    while same < min(len(old), len(new)) - 1 and old[-1 - same] == new[-1 - same]:
        same += 1
    return "".join(old[: len(old) - same]), "".join(new[: len(new) - same])


def _whole_paths(paths: list[KeyPath], total: Counter[KeyPath]) -> list[KeyPath]:
    """The paths, where a map or list that has no other values stands for all of its own."""
    count = Counter(prefix for path in paths for prefix in _prefixes(path))
    whole: dict[KeyPath, None] = {}
    for path in paths:
        shortest = next(prefix for prefix in _prefixes(path) if count[prefix] == total[prefix])
        whole[shortest] = None
    return list(whole)


def _prefixes(path: KeyPath) -> list[KeyPath]:
    return [path[: length + 1] for length in range(len(path))]
