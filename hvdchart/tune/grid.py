"""The thread settings to try, and what their trials say. Pure.

A setting is a part of the ranks' environment; the first setting is always the plan's own.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvdchart.chart_files import example
from hvdchart.errors import RunFailedError, SpecError
from hvdchart.plan import rules
from hvdchart.plan.model import Plan
from hvdchart.run.trials import Outcome
from hvdchart.spec.yaml_tree import Plain
from hvdchart.values.render import dump

VARIABLES = {
    "OMP_NUM_THREADS": "ompThreads",
    "TF_NUM_INTRAOP_THREADS": "intraOpThreads",
    "TF_NUM_INTEROP_THREADS": "interOpThreads",
    "KMP_BLOCKTIME": "kmpBlocktime",
}
# Smaller differences are noise on a machine that others use too: the plan's setting stays.
NOISE = 0.02
Setting = Mapping[str, str]


@dataclass(frozen=True)
class Measurement:
    """One setting: the speed of each run in images/s, and the errors of runs without a speed."""

    setting: Setting
    speeds: tuple[float, ...]
    errors: tuple[str, ...]

    @property
    def speed(self) -> float:
        """The median speed in images/s; 0 without any."""
        return statistics.median(self.speeds) if self.speeds else 0.0


def list_settings(plan: Plan, given: Mapping[str, Sequence[int]]) -> list[Setting]:
    """The plan's own setting, then all others with the values given for each variable.

    Without values they are derived from the plan. Raises SpecError for a plan of several groups, or
    without `coresPerSocket`.
    """
    group = plan.groups[0]
    if len(plan.groups) != 1:
        raise SpecError("the spec", "nodes", f"{len(plan.groups)} groups", "one group to tune")
    cores = rules.cores_per_rank(group.group, group.slots)
    if not cores:
        expected = "coresPerSocket, from which tune derives the numbers of threads"
        raise SpecError("the spec", "nodes[0]", "the number of cores is not known", expected)
    own = {name: value for name, value in group.env.items() if name in VARIABLES}
    threads = group.group.threads_per_core or 1
    derived = {
        "OMP_NUM_THREADS": (cores,),
        "TF_NUM_INTRAOP_THREADS": (cores // 2, cores - 2, cores, cores * threads),
        "TF_NUM_INTEROP_THREADS": (1, 2),
    }
    tries = {name: given.get(name) or derived.get(name) for name in VARIABLES}
    axes = [
        [(name, str(value)) for value in sorted(set(values)) if value > 0 or name.startswith("K")]
        for name, values in tries.items()
        if values
    ]
    settings = [dict(pairs) for pairs in itertools.product(*axes)]
    return [own, *(setting for setting in settings if setting != own)]


def benchmark_command(model: str, batch_size: int, steps: int) -> list[str]:
    """The command of examples/benchmark.py, for each rank."""
    options = {"--model": model, "--batch-size": batch_size, "--steps": steps}
    words = [str(word) for pair in options.items() for word in pair]
    return ["python3", "-c", example("benchmark.py"), *words, "--warmup", "3", "--rounds", "1"]


def collect(settings: Sequence[Setting], outcomes: Sequence[Outcome]) -> list[Measurement]:
    """The outcomes of each setting, in the order of the settings, which were tried in turns."""
    measured = []
    for index, setting in enumerate(settings):
        own = [each for each in outcomes if each.trial % len(settings) == index]
        speeds = tuple(each.speed for each in own if each.speed is not None)
        measured.append(
            Measurement(setting, speeds, tuple(each.error for each in own if each.error))
        )
    return measured


def faster_settings(measured: Sequence[Measurement], most: int = 2) -> list[Setting]:
    """At most `most` settings that were faster than the plan's own, `measured[0]`; fastest first.

    The best of many noisy medians is probably too high, so these are measured again in turn with
    the plan's own. Raises RunFailedError when no run printed a speed.
    """
    if not any(each.speed for each in measured):
        errors = [error for each in measured for error in each.errors]
        raise RunFailedError(f"no run printed a speed; the first error: {(errors or ['none'])[0]}")
    own, *others = measured
    faster = sorted(
        (other for other in others if other.speed > own.speed), key=lambda other: -other.speed
    )
    return [other.setting for other in faster[:most]]


def relative_gain(own: Measurement, other: Measurement) -> float:
    """How much faster `other` is (0.1: 10 %): the median over turns of the ratio within a turn."""
    if not own.speeds or not other.speeds:
        return float("inf") if other.speeds else 0.0
    turns = zip(own.speeds, other.speeds, strict=False)
    return statistics.median(theirs / ours for ours, theirs in turns) - 1


def choose_best(confirmed: Sequence[Measurement]) -> Measurement:
    """The fastest setting; the plan's own, the first, unless another is faster by over NOISE."""
    own = confirmed[0]
    best = max(confirmed, key=lambda each: relative_gain(own, each))
    return best if relative_gain(own, best) > NOISE else own


def tuning_text(
    measured: Sequence[Measurement], confirmed: Sequence[Measurement], name: str
) -> str:
    """A spec overlay with the best setting's `tuning`, and all measurements as comments."""
    head = [f"Measured by `hvdchart tune {name}`, images/s, the plan's setting first:"]
    head += [f"  {describe(each)}" for each in measured]
    own, *faster = confirmed
    if faster:
        head.append("The faster ones again, in turn with the plan's:")
        head += [f"  {describe(each)}" for each in confirmed]
    best = choose_best(confirmed)
    if best is own:
        head.append(
            f"No setting is faster than the plan's by more than {NOISE:.0%}: keep the plan's."
        )
    elif own.speed:
        head.append(f"The best setting is {relative_gain(own, best):+.1%} faster than the plan's.")
    tuning: dict[str, Plain] = {
        VARIABLES[variable]: int(value) for variable, value in best.setting.items()
    }
    comments = "".join(f"# {line}\n" for line in head)
    return comments + dump({"tuning": tuning}, {})


def describe(measured: Measurement) -> str:
    """One line: the median speed, the setting and the range of speeds, or the last error."""
    speeds = measured.speeds
    setting = " ".join(f"{name}={value}" for name, value in measured.setting.items())
    if not speeds:
        error = (measured.errors or ("not run",))[-1]
        return f"{'failed':>9}  {setting}: {' '.join(error.split())[-200:]}"
    spread = f" ({min(speeds):.2f} to {max(speeds):.2f})" if speeds[1:] else ""
    return f"{measured.speed:>9.2f}  {setting}{spread}"
