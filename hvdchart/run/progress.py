"""The progress that a run's script reports, from the record that its master writes. Pure.

The chart's hvd_pods/rules/state.py writes it; docs/watching.md describes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hvd_pods.common.hostile import one_line

# Larger numbers are no steps, seconds or losses; and nan, a text, is the longest loss.
_LARGEST = 10**15
_LONGEST_LOSS = 20
# Losses of a record that are read: the master writes 100.
_MOST_LOSSES = 400
# Seconds without a step after which the time since the last step is shown.
_LATE = 60
_MINUTE = 60
_HOUR = 3600
_DAY = 86400


@dataclass(frozen=True)
class Progress:
    """The last step of a run; None for what the script does not report.

    `loss` is a text, such as nan, when it is not finite. `idle_seconds` is how long ago the step
    was, by the master's clock. `is_counted`: the ranks have counted the steps of this attempt,
    because the script reports none.
    """

    step: int
    steps: int | None = None
    loss: float | str | None = None
    images_per_second: float | None = None
    seconds_left: int | None = None
    idle_seconds: int = 0
    is_counted: bool = False

    @property
    def loss_text(self) -> str:
        """The loss in a few digits; empty where the script reports none."""
        if isinstance(self.loss, str):
            return self.loss
        return "" if self.loss is None else f"{self.loss:.4g}"

    def text(self, *, is_over: bool = False) -> str:
        """In one line: step 120 of 500, loss 0.41, 32 samples/s, about 4 min left.

        Times are left out when the run is over.
        """
        of_steps = "" if self.steps is None else f" of {self.steps}"
        of_attempt = " of this attempt" if self.is_counted else ""
        parts = [f"step {self.step}{of_steps}{of_attempt}"]
        if self.loss_text:
            parts.append(f"loss {self.loss_text}")
        speed = self.images_per_second
        if speed is not None:
            digits = ".0f" if speed >= 100 else ".3g"
            parts.append(f"{speed:{digits}} samples/s")
        if not is_over and self.idle_seconds > _LATE:
            parts.append(f"no step for {duration(self.idle_seconds)}")
        elif not is_over and self.seconds_left is not None:
            parts.append(f"about {duration(self.seconds_left)} left")
        return ", ".join(parts)


def read_losses(record: Mapping[str, str]) -> tuple[tuple[int, float], ...]:
    """The steps of a run with their losses, in order; those that are not understood are left out.

    The last one is that of the last step, if that is a number.
    """
    content = read_object(record, "progress")
    told = content.get("losses")
    last = [content.get("step"), content.get("loss")]
    pairs = [*(told[:_MOST_LOSSES] if isinstance(told, list) else []), last]
    losses: dict[int, float] = {}
    for pair in pairs:
        if isinstance(pair, list) and len(pair) == 2:
            named = dict(zip(("step", "loss"), pair, strict=True))
            step = whole(named, "step")
            loss = _number(named, "loss")
            if step is not None and loss is not None:
                losses[step] = loss
    return tuple(sorted(losses.items()))


def read_progress(record: Mapping[str, str]) -> Progress | None:
    """The progress in a release's record; None if it is missing or not understood."""
    content = read_object(record, "progress")
    step = whole(content, "step")
    if step is None:
        return None
    loss: float | str | None = _number(content, "loss")
    if isinstance(content.get("loss"), str):
        loss = one_line(content["loss"], _LONGEST_LOSS)
    return Progress(
        step=step,
        steps=whole(content, "steps"),
        loss=loss,
        images_per_second=_number(content, "imagesPerSecond"),
        seconds_left=whole(content, "secondsLeft"),
        idle_seconds=_idle_seconds(record.get("renewed", ""), str(content.get("time", ""))),
        is_counted=content.get("isCounted") is True,
    )


def duration(seconds: float) -> str:
    """A duration with a unit that suits it: 40 s, 4 min, 2.5 h, 3.1 d."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.1f} d"


def read_object(record: Mapping[str, str], key: str) -> dict[str, Any]:
    """What a key of a record has; empty when it is missing or no object of JSON."""
    try:
        content = json.loads(record.get(key) or "{}")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _number(content: Mapping[str, Any], name: str) -> float | None:
    """The number of a name; None when there is none, or it is too large to mean something."""
    value = content.get(name)
    if isinstance(value, int | float) and -_LARGEST <= value <= _LARGEST:
        return float(value)
    return None


def whole(content: Mapping[str, Any], name: str) -> int | None:
    """The whole part of the number of a name; None as for `_number`."""
    number = _number(content, name)
    return None if number is None else int(number)


def _idle_seconds(renewed: str, time: str) -> int:
    """How long before the renewal of the record the step was made; 0 if that is not known.

    The master's clock wrote both times, which are in ISO 8601.
    """
    try:
        passed = datetime.fromisoformat(renewed) - datetime.fromisoformat(time)
    except (ValueError, TypeError, OverflowError):
        # Who may edit ConfigMaps can write anything there.
        return 0
    return max(0, int(passed.total_seconds()))
