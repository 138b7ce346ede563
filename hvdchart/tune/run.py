"""Installs the run that measures thread settings, reads its results and uninstalls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hvdchart.errors import RunFailedError
from hvdchart.plan.model import Plan
from hvdchart.quantity import pluralize
from hvdchart.run.cluster import Cluster
from hvdchart.run.helm import Helm
from hvdchart.run.temporary import temporary_run
from hvdchart.tune.grid import (
    Measurement,
    Setting,
    collect,
    describe,
    faster_settings,
    parse_result,
    tuning_plan,
)


@dataclass(frozen=True)
class Bench:
    """How to measure a setting: the command for each rank, and on how many of the plan's workers.

    Each setting runs `repeats` times, then the plan's and the faster ones `confirmations` times.
    """

    plan: Plan
    command: Sequence[str]
    workers: int
    repeats: int
    confirmations: int


def search(
    cluster: Cluster,
    bench: Bench,
    settings: Sequence[Setting],
    report: Callable[[str], None],
    helm: Helm,
) -> tuple[list[Measurement], list[Measurement]]:
    """Measure all settings, then again the ones faster than the plan's own, `settings[0]`.

    Calls `report` with a line for each run. Raises RunFailedError when no run printed a speed.
    """

    def measure(tried: Sequence[Setting], repeats: int) -> list[Measurement]:
        # In turns, so that a drift of the machine affects all equally.
        runs = [*tried] * repeats
        plan = tuning_plan(bench.plan, runs, bench.command, bench.workers)
        return collect(tried, _run(cluster, plan, runs, report, helm))

    measured = measure(settings, bench.repeats)
    faster = faster_settings(measured)
    if not faster:
        return measured, measured[:1]
    report(f"{pluralize(len(faster), 'faster setting')}: measuring again, in turn with the plan's")
    return measured, measure([settings[0], *faster], bench.confirmations)


def _run(
    cluster: Cluster,
    plan: Plan,
    runs: Sequence[Setting],
    report: Callable[[str], None],
    helm: Helm,
) -> list[tuple[int, float | None, str]]:
    name = plan.spec.name
    results, last = [], ""
    with temporary_run(cluster, plan, helm) as lines:
        for line in lines:
            result = parse_result(line.text)
            if result is None:
                last = f"{line.pod}: {line.text}"
                continue
            results.append(result)
            number, speed, error = result
            measured = Measurement(runs[number], () if speed is None else (speed,), (error,))
            report(f"{len(results)}/{len(runs)} {describe(measured)}")
    if not results:
        raise RunFailedError(f"{name} ended without a measurement; its last line: {last or 'none'}")
    return results
