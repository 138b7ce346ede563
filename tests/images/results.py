"""What a training prints at its end."""

from __future__ import annotations

import json
from typing import Any

from devtools.trials.sandbox import Result, output_of


def result(done: Result) -> dict[str, Any]:
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(lines) == 1, output_of(done)
    parsed: dict[str, Any] = json.loads(lines[0].removeprefix("RESULT "))
    return parsed
