"""What a fault has cost a training, and the tables of that."""

from __future__ import annotations

import math
import re
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Protocol

from devtools.docs_gen.generated import markdown_table
from tests.bench.report import as_range
from tests.faults.training import Step

# Seconds in which a run has to recover.
LIMIT = 180.0
# Seconds that no step takes, twenty times as long as one without faults.
PAUSE = 1.0
# What names a fault: one of these, near the rank or the pod. These are all kinds, in order.
GONE = r"delete|deletion|deleting|gone|lost|terminat|remov|no longer|closed by"
ENDED = r"delete|deletion|deleting|gone|terminat|asked to end|evict|drain|sigterm"
NAMED_BY = {
    "rank killed": r"signal 9|sigkill|killed",
    "worker deleted": GONE,
    "worker drained": f"{GONE}|{ENDED}",
    "network cut": r"network|unreachable|not respond|no response|timed? ?out|lost|not answer",
    "rank stopped": r"stopped|sigstop|stall|hang|not respond|does not run",
    "master deleted": ENDED,
}


# What the comparison with other launchers shows of all that is measured, by short names.
SELECTED = ("chart", "keep", "waiting", "policy")
NOT_MEASURED = "not measured"


class TimedStep(Protocol):
    """A step that is done: when, and its number."""

    @property
    def at(self) -> float: ...

    @property
    def step(self) -> int: ...


class Outcome(NamedTuple):
    """What a fault has cost. seconds: without a step; None: it did not recover in LIMIT. again:
    steps made twice. cause: what the contestant told of it.
    """

    seconds: float | None
    again: int
    cause: str = ""


def longest_pause(steps: Sequence[TimedStep], at: float) -> Outcome:
    """The longest time without a step since a fault, and the steps that were then made again."""
    before = [step for step in steps if step.at <= at]
    after = [step for step in steps if step.at > at]
    pairs = zip([*before[-1:], *after], after, strict=False)
    last, first = max(pairs, key=lambda pair: pair[1].at - max(at, pair[0].at))
    return Outcome(first.at - max(at, last.at), max(0, last.step - first.step + 1))


def find_named_lines(reported: str, who: Sequence[str], how: str) -> str:
    """The lines of a text that name somebody and, nearby, what has happened; or nothing."""
    somebody = f"(?:{'|'.join(who)})"
    near = r"[^\0]{0,300}?"
    match = re.search(
        f".*{somebody}{near}(?:{how}).*|.*(?:{how}){near}{somebody}.*", reported, re.IGNORECASE
    )
    return match[0] if match else ""


def training_progress(steps: Sequence[Step], began: float, seconds: float) -> dict[str, Any]:
    """The share of the time in which a training made steps that count, the steps that it made
    again, and those that it had reached at each second. A step that took longer than PAUSE was a
    pause.
    """
    steps = [step for step in steps if step.at <= began + seconds]
    first = reached = steps[0].step
    spent = 0.0
    curve = [0] * (int(seconds) + 1)
    for before, step in pairwise(steps):
        took = step.at - before.at
        if step.step > reached and step.start == before.start and took < PAUSE:
            spent += took
        reached = max(reached, step.step)
        curve[math.ceil(step.at - began)] = reached - first
    again = len(steps) - len({step.step for step in steps})
    return {"effective": spent / seconds, "again": again, "curve": [*accumulate(curve, max)]}


def seconds_cell(outcome: Mapping[str, Any]) -> str:
    if outcome["seconds"] is None:
        return f"not in {LIMIT:.0f}"
    again = f" ({outcome['again']})" if outcome["again"] else ""
    return f"{outcome['seconds']:.1f}{again}"


def start_table(measured: Mapping[str, Any]) -> str:
    """The start of a run, and what a training without faults costs."""
    rows = []
    imports = 0.0
    if alone := measured.get("bare", {}).get("start", {}).get("turns"):
        imports = statistics.median(turn["imported"] - turn["rank"] for turn in alone)
    for results in measured.values():
        turns = results.get("start", {}).get("turns", [])
        total = [turn["allreduce"] for turn in turns]
        beyond = f"{statistics.median(total) - imports:.2f}" if turns and imports else ""
        began = as_range(total) if turns else NOT_MEASURED
        calm = results.get("each", {}).get("calm")
        step = (f"{1000 * calm['step']:.1f}", calm["pods"]) if calm else ("", "")
        rows.append((results["name"], began, beyond, *step))
    head = ("", "Start to the first allreduce, s", "beyond the import, s", "a step, ms", "pods")
    return markdown_table(head, rows)


