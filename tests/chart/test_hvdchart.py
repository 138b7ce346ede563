"""hvdchart merges values, renders and installs as real Helms and a real API server do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from devtools.common.repository import EXAMPLE_VALUES
from devtools.toolchain.tools import tool
from hvdchart.plan.planner import make_plan
from hvdchart.run.helm import render_manifests
from hvdchart.spec.load import load_spec, parse_spec
from hvdchart.values.check_values import checked_values
from hvdchart.values.merge import merge_values, omit_needless_nulls
from tests.chart.render import Manifest, parse_manifests, render, variables, write_small_chart
from tests.support.go_programs import NO_GARBAGE_COLLECTION
from tests.support.launch_cases import Case
from tests.support.specs import NAMED, NODE
from tests.support.strategies import specs

SPECS = sorted(EXAMPLE_VALUES.glob("*.spec.yaml"))
Values = dict[str, Any]

# With few keys and nested maps, generated trees have common keys at every level.
KEYS = st.sampled_from(["a", "b", "c"])
LEAVES = st.none() | st.integers(0, 5) | st.sampled_from(["", "no"]) | st.lists(st.just(1))
INNER = st.dictionaries(KEYS, LEAVES, max_size=3)
MIDDLE = st.dictionaries(KEYS, st.one_of(LEAVES, INNER, INNER), max_size=3)
TREES = st.dictionaries(KEYS, st.one_of(LEAVES, INNER, MIDDLE, MIDDLE), min_size=1, max_size=3)


def without_nulls(value: Any) -> Any:
    """Remove nulls that delete nothing, which Helm keeps and hvdchart omits."""
    if isinstance(value, dict):
        return {key: without_nulls(child) for key, child in value.items() if child is not None}
    return value


# Neither a default nor a rendered value is null: only users set null.
RIGHT = TREES.map(without_nulls)


@pytest.fixture(autouse=True)
def no_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the Helm that hvdchart starts in this process."""
    for name, value in NO_GARBAGE_COLLECTION.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a chart that prints its values."""
    return write_small_chart(tmp_path_factory.mktemp("echo"), "values: {{ .Values | toJson }}\n")


def helms_values(helm: str, chart: Path, defaults: Values, *files: Values) -> Values:
    """Return the values that Helm passes to the templates."""
    (chart / "values.yaml").write_text(json.dumps(defaults))
    options: list[str] = []
    for index, file in enumerate(files):
        path = chart.parent / f"values-{index}.yaml"
        path.write_text(json.dumps(file))
        options += ["--values", str(path)]
    command = [str(tool(helm)), "template", "x", str(chart), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    values: Values = json.loads(done.stdout.partition("values: ")[2])
    return values


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(cases=st.lists(st.tuples(RIGHT, RIGHT, TREES), min_size=30, max_size=30))
def test_values_merge_like_helm(
    helm: str, folder: Path, cases: list[tuple[Values, Values, Values]]
) -> None:
    """The file that hvdchart merges has the same effect as Helm's merge of two files.

    Each case is below a key of its own, so that one run of Helm merges all of them.
    """
    defaults, rendered, persons = (
        {f"case{number}": case[part] for number, case in enumerate(cases)} for part in range(3)
    )
    ours = omit_needless_nulls(merge_values(rendered, persons), defaults)
    expected = helms_values(helm, folder, defaults, rendered, persons)
    assert without_nulls(helms_values(helm, folder, defaults, ours)) == without_nulls(expected)


def is_test(manifest: Manifest) -> bool:
    """Whether this is a pod of `helm test`, which `helm install` does not create."""
    annotations = manifest["metadata"].get("annotations", {})
    return "test" in annotations.get("helm.sh/hook", "").split(",")


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.name)
def test_manifests_equal_helm_template_of_the_values(spec: Path) -> None:
    values = YAML(typ="safe").load(spec.with_name(spec.name.replace(".spec", "")).read_text())
    plan = make_plan(load_spec(spec))
    text = render_manifests(plan, "team", str(tool("helm4")))
    ours = parse_manifests(text)
    theirs = [document for document in render(values, plan.spec.name) if not is_test(document)]
    assert ours == theirs


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(specs())
def test_chart_accepts_rendered_values(spec: dict[str, Any]) -> None:
    """The chart's templates, too, refuse values that contradict each other."""
    spec.setdefault("image", {"repository": "registry.example/team/app"})
    plan = make_plan(parse_spec(json.dumps(spec, ensure_ascii=False).encode()))
    assert render_manifests(plan, "team", str(tool("helm4")))


@pytest.mark.parametrize(
    ("launch", "memory"),
    [
        ("{mode: direct}", "256Mi"),
        ("{mode: mpirun}", "928Mi"),
    ],
)
def test_plan_gives_the_master_the_memory_of_its_launcher(launch: str, memory: str) -> None:
    nodes = NODE.replace("count: 1", "count: 200").replace("coresPerSocket: 4", "coresPerSocket: 1")
    values = checked_values(make_plan(parse_spec(f"{NAMED}{nodes}launch: {launch}\n".encode())))
    assert values["master"]["resources"]["requests"]["memory"] == memory
    render(values)


def test_workers_and_planned_groups_name_the_interface_to_the_same_libraries() -> None:
    workers = variables(render({"network": {"interface": "eth1"}}))
    rendered = {name for name, value in workers.items() if value == "eth1"}
    two = json.loads(Case("mpirun", (), interface="eth1").spec())
    two["nodes"].append({**two["nodes"][0], "name": "y", "interface": "eth2"})
    planned = make_plan(parse_spec(json.dumps(two).encode())).launching.group_env["x"]
    # The master passes a common interface to the daemons; otherwise each group sets its own.
    assert set(planned) == rendered | {"OMPI_MCA_oob_tcp_if_include"}
