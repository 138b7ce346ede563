"""The chart as others have it: packaged, and as a dependency of another chart; chart-testing."""

from __future__ import annotations

import base64
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
import yaml
from ruamel.yaml import YAML

from devtools.common.commands import read_output
from devtools.common.repository import CHART, ROOT
from devtools.release import artifacts
from devtools.toolchain.tools import tool
from hvdchart.run.helm import Helm, foreign_chart
from tests.chart.render import Manifest, Values, of_kind, one, parse_manifests, pod_spec, render
from tests.support.fakes.cluster import write_kubeconfig
from tests.support.fakes.server import Api, Handler
from tests.support.go_programs import run_program

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
    unread = (
        "master/failure_signs",
        "master/gpu_problems",
        "shared/pod_problems",
        "shared/python_packages",
    )
    sources |= {f"files/hvd_pods/{name}.json" for name in unread}
    only_here = {name for name in here if name.startswith("ci/")} | {"values.source.yaml"}
    assert names == here - only_here - sources


def test_same_tree_gives_the_same_release(releases: list[Path]) -> None:
    """It has the chart, the wheel, notes and checksums."""
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in releases)
    assert first == second
    assert sorted(Path(name).suffix for name in first) == ["", ".md", ".tgz", ".whl"]
    subprocess.run(["sha256sum", "--check", artifacts.SUMS], cwd=releases[0], check=True)


def test_packaged_chart_names_its_source_and_that_of_its_images(releases: list[Path]) -> None:
    (package,) = releases[0].glob("*.tgz")
    about = YAML(typ="safe").load(helm("show", "chart", str(package)))
    assert about["home"] == REPOSITORY
    assert about["maintainers"] == [{"name": "me", "url": "https://example.com/me"}]
    images = YAML(typ="safe").load(about["annotations"]["artifacthub.io/images"])
    assert all(image["image"].startswith("registry.example/team/horovod-") for image in images)
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


ALIASES = ("train", "evaluate")


def write_parent(folder: Path, name: str, *dependencies: dict[str, str]) -> None:
    """Write a chart with this one as its dependency, once for each of these keys of Chart.yaml."""
    shutil.copytree(CHART, folder / "charts" / "horovod")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    asked = [{"name": "horovod", "version": version, **more} for more in dependencies]
    head = {"apiVersion": "v2", "name": name, "version": "1.0.0", "dependencies": asked}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(head))


def render_parent(folder: Path, values: Values, helm: str) -> list[Manifest]:
    """Return the manifests of a parent chart as release `lab`."""
    command = [str(tool(helm)), "template", "lab", str(folder), "--namespace", "team"]
    done = run_program([*command, "--values", "-"], yaml.safe_dump(values))
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


@pytest.mark.parametrize("helm", ["helm3", "helm4"])
def test_chart_may_be_two_dependencies_of_another_one(tmp_path: Path, helm: str) -> None:
    """Both have the same instance, and objects, services, pods and policies of their own."""
    write_parent(tmp_path, "parent", *({"alias": alias} for alias in ALIASES))
    image = {"repository": "registry.example/team/app"}
    values = {"global": {"a": 1}, **{alias: {"image": image} for alias in ALIASES}}
    manifests = render_parent(tmp_path, values, helm)
    names = Counter((item["kind"], item["metadata"]["name"]) for item in manifests)
    assert [name for name, count in names.items() if count > 1] == []
    assert {("StatefulSet", f"lab-{alias}-worker") for alias in ALIASES} <= set(names)
    first, second = (item["spec"] for item in of_kind(manifests, "StatefulSet"))
    assert {first["serviceName"], second["serviceName"]} == {"lab-train", "lab-evaluate"}
    labels = first["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "lab"
    assert not second["selector"]["matchLabels"].items() <= labels.items()
    policies = of_kind(manifests, "NetworkPolicy")
    selected = [item["spec"]["podSelector"]["matchLabels"] for item in policies]
    assert sum(chosen.items() <= labels.items() for chosen in selected) == 1


class Storage(Api):
    """An API server with the Secret in which Helm has stored a release `hvd`, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self._secrets: list[Manifest] = []

    def answer(self, handler: Handler) -> None:
        stored = {"apiVersion": "v1", "kind": "SecretList", "items": self._secrets}
        handler.send_json(200, stored)

    def store(self, chart: Path, values: Values) -> None:
        """Store a release of this chart."""
        command = [str(tool("helm4")), "install", "hvd", str(chart), "--namespace", "team"]
        options = ["--dry-run=client", "--output", "json", "--values", "-"]
        done = run_program([*command, *options], yaml.safe_dump(values))
        assert done.returncode == 0, done.stderr
        packed = base64.b64encode(gzip.compress(done.stdout.encode()))
        labels = {"owner": "helm", "name": "hvd", "version": "1", "status": "deployed"}
        secret = {
            "metadata": {"name": "sh.helm.release.v1.hvd.v1", "labels": labels},
            "type": "helm.sh/release.v1",
            "data": {"release": base64.b64encode(packed).decode()},
        }
        self._secrets = [secret]


@pytest.mark.parametrize("program", ["helm3", "helm4"])
def test_release_of_a_parent_chart_is_no_release_of_this_chart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    helm = Helm(str(tool(program)))
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    values: Values = {"image": {"repository": "registry.example/team/app"}}
    write_parent(tmp_path / "parent", "horovod", {})
    storage = Storage()
    with storage.serve() as address:
        write_kubeconfig(kubeconfig, address)
        storage.store(CHART, values)
        assert foreign_chart("hvd", "team", helm) is None
        storage.store(tmp_path / "parent", {"horovod": values})
        assert foreign_chart("hvd", "team", helm) == "horovod"


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