def fault_tables(measured: Mapping[str, Any]) -> str:
    """Each fault once: what it cost, and what a person was told."""
    done = [results for results in measured.values() if "each" in results]
    if not done:
        return ""
    faults = [results["each"]["faults"] for results in done]
    names = [name for name in NAMED_BY if any(name in outcomes for outcomes in faults)]
    cost = [
        (
            results["name"],
            *(seconds_cell(outcomes[name]) if name in outcomes else "" for name in names),
        )
        for results, outcomes in zip(done, faults, strict=True)
    ]
    causes = [
        (
            results["name"],
            *(
                ("yes" if outcomes[name]["cause"] else "no") if name in outcomes else ""
                for name in names
            ),
        )
        for results, outcomes in zip(done, faults, strict=True)
    ]
    first = markdown_table(("Seconds without a step (steps made again)", *names), cost)
    return f"{first}\n\n{markdown_table(('The cause is named', *names), causes)}"


def longest(storm: Mapping[str, Any]) -> str:
    """The longest pause of a storm."""
    paused = [seconds for _, seconds, _ in storm["faults"]]
    return f"not in {LIMIT:.0f}" if None in paused else f"{max(paused):.1f}"


def selection_table(measured: Mapping[str, Any]) -> str:
    """What a reader of the comparison needs: a row for each way that a user may choose."""
    rows = []
    for short in SELECTED:
        results = measured.get(short, {})
        turns = results.get("start", {}).get("turns", [])
        storm = results.get("storm", {})
        start = statistics.median(turn["allreduce"] for turn in turns) if turns else None
        if start or storm.get("faults"):
            rows.append(
                (
                    results["name"],
                    f"{start:.2f}" if start else NOT_MEASURED,
                    f"{100 * storm['effective']:.1f}" if storm.get("faults") else NOT_MEASURED,
                    longest(storm) if storm.get("faults") else NOT_MEASURED,
                )
            )
    head = (
        "",
        "Start to the first allreduce, s",
        "Effective training time in a storm of faults, %",
        "Longest pause, s",
    )
    return markdown_table(head, rows)


def storm_table(measured: Mapping[str, Any]) -> str:
    """What a storm cost: the share of the time that counts, and what the faults took."""
    storms = [results for results in measured.values() if results.get("storm", {}).get("faults")]
    rows = []
    for results in storms:
        storm = results["storm"]
        paused = [LIMIT if seconds is None else seconds for _, seconds, _ in storm["faults"]]
        rows.append(
            (
                results["name"],
                f"{100 * storm['effective']:.1f}",
                len(paused),
                f"{statistics.median(paused):.1f}",
                longest(storm),
                storm["again"],
                "yes" if storm["equal"] else "no",
            )
        )
    head = (
        "In a storm of faults",
        "effective training time, %",
        "faults that came",
        "without a step, s: median",
        "longest",
        "steps made again",
        "weights right",
    )
    return markdown_table(head, rows)


def sources(measured: Mapping[str, Any]) -> str:
    """Which versions were measured, when and at which commits."""
    versions = dict.fromkeys(results["version"] for results in measured.values())
    parts = [
        results[part]
        for results in measured.values()
        for part in ("start", "each", "storm")
        if part in results
    ]
    commits = sorted({part["commit"] for part in parts})
    storm = next((results["storm"] for results in measured.values() if "storm" in results), None)
    loads = sorted(part["load"] for part in parts)
    text = f"Versions: {', '.join(versions)}. Measured at {', '.join(commits)}"
    text += f", with a load average of {loads[0]:.1f} to {loads[-1]:.1f} before each part."
    if storm:
        text += (
            f" The storm: {storm['seconds']:.0f} s, a fault each {storm['every']:.0f} s, "
            f"seed {storm['seed']}."
        )
    return textwrap.fill(text, 100, break_on_hyphens=False)
