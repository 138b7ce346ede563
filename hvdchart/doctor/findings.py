"""The findings of an examination: a line for each subject. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "problem", "unknown"]
# Padded to equal width: the first column of the report.
_MARKS: dict[State, str] = {"ok": "ok     ", "problem": "PROBLEM", "unknown": "?      "}


@dataclass(frozen=True)
class Finding:
    """One subject; `remedy` says how to fix a problem, or how to find out what is unknown."""

    subject: str
    state: State
    text: str
    remedy: str = ""


def format_findings(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding, with its remedy below a problem."""
    width = max((len(finding.subject) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{_MARKS[finding.state]}  {finding.subject:<{width}}  {finding.text}")
        if finding.remedy:
            lines.append(f"{'':<{len(_MARKS['ok']) + width + 4}}-> {finding.remedy}")
    return lines
