"""How far the ranks have come: steps, their speed, and the losses that show the whole curve."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Mapping

from hvd_pods.common.record import MOST_LOSSES, ProgressEntry

# Steps that the speed is measured over.
WINDOW = 60
# The digits of each loss that the record keeps.
DIGITS = 6


@dataclass(frozen=True)
class Progress:
    """What was reported last (common/metrics.py), and when which step was seen.

    `history`: pairs of time.monotonic() and step. `time`: when the last step was reported.
    `furthest`: the pair with the highest step. `lost`: seconds until later attempts came beyond it.
    `losses`: pairs of step and loss, over all attempts. `pace`: the seconds of a step in the
    attempt before, None where they are not known.
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
        """The last step of the training; 0 when none was reported, or only counted."""
        return 0 if self.is_counted else int(self.reported.get("step", 0))

    @property
    def is_counted(self) -> bool:
        """Whether the step is one of this attempt, which the ranks have counted themselves."""
        return bool(self.reported.get("isCounted"))

    @property
    def seconds_of_step(self) -> float | None:
        """The median over the last reports; while there are less than three, that of before."""
        pairs = zip(self.history, self.history[1:])
        found = sorted((later - now) / (after - step) for (now, step), (later, after) in pairs)
        return found[len(found) // 2] if len(found) > 1 else self.pace

    @property
    def is_nan(self) -> bool:
        """Whether the last loss that was reported is not a number."""
        return self.reported.get("loss") == "nan"

    def take(self, reported: Mapping[str, Any], now: float, time: str) -> Progress:
        """Take a report of this moment, which has a step.

        `time` is the moment as the record has it. A report of the same step changes what is shown,
        and not when the step was seen.
        """
        step = reported["step"]
        history = self.history
        is_other_count = self.is_counted != bool(reported.get("isCounted"))
        if history and (step < history[-1][1] or is_other_count):
            # Ranks that were started again, or a script that has begun to report.
            history = ()
        if history and step == history[-1][1]:
            return replace(self, reported=reported)
        furthest = self.furthest
        lost = self.lost
        # How far an attempt is that only counts its own steps, nobody knows.
        if step > furthest[1] and not reported.get("isCounted"):
            if furthest[1] and furthest not in history:
                lost += now - furthest[0]
            furthest = (now, step)
        seen = (*history, (now, step))[-WINDOW:]
        losses = add_loss(self.losses, step, reported.get("loss"))
        return Progress(reported, time, seen, furthest, lost, losses, self.pace)

    def forget(self) -> Progress:
        """What is kept of it when another attempt begins."""
        pace = self.seconds_of_step
        return Progress(furthest=self.furthest, lost=self.lost, losses=self.losses, pace=pace)

    def entry(self) -> str:
        """The progress for the record, in JSON; empty while nothing was reported."""
        reported = self.reported
        if not reported:
            return ProgressEntry(losses=self.losses).text()
        (began, first) = self.history[0]
        (now, last) = self.history[-1]
        speed = reported.get("samplesPerSecond")
        left = reported.get("steps", 0) - last
        is_known = left >= 0 and last > first
        return ProgressEntry(
            step=reported["step"],
            steps=reported.get("steps"),
            loss=reported.get("loss"),
            samples_per_second=None if speed is None else round(speed * reported.get("size", 1), 3),
            seconds_left=round(left * (now - began) / (last - first)) if is_known else None,
            time=self.time,
            is_counted=self.is_counted,
            losses=self.losses,
        ).text()


def add_loss(
    losses: tuple[tuple[int, float], ...], step: int, loss: Any
) -> tuple[tuple[int, float], ...]:
    """Note the loss of a step, in as few pairs as show the curve of the whole run.

    Steps that are made again replace those of the attempt before.
    """
    kept = tuple(pair for pair in losses if pair[0] < step)
    if not isinstance(loss, float):
        return kept
    spacing = 2 * (step - kept[0][0]) / MOST_LOSSES if kept else 0
    if kept and step - kept[-1][0] < spacing:
        return kept
    kept = (*kept, (step, float(f"{loss:.{DIGITS}g}")))
    return kept if len(kept) <= MOST_LOSSES else kept[::2]
