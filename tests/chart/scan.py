"""Runs kube-score on rendered manifests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field

from devtools.toolchain.tools import tool
from tests.chart.render import Manifest
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
