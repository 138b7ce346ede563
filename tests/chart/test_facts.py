"""What hvdchart knows of the chart's rules is what the chart does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devtools.common.repository import CHART
from devtools.docs_gen.chart_docs import load_source
from hvd_pods.rules.effects import ScaleDown, WriteRecord
from hvd_pods.shared.run import parse_run
from hvdchart.chart_facts import has_policy, has_role, is_in_kueue
from hvdchart.chart_files import is_charts_volume, is_reserved_path, max_workers, read_data
from hvdchart.script.options import MAX_WORKERS
from hvdchart.values.merge import merged_groups
from tests.chart.cases import EVERY_POD, KUBERNETES_GANG
from tests.chart.render import (
    Manifest,
    Values,
    helm_template,
    of_kind,
    one,
    parse_manifests,
    pod_specs,
    render,
    run_settings,
    write_small_chart,
)
from tests.support.world import World, one_group

CASES: list[Values] = [
    {},
    {"hostNetwork": True},
    {"networkPolicy": {"enabled": False}},
    {"queueName": "q"},
    {"queueName": "q", "gang": "Volcano"},
    {"gang": "Volcano"},
    {"serviceAccount": {"create": False}},
    {"serviceAccount": {"create": False, "name": "masters"}},
    {"rbac": {"create": False}},
]


@pytest.mark.parametrize("values", CASES, ids=json.dumps)
def test_hvdchart_knows_what_the_chart_derives(values: Values) -> None:
    rendered = render({**values, "tensorboard": {"enabled": False}})
    assert has_policy(values) == bool(of_kind(rendered, "NetworkPolicy"))
    assert is_in_kueue(values) == ("kueue.x-k8s.io/" in json.dumps(rendered))
    assert has_role(values) == bool(of_kind(rendered, "Role"))


def test_hvdchart_knows_the_volumes_of_the_chart() -> None:
    values: Values = {**EVERY_POD, "code": {"files": {"train.py": ""}}}
    pods = pod_specs(render(values)).values()
    used = {volume["name"] for pod in pods for volume in pod["volumes"]} - {"data"}
    assert used == {*read_data("resources.json")["reserved"]["volumes"]}
    assert all(is_charts_volume(name) for name in used)
    assert not is_charts_volume("data")


def test_hvdchart_knows_the_mounts_of_the_chart() -> None:
    """Volumes of the user may replace two of them."""
    values: Values = {**EVERY_POD, "code": {"files": {"train.py": ""}}}
    pods = pod_specs(render(values)).values()
    containers = [container for pod in pods for container in pod["containers"]]
    used = {mount["mountPath"] for container in containers for mount in container["volumeMounts"]}
    replaceable = {"/tmp", "/dev/shm"}
    assert {path for path in used if not is_reserved_path(path)} == {*replaceable, "/data"}


GROUPS: Values = {
    "volumes": [{"name": "data", "emptyDir": {}}],
    "worker": {
        "number": 2,
        "image": {"repository": "a", "tag": "1", "digest": f"sha256:{0:064}"},
        "env": [{"name": "A", "value": "1"}],
        "nodeSelector": {"pool": "cpu", "zone": "a"},
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
        "tolerations": [{"key": "cpu"}],
    },
    "workerGroups": [
        {"name": "same"},
        {
            "name": "more",
            "number": 3,
            "image": {"repository": "b"},
            "env": [{"name": "B", "value": "2"}],
            "nodeSelector": {"pool": "other"},
            "resources": {"limits": {"cpu": "2"}},
            "volumes": [{"name": "own", "emptyDir": {}}],
        },
        {"name": "less", "env": [], "nodeSelector": {}, "resources": None, "tolerations": []},
    ],
}


@pytest.fixture(scope="module")
def sets() -> dict[str, Manifest]:
    items = of_kind(render(GROUPS), "StatefulSet")
    return {item["metadata"]["name"]: item["spec"] for item in items}


@pytest.mark.parametrize("group", merged_groups(GROUPS), ids=lambda group: str(group["name"]))
def test_hvdchart_merges_worker_groups_as_the_chart_does(
    sets: dict[str, Manifest], group: dict[str, Any]
) -> None:
    stateful_set = sets[f"hvd-{group['name']}"]
    pod = stateful_set["template"]["spec"]
    (worker,) = pod["containers"]
    assert stateful_set["replicas"] == group["number"]
    digest = f"@{group['image']['digest']}" if "digest" in group["image"] else ""
    assert worker["image"] == f"{group['image']['repository']}:{group['image']['tag']}{digest}"
    for of_pod, key in ((pod, "nodeSelector"), (pod, "tolerations"), (worker, "resources")):
        assert (of_pod.get(key) or None) == (group.get(key) or None), key
    names = {"A", "B"}
    assert [entry for entry in worker["env"] if entry["name"] in names] == (group["env"] or [])
    of_values = [volume for volume in pod["volumes"] if volume["name"] in ("data", "own")]
    assert of_values == group["volumes"]


SIZES: list[list[Values]] = [
    [{}],
    [{"minimum": 1}],
    [{"minimum": 2}],
    [{"spares": 1}],
    [{"minimum": 2, "spares": 1}],
    [{"minimum": 2}, {}],
    [{"minimum": 2}, {"minimum": 1}],
]


@pytest.mark.parametrize("sizes", SIZES, ids=json.dumps)
def test_chart_and_pods_need_every_worker_of_the_same_runs(sizes: list[Values]) -> None:
    groups = [{"name": f"g{index}", "number": 2, **size} for index, size in enumerate(sizes)]
    manifests = render({"gang": "Kubernetes", "workerGroups": groups}, apis=KUBERNETES_GANG)
    run = parse_run(json.dumps(run_settings(manifests)))
    may_lose_workers = run.is_elastic or run.initial_workers != run.needed_workers
    disruption = one(manifests, "PodGroup")["spec"]["disruptionMode"]
    assert disruption == {"single" if may_lose_workers else "all": {}}


OUTCOMES = {"Finished": 0, "Failed": 78}
CLEANUPS: list[str] = load_source()["properties"]["cleanup"]["enum"]
# What the templates say of each outcome and cleanup.
REMOVALS = """\
{{- range .Values.cases }}
{{ .outcome }} {{ .cleanup }}: {{ include "horovod.removesWorkers" . | quote }}
{{- end }}
"""


@pytest.fixture(scope="module")
def removals(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """A chart of nothing but the rule, rendered."""
    folder = tmp_path_factory.mktemp("removals")
    chart = write_small_chart(folder, REMOVALS, "facts/_cluster.tpl")
    cases = [
        {"outcome": outcome, "cleanup": cleanup} for outcome in OUTCOMES for cleanup in CLEANUPS
    ]
    done = helm_template({"cases": cases}, chart=chart)
    assert done.returncode == 0, done.stderr
    (document,) = parse_manifests(done.stdout)
    return document


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("cleanup", CLEANUPS)
def test_chart_and_master_remove_the_workers_of_the_same_ends(
    removals: Manifest, outcome: str, cleanup: str
) -> None:
    world = World(one_group(cleanup=cleanup))
    world.train()
    world.answer_all()
    world.end_launcher(OUTCOMES[outcome])
    world.settle()
    assert world.of(WriteRecord)[-1].data["state"] == outcome
    assert bool(removals[f"{outcome} {cleanup}"]) is bool(world.of(ScaleDown))


@pytest.mark.parametrize("key", ["number", "spares", "minimum"])
def test_schema_allows_as_many_workers_as_the_chart_takes(key: str) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    nodes = (schema["worker"], schema["workerGroups"]["items"])
    assert [node["properties"][key]["maximum"] for node in nodes] == [max_workers()] * 2


def test_command_takes_as_many_workers_as_the_chart() -> None:
    assert max_workers() == MAX_WORKERS
