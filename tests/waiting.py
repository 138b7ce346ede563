"""Waiting for a state that no watch and no event shows."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_exponential


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Call `condition` until it holds; raises AssertionError with `what` after so many seconds."""
    attempts = Retrying(
        retry=retry_if_result(lambda holds: not holds),
        stop=stop_after_delay(seconds),
        wait=wait_exponential(0.01, max=0.2),
        retry_error_callback=lambda _: False,
    )
    assert attempts(condition), f"not within {seconds} s: {what}"
