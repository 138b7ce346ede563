"""The progress of an attempt, as the script reports it and the record shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Mapping

# Steps that the speed is measured over.
WINDOW = 60


@dataclass(frozen=True)
class Progress:
    """What was reported last (common/metrics.py), and when which step was seen.

    `history`: seconds by time.monotonic(), and steps. `time`: of the last step.
    """

    reported: Mapping[str, Any] = field(default_factory=dict)
    time: str = ""
    history: tuple[tuple[float, int], ...] = ()

    @property
    def step(self) -> int:
        """The last step; 0 when none was reported."""
        return int(self.reported.get("step", 0))

    @property
    def is_nan(self) -> bool:
        """Whether the last loss is not a number."""
        return self.reported.get("loss") == "nan"

    def take(self, reported: Mapping[str, Any], now: float, time: str) -> Progress:
        """Take a report of this moment, which has a step."""
        step, history = reported["step"], self.history
        if history and step < history[-1][1]:
            # Ranks that were started again.
            history = ()
        if history and step == history[-1][1]:
            return replace(self, reported=reported)
        return Progress(reported, time, (*history, (now, step))[-WINDOW:])

    def entry(self) -> str:
        """The progress for the record, in JSON; empty while nothing was reported."""
        if not self.reported:
            return ""
        shown, (began, first), (now, last) = dict(self.reported), self.history[0], self.history[-1]
        size = shown.pop("size", 1)
        if "imagesPerSecond" in shown:
            shown["imagesPerSecond"] = round(shown["imagesPerSecond"] * size, 3)
        left = shown.get("steps", 0) - last
        if left >= 0 and last > first:
            shown["secondsLeft"] = round(left * (now - began) / (last - first))
        return json.dumps({**shown, "time": self.time}, separators=(",", ":"))
