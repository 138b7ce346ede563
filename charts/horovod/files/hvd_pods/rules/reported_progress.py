"""The progress of the ranks: steps, their speed, and the losses that show the whole curve."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Mapping

from hvd_pods.shared.record import MAX_LOSSES, ProgressEntry

# The number of steps over which the speed is measured.
SPEED_WINDOW_STEPS = 60
# The digits of each loss that the record keeps.
DIGITS = 6


@dataclass(frozen=True)
class ReportedProgress:
    """The last report (pod/metrics.py), and the times of steps.

    `history`: pairs of time.monotonic() and step. `time`: when the last step was reported.
    `furthest`: the pair with the highest step. `lost`: seconds until later attempts passed that
    step. `losses`: pairs of step and loss, over all attempts. `pace`: the seconds of a step in the
    previous attempt, None if they are not known.
    """

    reported: Mapping[str, Any] = field(default_factory=dict)
    time: str = ""
    history: tuple[tuple[float, int], ...] = ()
    furthest: tuple[float, int] = (0.0, 0)
    lost: float = 0.0
    losses: tuple[tuple[int, float], ...] = ()
    pace: float | None = None

    @property
    def step(self) -> int:
        """Return the last step of the training; 0 if none was reported, or only counted."""
        return 0 if self.is_counted else int(self.reported.get("step", 0))

    @property
    def is_counted(self) -> bool:
        """Whether the step is counted by the ranks themselves, from the start of this attempt."""
        return bool(self.reported.get("isCounted"))

    @property
    def seconds_of_step(self) -> float | None:
        """Return the median over the last reports; the previous attempt's with fewer than three."""
        pairs = zip(self.history, self.history[1:])
        paces = sorted((later - now) / (after - step) for (now, step), (later, after) in pairs)
        return paces[len(paces) // 2] if len(paces) > 1 else self.pace

    @property
    def is_nan(self) -> bool:
        """Whether the last loss that was reported is not a number."""
        return self.reported.get("loss") == "nan"

    def take(self, reported: Mapping[str, Any], now: float, time: str) -> ReportedProgress:
        """Add a report of this moment, which has a step.

        `time` is the moment in the record's format. A report of the same step changes the shown
        values, but not the time of the step.
        """
        step = reported["step"]
        history = self.history
        is_other_count = self.is_counted != bool(reported.get("isCounted"))
        if history and (step < history[-1][1] or is_other_count):
            # The ranks were restarted, or the script has begun to report.
            history = ()
        if history and step == history[-1][1]:
            return replace(self, reported=reported)
        furthest = self.furthest
        lost = self.lost
        # The progress of an attempt that only counts its own steps is unknown.
        if step > furthest[1] and not reported.get("isCounted"):
            if furthest[1] and furthest not in history:
                lost += now - furthest[0]
            furthest = (now, step)
        seen = (*history, (now, step))[-SPEED_WINDOW_STEPS:]
        losses = add_loss(self.losses, step, reported.get("loss"))
        return ReportedProgress(reported, time, seen, furthest, lost, losses, self.pace)

    def forget(self) -> ReportedProgress:
        """Return the part of the progress that is kept for another attempt."""
        pace = self.seconds_of_step
        return ReportedProgress(
            furthest=self.furthest, lost=self.lost, losses=self.losses, pace=pace
        )

    def entry(self) -> str:
        """Return the progress for the record, in JSON; empty before the first report."""
        reported = self.reported
        if not reported:
            return ProgressEntry(losses=self.losses).text()
        (began, first) = self.history[0]
        (now, last) = self.history[-1]
        speed = reported.get("samplesPerSecond")
        steps_left = reported.get("steps", 0) - last
        is_known = steps_left >= 0 and last > first
        return ProgressEntry(
            step=reported["step"],
            steps=reported.get("steps"),
            loss=reported.get("loss"),
            samples_per_second=None if speed is None else round(speed * reported.get("size", 1), 3),
            seconds_left=round(steps_left * (now - began) / (last - first)) if is_known else None,
            time=self.time,
            is_counted=self.is_counted,
            losses=self.losses,
        ).text()


def add_loss(
    losses: tuple[tuple[int, float], ...], step: int, loss: Any
) -> tuple[tuple[int, float], ...]:
    """Add the loss of a step, with few pairs that still show the curve of the whole run.

    Repeated steps replace the steps of the previous attempt.
    """
    earlier = tuple(pair for pair in losses if pair[0] < step)
    if not isinstance(loss, float):
        return earlier
    spacing = 2 * (step - earlier[0][0]) / MAX_LOSSES if earlier else 0
    if earlier and step - earlier[-1][0] < spacing:
        return earlier
    curve = (*earlier, (step, float(f"{loss:.{DIGITS}g}")))
    return curve if len(curve) <= MAX_LOSSES else curve[::2]
