"""The files of a release: the same bytes each time, and a chart that Helm installs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import hvdchart
from devtools.release import artifacts
from devtools.toolchain.tools import tool

REPOSITORY = "https://example.com/me/it"


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders with the same release."""
    folders = [tmp_path_factory.mktemp("release") / "dist" for _ in range(2)]
    for folder in folders:
        artifacts.build(folder, REPOSITORY, "registry.example/team")
    return folders


def test_same_tree_gives_the_same_bytes(twice: list[Path]) -> None:
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in twice)
    assert first == second
    kinds = sorted(Path(name).suffix for name in first)
    assert kinds == ["", ".md", ".tgz", ".whl"]


def test_checksums_are_right(twice: list[Path]) -> None:
    subprocess.run(["sha256sum", "--check", artifacts.SUMS], cwd=twice[0], check=True)


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_packaged_chart_says_where_it_is_from(twice: list[Path], helm: str) -> None:
    (package,) = twice[0].glob("*.tgz")
    command = [str(tool(helm)), "show", "chart", str(package)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    chart = YAML(typ="safe").load(shown)
    assert chart["home"] == REPOSITORY
    assert chart["maintainers"] == [{"name": "me", "url": "https://example.com/me"}]
    images = YAML(typ="safe").load(chart["annotations"]["artifacthub.io/images"])
    assert all(image["image"].startswith("registry.example/team/horovod-") for image in images)
    linted = subprocess.run(
        [str(tool(helm)), "lint", "--strict", str(package), "--set", "image.repository=x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr
    assert "icon is recommended" not in linted.stdout


def test_version_is_kept_for_the_tests_of_later_ones(tmp_path: Path) -> None:
    kept = artifacts.keep(tmp_path)
    assert sorted(file.name for file in kept) == sorted(file.name for file in tmp_path.iterdir())
    version = hvdchart.__version__
    assert {file.name for file in kept} == {f"names-{version}.json", f"horovod-{version}.tgz"}
    names = json.loads((tmp_path / f"names-{version}.json").read_text())
    assert "worker.number" in names["values"]
    assert "nodes[].count" in names["spec"]
    assert "deploy --code" in names["commands"]
    assert "make_plan" in names["library"]
