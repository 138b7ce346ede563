"""Change an existing release: stop, restart and scale its run.

Each change is an upgrade of the release by Helm with one of its values changed. So a later upgrade
keeps the change. A run that may continue with another number of workers is scaled without Helm.
Before the change, `warn` gets what is lost when the workers end.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, TypeAlias

from hvd_pods.shared.run import Run
from hvdchart.errors import ClusterError, NoRunError
from hvdchart.run.change.losses import find_loss
from hvdchart.run.helm import (
    Helm,
    foreign_chart,
    last_revision,
    release_values,
    uninstall_release,
    upgrade_release,
)
from hvdchart.run.kube.api import unless_refused
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import find_leftovers, newest_run, present_run, read_release
from hvdchart.run.state.ranks import run_of
from hvdchart.run.state.release import Object
from hvdchart.run.state.status import Status
from hvdchart.run.state.view import RunView

Warn: TypeAlias = Callable[[str], None]


def stop(cluster: Cluster, name: str, helm: Helm, warn: Warn) -> Status:
    """End the pods of master and workers; the release, its Job and its volumes stay.

    Returns the previous status. If the run has ended already, only its remaining workers are ended.
    Raises NoRunError without a release, and HelmError and ClusterError.
    """
    run = present_run(cluster, name)
    before = run.status
    if not before.over:
        values = installed_values(run, cluster.namespace, helm)
        _warn_of_loss(run, warn)
        _change(cluster, name, helm, {"master": {"suspend": True}}, values)
    elif before.workers_left:
        for stateful_set in run.release.stateful_sets:
            end_workers = partial(cluster.scale, str(stateful_set["metadata"]["name"]), 0)
            # Somebody else may have deleted it since it was read.
            unless_refused(end_workers, None, [HTTPStatus.NOT_FOUND])
    return before


def refuse_other_chart(run: RunView, namespace: str, helm: Helm, *remedies: str) -> None:
    """Raise ClusterError with these remedies if the run's name is that of another chart's release.

    An upgrade with this chart would delete the other objects of the release. Such a release has a
    run when its chart has this one as a dependency. Raises HelmError.
    """
    name = run.release.name
    chart = foreign_chart(name, namespace, helm)
    if not chart:
        return
    if run.release.exists:
        change = (
            f"to change its run, change the values below the key of the dependency in {chart}, and "
            "upgrade the release with Helm"
        )
        remedies = (change, *remedies)
    raise ClusterError(
        f"{name} is a release of chart {chart} in namespace {namespace}: {'; '.join(remedies)}"
    )


def check_is_own(cluster: Cluster, name: str, helm: Helm) -> None:
    """Raise ClusterError for the name of another chart's release, which is not uninstalled.

    Raises HelmError, and ClusterError for a refused request.
    """
    namespace = cluster.namespace
    remedy = f"to remove all of it, run helm uninstall {name} -n {namespace}"
    refuse_other_chart(newest_run(cluster, name), namespace, helm, remedy)


def remove_release(cluster: Cluster, name: str, helm: Helm) -> list[str]:
    """Uninstall a release, and wait until its objects are deleted.

    Also deletes and returns objects that Helm does not know: an interrupted upgrade leaves objects
    that are not in the last revision. Raises NoRunError if there is nothing to remove, ClusterError
    if Helm knows no release and its run is active, and HelmError.
    """
    try:
        uninstall_release(name, cluster.namespace, helm)
        rest = find_leftovers(cluster, name)
    except NoRunError:
        rest = find_leftovers(cluster, name)
        if not rest:
            raise
        # The run may be one of Helm's, stored with another HELM_DRIVER than this Helm reads.
        jobs = [leftover for kind, leftover in rest if kind == "jobs"]
        current = RunView(replace(read_release(cluster, name), jobs=jobs)).status
        if current.is_active and current.state != "suspended" and current.pods:
            namespace_option = f"-n {cluster.namespace}"
            raise ClusterError(
                f"{_unknown_to_helm(current, cluster.namespace)}: uninstall it with the tool or "
                "HELM_DRIVER that installed it; or, if it is yours, run kubectl delete job "
                f"{current.job} {namespace_option} and try again"
            ) from None
    removed = []
    for kind, leftover in rest:
        left = leftover["metadata"]["name"]
        # The garbage collector may have deleted it since it was listed.
        if cluster.delete(kind, left):
            removed.append(f"{kind} {left}")
    return removed


def _unknown_to_helm(status: Status, namespace: str) -> str:
    return (
        f"Helm knows no release {status.name} in namespace {namespace}, but its run is "
        f"{status.state}"
    )


def installed_values(run: RunView, namespace: str, helm: Helm) -> Object:
    """Return the values that the release of an existing run was installed with.

    Raises ClusterError if Helm does not know the release, such as one of Argo CD, or has it of
    another chart; and HelmError.
    """
    refuse_other_chart(run, namespace, helm)
    try:
        return release_values(run.release.name, namespace, helm)
    except NoRunError:
        raise ClusterError(
            f"{_unknown_to_helm(run.status, namespace)}: change its values with the tool or "
            "HELM_DRIVER that installed it"
        ) from None


def remove_failed_install(cluster: Cluster, name: str, helm: Helm) -> bool:
    """Uninstall a release whose installation by Helm failed; return whether there is one.

    Otherwise its workers would stay without a master. A release that is being installed belongs to
    another command. Raises HelmError and ClusterError.
    """
    revision = last_revision(name, cluster.namespace, helm)
    if revision is None or not revision.is_failed_install:
        return False
    remove_release(cluster, name, helm)
    return True


def restart(cluster: Cluster, name: str, helm: Helm, warn: Warn) -> int:
    """Start the run again, from its checkpoints if it has any; return its generation.

    Raises NoRunError without a release, and HelmError and ClusterError.
    """
    run = present_run(cluster, name)
    values = installed_values(run, cluster.namespace, helm)
    _warn_of_loss(run, warn)
    generation = int((values.get("master") or {}).get("generation") or 1) + 1
    _change(cluster, name, helm, {"master": {"generation": generation, "suspend": False}}, values)
    return generation


def scale(
    cluster: Cluster, name: str, number: int, group: str | None, helm: Helm, warn: Warn
) -> bool:
    """Set the number of workers, of a group if there are several.

    Returns True when the run continues, as a run with a minimum does. Returns False when another
    run replaces it. Raises NoRunError without a release; ClusterError for a group that does not
    exist, and without a group if there are several; and HelmError.
    """
    run = present_run(cluster, name)
    values = installed_values(run, cluster.namespace, helm)
    groups = values.get("workerGroups") or []
    index = _index_of(groups, group, name)
    is_alive = run.status.state in ("waiting", "running", "retrying")
    described = run_of(run.job) if run.job and is_alive else None
    if described and _is_in_place(described, index, number):
        stateful_set = described.stateful_sets[index or 0]
        spares = described.initial_workers[stateful_set] - described.needed_workers[stateful_set]
        cluster.scale(stateful_set, number + spares)
        return True
    _warn_of_loss(run, warn)
    if index is None:
        _change(cluster, name, helm, {"worker": {"number": number}}, values)
    else:
        changed = copy.deepcopy(groups)
        changed[index]["number"] = number
        _change(cluster, name, helm, {"workerGroups": changed}, values)
    return False


def _is_in_place(run: Run, index: int | None, number: int) -> bool:
    """Return whether a run can continue with this number of workers, within a group's limits."""
    if (index or 0) >= len(run.stateful_sets):
        return False
    stateful_set = run.stateful_sets[index or 0]
    least = run.least_workers[stateful_set]
    most = run.needed_workers[stateful_set]
    return least < most and least <= number <= most


def _warn_of_loss(run: RunView, warn: Warn) -> None:
    if loss := find_loss(run):
        warn(f"{loss}; the next run begins without it")


def _index_of(groups: list[Any], group: str | None, name: str) -> int | None:
    """Return the index of a group in workerGroups; None for a run without groups.

    Raises ClusterError for an unknown name, and without a name if there are several groups.
    """
    names = [str(worker_group["name"]) for worker_group in groups]
    if group is None and len(names) < 2:
        return 0 if names else None
    if group not in names:
        listed = ", ".join(names) or "none"
        wanted = "name one with --group" if group is None else f"{group!r} is none of them"
        raise ClusterError(f"run {name} has these groups of workers: {listed}; {wanted}")
    return names.index(group)


def _change(cluster: Cluster, name: str, helm: Helm, changes: Object, values: Object) -> None:
    """Upgrade the release with some values changed: one level of maps is merged.

    `values` are the values of its installation.
    """
    changed = dict(values)
    for key, value in changes.items():
        if isinstance(value, dict):
            changed[key] = {**(changed.get(key) or {}), **value}
        else:
            changed[key] = value
    # The API server accepted these fields before.
    upgrade_release(name, cluster.namespace, changed, helm, is_validated=False)
