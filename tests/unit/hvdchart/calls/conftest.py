"""A caller of calls whose release is in the fake cluster, and whose pods are on this machine."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from shlex import join
from typing import Any

import pytest

from tests.support.fakes.cluster import FakeCluster
from tests.unit.hvdchart.calls.master import Master
from tests.unit.hvdchart.objects import JOB, event


@pytest.fixture
def master(tmp_path: Path, running: FakeCluster) -> Iterator[Master]:
    (tmp_path / "pod").mkdir()
    fake_master = Master(tmp_path / "pod", running)
    yield fake_master
    fake_master.end()


@pytest.fixture
def settings(running: FakeCluster, spec: Path, programs: Path, master: Master) -> dict[str, Any]:
    """Of a caller whose kubectl reaches a call server of this machine."""
    running.put("events", event(JOB, "Job", "Training", "", type="Normal"))
    running.created_status = {"allowed": True}
    (programs / "kubectl").write_text(f"#!/bin/sh\nexec {join(master.pod.command())}\n")
    (programs / "kubectl").chmod(0o755)
    return {"spec": spec, "output": io.StringIO()}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with a module."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "m.py").write_text("x = 1")
    return folder
