"""Measures in the run of `bench`, and reads its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hvdchart.bench.scaling import Measurement, check_side_by_side, parse_machine, worker_pods
from hvdchart.errors import RunFailedError
from hvdchart.plan.model import Plan
from hvdchart.quantity import pluralize
from hvdchart.run.cluster import Cluster
from hvdchart.run.helm import Helm
from hvdchart.run.measure import run_trials
from hvdchart.run.release import Object
from hvdchart.run.trials import Outcome, Trial


def measure(
    cluster: Cluster,
    plan: Plan,
    trials: Sequence[Trial],
    turns: int,
    report: Callable[[str], None],
    helm: Helm,
) -> tuple[list[Measurement], list[Object]]:
    """The measurements of a plan of `bench_plan` and the machines; reports each measurement."""
    machines: dict[str, Object] = {}
    measured: list[Measurement] = []

    def take(outcome: Outcome) -> None:
        workers = trials[outcome.trial].workers
        if outcome.speed is None:
            raise RunFailedError(f"cannot measure {workers} workers: {outcome.error}")
        turn = outcome.trial * turns // len(trials)
        pods = tuple(worker_pods(cluster.release(plan.spec.name).pods))
        measured.append(Measurement(turn, workers, outcome.ranks, outcome.speed, pods))
        size = f"{pluralize(workers, 'worker')}, {pluralize(outcome.ranks, 'rank')}"
        report(f"{len(measured)} of {len(trials)}: {size}: {outcome.speed:.1f} images/s")

    def note_machine(line: str) -> None:
        machine = parse_machine(line)
        if machine:
            machines.setdefault(str(machine["host"]), machine)

    run_trials(cluster, plan, helm, len(trials), take, other=note_machine, least=len(trials))
    check_side_by_side(measured)
    return measured, list(machines.values())
