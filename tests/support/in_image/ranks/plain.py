"""Data and comparisons that need no framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

BATCH = 8  # of one rank
RATE = 0.5


def data(rank: int, columns: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return the batch of a rank: different numbers on each rank, the same in every run."""
    random = np.random.default_rng(100 + rank)
    x = random.normal(size=(BATCH, columns)).astype("float32")
    return x, random.normal(size=(BATCH, 2)).astype("float32")


def assert_close(got: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    for value, expected in zip(got, wanted, strict=True):
        np.testing.assert_allclose(
            np.asarray(value), np.asarray(expected), rtol=tolerance, atol=tolerance
        )


def assert_equal_on_ranks(gather: Callable[[bytes], list[bytes]], values: Iterable[Any]) -> None:
    """Assert that values are equal bit for bit on all ranks; `gather` returns those of each."""
    mine = b"".join(np.ascontiguousarray(value).tobytes() for value in values)
    assert len(set(gather(mine))) == 1, "the ranks differ"


def raises(kind: type[BaseException], text: str, call: Callable[[], Any]) -> None:
    message = None
    try:
        call()
    except kind as error:
        message = str(error)
    assert message is not None, f"nothing was refused; expected {kind.__name__} with {text!r}"
    assert text in message
