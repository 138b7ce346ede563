"""Measures in the run of `bench`, and reads its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hvdchart.bench.measure import run_trials
from hvdchart.bench.scaling import Measurement, placement, rows
from hvdchart.bench.trials import Outcome
from hvdchart.errors import RunFailedError
from hvdchart.plan.model import Plan
from hvdchart.quantity import pluralize
from hvdchart.run.helm import Helm
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import read_release
from hvdchart.run.state.release import Object


def measure(
    cluster: Cluster,
    plan: Plan,
    trials: Sequence[int],
    turns: int,
    report: Callable[[str], None],
    helm: Helm,
) -> Object:
    """The result of a plan of `bench_plan` as JSON data; reports each measurement.

    `trials` are those of the plan, in `turns` turns. Raises RunFailedError when one of them cannot
    be measured, and the errors of Helm and the cluster.
    """
    measured: list[Measurement] = []
    place: Object = {}

    def take(outcome: Outcome) -> None:
        workers = trials[outcome.trial]
        if outcome.speed is None:
            raise RunFailedError(f"cannot measure {workers} workers: {outcome.error}")
        if not measured:
            place.update(placement(read_release(cluster, plan.spec.name).pods))
        turn = outcome.trial * turns // len(trials)
        measured.append(Measurement(turn, workers, outcome.ranks, outcome.speed))
        size = f"{pluralize(workers, 'worker')}, {pluralize(outcome.ranks, 'rank')}"
        report(f"{len(measured)} of {len(trials)}: {size}: {outcome.speed:.1f} samples/s")

    run_trials(cluster, plan, helm, len(trials), take, report, least=len(trials))
    return {**place, "rows": rows(measured)}
