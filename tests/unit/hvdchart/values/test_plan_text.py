"""What `hvdchart plan` and `render` show: the document for programs, tables and the values."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from devtools.common.repository import EXAMPLE_VALUES
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.spec.load import load_spec
from hvdchart.values.plan_text import document, tables
from hvdchart.values.render import render_values
from tests.support.specs import plan_of_nodes

SPECS = sorted(EXAMPLE_VALUES.glob("*.spec.yaml"))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.name)
def test_example_renders_its_committed_values(spec: Path) -> None:
    rendered = render_values(make_plan(load_spec(spec)), spec.name)
    golden = spec.with_name(spec.name.replace(".spec.yaml", ".yaml"))
    assert rendered == golden.read_text(), "run `make goldens`"


def example(name: str) -> Plan:
    return make_plan(load_spec(EXAMPLE_VALUES / f"{name}.spec.yaml"))


def mixed() -> Plan:
    return make_plan(load_spec(Path(__file__).with_name("mixed.spec.yaml")))


def printed(*parts: object) -> str:
    """The printed text, one space for each run of spaces and lines of tables."""
    stream = io.StringIO()
    Console(file=stream, width=200).print(*parts)
    return " ".join(stream.getvalue().replace("│", " ").replace("┃", " ").split())


@pytest.fixture(scope="module")
def of_mixed() -> dict[str, Any]:
    """The document of a spec with two groups."""
    return document(mixed())


def test_document_has_stable_keys(of_mixed: dict[str, Any]) -> None:
    assert list(of_mixed) == [
        "name",
        "workers",
        "spares",
        "ranks",
        "globalBatch",
        "learningRateScale",
        "binding",
        "framework",
        "launchMode",
        "launchOptions",
        "shm",
        "groups",
        "volumes",
        "warnings",
        "reasons",
    ]


def test_document_has_the_plan(of_mixed: dict[str, Any]) -> None:
    assert (of_mixed["workers"], of_mixed["ranks"], of_mixed["globalBatch"]) == (6, 16, None)
    assert of_mixed["groups"][1]["limits"] == {"memory": "479Gi", "nvidia.com/gpu": "4"}
    assert of_mixed["volumes"]["scratch"] == {"mountPath": "/scratch", "source": "hostPath"}


@pytest.mark.parametrize(
    "part",
    [
        "mixed: 16 ranks on 6 workers",
        " group nodes slots ranks OMP/intra/inter CPUs memory devices ",
        "xeon 4 2 8 28/26/2 111 357Gi -",
        "dgx 2 4 8 10/8/8 79 479Gi 4 nvidia.com/gpu",
        "data pvc /data read only all",
        "scratch hostPath /scratch read and write dgx",
        "launch: mpirun, bound to none",
        "learning rate x 16 (linear scaling",
        "warning: CPU and GPU ranks in one job",
    ],
)
def test_tables_show_the_plan(part: str) -> None:
    assert part in printed(*tables(mixed()))


def test_tables_show_the_binding_and_options() -> None:
    node = "{name: x, count: 1, sockets: 2, coresPerSocket: 7, tuning: {slots: 4}}"
    text = printed(*tables(plan_of_nodes(node, "launch: {options: [--tag-output]}")))
    for part in ("bound to core", "3 cores per rank", "2 ranks per socket", "--tag-output"):
        assert part in text
