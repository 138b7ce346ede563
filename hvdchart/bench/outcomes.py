"""The trials of a measuring run: its plan, and the output of its driver. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hvd_pods.shared.launcher_options import LAUNCH
from hvd_pods.shared.untrusted import one_line
from hvdchart.errors import RunFailedError
from hvdchart.plan.measuring import measuring_plan
from hvdchart.plan.model import Plan

_OUTCOME_MARK = "MEASURED "


@dataclass(frozen=True)
class Outcome:
    """The number of a trial, its ranks, and their samples/s; None for one with an error."""

    trial: int
    ranks: int
    speed: float | None
    error: str


def trials_plan(plan: Plan, purpose: str, trials: Sequence[int], command: Sequence[str]) -> Plan:
    """Plan a run NAME-PURPOSE with as many workers as the largest trial has.

    Its master runs the trials one after the other. A trial runs `command` on the ranks of as many
    workers as `trials` gives for it.
    """
    driver = Path(__file__).with_name("driver.py").read_text("utf-8")
    job = {"command": list(command), "trials": list(trials)}
    line = ["python3", "-c", driver, json.dumps(job), "$(HOSTFILE)", LAUNCH]
    return measuring_plan(plan, purpose, line, max(trials))


def parse_outcome(line: str, trials: int) -> Outcome | None:
    """Parse the outcome in a line of the driver; return None for another line.

    `trials` is the number of trials. Raises RunFailedError for a line that begins like the
    driver's, but cannot be parsed.
    """
    if not line.startswith(_OUTCOME_MARK):
        return None
    try:
        reported = json.loads(line.removeprefix(_OUTCOME_MARK))
        speed = None if reported["speed"] is None else float(reported["speed"])
        trial = range(trials).index(reported["trial"])
        return Outcome(trial, int(reported["ranks"]), speed, str(reported["error"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise RunFailedError(f"a measurement cannot be read: {one_line(line)}") from error
