"""Writes a migration as text: the values file with what to check, and the report. Pure."""

from __future__ import annotations

import shlex
from collections import Counter

from hvd_pods.shared.untrusted import printable
from hvdchart.migrate.ledger import Ledger, Outcome
from hvdchart.values.render import dump

# Dropped values come first: they matter most to the reader.
_ORDER: tuple[Outcome, ...] = ("dropped", "changed", "renamed", "carried over")


def values_text(migration: Ledger, origin: str) -> str:
    """Return the values file; `origin` names the file that it was made from."""
    # The user may copy this line into a shell, and both names come from an untrusted file.
    release = shlex.quote(migration.release or "NAME")
    namespace = f" --namespace {shlex.quote(migration.namespace)}" if migration.namespace else ""
    head = [
        f"Migrated from {origin} by `hvdchart migrate`. To install it:",
        f"  helm install {release} charts/horovod{namespace} --values THIS-FILE",
    ]
    if migration.checks:
        head += ["Check by hand first:", *(f"- {check}" for check in migration.checks)]
    comments = "".join(f"# {printable(line, keeps='')}\n" for line in head)
    return comments + dump(dict(migration.values), {})


def report_text(migration: Ledger) -> str:
    """Return the report: the checks, then the outcomes of the values, dropped ones first."""
    counts = Counter(entry.outcome for entry in migration.entries)
    totals = ", ".join(f"{counts[outcome]} {outcome}" for outcome in _ORDER if counts[outcome])
    lines = [f"read as {migration.source}: {totals or 'no values'}"]
    if migration.checks:
        lines.append(f"to check by hand: {len(migration.checks)}")
        lines += [f"  {number}. {check}" for number, check in enumerate(migration.checks, 1)]
    for outcome in _ORDER:
        if counts[outcome]:
            lines.append(f"{outcome}: {counts[outcome]}")
        for entry in migration.entries:
            if entry.outcome == outcome:
                arrow = f" -> {entry.new}" if entry.new not in ("", entry.old) else ""
                reason = f" ({entry.reason})" if entry.reason else ""
                lines.append(f"  {entry.old}{arrow}{reason}")
    return "".join(f"{printable(line, keeps='')}\n" for line in lines)
