"""How a command of `hvdchart` is called by the fixture of this name, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    code: int
    output: str
    errors: str


Command = Callable[..., Outcome]
