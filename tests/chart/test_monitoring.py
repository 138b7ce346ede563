"""TensorBoard and metrics; alerts and dashboard, by Prometheus' promtool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.master import serve_metrics as master
from hvd_pods.pod.metrics import (
    MAX_LABEL_NAME_CHARACTERS,
    MAX_LABEL_VALUE_CHARACTERS,
    MAX_LABELS,
    MAX_SERIES,
    PROGRESS,
)
from hvd_pods.worker import main as worker
from hvd_pods.worker.gpus import NvmlReader
from tests.chart.cases import OUTPUT
from tests.chart.render import Manifest, Values, of_kind, one, pod_spec, render
from tests.support.debian import unpacked_program
from tests.support.fakes.nvml import FakeGpu, FakeNvml
from tests.support.world import World, one_group

DOCS = Path(__file__).parents[2] / "docs"
MASTER: Values = {"nodeSelector": {"storage": "here"}, "tolerations": [{"operator": "Exists"}]}


def test_tensorboard_reads_the_output_volume_and_is_scheduled_like_the_master() -> None:
    with_board = render({**OUTPUT, "master": MASTER, "tensorboard": {"enabled": True}})
    deployment = one(with_board, "Deployment")
    spec = pod_spec(deployment)
    (container,) = spec["containers"]
    assert container["command"][-2:] == ["--logdir", "/output/run"]
    mount = {"name": "output", "mountPath": "/output", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert {volume["name"] for volume in spec["volumes"]} == {"output", "tmp"}
    assert spec.items() >= MASTER.items()
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = {
        service["metadata"]["name"]: service["spec"]["selector"].items() <= labels.items()
        for service in of_kind(with_board, "Service")
    }
    assert selectors == {"hvd": False, "hvd-tensorboard": True}


def test_tensorboard_mounts_the_volume_of_its_own_log_folder() -> None:
    manifests = render({**OUTPUT, "tensorboard": {"enabled": True, "logDir": "/out/logs"}})
    volumes = pod_spec(one(manifests, "Deployment"))["volumes"]
    assert {volume["name"] for volume in volumes} == {"x", "tmp"}


@pytest.fixture(scope="module")
def monitored() -> list[Manifest]:
    return render({"metrics": {"enabled": True, "podMonitor": True}})


def test_pod_monitor_scrapes_the_master_and_workers_of_the_release(
    monitored: list[Manifest],
) -> None:
    monitor = one(monitored, "PodMonitor")["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    assert monitor["selector"] == one(monitored, "NetworkPolicy")["spec"]["podSelector"]


def test_pod_monitor_limits_what_a_script_can_send(monitored: list[Manifest]) -> None:
    spec = one(monitored, "PodMonitor")["spec"]
    assert MAX_SERIES < spec["sampleLimit"] <= 2 * MAX_SERIES
    assert MAX_LABELS < spec["labelLimit"] <= 2 * MAX_LABELS
    assert spec["labelNameLengthLimit"] > MAX_LABEL_NAME_CHARACTERS
    assert spec["labelValueLengthLimit"] > MAX_LABEL_VALUE_CHARACTERS
    assert spec["bodySizeLimit"] == "4MB"


def test_pod_monitor_gives_a_run_the_same_labels_in_each_attempt(
    monitored: list[Manifest],
) -> None:
    (endpoint,) = one(monitored, "PodMonitor")["spec"]["podMetricsEndpoints"]
    targets = {rule["targetLabel"]: rule.get("replacement") for rule in endpoint["relabelings"]}
    assert targets == {"release": "hvd", "pod": "hvd-master", "instance": None}


def test_metrics_have_no_pod_monitor_unless_it_is_asked_for() -> None:
    assert of_kind(render({"metrics": {"enabled": True, "podMonitor": False}}), "PodMonitor") == []


BOARD: Values = {**OUTPUT, "tensorboard": {"enabled": True}}
PEER: Values = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}


def board_policy(values: Values) -> Manifest:
    """Return the spec of TensorBoard's NetworkPolicy."""
    policies = {item["metadata"]["name"]: item for item in of_kind(render(values), "NetworkPolicy")}
    spec: Manifest = policies["hvd-tensorboard"]["spec"]
    return spec


@pytest.mark.promise("tensorboard is reached by nobody unless allowed")
def test_tensorboard_is_reached_by_nobody_unless_allowed() -> None:
    closed = board_policy(BOARD)
    assert (closed["policyTypes"], closed["ingress"]) == (["Ingress"], [])
    labels = one(render(BOARD), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert closed["podSelector"]["matchLabels"] == labels


def test_tensorboard_is_reached_by_whom_the_values_name() -> None:
    allowed = {**BOARD, "tensorboard": {"enabled": True, "allowFrom": [PEER]}}
    assert board_policy(allowed)["ingress"] == [{"from": [PEER], "ports": [{"port": "http"}]}]


def test_tensorboard_is_closed_where_the_workers_are_on_the_nodes_network() -> None:
    """TensorBoard itself is not on that network."""
    assert board_policy({**BOARD, "hostNetwork": True})["ingress"] == []


def test_tensorboard_has_no_policy_where_there_are_none() -> None:
    off = render({**BOARD, "networkPolicy": {"enabled": False}})
    assert of_kind(off, "NetworkPolicy") == []


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
    found = []
    left = set(changes)
    for line in (line for line in pages.splitlines() if not line.startswith("#")):
        name, value = line.rsplit(" ", 1)
        for part in (part for part in changes if part in name):
            value = changes[part]
            left.discard(part)
        labels = 'namespace="team", release="hvd", pod="p"'
        name = name.replace("{", f"{{{labels}, ") if "{" in name else f"{name}{{{labels}}}"
        values = value if "x" in value else f"{value}+0x{MINUTES}"
        found.append({"series": name, "values": values})
    assert not left, "no pod serves these"
    return found


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
    (found,) = (item for item in manifests if item["metadata"]["name"] == "hvd-dashboard")
    return found["metadata"], json.loads(found["data"]["team-hvd.json"])


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
    asked = [each["query"] for each in shown["templating"]["list"] if each["type"] == "query"]
    texts = "\n".join(each["query"] for each in asked)
    found = re.findall(r"^label_values\((.*), (\w+)\)$", texts, re.MULTILINE)
    assert len(found) == len(asked)
    return [of_the_run(f"group by ({label}) ({series})") for series, label in found]


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
    found, shown = board()
    variables = shown["templating"]["list"]
    first = {v["name"]: v["current"]["value"] for v in variables if "current" in v}
    assert first == {"namespace": "team", "release": "hvd"}
    assert found["labels"]["grafana_dashboard"] == "1"
    labelled, _ = board({"labels": {"mine": "yes"}})
    assert "grafana_dashboard" not in labelled["labels"]


def test_no_dashboard_is_made_by_default() -> None:
    assert "hvd-dashboard" not in {item["metadata"]["name"] for item in render()}
