"""When `up` and `add-node` leave a node as it is."""

from __future__ import annotations

import pytest

from devtools.localkube import cluster
from devtools.localkube.health import Health, Part
from devtools.localkube.instance import Instance

WELL = Health(running=True, parts=[Part("API server", healthy=True, detail="")])
LATE = Health(running=True, parts=[Part("API server", healthy=False, detail="does not answer")])
GONE = Health(running=False)


@pytest.mark.parametrize(
    ("seen", "is_healthy"),
    [([WELL], True), ([LATE, LATE, WELL], True), ([GONE], False), ([LATE, GONE], False)],
    ids=["healthy", "late", "gone", "ends"],
)
def test_node_that_answers_late_is_not_taken_for_broken(
    monkeypatch: pytest.MonkeyPatch, seen: list[Health], is_healthy: bool
) -> None:
    """It would be started anew, below the tests that use it."""
    looks = iter(seen)
    monkeypatch.setattr(cluster, "health", lambda node: next(looks))
    monkeypatch.setattr(cluster, "LOOK_EVERY", 0.0)
    assert cluster._is_healthy(Instance("one")) is is_healthy
    assert next(looks, None) is None


def test_node_that_never_answers_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "health", lambda node: LATE)
    monkeypatch.setattr(cluster, "HEALTHY_WITHIN", 0.0)
    assert not cluster._is_healthy(Instance("one"))
