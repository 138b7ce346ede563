"""kube-score's findings on rendered manifests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field

from devtools.toolchain.tools import tool
from tests.chart.render import Manifest

# kube-score's grades; between them, 5 is a warning.
ALL_RIGHT, CRITICAL = 10, 1


@dataclass(frozen=True, order=True)
class Finding:
    """What kube-score does not like. `kind` is the object's; `check` names the rule."""

    check: str
    summary: str
    kind: str
    critical: bool = field(default=True, compare=False)


def findings(manifests: Iterable[Manifest]) -> list[Finding]:
    """One for each comment on each object, warnings included, in order."""
    # It counts on the one release, so that all objects of a case must be given at once.
    done = subprocess.run(
        [str(tool("kube-score")), "score", "--output-format", "json", "-"],
        input="\n---\n".join(json.dumps(manifest) for manifest in manifests),
        capture_output=True,
        text=True,
        check=False,
    )
    # 1 says that there are findings.
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
