"""The published chart: its package, registries, chart-testing, and the files of a release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.release import artifacts
from devtools.toolchain.tools import tool
from tests.chart.registry import registry
from tests.chart.render import CHART

ROOT = CHART.parents[1]
HELMS = ("helm3", "helm4")
REPOSITORY = "https://example.com/me/it"
VALUES = {"image": {"repository": "registry.example/team/app"}, "worker": {"number": 3}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the HOST:PORT of an empty registry."""
    with registry(tmp_path_factory.mktemp("registry")) as host_and_port:
        yield host_and_port


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with the same release."""
    folders = [tmp_path_factory.mktemp("release") / "dist" for _ in range(2)]
    for folder in folders:
        artifacts.build(folder, REPOSITORY, "registry.example/team")
    return folders


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
    assert done.returncode == 0, done.stdout + done.stderr
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
    helm("helm4", tmp_path, "package", str(CHART), "--destination", str(tmp_path))
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as package:
        names = {name.removeprefix("horovod/") for name in package.getnames()}
    here = {
        str(file.relative_to(CHART))
        for file in CHART.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    only_here = {name for name in here if name.startswith("ci/")} | {"values.source.yaml"}
    assert names == here - only_here


def test_same_tree_gives_the_same_release(releases: list[Path]) -> None:
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in releases)
    assert first == second
    assert sorted(Path(name).suffix for name in first) == ["", ".md", ".tgz", ".whl"]
    subprocess.run(["sha256sum", "--check", artifacts.SUMS], cwd=releases[0], check=True)


@pytest.mark.parametrize("version", HELMS)
def test_packaged_chart_says_where_it_is_from(
    releases: list[Path], version: str, tmp_path: Path
) -> None:
    (package,) = releases[0].glob("*.tgz")
    chart = YAML(typ="safe").load(helm(version, tmp_path, "show", "chart", str(package)))
    assert chart["home"] == REPOSITORY
    assert chart["maintainers"] == [{"name": "me", "url": "https://example.com/me"}]
    images = YAML(typ="safe").load(chart["annotations"]["artifacthub.io/images"])
    assert all(image["image"].startswith("registry.example/team/horovod-") for image in images)
    options = ("--strict", "--set", "image.repository=x")
    assert "icon is recommended" not in helm(version, tmp_path, "lint", str(package), *options)


def ct(*arguments: str, **environment: str) -> str:
    """Run chart-testing with the tools that it calls on PATH, and return its output."""
    folders = [str(Path(sys.executable).parent), str(tool("helm4").parent)]
    path = os.pathsep.join([*folders, str(tool("kubectl").parent), os.environ["PATH"]])
    done = subprocess.run(
        [str(tool("ct")), *arguments, "--config", "charts/ct/ct.yaml"],
        cwd=ROOT,
        env={**os.environ, **environment, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_chart_testing_lints_the_chart() -> None:
    assert "All charts linted successfully" in ct("lint")


def test_chart_testing_installs_every_ci_case(kubeconfig: Path, examples_image: str) -> None:
    printed = ct("install", KUBECONFIG=str(kubeconfig))
    cases = list((CHART / "ci").glob("*-values.yaml"))
    assert len(cases) >= 2
    for case in cases:
        assert case.name in printed
    assert "All charts installed successfully" in printed
