"""Converts an old chart's values file or a Kubeflow MPIJob to values of this chart. Pure.

Each value of the input has an entry in the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hvdchart.errors import SpecError
from hvdchart.migrate.ledger import Entry, Ledger
from hvdchart.migrate.mpijob import API_VERSIONS, migrate_mpijob
from hvdchart.migrate.stable_chart import migrate_chart
from hvdchart.spec.paths import place_of
from hvdchart.spec.yaml_tree import Node, Plain

# Every useful values file of the old charts has one of these keys.
_OLD_CHART_KEYS = ("worker", "master", "driver", "ssh", "useHostNetwork", "resources")
_THIS_CHART_KEYS = ("workerGroups", "launch", "shm", "podSecurityContext", "cleanup")


@dataclass(frozen=True)
class Migration:
    """The chart's values, an entry for each value of the input, and what to check by hand.

    `source` is "MPIJob" or "old chart"; `release` and `namespace` are empty when not named.
    """

    source: str
    values: Mapping[str, Plain]
    entries: tuple[Entry, ...]
    checks: tuple[str, ...]
    release: str
    namespace: str


def migrate(root: Node, schema: Mapping[str, Any]) -> Migration:
    """Migrate a file; `schema` is the JSON schema of the chart's values.

    Raises SpecError for a file of another kind, and for a value of the wrong type.
    """
    ledger = Ledger(root, schema)
    source = _detect_source(ledger)
    release = namespace = ""
    if source == "MPIJob":
        release, namespace = migrate_mpijob(ledger)
    else:
        migrate_chart(ledger)
    return Migration(
        source, ledger.values, tuple(ledger.entries), tuple(ledger.checks), release, namespace
    )


def _detect_source(ledger: Ledger) -> str:
    expected = (
        "a values file of the old horovod charts (worker, master or driver, ssh, ...) or a "
        f"manifest of kind MPIJob ({', '.join(API_VERSIONS)})"
    )
    place = str(place_of(ledger.root, ()))
    if not isinstance(ledger.tree, dict):
        raise SpecError(place, "", f"got {ledger.root.shown}", expected)
    if ledger.has(("kind",)) or ledger.has(("apiVersion",)):
        version, kind = ledger.text_at("apiVersion"), ledger.text_at("kind")
        if kind == "MPIJob" and version in API_VERSIONS:
            return "MPIJob"
        raise SpecError(place, "", f"got apiVersion {version!r}, kind {kind!r}", expected)
    for key in _THIS_CHART_KEYS:
        if ledger.has((key,)):
            problem = f"{key} is a key of this chart: the file needs no migration"
            raise SpecError(str(place_of(ledger.root, (key,))), "", problem, expected)
    if not any(ledger.has((key,)) for key in _OLD_CHART_KEYS):
        raise SpecError(place, "", "the file has no key of the old charts", expected)
    return "old chart"
