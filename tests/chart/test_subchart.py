"""The chart as a dependency of another chart, also twice in one release."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools.toolchain.tools import tool
from tests.chart.render import (
    CHART,
    Manifest,
    Values,
    of_kind,
    one,
    parse_manifests,
    pod_spec,
    render,
)
from tests.go_programs import run_program

IMAGE = {"repository": "registry.example/team/app"}
TWICE: Values = {
    "dependencies": [{"name": "horovod", "alias": alias} for alias in ("train", "evaluate")]
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a parent chart that depends on the chart twice."""
    parent = tmp_path_factory.mktemp("parent")
    shutil.copytree(CHART, parent / "charts" / "horovod")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    for dependency in TWICE["dependencies"]:
        dependency["version"] = version
    head: dict[str, Any] = {"apiVersion": "v2", "name": "parent", "version": "1.0.0"}
    (parent / "Chart.yaml").write_text(yaml.safe_dump({**head, **TWICE}))
    return parent


def render_parent(folder: Path, values: Values, helm: str) -> list[Manifest]:
    """Return the manifests of the parent chart as release `lab`."""
    command = [str(tool(helm)), "template", "lab", str(folder), "--namespace", "team"]
    done = run_program([*command, "--values", "-"], yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_two_aliases_make_different_objects(folder: Path, helm: str) -> None:
    values = {"global": {"a": 1}, "train": {"image": IMAGE}, "evaluate": {"image": IMAGE}}
    manifests = render_parent(folder, values, helm)
    names = Counter((item["kind"], item["metadata"]["name"]) for item in manifests)
    assert [name for name, count in names.items() if count > 1] == []
    sets = of_kind(manifests, "StatefulSet")
    assert {("StatefulSet", f"lab-{alias}-worker") for alias in ("train", "evaluate")} <= set(names)
    first, second = (item["spec"] for item in sets)
    assert {first["serviceName"], second["serviceName"]} == {"lab-train", "lab-evaluate"}
    # Neither selects the pods of the other, although both have the same instance.
    labels = first["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "lab"
    assert not second["selector"]["matchLabels"].items() <= labels.items()
    policies = of_kind(manifests, "NetworkPolicy")
    selected = [item["spec"]["podSelector"]["matchLabels"] for item in policies]
    assert sum(chosen.items() <= labels.items() for chosen in selected) == 1


@pytest.mark.parametrize(
    ("values", "release", "name"),
    [
        ({}, "hvd", "hvd"),
        ({"nameOverride": "unet"}, "hvd", "hvd-unet"),
        ({"nameOverride": "unet"}, "my-unet-2", "my-unet-2"),
        ({"fullnameOverride": "unet"}, "hvd", "unet"),
        ({"fullnameOverride": "unet", "nameOverride": "x"}, "hvd", "unet"),
    ],
)
def test_prefix_of_object_names(values: Values, release: str, name: str) -> None:
    manifests = render(values, release)
    workers = one(manifests, "StatefulSet")
    assert workers["metadata"]["name"] == f"{name}-worker"
    labels = workers["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == release
    assert labels["app.kubernetes.io/name"] == values.get("nameOverride", "horovod")
    assert pod_spec(one(manifests, "Job"))["serviceAccountName"] == f"{name}-master"
