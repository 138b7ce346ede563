"""What the tests of `doctor` share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fakes.program import StubProgram
from tests.unit.hvdchart.played_runs import answer_as


@pytest.fixture
def script(tmp_path: Path, helm: StubProgram) -> Path:
    """A script, which Helm installs as `train`."""
    answer_as(helm, "train")
    path = tmp_path / "train.py"
    path.write_text("pass\n")
    return path
