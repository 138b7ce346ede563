"""A worker whose ranks are forks, and one whose ranks start anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.hvd_pods.warm.worker import Worker, make_worker, warm_up


@pytest.fixture(scope="session")
def warm_worker() -> Iterator[Worker]:
    with make_worker() as worker, warm_up(worker):
        yield worker


@pytest.fixture(scope="session")
def cold_worker() -> Iterator[Worker]:
    with make_worker() as worker:
        yield worker


@pytest.fixture(params=["warm", "cold"])
def either_worker(request: pytest.FixtureRequest) -> Worker:
    worker: Worker = request.getfixturevalue(f"{request.param}_worker")
    return worker


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The ranks' current folder: this repository has a package that would be the chart's."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
