"""A script, as commands take it in the place of a spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.played_runs import answer_as


@pytest.fixture
def script(tmp_path: Path, helm: StubProgram, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in a folder with a module that it does not use; Helm installs it as `hvd`."""
    monkeypatch.delenv("HVDCHART_IMAGE", raising=False)
    answer_as(helm, "hvd")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "model.py").write_text("layers = 2\n")
    path = folder / "My_Train.py"
    path.write_text("import json\n")
    return path
