"""Measure in a temporary run, and uninstall the run however it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from hvdchart.bench.outcomes import Outcome, parse_outcome
from hvdchart.bench.scaling import Measurement, describe_placement, make_rows
from hvdchart.errors import RunFailedError
from hvdchart.plan.model import Plan
from hvdchart.quantity import pluralize
from hvdchart.run.change.session import Session
from hvdchart.run.follow.logs import follow_logs
from hvdchart.run.helm import Helm
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import read_release
from hvdchart.run.state.release import Object
from hvdchart.values.check_values import checked_values

# The number of lines of a failed run's log that are reported.
_FAILURE_TAIL_LINES = 30


def run_trials(
    cluster: Cluster,
    plan: Plan,
    helm: Helm,
    trials: int,
    take: Callable[[Outcome], None],
    report: Callable[[str], object],
) -> None:
    """Install a plan of `trials_plan`, `take` each outcome as it comes, and uninstall it.

    `trials` is the number of trials in the plan. On failure, `report` gets the last lines of the
    log, which is gone with the run. Raises ClusterError where a release has the run's name,
    RunFailedError if the run ends with fewer outcomes than trials, and what `take` raises.
    """
    last: deque[str] = deque(maxlen=_FAILURE_TAIL_LINES)
    values = checked_values(plan)
    with Session(cluster, plan.spec.name, helm, report, "measure again") as session:
        session.upgrade(values)
        try:
            taken = 0
            for line in follow_logs(cluster, plan.spec.name, warnings=True):
                outcome = parse_outcome(line.text, trials)
                if outcome is None:
                    last.append(f"{line.pod}: {line.text}")
                else:
                    taken += 1
                    take(outcome)
            _require_all(taken, trials, plan.spec.name)
        except RunFailedError:
            for text in last:
                report(text)
            raise


def _require_all(taken: int, trials: int, name: str) -> None:
    if taken < trials:
        raise RunFailedError(f"{name} ended after {taken} of {trials} measurements")


def measure_trials(
    cluster: Cluster,
    plan: Plan,
    trials: Sequence[int],
    turns: int,
    report: Callable[[str], None],
    helm: Helm,
) -> Object:
    """Measure a plan of `bench_plan`, report each measurement, and return the result as JSON data.

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
            place.update(describe_placement(read_release(cluster, plan.spec.name).pods))
        turn = outcome.trial * turns // len(trials)
        measured.append(Measurement(turn, workers, outcome.ranks, outcome.speed))
        size = f"{pluralize(workers, 'worker')}, {pluralize(outcome.ranks, 'rank')}"
        report(f"{len(measured)} of {len(trials)}: {size}: {outcome.speed:.1f} samples/s")

    run_trials(cluster, plan, helm, len(trials), take, report)
    return {**place, "rows": make_rows(measured)}
