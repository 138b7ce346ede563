"""Install a run, and follow it until it ends, for the commands that start one."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hvdchart.cli.terminal import print_log, print_notes, print_remark, raise_unless_finished
from hvdchart.errors import ClusterError, HelmError, RunFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hvdchart.plan.model import Plan
    from hvdchart.run.helm import Helm
    from hvdchart.run.kube.cluster import Cluster
    from hvdchart.run.state.status import Status
    from hvdchart.run.state.view import RunView


def install_and_follow(
    plan: Plan,
    cluster: Cluster,
    helm: Helm,
    before: RunView,
    *,
    create_namespace: bool,
    detach: bool,
    wait: bool,
) -> None:
    """Install or upgrade a run, and follow it; `before` is the previous run.

    With `wait`, print phases and progress instead of logs. With `detach`, return when Helm has
    changed the release. A run that has ended, and that the upgrade does not change, is not
    followed: print its state. Raises the errors of Helm and the cluster. Raises RunFailedError if
    such a run has failed, and when the followed run fails or is replaced.
    """
    from hvdchart.run.kube.runs import newest_run

    name = plan.spec.name
    earlier = before.status
    revision = _upgrade(
        plan, cluster, helm, is_new=not earlier.job, create_namespace=create_namespace
    )
    run = newest_run(cluster, name)
    # The previous run may belong to another user.
    if run.status.job == earlier.job and earlier.over:
        _show_unchanged(run.status, cluster)
        return
    _announce(plan, cluster, revision)
    if earlier.is_active and run.status.job != earlier.job:
        step = f" at {earlier.progress.text(is_over=True)}" if earlier.progress else ""
        print_remark(f"this run replaces the earlier one, which was {earlier.state}{step}")
    logs = f"hvdchart logs {name} --namespace {cluster.namespace}"
    if detach:
        print_notes(f"next: {logs}")
        return
    try:
        _follow(cluster, run, has_logs=not wait)
    except KeyboardInterrupt:
        print_notes("", f"the run continues: {logs}")
        raise


def _show_unchanged(status: Status, cluster: Cluster) -> None:
    """Print the state of a run that had ended before. Raises RunFailedError if it failed."""
    from hvdchart.run.state.status_text import status_report

    print_notes(*status_report(status, cluster.namespace))
    print_remark(
        "nothing has changed since the run ended; to run it again: "
        f"hvdchart restart {status.name} --namespace {cluster.namespace}"
    )
    raise_unless_finished(status)


def _announce(plan: Plan, cluster: Cluster, revision: int) -> None:
    """Print what Helm has installed."""
    from hvdchart.quantity import pluralize

    print_notes(
        f"release {plan.spec.name} in namespace {cluster.namespace}, revision {revision}: "
        f"{pluralize(plan.ranks, 'rank')} on {pluralize(plan.workers, 'worker')}"
    )


def require_own_run(cluster: Cluster, name: str, helm: Helm) -> RunView:
    """Return the newest run of the release.

    Raises ClusterError when the name is that of another chart's release.
    """
    from hvdchart.run.change.control import refuse_other_chart
    from hvdchart.run.kube.runs import newest_run

    run = newest_run(cluster, name)
    remedy = "choose another name with --set name=NAME, or under `run` with --name NAME"
    refuse_other_chart(run, cluster.namespace, helm, remedy)
    return run


def _upgrade(
    plan: Plan, cluster: Cluster, helm: Helm, *, is_new: bool, create_namespace: bool
) -> int:
    """Install or upgrade the release, and return its revision.

    Say what remains if that fails: nothing of a release that `is_new`.
    """
    from hvdchart.run.change.control import remove_failed_install
    from hvdchart.run.helm import upgrade_release
    from hvdchart.values.check_values import checked_values

    name = plan.spec.name
    values = checked_values(plan)
    try:
        return upgrade_release(
            name, cluster.namespace, values, helm, create_namespace=create_namespace
        )
    except KeyboardInterrupt:
        target = f"{name} --namespace {cluster.namespace}"
        print_notes(
            "",
            f"interrupted while Helm changed release {name}: see hvdchart status {target}; deploy "
            f"it again to complete it, or remove it with hvdchart undeploy {target}",
        )
        raise
    except (HelmError, ClusterError):
        # Report Helm's error.
        with suppress(HelmError, ClusterError):
            if is_new and remove_failed_install(cluster, name, helm):
                print_notes(f"what Helm had created of release {name} is removed again")
        raise


def _follow(cluster: Cluster, run: RunView, *, has_logs: bool) -> None:
    """Print logs, or else phases with progress, until the run is over; then print how it ended.

    Raises RunFailedError when it fails, or when another run replaces it.
    """
    from hvdchart.run.follow.changes import wait_for_end
    from hvdchart.run.follow.lines import readable_lines
    from hvdchart.run.follow.logs import follow_logs
    from hvdchart.run.kube.runs import newest_run
    from hvdchart.run.state.status_text import status_report

    current = run.status
    name = current.name
    if current.job and current.state != "suspended":
        seen = _phase_printer(has_progress=not has_logs)
        if has_logs:
            lines = follow_logs(cluster, name, warnings=True, seen=seen)
            print_log(readable_lines(lines, run, print_remark))
        else:
            wait_for_end(cluster, name, seen=seen)
        job = current.job
        current = newest_run(cluster, name).status
        # A Job that has ended may be deleted already.
        if current.job not in (job, ""):
            raise RunFailedError(
                f"run {name} was replaced before it ended: the run that took its place is "
                f"{current.state}"
            )
    print_notes(*status_report(current, cluster.namespace))
    if current.is_stuck:
        print_notes(f"the run waits; to remove it: hvdchart undeploy {name} -n {cluster.namespace}")
    raise_unless_finished(current)


def _phase_printer(*, has_progress: bool) -> Callable[[RunView], None]:
    """Return a function that prints each phase; with `has_progress` also each step of the log."""
    from hvdchart.run.state.phases import DONE, TRAINING, Phase

    began = time.monotonic()
    last = Phase("")

    def show_phase(run: RunView) -> None:
        nonlocal last
        phase = run.phase
        if phase.name == TRAINING and not has_progress:
            phase = Phase(TRAINING)
        if phase != last and last.name != DONE:
            print_remark(f"{time.monotonic() - began:5.1f} s  {phase}")
            last = phase

    return show_phase
