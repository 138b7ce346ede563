"""Render the chart with a real Helm."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from devtools.toolchain.tools import tool

CHART = Path(__file__).resolve().parents[2] / "charts" / "horovod"
Values = dict[str, Any]
Manifest = dict[str, Any]


def helm_template(
    values: Values | None = None,
    release: str = "hvd",
    helm: str = "helm3",
    kubernetes: str = "",
    chart: Path = CHART,
) -> subprocess.CompletedProcess[str]:
    """What `helm template` answers, output and exit code. kubernetes: the cluster's version."""
    text = json.dumps(values or {})
    if chart != CHART:
        return _helm_template(text, release, helm, kubernetes, chart)
    return _cached_helm_template(text, release, helm, kubernetes, chart)


def _helm_template(
    values: str, release: str, helm: str, kubernetes: str, chart: Path
) -> subprocess.CompletedProcess[str]:
    command = [str(tool(helm)), "template", release, str(chart), "--namespace", "team"]
    version = ["--kube-version", kubernetes] if kubernetes else []
    return subprocess.run(
        [*command, *version, "--values", "-"],
        input=values,
        capture_output=True,
        text=True,
        check=False,
    )


# The chart does not change while the tests run, and many of them render the same values.
_cached_helm_template = cache(_helm_template)


def render(
    values: Values | None = None, release: str = "hvd", helm: str = "helm3"
) -> list[Manifest]:
    """The manifests, in Helm's order."""
    done = helm_template(values, release, helm)
    assert done.returncode == 0, done.stderr
    # As Kubernetes reads it: YAML 1.1, in which a mode such as 0440 is octal.
    documents = yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)
    return [document for document in documents if document]


def refusal(values: Values, release: str = "hvd") -> str:
    """Helm's message for values that must be refused."""
    done = helm_template(values, release)
    assert done.returncode != 0, f"was accepted: {values}"
    assert not done.stdout.strip(), "something was rendered although the values were refused"
    return done.stderr


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """All manifests of one kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def one(manifests: list[Manifest], kind: str) -> Manifest:
    """The only manifest of a kind."""
    found = of_kind(manifests, kind)
    assert len(found) == 1, [manifest["metadata"]["name"] for manifest in found]
    return found[0]


def pod_spec(workload: Manifest) -> Manifest:
    """The pod spec inside a StatefulSet or Job."""
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec


def run_settings(manifests: list[Manifest]) -> dict[str, Any]:
    """What the master is told, as it will read it: Kubernetes turns $$ into $ in an env value."""
    environment = pod_spec(one(manifests, "Job"))["containers"][0]["env"]
    value = next(entry["value"] for entry in environment if entry["name"] == "HVD_RUN")
    settings: dict[str, Any] = json.loads(value.replace("$$", "$"))
    return settings
