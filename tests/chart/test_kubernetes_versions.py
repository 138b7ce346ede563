"""Every Kubernetes release that Chart.yaml allows accepts each field of each object, and
charts/kube-score.yaml explains the findings of kube-score.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.checks.schemas import RELEASES
from devtools.common.repository import CHART, EXAMPLE_VALUES
from devtools.toolchain.tools import kubernetes_releases, tool
from tests.chart.api_schemas import write_for_kubeconform
from tests.chart.cases import CASES, KUBERNETES_GANG
from tests.chart.render import Manifest, Values, ready_cases, render
from tests.support.go_programs import run_program


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the location of each release's API for kubeconform."""
    return write_for_kubeconform(tmp_path_factory.mktemp("kubernetes"))


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    """Return the manifests of all cases."""
    documents = [manifest for values in CASES.values() for manifest in render(values)]
    # Many cases have manifests in common.
    return [json.loads(text) for text in {json.dumps(manifest): None for manifest in documents}]


def kubeconform(
    manifests: list[Manifest], release: str, schemas: str
) -> subprocess.CompletedProcess[str]:
    """Return kubeconform's findings on the manifests for one release's API."""
    command = [
        str(tool("kubeconform")),
        "-strict",
        "-summary",
        "-schema-location",
        schemas,
        "-kubernetes-version",
        release.removeprefix("v"),
        "-output",
        "json",
    ]
    return run_program(command, "\n---\n".join(json.dumps(manifest) for manifest in manifests))


@pytest.mark.parametrize("release", RELEASES)
def test_every_kubernetes_release_has_every_field(
    release: str, manifests: list[Manifest], schemas: str
) -> None:
    done = kubeconform(manifests, release, schemas)
    assert done.returncode in (0, 1), done.stderr
    verdict = json.loads(done.stdout)
    problems = {
        f"{resource['kind']}: {resource['msg'].partition(' - ')[2]}"
        for resource in verdict["resources"]
    }
    assert problems == set()
    assert verdict["summary"] == {"valid": len(manifests), "invalid": 0, "errors": 0, "skipped": 0}


def test_newest_release_has_the_fields_of_its_own_gang(schemas: str) -> None:
    values: Values = {
        "gang": "Kubernetes",
        "priorityClassName": "high",
    }
    gang = [
        item
        for item in render(values, apis=KUBERNETES_GANG)
        if item["kind"] in ("PodGroup", "StatefulSet", "Job")
    ]
    assert len(gang) == 3
    done = kubeconform(gang, RELEASES[-1], schemas)
    assert json.loads(done.stdout)["resources"] == []
    # Older releases refuse the field of the pods.
    assert "schedulingGroup" in kubeconform(gang, RELEASES[0], schemas).stdout


def minor(release: str) -> int:
    """Return the minor version: 29 for v1.29.15."""
    return int(release.split(".")[1])


def test_releases_start_at_the_charts_minimum_version_and_leave_none_out() -> None:
    floor = YAML(typ="safe").load((CHART / "Chart.yaml").read_text())["kubeVersion"]
    match = re.fullmatch(r">=1\.(\d+)\.0-0", floor)
    assert match, floor
    assert [minor(release) for release in RELEASES] == list(
        range(int(match[1]), int(match[1]) + len(RELEASES))
    )


def test_local_clusters_run_the_newest_release_and_an_older_one() -> None:
    newest, *others = kubernetes_releases().values()
    assert newest == RELEASES[-1]
    assert others
    assert set(others) <= set(RELEASES)


# The best grade of kube-score: there is nothing to say.
ALL_RIGHT = 10
EXPLAINED = CHART.parent / "kube-score.yaml"
# The ready cases, and those of the API tests with further objects and settings.
SCANNED = [*ready_cases(), "network", "staging", "watching"]
PLANNED = {file.name for file in EXAMPLE_VALUES.glob("*.yaml")}
# The name of a rule, what it says, and the kind of the object.
Finding = tuple[str, str, str]


@cache
def findings_of(case: str) -> set[Finding]:
    """Return what kube-score says of the objects of a case, warnings included."""
    # Some rules compare objects with each other, so kube-score needs all objects of a release.
    text = "\n---\n".join(json.dumps(manifest) for manifest in render(CASES[case]))
    done = run_program([str(tool("kube-score")), "score", "--output-format", "json", "-"], text)
    # The exit status is 1 when there are findings.
    assert done.returncode in (0, 1), done.stderr
    return {
        (score["check"]["id"], comment["summary"], judged["type_meta"]["kind"])
        for judged in json.loads(done.stdout)
        for score in judged["checks"] or []
        if not score["skipped"] and score["grade"] < ALL_RIGHT
        for comment in score["comments"] or [{"summary": ""}]
    }


@cache
def explained() -> dict[Finding, str]:
    """Return each accepted finding, and for which values it is accepted: "all" or "unplanned"."""
    entries: list[dict[str, Any]] = YAML(typ="safe").load(EXPLAINED.read_text())["explained"]
    assert all(entry["reason"] for entry in entries)
    return {
        (entry["check"], entry["finding"], kind): entry.get("only", "all")
        for entry in entries
        for kind in entry["kinds"]
    }


@pytest.mark.parametrize("case", SCANNED)
@pytest.mark.promise("every scanner finding has an explanation")
def test_every_scanner_finding_has_an_explanation(case: str) -> None:
    accepted = {
        finding for finding, cases in explained().items() if cases == "all" or case not in PLANNED
    }
    assert findings_of(case) - accepted == set(), f"fix it, or explain it in {EXPLAINED}"
