"""Scripts that keep their state, as the tests run them."""

from __future__ import annotations

from typing import Any

from hvd_pods.library import keep


def train(*steps: int, weights: bytes = b"made", **more: Any) -> Any:
    """A script that makes these steps from where it continues; its weights are the last one's."""
    state: Any = keep.State(weights=weights, losses=[0.5, None, ("a", 1)], **more)
    state.restore()
    for step in steps:
        state.weights = b"after step %02d" % step
        state.commit(step)
    return state


def resume(**more: Any) -> tuple[int, bytes]:
    """Where a new process continues."""
    state = train(**more)
    return state.step, bytes(state.weights)
