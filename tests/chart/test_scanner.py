"""charts/kube-score.yaml explains exactly the findings of kube-score."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.chart.cases import VALUES, ready_cases, ready_manifests
from tests.chart.render import CHART, render
from tests.chart.scan import Finding, findings
from tests.chart.test_real_api import CASES

EXPLAINED = CHART.parent / "kube-score.yaml"
# The ready cases, and those of the API tests with further objects and settings.
SCANNED = [*ready_cases(), "network", "staging", "watching"]
PLANNED = {file.name for file in VALUES.glob("*.yaml")}


@cache
def findings_of(case: str) -> list[Finding]:
    """Return the findings on one case."""
    ready = case in ready_cases()
    return findings(ready_manifests(case) if ready else render(CASES[case]))


@cache
def explained() -> dict[Finding, str]:
    """Return each accepted finding, and for which values it is accepted: "all" or "unplanned"."""
    entries: list[dict[str, Any]] = YAML(typ="safe").load(EXPLAINED.read_text())["explained"]
    for entry in entries:
        assert entry["reason"], entry
        assert entry.get("only", "unplanned") == "unplanned", entry
    return {
        Finding(entry["check"], entry["finding"], kind): entry.get("only", "all")
        for entry in entries
        for kind in entry["kinds"]
    }


@pytest.mark.parametrize("case", SCANNED)
def test_every_scanner_finding_has_an_explanation(case: str) -> None:
    accepted = {
        finding for finding, cases in explained().items() if cases == "all" or case not in PLANNED
    }
    assert set(findings_of(case)) - accepted == set(), f"fix it, or explain it in {EXPLAINED}"


def test_every_explanation_has_a_scanner_finding() -> None:
    seen = {finding for case in SCANNED for finding in findings_of(case)}
    assert set(explained()) - seen == set(), f"remove it from {EXPLAINED}"
