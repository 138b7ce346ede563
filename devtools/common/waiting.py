"""Wait for a state that no watch and no event reports."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_exponential

# Seconds between two calls of a condition that starts a program, which takes 0.1 s of a core.
PROGRAM_PAUSE = 1.0


def wait_until(
    condition: Callable[[], object], seconds: float, description: str, pause: float = 0.2
) -> None:
    """Call `condition` until it holds.

    what: the expected state. pause: the longest time between two calls, in seconds; the first pause
    is a tenth of it.
    Raises AssertionError, which names the state, when it does not hold within `seconds`, and
    whatever `condition` raises, at once.
    """
    if not holds_within(condition, seconds, pause):
        raise AssertionError(f"not within {seconds} s: {description}")


def holds_within(condition: Callable[[], object], seconds: float, pause: float = 0.2) -> bool:
    """Call `condition` as `wait_until` does. Return whether it held within `seconds`.

    Raises whatever `condition` raises, at once.
    """
    attempts = Retrying(
        retry=retry_if_result(lambda holds: not holds),
        stop=stop_after_delay(seconds),
        wait=wait_exponential(pause / 10, max=pause),
        retry_error_callback=lambda _: False,
    )
    return bool(attempts(condition))
