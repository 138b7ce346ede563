"""The chart refuses ports of nodes that the pods of another release have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.chart.releases import on_nodes
from tests.chart.render import CHART, Manifest, helm_template

# What the check of a port sees of a cluster, which `helm template` does not reach.
CHECK_OF_PORT = """\
{{- $_ := set . "facts" .Values.facts -}}
{{- include "horovod.checkPortInUse" . -}}
"""


@pytest.fixture(scope="module")
def check_of_port(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chart of nothing but the check."""
    chart = tmp_path_factory.mktemp("port")
    templates = chart / "templates"
    templates.mkdir()
    for name in ("checks/_checks.tpl", "checks/_network.tpl", "common/_labels.tpl"):
        shutil.copy(CHART / "templates" / name, templates)
    (templates / "check.yaml").write_text(CHECK_OF_PORT)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: port\nversion: 1.0.0\n")
    return chart


@pytest.mark.parametrize(
    ("found", "is_refused"),
    [
        (on_nodes(2222, release="hvd"), False),
        (on_nodes(2222, release="other"), True),
        (on_nodes(2223, release="other"), False),
        (on_nodes(2222, release="hvd", name="second"), True),
    ],
    ids=["its own", "another release", "another port", "another dependency of the release"],
)
def test_port_that_other_workers_have_of_the_nodes_is_refused(
    check_of_port: Path, found: Manifest, *, is_refused: bool
) -> None:
    name = found["metadata"]["name"]
    values = {"hostNetwork": True, "agent": {"port": 2222}}
    facts = {"name": "horovod", "values": values, "statefulSets": {name: found}}
    done = helm_template({"facts": facts}, chart=check_of_port)
    assert (done.returncode != 0) is is_refused
    assert (f'"{name}"' in done.stderr) is is_refused
