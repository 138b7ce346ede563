"""What the tests of commands on a cluster share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hvdchart.run import watch
from tests.fakes.cluster import FakeCluster
from tests.fakes.fixtures import answer_as
from tests.fakes.program import StubProgram
from tests.unit.hvdchart.runs import DONE, ENDED_MASTER, SPEC, play


@pytest.fixture
def spec(tmp_path: Path, helm: StubProgram, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec's file. Helm installs it as `hvd`."""
    monkeypatch.setattr(watch, "SETTLE", 0.0)
    path = tmp_path / "run.spec.yaml"
    path.write_text(json.dumps(SPEC))
    answer_as(helm, "hvd")
    return path


@pytest.fixture
def finished(fake_cluster: FakeCluster) -> FakeCluster:
    """A run that has finished; its workers' logs go on."""
    return play(fake_cluster, DONE, ENDED_MASTER)


@pytest.fixture
def kubectl(programs: Path) -> StubProgram:
    """A kubectl that does nothing."""
    return StubProgram(programs, "kubectl")
