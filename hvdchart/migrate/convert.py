"""Converts values of the old chart, a job's manifest or a script to values of this chart.

Each value of the input has an entry in the report; a file of an unknown kind is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hvd_pods.shared.contract import COMPONENT_LABEL, INSTANCE_LABEL
from hvdchart.errors import SpecError
from hvdchart.migrate import old_chart
from hvdchart.migrate.jobs import migrate_mpijob, migrate_pytorchjob, migrate_trainjob
from hvdchart.migrate.ledger import Ledger
from hvdchart.migrate.script import is_script, migrate_script
from hvdchart.spec.fields import RELEASE_NAME
from hvdchart.spec.paths import child_at, nearest_node, value_at
from hvdchart.spec.yaml_tree import Node, Plain, parse_documents, shorten
from hvdchart.text import join_names

JobReader: TypeAlias = Callable[[Ledger], None]
"""Fills in the values and entries of an input, and the names in it."""

_STABLE = "the old horovod chart"
_THIS_CHART_KEYS = ("workerGroups", "launch", "shm", "podSecurityContext", "cleanup")
_RENDER = "or what its chart renders: helm template RELEASE CHART -f FILE | hvdchart migrate -"
_JOBS: dict[tuple[str, str], JobReader] = {
    ("MPIJob", "kubeflow.org/v1"): migrate_mpijob,
    ("MPIJob", "kubeflow.org/v2beta1"): migrate_mpijob,
    ("PyTorchJob", "kubeflow.org/v1"): migrate_pytorchjob,
    ("TrainJob", "trainer.kubeflow.org/v1alpha1"): migrate_trainjob,
}
_EXPECTED_FILE = (
    f"values of {_STABLE}; an {', '.join(f'{kind} of {version}' for kind, version in _JOBS)}; "
    f"{_RENDER}; a script, with #! at its beginning or a line that begins with its launcher"
)
_OPERATORS_OWN = re.compile(r"training\.kubeflow\.org/[\w.-]+|mpi[-_]job[-_](?:name|role)")


def migrate_file(data: bytes, file: str, schema: Mapping[str, Any]) -> Ledger:
    """Migrate a file's content; `schema` is that of the chart's values. Raises SpecError."""
    if is_script(data):
        return _finish(migrate_script(data, file, schema))
    root, others = read_input(data, file)
    ledger = Ledger(root, schema)
    for other in others:
        ledger.add_check(f"the file also has {other}: apply it yourself if the run needs it")
    if read_job := _job_reader(ledger.tree):
        ledger.source = str(child_at(ledger.tree, "kind"))
        read_job(ledger)
    else:
        _refuse_other_charts(ledger)
        ledger.source = _STABLE
        old_chart.migrate_chart(ledger)
    return _finish(ledger)


def _job_reader(tree: Plain) -> JobReader | None:
    return _JOBS.get((str(child_at(tree, "kind")), str(child_at(tree, "apiVersion"))))


def _finish(ledger: Ledger) -> Ledger:
    text = json.dumps(ledger.values)
    # Values that select pods by labels that only the operator of the old job sets.
    for gone in sorted(set(_OPERATORS_OWN.findall(text))):
        ledger.add_check(
            f"the values name {gone}, which only the operator sets: the chart's pods have the "
            f"labels {INSTANCE_LABEL} and {COMPONENT_LABEL}"
        )
    # The user must choose another name.
    longest = RELEASE_NAME.longest
    if len(ledger.release) > longest or not re.fullmatch(RELEASE_NAME.pattern, ledger.release):
        ledger.release = ""
    return ledger


def _refuse_other_charts(ledger: Ledger) -> None:
    """Raise SpecError for a file that has no values of the old chart."""
    place = str(ledger.root.place)
    if not isinstance(ledger.tree, dict):
        raise SpecError(place, "", f"got {ledger.root.shown}", _EXPECTED_FILE)
    if "kind" in ledger.tree or "apiVersion" in ledger.tree:
        kind = ledger.tree.get("kind")
        version = ledger.tree.get("apiVersion")
        raise SpecError(place, "", f"got apiVersion {version!r}, kind {kind!r}", _EXPECTED_FILE)
    for key in _THIS_CHART_KEYS:
        if key in ledger.tree:
            problem = f"{key} is a key of this chart: the file needs no migration"
            raise SpecError(
                str(nearest_node(ledger.root, (key,)).place), "", problem, _EXPECTED_FILE
            )
    if not any(
        ledger.has((part, key)) for part, keys in old_chart.OLD_CHART_KEYS.items() for key in keys
    ):
        keys = join_names(sorted(ledger.tree), 6) or "none"
        problem = f"its keys are {keys}; no chart that migrate knows has them"
        raise SpecError(place, "", problem, _EXPECTED_FILE)


def read_input(data: bytes, file: str) -> tuple[Node, list[str]]:
    """Return the job in a file, or its only document, and the other documents. Raises SpecError."""
    roots = [root for root in parse_documents(data, file) if root.value is not None]
    jobs = [root for root in roots if _job_reader(root.plain)]
    if not roots:
        raise SpecError(file, "", "the file has no documents with a value", _EXPECTED_FILE)
    if len(roots) > 1 and len(jobs) != 1:
        contents = ", ".join(describe(root) for root in roots)
        expected = "one job in a file; split the file at the lines with ---"
        raise SpecError(file, "", f"the file has {contents}", expected)
    job = (jobs or roots)[0]
    return job, [describe(root) for root in roots if root is not job]


def describe(root: Node) -> str:
    """Return the kind and the name of a document: ConfigMap settings."""
    tree = root.plain
    if not isinstance(tree, dict):
        return root.shown
    name = value_at(tree, ("metadata", "name")) or ""
    return shorten(f"{tree.get('kind', 'a map without a kind')} {name}".strip())
