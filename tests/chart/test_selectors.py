"""The chart refuses an upgrade that would change the selector of a workload of the release."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from devtools.common.repository import CHART
from tests.chart.render import IMAGE, Values, helm_template, of_kind, parse_manifests

FACTS_OF_CLUSTER = {
    '(lookup "apps/v1" "StatefulSet" .Release.Namespace "").items': (
        '.Files.Get "stateful-sets.json" | fromJsonArray'
    ),
    '(lookup "v1" "ServiceAccount" .Release.Namespace "default" | empty | not)': "true",
}


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """The chart, whose file stateful-sets.json has the StatefulSets of the cluster."""
    copied = tmp_path / "chart"
    shutil.copytree(CHART, copied, ignore=shutil.ignore_patterns("__pycache__"))
    prepare = copied / "templates/facts/_prepare.tpl"
    text = prepare.read_text()
    for lookup, fake in FACTS_OF_CLUSTER.items():
        assert lookup in text
        text = text.replace(lookup, fake)
    prepare.write_text(text)
    (copied / "stateful-sets.json").write_text("[]")
    return copied


@pytest.mark.parametrize("queue", ["", "team"], ids=["no queue", "in a queue of Kueue"])
@pytest.mark.parametrize(
    ("name", "is_refused"), [("vision", False), ("speech", True)], ids=["same", "other"]
)
def test_other_name_override_is_refused_where_the_workers_have_the_old_one(
    chart: Path, queue: str, name: str, *, is_refused: bool
) -> None:
    values: Values = {
        "image": {"repository": IMAGE},
        "fullnameOverride": "lab",
        "nameOverride": "vision",
        "queueName": queue,
    }
    installed = parse_manifests(helm_template(values, chart=chart).stdout)
    stateful_sets = of_kind(installed, "StatefulSet")
    (chart / "stateful-sets.json").write_text(json.dumps(stateful_sets))
    upgrade = helm_template({**values, "nameOverride": name}, chart=chart)
    assert (upgrade.returncode != 0) is is_refused
    (stateful_set,) = (item["metadata"]["name"] for item in stateful_sets)
    delete = f"kubectl --namespace team delete statefulset {stateful_set}"
    assert (delete in upgrade.stderr) is is_refused
