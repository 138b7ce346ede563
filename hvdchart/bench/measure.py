"""Makes the trials of a run that is installed for them, and uninstalled however they end."""

from __future__ import annotations

from collections.abc import Callable

from hvdchart.bench.trials import Outcome, parse_outcome
from hvdchart.errors import RunFailedError
from hvdchart.plan.model import Plan
from hvdchart.run.change.session import Session
from hvdchart.run.follow.logs import follow
from hvdchart.run.helm import Helm
from hvdchart.run.kube.cluster import Cluster
from hvdchart.values.check_values import checked_values


def run_trials(
    cluster: Cluster,
    plan: Plan,
    helm: Helm,
    trials: int,
    take: Callable[[Outcome], None],
    report: Callable[[str], object],
    *,
    least: int = 1,
) -> None:
    """Install a plan of `trials_plan`, `take` each outcome as it comes, and uninstall it.

    `trials` is the number of trials in the plan. Raises ClusterError where a release has the run's
    name, RunFailedError if the run ends with fewer outcomes than `least`, and what `take` raises.
    """
    taken = 0
    last = ""
    values = checked_values(plan)
    with Session(cluster, plan.spec.name, helm, report, "measure again") as session:
        session.upgrade(values)
        for line in follow(cluster, plan.spec.name, warnings=True):
            outcome = parse_outcome(line.text, trials)
            if outcome is None:
                last = f"{line.pod}: {line.text}"
            else:
                taken += 1
                take(outcome)
    if taken < least:
        raise RunFailedError(
            f"{plan.spec.name} ended after {taken} of {trials} measurements; its last line: "
            f"{last or 'none'}"
        )
