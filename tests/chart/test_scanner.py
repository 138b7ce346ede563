"""charts/kube-score.yaml explains exactly the findings of kube-score."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from ruamel.yaml import YAML

from devtools.toolchain.tools import tool
from tests.chart.render import CHART, VALUES, Manifest, ready_cases, render
from tests.chart.test_real_api import CASES
from tests.go_programs import NO_GARBAGE_COLLECTION

# Grades of kube-score. 5, between them, is a warning.
ALL_RIGHT, CRITICAL = 10, 1


@dataclass(frozen=True, order=True)
class Finding:
    """A finding of kube-score on an object of this kind; `check` is the name of the rule."""

    check: str
    summary: str
    kind: str
    critical: bool = field(default=True, compare=False)


def findings(manifests: Iterable[Manifest]) -> list[Finding]:
    """Return a sorted list with a finding for each comment on each object, including warnings."""
    # Some rules compare objects with each other, so kube-score needs all objects of a release.
    done = subprocess.run(
        [str(tool("kube-score")), "score", "--output-format", "json", "-"],
        input="\n---\n".join(json.dumps(manifest) for manifest in manifests),
        env={**os.environ, **NO_GARBAGE_COLLECTION},
        capture_output=True,
        text=True,
        check=False,
    )
    # The exit status is 1 when there are findings.
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"kube-score failed: {done.stderr}")
    return sorted(
        Finding(
            score["check"]["id"],
            comment["summary"],
            judged["type_meta"]["kind"],
            score["grade"] == CRITICAL,
        )
        for judged in json.loads(done.stdout)
        for score in judged["checks"] or []
        if not score["skipped"] and score["grade"] < ALL_RIGHT
        for comment in score["comments"] or [{"summary": ""}]
    )


EXPLAINED = CHART.parent / "kube-score.yaml"
# The ready cases, and those of the API tests with further objects and settings.
SCANNED = [*ready_cases(), "network", "staging", "watching"]
PLANNED = {file.name for file in VALUES.glob("*.yaml")}


@cache
def findings_of(case: str) -> list[Finding]:
    """Return the findings on one case."""
    return findings(render(CASES[case]))


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
