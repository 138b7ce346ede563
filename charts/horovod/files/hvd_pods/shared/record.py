"""The record that the master of a run writes, and that hvdchart and the next master read.

It is the data of a ConfigMap, whose values are texts (docs/life.md). Any user who may edit
ConfigMaps can write any content: the functions here ignore content that no master writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Mapping

# The states of a run.
FINISHED = "Finished"
FAILED = "Failed"
RUNNING = "Running"
# State of the lease: the run has ended while its workers stay for the session's next one.
LEASE_KEPT = "kept"
# The most losses of a run to write and to read.
MAX_LOSSES = 100
# Larger numbers are not valid steps, seconds or losses.
MAX_RECORD_NUMBER = 10**15


class RecordKey:
    """The keys of the record."""

    # The master that holds the record: its pod, its Job and the Job's UID. No pod: no master holds
    # it.
    HOLDER = "holder"
    HOLDER_JOB = "holderJob"
    HOLDER_UID = "holderUid"
    # The fence number of the holder, and the time of its last renewal.
    FENCE = "fence"
    RENEWED = "renewed"
    # The UID of the Job whose master was silent when the holder took the record.
    SUPERSEDED = "superseded"
    # The run: the hashes of its values, its Job, and the Job's UID.
    RUN = "run"
    SETTINGS_HASH = "settingsHash"
    JOB = "job"
    UID = "uid"
    # The numbers of attempts that have begun and that have failed.
    ATTEMPTS = "attempts"
    FAILURES = "failures"
    # One of the states above, its reason, and its start time.
    STATE = "state"
    REASON = "reason"
    TIME = "time"
    # The state of the session's lease.
    LEASE = "lease"
    # The UID of the Job that has started ranks, and the fence number of the last launch whose ranks
    # may go on without a master.
    TRAINED = "trained"
    ORPHAN_FENCE = "orphanFence"
    # The ordinals of the workers with ranks, by StatefulSet (rules/worker_names.py).
    WORKERS = "workers"
    # A ProgressEntry, and a stall (rules/stall_state.py).
    PROGRESS = "progress"
    STALL = "stall"
    # The keys about the lock. The others are about the run.
    LOCK_KEYS = (HOLDER, HOLDER_JOB, HOLDER_UID, FENCE, RENEWED, SUPERSEDED)


@dataclass(frozen=True)
class ProgressEntry:
    """The progress in the record; None and empty for numbers that the script does not report.

    `loss` is a text, such as nan, when it is not finite. `samples_per_second` is the rate of all
    ranks together. `time`: when the step was reported, by the master's clock. `is_counted`: the
    ranks have counted the steps of this attempt, because the script reports none. `losses`: pairs
    of step and loss, over all attempts, in the order of the steps.
    """

    step: int | None = None
    steps: int | None = None
    loss: float | str | None = None
    samples_per_second: float | None = None
    seconds_left: int | None = None
    time: str = ""
    is_counted: bool = False
    losses: tuple[tuple[int, float], ...] = ()

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """Return the losses, including that of the last step, if it is a number."""
        last = {self.step: self.loss} if self.step is not None else {}
        losses = {step: loss for step, loss in last.items() if isinstance(loss, float)}
        return tuple(sorted({**dict(self.losses), **losses}.items()))

    def text(self) -> str:
        """Return the entry in the form of the record, as JSON; empty without content."""
        values = {
            "step": self.step,
            "steps": self.steps,
            "loss": self.loss,
            "samplesPerSecond": self.samples_per_second,
            "secondsLeft": self.seconds_left,
            "time": self.time or None,
            "isCounted": self.is_counted or None,
            "losses": self.losses or None,
        }
        shown = {name: value for name, value in values.items() if value is not None}
        return json.dumps(shown, separators=(",", ":")) if shown else ""


def read_progress(record: Mapping[str, str]) -> ProgressEntry:
    """Return the progress in a record. Missing or invalid parts are left out."""
    content = read_object(record, RecordKey.PROGRESS)
    loss = content.get("loss")
    return ProgressEntry(
        step=read_count(content, "step"),
        steps=read_count(content, "steps"),
        loss=loss if isinstance(loss, str) else _read_number(content, "loss"),
        samples_per_second=_read_number(content, "samplesPerSecond"),
        seconds_left=read_count(content, "secondsLeft"),
        time=str(content.get("time", "")),
        is_counted=content.get("isCounted") is True,
        losses=_read_losses(content.get("losses")),
    )


def _read_losses(value: Any) -> tuple[tuple[int, float], ...]:
    losses: dict[int, float] = {}
    for pair in value[:MAX_LOSSES] if isinstance(value, list) else []:
        if isinstance(pair, list) and len(pair) == 2:
            named = dict(zip(("step", "loss"), pair))
            step = read_count(named, "step")
            loss = _read_number(named, "loss")
            if step is not None and loss is not None:
                losses[step] = loss
    return tuple(sorted(losses.items()))


def read_object(record: Mapping[str, str], key: str) -> dict[str, Any]:
    """Return the JSON object of a key of a record; empty if it is missing or invalid."""
    try:
        content = json.loads(record.get(key) or "{}")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def read_count(content: Mapping[str, Any], name: str) -> int | None:
    """Return the whole part of an entry's number; None if missing, negative or too large."""
    number = _read_number(content, name)
    return None if number is None or number < 0 else int(number)


def _read_number(content: Mapping[str, Any], name: str) -> float | None:
    """Return a number of an entry; None if it is missing or too large to be valid."""
    value = content.get(name)
    if isinstance(value, (int, float)) and -MAX_RECORD_NUMBER <= value <= MAX_RECORD_NUMBER:
        return float(value)
    return None
