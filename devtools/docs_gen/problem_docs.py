"""Writes the tables of docs/troubleshooting.md that programs have: what Kubernetes says of pods
that do not start, and what Helm says, each with the remedy that is printed."""

from __future__ import annotations

import json
from pathlib import Path

from devtools.docs_gen.generated import replace_sections, table
from hvdchart.run.helm_errors import REMEDIES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
PODS = ROOT / "charts" / "horovod" / "files" / "hvd_pods" / "common" / "pod_problems.json"


def pod_table() -> str:
    """What Kubernetes says of a pod, the remedy, and whether the run waits for it."""
    problems = json.loads(PODS.read_text("utf-8"))
    # What the kubelet says of an image explains a container that waits for one.
    seconds = problems["container"]["ErrImagePull"]["waitSeconds"]
    for entry in problems["image"].values():
        entry["waitSeconds"] = seconds
    rows = (
        (f"`{sign}`", entry["remedy"], _what_follows(entry))
        for entries in problems.values()
        for sign, entry in entries.items()
    )
    return table(("Message", "What to do", "The run"), rows)


def _what_follows(entry: dict[str, object]) -> str:
    seconds = entry.get("waitSeconds")
    if seconds is None:
        return "waits"
    end = "fails" if entry["permanent"] else "tries again"
    return f"{end} after {seconds} s" if seconds else f"{end} at once"


def helm_table() -> str:
    """What Helm says, and the remedy."""
    text = table(("Message", "What to do"), ((f"`{sign}`", to) for sign, to in REMEDIES.items()))
    return text.replace("{namespace}", "NAMESPACE").replace("{name}", "NAME")


def generated_texts() -> dict[Path, str]:
    """The text that docs/troubleshooting.md should have."""
    tables = {"pod problems": pod_table(), "messages of Helm": helm_table()}
    return {PAGE: replace_sections(PAGE, tables)}
