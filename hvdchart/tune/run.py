"""Measures thread settings, and then again the ones faster than the plan's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hvdchart.plan.model import Plan
from hvdchart.quantity import pluralize
from hvdchart.run.cluster import Cluster
from hvdchart.run.helm import Helm
from hvdchart.run.measure import run_trials
from hvdchart.run.trials import Outcome, Trial, trials_plan
from hvdchart.tune.grid import Measurement, Setting, collect, describe, faster_settings


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
        outcomes: list[Outcome] = []

        def take(outcome: Outcome) -> None:
            outcomes.append(outcome)
            (made,) = collect([runs[outcome.trial]], [outcome])
            report(f"{len(outcomes)}/{len(runs)} {describe(made)}")

        trials = [Trial(bench.workers, setting) for setting in runs]
        plan = trials_plan(bench.plan, "tune", trials, bench.command, probes=False)
        run_trials(cluster, plan, helm, len(runs), take)
        return collect(tried, outcomes)

    measured = measure(settings, bench.repeats)
    faster = faster_settings(measured)
    if not faster:
        return measured, measured[:1]
    report(f"{pluralize(len(faster), 'faster setting')}: measuring again, in turn with the plan's")
    return measured, measure([settings[0], *faster], bench.confirmations)
