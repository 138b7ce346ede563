"""Alerts and the dashboard, by Prometheus' promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from devtools.common.repository import DOCS
from hvd_pods.master import serve_metrics as master
from hvd_pods.pod.metrics import PROGRESS
from hvd_pods.worker import main as worker
from hvd_pods.worker.gpus import NvmlReader
from tests.chart.render import Manifest, one, render
from tests.support.debian import unpacked_program
from tests.support.fakes.nvml import FakeGpu, FakeNvml
from tests.support.world import World, one_group

MINUTES = 90
ENABLED = {"enabled": True, "rules": True, "dashboard": True}
VARIABLES = {"$namespace": "team", "$release": "hvd", "$__rate_interval": "2m"}
OVER = {'stage="Training"': "0"}
SLOW = 'per_second{rank="1"'


@pytest.fixture
def pages(tmp_path: Path) -> str:
    """What the master of a run that trains serves, and a worker whose ranks report everything."""
    world = World(one_group())
    world.train()
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    for rank in range(4):
        (ranks / str(rank)).write_text("".join(f"{name} 5\n" for name in PROGRESS))
    of_gpus = NvmlReader(FakeNvml(FakeGpu())).read()
    return master.make_page(world.state) + worker.make_page("4", ranks, of_gpus)


def make_series(pages: str, changes: dict[str, str]) -> list[dict[str, str]]:
    """Each series that Prometheus has of the pages, with a sample each minute.

    `changes`: by a part of the name, other values than those of the pages, in promtool's notation.
    """
    series = []
    left = set(changes)
    for line in (line for line in pages.splitlines() if not line.startswith("#")):
        name, value = line.rsplit(" ", 1)
        for part in (part for part in changes if part in name):
            value = changes[part]
            left.discard(part)
        labels = 'namespace="team", release="hvd", pod="p"'
        name = name.replace("{", f"{{{labels}, ") if "{" in name else f"{name}{{{labels}}}"
        values = value if "x" in value else f"{value}+0x{MINUTES}"
        series.append({"series": name, "values": values})
    assert not left, "no pod serves these"
    return series


def find_problems(folder: Path, input_series: list[dict[str, str]], checks: dict[str, Any]) -> str:
    """What promtool says of a test in which expressions have these samples at the end."""
    promtool = shutil.which("promtool") or unpacked_program("prometheus", "usr/bin/promtool")
    rules = one(render({"metrics": ENABLED}), "PrometheusRule")["spec"]
    (folder / "rules.json").write_text(json.dumps(rules))
    expected = [
        {"expr": expression, "eval_time": f"{MINUTES - 1}m", "exp_samples": samples}
        for expression, samples in checks.items()
    ]
    test = {"interval": "1m", "input_series": input_series, "promql_expr_test": expected}
    document = {"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "test.json").write_text(json.dumps(document))
    command = [str(promtool), "test", "rules", "test.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, ""),
        (OVER, "RunNotTraining"),
        ({**OVER, 'stage="Finished"': "1"}, ""),
        ({'stage="Training"': "1+0x80 0+0x9"}, ""),
        ({"script_age": "0+60x90"}, "RunWithoutSteps"),
        ({"script_age": "0+60x90", 'age_seconds{rank="0"': "0"}, ""),
        ({"script_age": "0+60x90", **OVER}, "RunNotTraining"),
        ({"ranks_stalled": "0+0x20 1+0x69"}, "RunStalled"),
        ({"ranks_stalled": "1+0x87 0+0x2"}, ""),
        ({"launches": "1+0x60 2 3 4 5 6+0x25"}, "RunRestarts"),
        ({"launches": "1+0x60 2 3+0x28"}, ""),
        ({"lost": "0+0x60 400+0x29"}, "RunLosesTime"),
        ({"lost": "0+0x60 300+0x29"}, ""),
        ({SLOW: "3"}, "RankSlow"),
        ({SLOW: "4"}, ""),
        ({SLOW: "5+0x85 3+0x4"}, ""),
        ({"loss": "NaN"}, "LossNotFinite"),
        ({"loss": "-Inf"}, "LossNotFinite"),
    ],
)
def test_each_alert_fires_for_its_reason_only(
    tmp_path: Path, pages: str, changes: dict[str, str], fires: str
) -> None:
    alerts = 'count by (alertname) (ALERTS{alertstate="firing"})'
    expected = [{"labels": f'{{alertname="Hvdchart{fires}"}}', "value": 1}] if fires else []
    assert find_problems(tmp_path, make_series(pages, changes), {alerts: expected}) == ""


def test_documented_query_gives_the_seconds_of_each_stage(tmp_path: Path, pages: str) -> None:
    (query,) = re.findall(r"```promql\n(.*?)\n```", (DOCS / "monitoring.md").read_text(), re.DOTALL)
    trains = "0+0x29 1+0x29 0+0x30"
    series = make_series(pages, {'stage="Training"': trains, 'stage="Started"': "1+0x29 0+0x60"})
    expected = [
        {"labels": f'{{stage="{stage}"}}', "value": 30 * 60} for stage in ("Started", "Training")
    ]
    assert find_problems(tmp_path, series, {f"{query} > 0": expected}) == ""


def board(dashboard: Any = True) -> tuple[Manifest, dict[str, Any]]:
    """The metadata of the ConfigMap with the dashboard, and the dashboard."""
    manifests = render({"metrics": {**ENABLED, "dashboard": dashboard}})
    (config_map,) = (item for item in manifests if item["metadata"]["name"] == "hvd-dashboard")
    return config_map["metadata"], json.loads(config_map["data"]["team-hvd.json"])


# Of NVIDIA's dcgm-exporter, whose own pod is `pod` unless Prometheus honors its labels.
GPU_METRIC = "DCGM_FI_DEV_XID_ERRORS"
EXPORTED = 'namespace="gpus", pod="d", exported_namespace="{}", exported_pod="{}"'
HONORED = 'namespace="{}", pod="{}"'


def gpu_series(labels: str, *pods: tuple[str, str]) -> list[dict[str, str]]:
    """The series of a GPU of each of these pods, with their namespaces."""
    return [
        {"series": f'{GPU_METRIC}{{gpu="0", {labels.format(*pod)}}}', "values": f"5+0x{MINUTES}"}
        for pod in pods
    ]


def of_the_run(query: str) -> str:
    """A query of the dashboard, of the run that it shows."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def shown_queries() -> list[str]:
    """What the panels of the dashboard ask."""
    _, shown = board()
    return [of_the_run(target["expr"]) for panel in shown["panels"] for target in panel["targets"]]


