"""Writes the table of docs/compatibility.md from where each version is decided."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from ruamel.yaml import YAML

import hvdchart
from devtools.docs_gen.generated import replace_sections, table
from devtools.images.catalogue import load_catalogue
from devtools.toolchain.tools import HELM_3, HELM_4, module_version

ROOT = Path(__file__).resolve().parents[2]
# `make schemas` writes it.
APIS = ROOT / "tests" / "chart" / "kubernetes-api.json"
PAGE = ROOT / "docs" / "compatibility.md"


def minors() -> list[str]:
    """The Kubernetes releases that the chart is checked against, such as 1.29, the oldest first."""
    releases = json.loads(APIS.read_text("utf-8"))["releases"]
    return [release.removeprefix("v").rpartition(".")[0] for release in releases]


def versions() -> str:
    """A row for each kind of software: which versions are allowed, and which are checked."""
    chart = YAML(typ="safe").load(ROOT / "charts" / "horovod" / "Chart.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    images = load_catalogue()
    real = module_version("kube", "k8s.io/kubernetes").removeprefix("v")
    helms = [module_version("tools", module).removeprefix("v") for module in (HELM_4, HELM_3)]
    oldest = chart["kubeVersion"].removeprefix(">=").removesuffix(".0-0")
    frameworks = [
        f"{image.framework} {image.versions[image.framework]} (`{name}`)"
        for name, image in images.items()
        if image.framework
    ]
    rows = {
        "Chart and library": (hvdchart.__version__, "one version for both"),
        "Form of the spec": ("`hvdchart/v1`", "every file in `values/`"),
        "Kubernetes": (
            f"{oldest} or newer",
            f"APIs of {minors()[0]} to {minors()[-1]}; pods in a cluster of {real}",
        ),
        "Helm": ("4, and 3; `hvdchart` needs 3.13 or newer", " and ".join(helms)),
        "Python of `hvdchart`": (
            project["requires-python"].replace(">=", "") + " or newer",
            "3.11; unit tests on 3.12 and 3.13",
        ),
        "Python in the pods": ("3.8 or newer", "3.8 and that of each image"),
        "Horovod": (images["cpu"].versions["horovod"], "in each image"),
        "Frameworks": ("those of the image", ", ".join(frameworks)),
    }
    return table(("", "Allowed", "Checked"), ((name, *row) for name, row in rows.items()))


def generated_texts() -> dict[Path, str]:
    """The text that docs/compatibility.md should have."""
    return {PAGE: replace_sections(PAGE, {"versions": versions()})}
