"""What a training prints at its end."""

from __future__ import annotations

import json
from subprocess import CompletedProcess
from typing import Any


def read_result(output: str, errors: str = "") -> dict[str, Any]:
    """Return the object of the only line that has one; the errors are for a failed test."""
    lines = [line for line in output.splitlines() if "RESULT {" in line]
    assert len(lines) == 1, f"{output}\n{errors}"
    parsed: dict[str, Any] = json.loads(lines[0].partition("RESULT ")[2])
    return parsed


def result(done: CompletedProcess[str]) -> dict[str, Any]:
    """Return what a training in a sandbox has printed."""
    return read_result(done.stdout, done.stderr)
