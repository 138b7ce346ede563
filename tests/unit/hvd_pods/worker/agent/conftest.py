"""A worker with its agent, once for all tests that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.hvd_pods.worker.agent.pods import AgentPod, start_agent


@pytest.fixture(scope="session")
def worker() -> Iterator[AgentPod]:
    """A worker that serves, of a user without any capability."""
    with start_agent() as started:
        yield started
