"""charts/kube-score.yaml explains exactly the findings of kube-score."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.toolchain.tools import tool
from tests.chart.render import CHART, VALUES, ready_cases, render
from tests.chart.test_real_api import CASES
from tests.go_programs import run_program

# The best grade of kube-score: there is nothing to say.
ALL_RIGHT = 10
EXPLAINED = CHART.parent / "kube-score.yaml"
# The ready cases, and those of the API tests with further objects and settings.
SCANNED = [*ready_cases(), "network", "staging", "watching"]
PLANNED = {file.name for file in VALUES.glob("*.yaml")}
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
def test_every_scanner_finding_has_an_explanation(case: str) -> None:
    accepted = {
        finding for finding, cases in explained().items() if cases == "all" or case not in PLANNED
    }
    assert findings_of(case) - accepted == set(), f"fix it, or explain it in {EXPLAINED}"


def test_every_explanation_has_a_scanner_finding() -> None:
    seen = {finding for case in SCANNED for finding in findings_of(case)}
    assert explained().keys() - seen == set(), f"remove it from {EXPLAINED}"
