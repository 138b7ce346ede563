"""What makes two renders the same run: the values that decide what is trained, and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from hvdchart.values.merge import merge_values
from tests.chart.render import (
    CHART,
    Manifest,
    Values,
    helm_template,
    one,
    parse_manifests,
    render,
    run_settings,
)

BASE: Values = {
    "image": {"repository": "registry.example/team/resnet", "tag": "1.0"},
    "master": {"args": ["python", "train.py"]},
    "workerGroups": [{"name": "cpu", "number": 2}],
}
# Of BASE. A release of the chart must not change it, or an upgrade would train every run again.
PUBLISHED_ID = "eb8449bdb5"
ANOTHER_RUN: dict[str, Values] = {
    "command": {"master": {"args": ["python", "other.py"]}},
    "image": {"image": {"tag": "1.1"}},
    "environment": {"worker": {"env": [{"name": "LR", "value": "1"}]}},
    "number of workers": {"workerGroups": [{"name": "cpu", "number": 3}]},
    "worker resources": {"worker": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
    "launcher": {"launch": {"options": ["--verbose"]}},
    "network": {"network": {"transport": "TCP"}},
    "volumes": {"volumes": [{"name": "a", "emptyDir": {}}]},
    "Horovod": {"horovod": {"fusionThresholdMiB": 0}},
    "generation": {"master": {"generation": 2}},
}
SAME_RUN_OTHER_PODS: dict[str, Values] = {
    "master resources": {"master": {"resources": {"limits": {"memory": "1Gi"}}}},
    "master placement": {"master": {"nodeSelector": {"a": "b"}}},
    "labels": {"worker": {"podLabels": {"team": "vision"}}},
    "labels of a group": {
        "workerGroups": [{"name": "cpu", "number": 2, "podLabels": {"team": "vision"}}]
    },
    "shared memory": {"shm": {"sizeLimit": "8Gi"}},
    "keys": {"ssh": {"generation": 2}},
    "labels of all pods": {"podLabels": {"team": "vision"}},
    "identity of the workers": {"worker": {"serviceAccount": {"create": True}}},
    "DNS": {"dnsConfig": {"searches": ["example"]}},
    "queue": {"queueName": "team"},
    "pull policy": {"image": {"pullPolicy": "Always"}},
    "time to wait for hosts": {"launch": {"hostsTimeoutSeconds": 7}},
    "spares": {"worker": {"spares": 1}},
    "time until a host is lost": {"launch": {"lostAfterSeconds": 7}},
    "time to wait for a stalled rank": {"launch": {"stallTimeoutSeconds": 7}},
    "what to do about a loss that is NaN": {"launch": {"failOnNaN": True}},
    "modules to import early": {"launch": {"preload": ["torch"]}},
    "nodes with the data": {"staging": {"nodes": "Any"}},
}
NOT_OF_THE_RUN: dict[str, Values] = {
    "cleanup": {"cleanup": "Always"},
    "further objects": {
        "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}]
    },
    "condition of a parent chart": {"enabled": True},
    "metrics": {"metrics": {"enabled": True}},
    "TensorBoard": {"tensorboard": {"image": {"tag": "other"}}},
    "disruption budget": {"podDisruptionBudget": {"enabled": True}},
    "network policy": {"networkPolicy": {"enabled": False}},
    "deadline": {"master": {"activeDeadlineSeconds": 7}},
    "retries": {"master": {"backoffLimit": 7}},
    "suspended": {"master": {"suspend": True}},
    "empty and default values": {
        "worker": {"env": [], "slots": 1, "spares": 0, "image": {"tag": ""}}, "queueName": "",
    },
}  # fmt: skip


def hashes(manifests: list[Manifest]) -> tuple[str, str]:
    """The run's id and settings, which the master and the labels have."""
    described = run_settings(manifests)
    job = one(manifests, "Job")["metadata"]["labels"]
    stateful_set = one(manifests, "StatefulSet")["metadata"]["labels"]
    assert job["horovod/run"] == stateful_set["horovod/run"] == described["id"]
    assert job["horovod/settings"] == stateful_set["horovod/settings"] == described["settings"]
    return described["id"], described["settings"]


