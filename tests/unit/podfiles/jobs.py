"""The Job of the master in tests, and API servers that do not show it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.fakes import faults
from tests.unit.podfiles.master_pod import JOB

# When the Job started, in seconds since the epoch.
START = datetime(2026, 1, 1, 10, 0, 0, tzinfo=UTC).timestamp()
NO_ANSWERS = {
    "503": faults.status(503),
    "429": faults.status(429, Retry_After="1"),
    "reset": faults.reset,
    "cut": faults.cut_answer,
}


def make_job(failed: int = 0, *conditions: tuple[str, str], deadline: int | None = None) -> Any:
    """Return a Job that may fail three times; conditions are (type, reason)."""
    return {
        "metadata": {"name": JOB},
        "spec": {"backoffLimit": 2, "activeDeadlineSeconds": deadline},
        "status": {
            "startTime": "2026-01-01T10:00:00Z",
            "failed": failed,
            "conditions": [{"type": k, "status": "True", "reason": r} for k, r in conditions],
        },
    }
