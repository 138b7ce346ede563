"""Runs for a while: installed, and uninstalled however the work with them ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hvdchart.errors import ClusterError, HelmError, RunFailedError
from hvdchart.plan.model import Plan
from hvdchart.run.cluster import Cluster
from hvdchart.run.control import remove
from hvdchart.run.helm import Helm, release_chart, upgrade
from hvdchart.run.helm_errors import BUSY
from hvdchart.run.logs import follow
from hvdchart.run.trials import Outcome, parse_outcome
from hvdchart.values.check import checked_values


def run_trials(
    cluster: Cluster,
    plan: Plan,
    helm: Helm,
    trials: int,
    take: Callable[[Outcome], None],
    *,
    least: int = 1,
) -> None:
    """Install a plan of `trials_plan`, `take` each outcome as it comes, and uninstall it.

    `trials` is the number of trials in the plan. Raises ClusterError where a release has the run's
    name, RunFailedError if the run ends with fewer outcomes than `least`, and what `take` raises.
    """
    taken = 0
    last = ""
    with installed(cluster, plan, helm):
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


@contextmanager
def installed(cluster: Cluster, plan: Plan, helm: Helm) -> Iterator[None]:
    """Install a plan, and uninstall it at the end of the block. Raises what `install` does."""
    install(cluster, plan, helm)
    try:
        yield
    finally:
        remove(cluster, plan.spec.name, helm)


def install(cluster: Cluster, plan: Plan, helm: Helm) -> None:
    """Install a plan; what is incomplete is removed.

    Raises ClusterError where a release has the name, which would be replaced and uninstalled, and
    HelmError.
    """
    name = plan.spec.name
    # Refused requests end here: Helm would explain them less well.
    cluster.release(name)
    if release_chart(name, cluster.namespace, helm):
        raise ClusterError(
            f"{name} exists already in namespace {cluster.namespace}: another command runs it, or "
            "was interrupted; in that case remove it: "
            f"hvdchart undeploy {name} -n {cluster.namespace}"
        )
    upgrade_or_remove(cluster, plan, helm)


def upgrade_or_remove(cluster: Cluster, plan: Plan, helm: Helm) -> None:
    """Install a plan in the place of the release's last one; what is incomplete is removed.

    Raises HelmError. Also Ctrl-C removes it.
    """
    name = plan.spec.name
    try:
        upgrade(name, cluster.namespace, checked_values(plan), helm)
    except (KeyboardInterrupt, HelmError) as problem:
        # Remove the part of the release that Helm may have created; but a release that another
        # command is changing (BUSY) belongs to that command.
        if BUSY not in str(problem):
            ignored: list[type[Exception]] = [ClusterError]
            # The first error is the one to report; but after Ctrl-C, nothing else says that a run
            # may be left.
            if isinstance(problem, HelmError):
                ignored.append(HelmError)
            with suppress(*ignored):
                remove(cluster, name, helm)
        raise
