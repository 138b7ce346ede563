"""How a rank reports the end of its script: by itself, or as one that was asked to end."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.common import fast_start, notices
from hvd_pods.rank import rank_end, ranks
from tests.unit.hvd_pods.copies import FILES


@pytest.fixture(autouse=True)
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the master is told of a worker whose rank 3 is this process."""
    monkeypatch.setattr(ranks, "FOLDER", str(tmp_path / "ranks"))
    monkeypatch.setattr(fast_start, "GENERATED", str(tmp_path))
    monkeypatch.setenv("HVD_NOTICES", "127.0.0.1,1,secret")
    # This process goes on.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    taken: list[dict[str, Any]] = []

    def send(address: str, epoch: str, answer_within: float, **content: Any) -> None:
        shown = {name: content.get(name) for name in ("kind", "status", "waits")}
        taken.append({**shown, "within": answer_within, "is marked": ranks.is_any_waiting()})

    monkeypatch.setattr(notices, "send", send)
    return taken


@pytest.mark.parametrize(("status", "waits"), [(0, False), (1, True), (-15, True)])
def test_rank_that_was_asked_waits_after_a_failure_for_as_long_as_its_pod_has(
    status: int, waits: bool, told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HVD_GRACE", "77")
    ranks.register(3, os.getpid())
    monkeypatch.setattr(os, "kill", lambda *_: None)
    assert all(ranks.ask_to_end(script) for script in ranks.running())
    assert rank_end.report(3, status, is_elastic=False) == status
    kind = {"kind": "ended", "status": None, "waits": waits}
    assert told == [{**kind, "within": 77.0, "is marked": True}]
    assert not ranks.is_any_waiting()


def test_signal_that_shows_stacks_is_the_one_that_the_page_names() -> None:
    """Scripts behind a shell register it themselves."""
    page = (FILES.parents[2] / "docs" / "life.md").read_text()
    assert f"the real-time signal {ranks.STACK_SIGNAL} (`SIGRTMAX - 2`)" in page
