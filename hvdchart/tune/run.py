"""Measures thread settings, and then again the ones faster than the plan's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hvdchart.plan.model import Plan
from hvdchart.quantity import pluralize
from hvdchart.run.cluster import Cluster
from hvdchart.run.helm import Helm
from hvdchart.run.measure import run_trials
from hvdchart.run.trials import Outcome, Trial, trials_plan
from hvdchart.tune.grid import Measurement, Setting, collect, describe, faster_settings


def search(
    cluster: Cluster,
    plan: Plan,
    settings: Sequence[Setting],
    command: Sequence[str],
    report: Callable[[str], None],
    helm: Helm,
    *,
    workers: int,
    repeats: int,
    confirmations: int,
) -> tuple[list[Measurement], list[Measurement]]:
    """Measure all settings, then again the ones faster than the plan's own, `settings[0]`.

    A setting is measured with the command on so many of the plan's workers: `repeats` times, then
    `confirmations` times. Calls `report` with a line for each run. Raises RunFailedError when no
    run printed a speed.
    """

    def measure(tried: Sequence[Setting], repeats: int) -> list[Measurement]:
        # In turns, so that a drift of the machine affects all equally.
        runs = [*tried] * repeats
        outcomes: list[Outcome] = []

        def take(outcome: Outcome) -> None:
            outcomes.append(outcome)
            (measured,) = collect([runs[outcome.trial]], [outcome])
            report(f"{len(outcomes)}/{len(runs)} {describe(measured)}")

        trials = [Trial(workers, setting) for setting in runs]
        made = trials_plan(plan, "tune", trials, command)
        run_trials(cluster, made, helm, len(runs), take)
        return collect(tried, outcomes)

    measured = measure(settings, repeats)
    faster = faster_settings(measured)
    if not faster:
        return measured, measured[:1]
    report(f"{pluralize(len(faster), 'faster setting')}: measuring again, in turn with the plan's")
    return measured, measure([settings[0], *faster], confirmations)
