"""An old chart's values file or a Kubeflow MPIJob -> values of this chart, with a report. Pure.

Nothing of the input is lost in silence: each of its values has a line in the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hvdchart.errors import SpecError
from hvdchart.migrate.ledger import Line, Reading
from hvdchart.migrate.mpijob import API_VERSIONS, migrate_mpijob
from hvdchart.migrate.stable_chart import migrate_chart
from hvdchart.spec.load import place_of
from hvdchart.spec.yaml_tree import Node, Plain

# Any of these is in every useful values file of the old charts.
_OLD_CHARTS_KEYS = ("worker", "master", "driver", "ssh", "useHostNetwork", "resources")
_OURS = ("workerGroups", "launch", "shm", "podSecurityContext", "cleanup")


@dataclass(frozen=True)
class Migration:
    """Values of our chart, the report's lines, what to check; release and namespace, if named."""

    source: str
    values: Mapping[str, Plain]
    lines: tuple[Line, ...]
    checks: tuple[str, ...]
    release: str
    namespace: str


def migrate(root: Node, schema: Mapping[str, Any]) -> Migration:
    """Migrate a file; `schema` is that of the chart's values.

    Raises SpecError for a file of another kind, and at each value that nothing can be made of.
    """
    reading = Reading(root, schema)
    source = _kind(reading)
    release = namespace = ""
    if source == "MPIJob":
        release, namespace = migrate_mpijob(reading)
    else:
        migrate_chart(reading)
    return Migration(
        source, reading.values, tuple(reading.lines), tuple(reading.checks), release, namespace
    )


def _kind(reading: Reading) -> str:
    expected = (
        "a values file of the old horovod charts (worker, master or driver, ssh, ...) or a "
        f"manifest of kind MPIJob ({', '.join(API_VERSIONS)})"
    )
    place = str(place_of(reading.root, ()))
    if not isinstance(reading.tree, dict):
        raise SpecError(place, "", f"got {reading.root.shown}", expected)
    if reading.has(("kind",)) or reading.has(("apiVersion",)):
        version = reading.text_at("apiVersion")
        if reading.text_at("kind") == "MPIJob" and version in API_VERSIONS:
            return "MPIJob"
        found = f"apiVersion {version!r}, kind {reading.text_at('kind')!r}"
        raise SpecError(place, "", found, expected)
    ours = [key for key in _OURS if reading.has((key,))]
    if ours:
        raise SpecError(
            str(place_of(reading.root, (ours[0],))), "",
            f"{ours[0]} is a key of this chart: the file needs no migration", expected,
        )  # fmt: skip
    if not any(reading.has((key,)) for key in _OLD_CHARTS_KEYS):
        raise SpecError(place, "", "none of the old charts' keys", expected)
    return "old chart"
