"""Whether a namespace has the claims of a run."""

from __future__ import annotations

from typing import Any

import pytest

from hvdchart.doctor.namespace_checks import examine_claims


def claim(phase: str = "Bound", mode: str = "ReadWriteMany", storage_class: str = "slow") -> Any:
    return {
        "spec": {"accessModes": [mode], "storageClassName": storage_class},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("claim_on_server", "workers", "problem"),
    [
        (claim(), 4, ""),
        (None, 1, "does not exist"),
        (claim("Pending"), 1, "Pending"),
        (claim("Pending", storage_class="late"), 1, ""),
        (claim(mode="ReadWriteOnce"), 1, ""),
        (claim(mode="ReadWriteOnce"), 2, "ReadWriteOnce"),
    ],
)
def test_claims_can_be_mounted_or_not(claim_on_server: Any, workers: int, problem: str) -> None:
    classes = [{"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}]
    (finding,) = examine_claims({"data": claim_on_server}, classes, workers)
    assert finding.state == ("problem" if problem else "ok")
    assert problem in finding.text
