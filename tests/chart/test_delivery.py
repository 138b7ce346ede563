"""The chart as others have it: packaged, and as a dependency of another chart; chart-testing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from devtools.common.commands import read_output
from devtools.release import artifacts
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
from tests.support.go_programs import run_program

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
    # Pods get the programs, and what only these read, as charts/programs/programs.tgz.
    sources = {name for name in here if name.startswith("files/hvd_pods/") and name[-3:] == ".py"}
    unread = ("pod_problems", "python_packages")
    sources |= {f"files/hvd_pods/common/{name}.json" for name in unread}
    only_here = {name for name in here if name.startswith("ci/")} | {"values.source.yaml"}
    assert names == here - only_here - sources


def test_same_tree_gives_the_same_release(releases: list[Path]) -> None:
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in releases)
    assert first == second


def test_release_has_the_chart_the_wheel_notes_and_checksums(releases: list[Path]) -> None:
    names = [path.name for path in releases[0].iterdir()]
    assert sorted(Path(name).suffix for name in names) == ["", ".md", ".tgz", ".whl"]


def test_checksums_of_a_release_are_right(releases: list[Path]) -> None:
    subprocess.run(["sha256sum", "--check", artifacts.SUMS], cwd=releases[0], check=True)


@pytest.fixture(scope="module")
def package(releases: list[Path]) -> Path:
    """The chart of a release."""
    (found,) = releases[0].glob("*.tgz")
    return found


@pytest.fixture(scope="module")
def about(package: Path) -> dict[str, Any]:
    """What the released chart says of itself."""
    read: dict[str, Any] = YAML(typ="safe").load(helm("show", "chart", str(package)))
    return read


def test_packaged_chart_says_where_it_is_from(about: dict[str, Any]) -> None:
    assert about["home"] == REPOSITORY
    assert about["maintainers"] == [{"name": "me", "url": "https://example.com/me"}]


def test_packaged_chart_lists_the_images_of_its_registry(about: dict[str, Any]) -> None:
    images = YAML(typ="safe").load(about["annotations"]["artifacthub.io/images"])
    assert all(image["image"].startswith("registry.example/team/horovod-") for image in images)


def test_packaged_chart_has_an_icon(package: Path) -> None:
    options = ("--strict", "--set", "image.repository=x")
    assert "icon is recommended" not in helm("lint", str(package), *options)


def ct(root: Path, *arguments: str, **environment: str) -> str:
    """Run chart-testing with the tools that it calls on PATH, and return its output.

    It runs on a copy of the chart in `root`, into which it writes for a moment.
    """
    shutil.copytree(ROOT / "charts", root / "charts")
    shutil.copy(ROOT / ".yamllint", root)
    folders = [str(Path(sys.executable).parent), str(tool("helm4").parent)]
    path = os.pathsep.join([*folders, str(tool("kubectl").parent), os.environ["PATH"]])
    done = subprocess.run(
        [str(tool("ct")), *arguments, "--config", "charts/ct/ct.yaml"],
        cwd=root,
        env={**os.environ, **environment, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_chart_testing_lints_the_chart(tmp_path: Path) -> None:
    assert "All charts linted successfully" in ct(tmp_path, "lint")


def test_chart_testing_installs_every_ci_case(
    tmp_path: Path, kubeconfig: Path, examples_image: str
) -> None:
    printed = ct(tmp_path, "install", KUBECONFIG=str(kubeconfig))
    cases = {case.name for case in (CHART / "ci").glob("*-values.yaml")}
    assert {case for case in cases if case in printed} == cases


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


@pytest.fixture(scope="module", params=["helm3", "helm4"])
def of_two_aliases(folder: Path, request: pytest.FixtureRequest) -> list[Manifest]:
    """The manifests of the parent chart, by each Helm."""
    values = {"global": {"a": 1}, "train": {"image": IMAGE}, "evaluate": {"image": IMAGE}}
    return render_parent(folder, values, request.param)


def test_two_aliases_make_different_objects(of_two_aliases: list[Manifest]) -> None:
    names = Counter((item["kind"], item["metadata"]["name"]) for item in of_two_aliases)
    assert [name for name, count in names.items() if count > 1] == []
    assert {("StatefulSet", f"lab-{alias}-worker") for alias in ("train", "evaluate")} <= set(names)


def test_workers_of_each_alias_have_a_service_of_their_own(of_two_aliases: list[Manifest]) -> None:
    services = {item["spec"]["serviceName"] for item in of_kind(of_two_aliases, "StatefulSet")}
    assert services == {"lab-train", "lab-evaluate"}


def test_no_alias_selects_the_pods_of_the_other(of_two_aliases: list[Manifest]) -> None:
    """Although both have the same instance."""
    first, second = (item["spec"] for item in of_kind(of_two_aliases, "StatefulSet"))
    labels = first["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "lab"
    assert not second["selector"]["matchLabels"].items() <= labels.items()


def test_one_network_policy_selects_the_pods_of_an_alias(of_two_aliases: list[Manifest]) -> None:
    first, _ = of_kind(of_two_aliases, "StatefulSet")
    labels = first["spec"]["template"]["metadata"]["labels"]
    policies = of_kind(of_two_aliases, "NetworkPolicy")
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