def offered_choices() -> list[str]:
    """What the dashboard asks for the values of its variables."""
    _, shown = board()
    variables = shown["templating"]["list"]
    asked = [variable["query"] for variable in variables if variable["type"] == "query"]
    texts = "\n".join(question["query"] for question in asked)
    labels = re.findall(r"^label_values\((.*), (\w+)\)$", texts, re.MULTILINE)
    assert len(labels) == len(asked)
    return [of_the_run(f"group by ({label}) ({series})") for series, label in labels]


@pytest.mark.parametrize("labels", [EXPORTED, HONORED])
def test_dashboard_shows_the_gpus_of_the_run_alone(tmp_path: Path, pages: str, labels: str) -> None:
    pods = ("team", "p"), ("team", "q"), ("other", "p")
    series = make_series(pages, {}) + gpu_series(labels, *pods)
    (query,) = [query for query in shown_queries() if GPU_METRIC in query]
    expected = [{"labels": '{namespace="team", pod="p"}', "value": 1}]
    checks = {f"count by (namespace, pod) ({query})": expected}
    assert find_problems(tmp_path, series, checks) == ""


def test_everything_on_the_dashboard_has_data(tmp_path: Path, pages: str) -> None:
    queries = [*shown_queries(), *offered_choices()]
    checks = {f"count({query}) > bool 0": [{"labels": "{}", "value": 1}] for query in queries}
    series = make_series(pages, {}) + gpu_series(EXPORTED, ("team", "p"))
    assert find_problems(tmp_path, series, checks) == ""


def test_the_dashboard_of_each_run_shows_it_first_and_has_grafanas_label() -> None:
    """Labels of the user replace that."""
    metadata, shown = board()
    current = {
        variable["name"]: variable.get("current") for variable in shown["templating"]["list"]
    }
    first = {name: choice["value"] for name, choice in current.items() if choice is not None}
    assert first == {"namespace": "team", "release": "hvd"}
    assert metadata["labels"]["grafana_dashboard"] == "1"
    labelled, _ = board({"labels": {"mine": "yes"}})
    assert "grafana_dashboard" not in labelled["labels"]


def test_no_dashboard_is_made_by_default() -> None:
    assert "hvd-dashboard" not in {item["metadata"]["name"] for item in render()}
