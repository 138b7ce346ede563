"""The result that a training prints at its end."""

from __future__ import annotations

import json
from subprocess import CompletedProcess
from typing import Any


def read_result(output: str, errors: str = "") -> dict[str, Any]:
    """Return the object of the only line with `RESULT {...}`.

    Fails when there is none, or more than one, and then shows the output and the errors.
    """
    lines = [line for line in output.splitlines() if "RESULT {" in line]
    assert len(lines) == 1, f"{output}\n{errors}"
    parsed: dict[str, Any] = json.loads(lines[0].partition("RESULT ")[2])
    return parsed


def result_of(done: CompletedProcess[str]) -> dict[str, Any]:
    """Return the result of a training in a sandbox, as read_result does."""
    return read_result(done.stdout, done.stderr)
