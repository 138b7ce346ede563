"""Format the progress that a run's script reports. Pure.

The chart's hvd_pods/shared/record.py parses it; docs/watching.md describes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hvd_pods.shared import record as records
from hvd_pods.shared.untrusted import one_line

# The maximum length of a loss that is a text, such as nan.
_MAX_LOSS_CHARACTERS = 20
# Seconds without a step after which the time since the last step is shown.
_LATE_STEP_SECONDS = 60
_MINUTE_SECONDS = 60
_HOUR_SECONDS = 3600
_DAY_SECONDS = 86400


@dataclass(frozen=True)
class Progress:
    """The last step of a run; None for what the script does not report.

    `loss` is a text, such as nan, when it is not finite. `idle_seconds` is the time since the step,
    by the master's clock. `is_counted`: the ranks counted the steps of this attempt, because the
    script reports none.
    """

    step: int
    steps: int | None = None
    loss: float | str | None = None
    samples_per_second: float | None = None
    seconds_left: int | None = None
    idle_seconds: int = 0
    is_counted: bool = False

    @property
    def loss_text(self) -> str:
        """Format the loss with a few digits; empty if the script does not report one."""
        if isinstance(self.loss, str):
            return self.loss
        return "" if self.loss is None else f"{self.loss:.4g}"

    def text(self, *, is_over: bool = False) -> str:
        """Format it in one line: step 120 of 500, loss 0.41, 32 samples/s, about 4 min left.

        Times are left out when the run is over.
        """
        of_steps = "" if self.steps is None else f" of {self.steps}"
        of_attempt = " of this attempt" if self.is_counted else ""
        parts = [f"step {self.step}{of_steps}{of_attempt}"]
        if self.loss_text:
            parts.append(f"loss {self.loss_text}")
        speed = self.samples_per_second
        if speed is not None:
            digits = ".0f" if speed >= 100 else ".3g"
            parts.append(f"{speed:{digits}} samples/s")
        if not is_over and self.idle_seconds > _LATE_STEP_SECONDS:
            parts.append(f"no step for {duration_text(self.idle_seconds)}")
        elif not is_over and self.seconds_left is not None:
            parts.append(f"about {duration_text(self.seconds_left)} left")
        return ", ".join(parts)


def read_progress(record: Mapping[str, str]) -> Progress | None:
    """Return the progress in a release's record; None if it is missing or cannot be parsed."""
    entry = records.read_progress(record)
    if entry.step is None:
        return None
    loss = entry.loss
    return Progress(
        step=entry.step,
        steps=entry.steps,
        loss=one_line(loss, _MAX_LOSS_CHARACTERS) if isinstance(loss, str) else loss,
        samples_per_second=entry.samples_per_second,
        seconds_left=entry.seconds_left,
        idle_seconds=_idle_seconds(record.get(records.RecordKey.RENEWED, ""), entry.time),
        is_counted=entry.is_counted,
    )


def duration_text(seconds: float) -> str:
    """Format a duration with a suitable unit: 40 s, 4 min, 2.5 h, 3.1 d."""
    if seconds < 2 * _MINUTE_SECONDS:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_SECONDS:
        return f"{seconds / _MINUTE_SECONDS:.0f} min"
    if seconds < 2 * _DAY_SECONDS:
        return f"{seconds / _HOUR_SECONDS:.1f} h"
    return f"{seconds / _DAY_SECONDS:.1f} d"


def _idle_seconds(renewed: str, time: str) -> int:
    """Return the seconds from the step to the renewal of the record; 0 if unknown.

    The master's clock gave both times, which are in ISO 8601.
    """
    try:
        passed = datetime.fromisoformat(renewed) - datetime.fromisoformat(time)
    except (ValueError, TypeError, OverflowError):
        # Users who may edit ConfigMaps can write any text there.
        return 0
    return max(0, int(passed.total_seconds()))
