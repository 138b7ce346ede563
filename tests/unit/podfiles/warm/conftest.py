"""A worker whose ranks are forks, and one whose ranks start anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.podfiles.warm.worker import Worker, make_worker, warm


@pytest.fixture(scope="session")
def warm_worker() -> Iterator[Worker]:
    """A worker that has imported `framework`."""
    with make_worker() as worker, warm(worker):
        yield worker


@pytest.fixture(scope="session")
def cold_worker() -> Iterator[Worker]:
    """A worker that has imported nothing."""
    with make_worker() as worker:
        yield worker
