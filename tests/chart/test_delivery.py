"""The published chart: its package, registries, and its annotations for Artifact Hub."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import hvdchart
from devtools.toolchain.tools import tool
from tests.chart.registry import registry
from tests.chart.render import CHART

ROOT = CHART.parents[1]
HELMS = ("helm3", "helm4")
# With an existing Secret, the chart creates no random keys, so each render is equal.
VALUES = {
    "image": {"repository": "registry.example/team/app"},
    "ssh": {"existingSecret": "mine"},
    "worker": {"number": 3},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the HOST:PORT of an empty registry."""
    with registry(tmp_path_factory.mktemp("registry")) as host_and_port:
        yield host_and_port


def chart_yaml() -> dict[str, Any]:
    """Return the content of Chart.yaml."""
    content: dict[str, Any] = YAML(typ="safe").load((CHART / "Chart.yaml").read_text())
    return content


def helm(version: str, home: Path, *arguments: str, values: object = None) -> str:
    """Run Helm with an empty cache and return its output."""
    folders = {f"HELM_{name}_HOME": str(home / name) for name in ("CACHE", "CONFIG", "DATA")}
    done = subprocess.run(
        [str(tool(version)), *arguments],
        env={**os.environ, **folders},
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("pushing", HELMS)
def test_chart_pushed_by_one_helm_installs_with_both(
    pushing: str, address: str, tmp_path: Path
) -> None:
    version = chart_yaml()["version"]
    helm(pushing, tmp_path, "package", str(CHART), "--destination", str(tmp_path))
    repository = f"oci://{address}/{pushing}"
    package = tmp_path / f"horovod-{version}.tgz"
    helm(pushing, tmp_path, "push", str(package), repository, "--plain-http")
    for installing in HELMS:
        template = ["template", "hvd", "--values", "-"]
        there = [f"{repository}/horovod", "--version", version, "--plain-http"]
        pushed = helm(installing, tmp_path, *template, *there, values=VALUES)
        assert pushed == helm(installing, tmp_path, *template, str(CHART), values=VALUES)
        assert "kind: StatefulSet" in pushed


def test_package_has_exactly_the_chart_files(tmp_path: Path) -> None:
    helm("helm3", tmp_path, "package", str(CHART), "--destination", str(tmp_path))
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as package:
        names = {name.removeprefix("horovod/") for name in package.getnames()}
    here = {
        str(file.relative_to(CHART))
        for file in CHART.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    only_here = {name for name in here if name.startswith("ci/")} | {"values.source.yaml"}
    assert names == here - only_here


def test_chart_and_library_versions_are_equal() -> None:
    version = chart_yaml()["version"]
    assert hvdchart.__version__ == version
    headings = [
        line.split()[1]
        for line in (ROOT / "CHANGELOG.md").read_text().splitlines()
        if line.startswith("## ")
    ]
    assert headings[0] == version, "CHANGELOG.md starts with another version"


def test_artifact_hub_annotations_parse() -> None:
    annotations = {
        key.removeprefix("artifacthub.io/"): YAML(typ="safe").load(text)
        for key, text in chart_yaml()["annotations"].items()
    }
    assert annotations["license"] == "Apache-2.0"
    for change in annotations["changes"]:
        assert set(change) == {"kind", "description"}
        assert change["kind"] in ("added", "changed", "deprecated", "removed", "fixed", "security")
    assert all(set(link) == {"name", "url"} for link in annotations["links"])
