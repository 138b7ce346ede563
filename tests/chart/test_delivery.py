"""The published chart: its package, chart-testing, and the files of a release."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from devtools.common.commands import read_output
from devtools.release import artifacts
from devtools.toolchain.tools import tool
from tests.chart.render import CHART

ROOT = CHART.parents[1]
REPOSITORY = "https://example.com/me/it"


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with the same release."""
    folders = [tmp_path_factory.mktemp("release") / "dist" for _ in range(2)]
    for folder in folders:
        artifacts.build(folder, REPOSITORY, "registry.example/team")
    return folders


def helm(*arguments: str) -> str:
    """Run Helm and return its output."""
    return read_output([str(tool("helm4")), *arguments], remedy="")


def test_package_has_exactly_the_chart_files(tmp_path: Path) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
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


def test_packaged_chart_says_where_it_is_from(releases: list[Path]) -> None:
    (package,) = releases[0].glob("*.tgz")
    chart = YAML(typ="safe").load(helm("show", "chart", str(package)))
    assert chart["home"] == REPOSITORY
    assert chart["maintainers"] == [{"name": "me", "url": "https://example.com/me"}]
    images = YAML(typ="safe").load(chart["annotations"]["artifacthub.io/images"])
    assert all(image["image"].startswith("registry.example/team/horovod-") for image in images)
    options = ("--strict", "--set", "image.repository=x")
    assert "icon is recommended" not in helm("lint", str(package), *options)


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
