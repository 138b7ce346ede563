"""The worker in whose memory keep keeps a state."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The memory of a worker, in which the run `one` trains; its checkpoints are beside it."""
    (tmp_path / "memory").mkdir()
    monkeypatch.setenv("HVD_KEEP", str(tmp_path / "memory"))
    monkeypatch.setenv("HVD_RUN_ID", "one")
    monkeypatch.setenv("OUTPUT_PATH", str(tmp_path))
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return tmp_path / "memory"
