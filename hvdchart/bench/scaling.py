"""How the speed grows with the workers: the run that measures it, and its figures. Pure.

All sizes are measured in one run, on the same pods, in turns: a drift of the machine affects all of
them. Sizes are compared within a turn only.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hvdchart.bench.outcomes import trials_plan
from hvdchart.chart_files import read_example
from hvdchart.errors import RunFailedError, SpecError
from hvdchart.plan.model import Plan
from hvdchart.plan.planner import make_plan
from hvdchart.quantity import pluralize
from hvdchart.run.state.release import Object, component_of
from hvdchart.spec.yaml_tree import Plain
from hvdchart.text import join_names
from hvdchart.values.merge import merge_values

BENCHMARK = "benchmark.py"
# Student's t for 95 % and 1, 2, ... degrees of freedom. Further values come from its expansion
# (Abramowitz and Stegun, 26.7.5), which is right to a thousandth there.
_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True)
class Measurement:
    """The speed of all ranks together in samples/s, in one turn on the first `workers` workers."""

    turn: int
    workers: int
    ranks: int
    speed: float


def choose_sizes(workers: int, requested: Sequence[int]) -> list[int]:
    """Return the numbers of workers to measure, ascending: the given ones, or 1, 2, 4 ... and all.

    Raises SpecError for a number that is not from 1 to `workers`.
    """
    powers = {2**exponent for exponent in range(workers.bit_length())}
    chosen = sorted(set(requested) or powers | {workers})
    wrong = [size for size in chosen if not 1 <= size <= workers]
    if wrong:
        expected = f"numbers from 1 to {workers}, the workers of the spec"
        raise SpecError("--workers", "", f"{wrong[0]} workers", expected)
    return chosen


def turns_of(chosen: Sequence[int], turns: int) -> list[int]:
    """Return the workers of each trial: each turn has all sizes, and starts with another size."""
    trials: list[int] = []
    for turn in range(turns):
        first = turn % len(chosen)
        trials += [*chosen[first:], *chosen[:first]]
    return trials


def bench_plan(plan: Plan, trials: Sequence[int], command: Sequence[str]) -> Plan:
    """Plan the run that measures; its code is the benchmark.

    Raises SpecError for a spec of several groups.
    """
    if len(plan.groups) != 1:
        expected = "one group: different nodes wait for each other, whatever their number"
        raise SpecError("the spec", "nodes", f"{len(plan.groups)} groups", expected)
    code: dict[str, Plain] = {"files": {BENCHMARK: read_example(BENCHMARK)}}
    values = merge_values(plan.spec.values, {"code": code})
    changed = make_plan(dataclasses.replace(plan.spec, values=values), plan.tree)
    return trials_plan(changed, "bench", trials, command)


def describe_placement(pods: Sequence[Object]) -> Object:
    """Return the workers' image and nodes among a release's pods, as JSON data.

    `firstPod` is the UID of the first worker's pod: two results with the same UID ran in the same
    pods. Raises RunFailedError where the workers have different images.
    """
    workers = sorted(
        (pod for pod in pods if component_of(pod) == "worker"),
        key=lambda pod: str(pod["metadata"]["name"]),
    )
    states = [(pod["status"].get("containerStatuses") or [{}])[0] for pod in workers]
    images = sorted({str(state.get("imageID") or state.get("image") or "") for state in states})
    if len(images) > 1:
        raise RunFailedError(
            f"the workers have different images ({join_names(images)}): the figures are not "
            "comparable; name the image by a tag that does not move, or by its digest"
        )
    nodes = {pod["metadata"]["name"]: str(pod["spec"].get("nodeName", "")) for pod in workers}
    first = workers[0]["metadata"]["uid"] if workers else ""
    return {"firstPod": first, "image": "".join(images), "nodes": nodes}


def make_rows(measured: Sequence[Measurement]) -> list[Object]:
    """Return a row for each size as JSON data; `interval` is half the 95 % interval.

    The efficiency compares the speed of a rank with its speed in the smallest size, in the same
    turn.
    """
    by_size: dict[int, dict[int, Measurement]] = {}
    for row in measured:
        by_size.setdefault(row.workers, {})[row.turn] = row
    smallest = by_size[min(by_size)]
    table = []
    for size, turns in sorted(by_size.items()):
        speeds = [row.speed for row in turns.values()]
        shares = []
        for turn, row in turns.items():
            if turn in smallest:
                ideal = smallest[turn].speed / smallest[turn].ranks
                shares.append(row.speed / row.ranks / ideal)
        speed, interval = mean_and_interval(speeds)
        efficiency, efficiency_interval = mean_and_interval(shares)
        table.append(
            {
                "workers": size,
                "ranks": next(iter(turns.values())).ranks,
                "samplesPerSecond": round(speed, 3),
                "interval": round(interval, 3),
                "efficiency": round(efficiency, 4),
                "efficiencyInterval": round(efficiency_interval, 4),
                "turns": [round(speed, 3) for speed in speeds],
            }
        )
    return table


def mean_and_interval(figures: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half its 95 % confidence interval; infinite for a single figure."""
    free = len(figures) - 1
    if free < 1:
        return statistics.fmean(figures), math.inf
    if free <= len(_QUANTILES):
        quantile = _QUANTILES[free - 1]
    else:
        z = statistics.NormalDist().inv_cdf(0.975)
        quantile = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    half = quantile * statistics.stdev(figures) / math.sqrt(len(figures))
    return statistics.fmean(figures), half


def place_text(nodes: Mapping[str, str]) -> str:
    """Explain how many nodes the workers ran on, and how that affects the figures."""
    placed = list(nodes.values())
    text = f"{pluralize(len(placed), 'worker')} on {pluralize(len(set(placed)), 'node')}"
    shared = sorted({node for node in placed if placed.count(node) > 1})
    if not shared:
        return text
    return (
        f"{text}; several workers were on one node ({join_names(shared)}): the figures include no "
        "network, and ranks that share cores or memory slow each other"
    )
