"""A project with a Dockerfile, and a Docker that records its calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.program import StubProgram


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a Dockerfile, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "Dockerfile").write_text("FROM a\n")
    (project / "train.py").write_text("pass")
    (project / "data" / "big").write_text("1")
    return project


@pytest.fixture
def docker(programs: Path) -> StubProgram:
    """A Docker that builds, and has no image yet."""
    stub = StubProgram(programs, "docker")
    stub.answer("inspect", code=1)
    stub.answer("build", "STEP 1/1: FROM a\nother\nSTEP 1/1: FROM a\n")
    return stub
