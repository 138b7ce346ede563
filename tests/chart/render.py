"""Renders the chart with a real Helm."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML

from devtools.common.cache import cache_dir, content_key
from devtools.common.repository import CHART, EXAMPLE_VALUES
from devtools.toolchain.tools import tool
from hvdchart.files import write_atomically
from tests.support.go_programs import run_program

IMAGE = "registry.example/team/app"
# Renders of one state of the chart take some 50 MB.
KEPT_STATES = 4
UNUSED_SECONDS = 3600
Values = dict[str, Any]
Manifest = dict[str, Any]


def helm_template(
    values: Values | None = None,
    release: str = "hvd",
    helm: str = "helm4",
    chart: Path = CHART,
    apis: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run `helm template`, with an image where the values name none; `apis` are served, too."""
    options = tuple(f"--api-versions={api}" for api in apis)
    if chart != CHART:
        return _helm_template(json.dumps(values or {}), release, helm, options, chart)
    text = json.dumps(with_image(values or {}))
    return _cached_helm_template(text, release, helm, options, chart)


def write_small_chart(folder: Path, text: str, *definitions: str) -> Path:
    """Write a chart that renders this text with the named files of the chart's templates."""
    templates = folder / "templates"
    templates.mkdir()
    for name in definitions:
        shutil.copy(CHART / "templates" / name, templates)
    (templates / "text.yaml").write_text(text)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 1.0.0\n")
    return folder


def nested(path: Sequence[str], value: Any) -> Values:
    """Return {"a": {"b": 1}} for the path ("a", "b") and the value 1."""
    for step in reversed(path):
        value = {step: value}
    result: Values = value
    return result


def with_image(values: Values) -> Values:
    """Return the values with IMAGE, unless they name an image: the chart has no default."""
    image = values.get("image", {})
    return values if image is None else {**values, "image": {"repository": IMAGE, **image}}


def _helm_template(
    values: str, release: str, helm: str, options: tuple[str, ...], chart: Path
) -> subprocess.CompletedProcess[str]:
    command = [str(tool(helm)), "template", release, str(chart), "--namespace", "team"]
    return run_program([*command, *options, "--values", "-"], values)


@cache
def _kept_renders() -> Path:
    """The folder of what this chart was rendered to; those of its last few states stay, too."""
    programs = [tool(helm).parent.name for helm in ("helm3", "helm4")]
    folder = cache_dir() / "renders" / content_key([CHART], *programs)
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    times = {state: state.stat().st_mtime for state in folder.parent.iterdir()}
    for state in sorted(times, key=lambda state: times[state])[:-KEPT_STATES]:
        # Another checkout's tests may use it now.
        if times[state] < time.time() - UNUSED_SECONDS:
            shutil.rmtree(state, ignore_errors=True)
    return folder


@cache
def _cached_helm_template(
    values: str, release: str, helm: str, options: tuple[str, ...], chart: Path
) -> subprocess.CompletedProcess[str]:
    """Many tests render the same values, and a chart that has not changed renders the same again:
    nothing but these arguments, the chart and Helm decides.
    """
    file = _kept_renders() / f"{content_key([], values, release, helm, *options)}.json"
    if not file.exists():
        done = _helm_template(values, release, helm, options, chart)
        write_atomically(file, json.dumps([done.returncode, done.stdout, done.stderr]))
    return subprocess.CompletedProcess(["helm", "template"], *json.loads(file.read_text()))


def render_uncached(values: Values, helm: str = "helm4") -> str:
    """Render once more, whatever was rendered before."""
    done = _helm_template(json.dumps(with_image(values)), "hvd", helm, (), CHART)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(
    values: Values | None = None,
    release: str = "hvd",
    helm: str = "helm4",
    apis: tuple[str, ...] = (),
) -> list[Manifest]:
    """Return the manifests in Helm's order."""
    done = helm_template(values, release, helm, apis=apis)
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


def parse_manifests(text: str) -> list[Manifest]:
    """The documents as Kubernetes reads them: YAML 1.1, in which a mode such as 0440 is octal."""
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def refusal(values: Values) -> str:
    """Return Helm's error message for values that it must refuse."""
    done = helm_template(values)
    assert done.returncode != 0, f"Helm accepted {values}"
    assert not done.stdout.strip(), "Helm rendered manifests although it refused the values"
    return done.stderr


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def one(manifests: list[Manifest], kind: str) -> Manifest:
    matches = of_kind(manifests, kind)
    assert len(matches) == 1, [manifest["metadata"]["name"] for manifest in matches]
    return matches[0]


def pod_spec(workload: Manifest) -> Manifest:
    """Return the pod spec of a workload, such as a StatefulSet or a Job."""
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec


def pod_templates(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return each pod, and the pod template of each workload, by its kind and name."""
    return {
        f"{item['kind']} {item['metadata']['name']}": item["spec"].get("template", item)
        for item in manifests
        if item["kind"] in ("StatefulSet", "Job", "Deployment", "Pod")
    }


def pod_specs(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return the pod spec of each pod and workload, by its kind and name."""
    return {name: template["spec"] for name, template in pod_templates(manifests).items()}


def containers_of(manifests: list[Manifest]) -> list[Manifest]:
    specs = pod_specs(manifests).values()
    return [
        container
        for spec in specs
        for container in (*spec.get("initContainers", ()), *spec["containers"])
    ]


def main_container(manifests: list[Manifest], kind: str) -> Manifest:
    """Return the main container of the only workload of a kind."""
    container: Manifest = pod_spec(one(manifests, kind))["containers"][0]
    return container


def variables(manifests: list[Manifest], kind: str = "StatefulSet") -> dict[str, str]:
    """Return the variables of the main container, in order; empty for a variable with valueFrom."""
    entries = main_container(manifests, kind)["env"]
    return {entry["name"]: entry.get("value", "") for entry in entries}


def run_settings(manifests: list[Manifest]) -> dict[str, Any]:
    """Return the master's settings as it reads them: Kubernetes turns $$ in an env value into $."""
    value = variables(manifests, "Job")["HVD_RUN"]
    settings: dict[str, Any] = json.loads(value.replace("$$", "$"))
    return settings


@cache
def ready_cases() -> dict[str, Values]:
    """Return the values of each case by name: values/*.yaml and the chart's ci/*-values.yaml."""
    files = [
        *(
            file
            for file in sorted(EXAMPLE_VALUES.glob("*.yaml"))
            if not file.name.endswith(".spec.yaml")
        ),
        *sorted((CHART / "ci").glob("*-values.yaml")),
    ]
    cases = {file.name: YAML(typ="safe").load(file.read_text()) for file in files}
    return {"default": {}, **cases}


@cache
def ready_manifests(case: str) -> list[Manifest]:
    """Return the manifests of a case, which are cached: callers must not change them."""
    return render(ready_cases()[case])


def run_pods(manifests: list[Manifest]) -> list[Manifest]:
    """Return the pod templates of all workers and the master."""
    workloads = [*of_kind(manifests, "StatefulSet"), one(manifests, "Job")]
    return [workload["spec"]["template"] for workload in workloads]