def job_name(manifests: list[Manifest]) -> str:
    name: str = one(manifests, "Job")["metadata"]["name"]
    return name


@pytest.mark.parametrize("case", ANOTHER_RUN)
def test_what_is_trained_makes_another_run(case: str) -> None:
    before, after = render(BASE), render(merge_values(BASE, ANOTHER_RUN[case]))
    assert hashes(before)[0] != hashes(after)[0]
    assert job_name(before) != job_name(after)


@pytest.mark.parametrize("case", SAME_RUN_OTHER_PODS)
def test_what_helps_a_run_to_start_is_the_same_run_with_other_settings(case: str) -> None:
    before, after = (
        hashes(render(BASE)),
        hashes(render(merge_values(BASE, SAME_RUN_OTHER_PODS[case]))),
    )
    assert before[0] == after[0]
    assert before[1] != after[1]


@pytest.mark.parametrize("case", NOT_OF_THE_RUN)
def test_what_does_not_concern_the_run_changes_nothing(case: str) -> None:
    assert hashes(render(BASE)) == hashes(render(merge_values(BASE, NOT_OF_THE_RUN[case])))


@pytest.fixture
def newer_chart(tmp_path: Path) -> Path:
    """The next version of the chart: a comment in a program, other defaults, one more value."""
    return make_newer_chart(tmp_path / "newer")


def make_newer_chart(folder: Path) -> Path:
    """Write the next version of the chart to a folder, and return the folder."""
    shutil.copytree(CHART, folder, ignore=shutil.ignore_patterns("__pycache__"))
    mesh = folder / "files" / "mesh.py"
    mesh.write_text(f"# A comment.\n{mesh.read_text()}")
    about = folder / "Chart.yaml"
    text = about.read_text()
    assert "\nversion: " in text
    assert "\nappVersion: " in text
    text = text.replace("\nversion: ", "\nversion: 1").replace("\nappVersion: ", "\nappVersion: 1")
    about.write_text(text)
    values = folder / "values.yaml"
    added = '  newList: []\n  newMap: {a: {}}\n  newText: ""\n  newSwitch: false\n'
    text, number = re.subn("(?<=\n)(worker:.*\n)", rf"\1{added}", values.read_text())
    assert number == 1
    values.write_text(text)
    schema = folder / "values.schema.json"
    schema.write_text(json.dumps({"type": "object"}))
    return folder


def render_newer(newer_chart: Path, values: Values) -> list[Manifest]:
    done = helm_template(values, chart=newer_chart)
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


def test_newer_chart_renders_the_same_run(newer_chart: Path) -> None:
    before, after = render(BASE), render_newer(newer_chart, BASE)
    assert before != after
    assert hashes(before) == hashes(after)
    assert job_name(before) != job_name(after), "Kubernetes would refuse a change of the Job's pods"


def test_without_a_record_a_newer_chart_renders_no_other_job(newer_chart: Path) -> None:
    """The API server refuses its changed pods, where another Job would train again."""
    values = {**BASE, "serviceAccount": {"create": False}}
    assert job_name(render(values)) == job_name(render_newer(newer_chart, values))
    assert job_name(render(values)) != job_name(
        render(merge_values(values, ANOTHER_RUN["command"]))
    )


def test_id_of_a_run_is_the_one_that_was_published() -> None:
    assert hashes(render(BASE))[0] == PUBLISHED_ID, (
        "this chart would train finished runs again: leave a default of horovod.identity as it "
        "was, and let a new value be empty or false by default (docs/adr/0010)"
    )


def test_clearing_a_value_for_a_group_makes_another_run() -> None:
    inherited = merge_values(BASE, {"worker": {"nodeSelector": {"pool": "gpu"}}})
    cleared = {**inherited, "workerGroups": [{"name": "cpu", "number": 2, "nodeSelector": None}]}
    assert hashes(render(inherited))[0] != hashes(render(cleared))[0]
