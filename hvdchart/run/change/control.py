"""Changes an existing release: stops, restarts and scales its run.

Each change is an upgrade of the release by Helm with one of its values changed, so that a later
upgrade knows of it. A run that may go on with another number of workers is scaled without Helm.
`warn` gets, before it, what an end of the workers loses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from hvd_pods.common.run import Run
from hvdchart.errors import ClusterError, NoRunError
from hvdchart.run.change.losses import find_loss
from hvdchart.run.helm import (
    Helm,
    foreign_chart,
    last_revision,
    release_values,
    undeploy,
    upgrade,
)
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import find_leftovers, newest_run, present_run, read_release
from hvdchart.run.state.ranks import run_of
from hvdchart.run.state.release import Object
from hvdchart.run.state.status import Status
from hvdchart.run.state.view import RunView

Warn: TypeAlias = Callable[[str], None]


def stop(cluster: Cluster, name: str, helm: Helm, warn: Warn) -> Status:
    """End the pods of master and workers; the release, its Job and its volumes stay.

    Returns the status before. Of a run that has ended, only the workers that it has left end.
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
            cluster.scale(str(stateful_set["metadata"]["name"]), 0)
    return before


def find_other_chart(run: RunView, namespace: str, helm: Helm) -> str | None:
    """The chart of the Helm release of a run's name that is no run; None without such a release.

    A release of a chart that has this one as a subchart is a run. Raises HelmError.
    """
    return None if run.release.exists else foreign_chart(run.release.name, namespace, helm)


def check_is_run(cluster: Cluster, name: str, helm: Helm) -> None:
    """Raise ClusterError where the name is that of another chart's release, which stays as it is.

    Raises HelmError, and ClusterError for a refused request.
    """
    chart = find_other_chart(newest_run(cluster, name), cluster.namespace, helm)
    if chart:
        raise ClusterError(
            f"{name} is a release of chart {chart} in namespace {cluster.namespace}, and no run: "
            f"to remove it, run helm uninstall {name} -n {cluster.namespace}"
        )


def remove(cluster: Cluster, name: str, helm: Helm) -> list[str]:
    """Uninstall a release, and wait until its objects are deleted.

    What Helm does not know any more goes, too, and is returned: an upgrade that was interrupted
    leaves objects that its last revision does not have. Raises NoRunError where there is nothing,
    ClusterError where Helm knows no release and its run is active, and HelmError.
    """
    try:
        undeploy(name, cluster.namespace, helm)
        rest = find_leftovers(cluster, name)
    except NoRunError:
        rest = find_leftovers(cluster, name)
        if not rest:
            raise
        # The run may be one of Helm's own, kept where it does not look.
        jobs = [item for kind, item in rest if kind == "jobs"]
        current = RunView(replace(read_release(cluster, name), jobs=jobs)).status
        if current.is_active and current.state != "suspended" and current.pods:
            where = f"-n {cluster.namespace}"
            raise ClusterError(
                f"{_unknown_to_helm(current, cluster.namespace)}: uninstall it with the tool or "
                "HELM_DRIVER that installed it; or, if it is yours, run kubectl delete job "
                f"{current.job} {where} and try again"
            ) from None
    removed = []
    for kind, item in rest:
        cluster.delete(kind, item["metadata"]["name"])
        removed.append(f"{kind} {item['metadata']['name']}")
    return removed


def _unknown_to_helm(status: Status, namespace: str) -> str:
    return (
        f"Helm knows no release {status.name} in namespace {namespace}, but its run is "
        f"{status.state}"
    )


def installed_values(run: RunView, namespace: str, helm: Helm) -> Object:
    """The values that the release of a run that is there was installed with.

    Raises ClusterError where Helm does not know the release, as that of Argo CD, and HelmError.
    """
    try:
        return release_values(run.release.name, namespace, helm)
    except NoRunError:
        raise ClusterError(
            f"{_unknown_to_helm(run.status, namespace)}: change its values with the tool or "
            "HELM_DRIVER that installed it"
        ) from None


def remove_failed_install(cluster: Cluster, name: str, helm: Helm) -> bool:
    """Uninstall a release that Helm has failed to install; whether there is one.

    Its workers would stay without a master. One that is being installed is another command's.
    Raises HelmError and ClusterError.
    """
    revision = last_revision(name, cluster.namespace, helm)
    if revision is None or not revision.is_failed_install:
        return False
    remove(cluster, name, helm)
    return True


def restart(cluster: Cluster, name: str, helm: Helm, warn: Warn) -> int:
    """Start the run once more, from its checkpoints if it has any; returns its generation.

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

    Returns True when the run continues, as one with a minimum does, and False when another run
    takes its place. Raises NoRunError without a release; ClusterError for a group that it does not
    have, and without a group where it has several; and HelmError.
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
    """Whether a run has room for this number of workers of a group, and can do with it."""
    if (index or 0) >= len(run.stateful_sets):
        return False
    stateful_set = run.stateful_sets[index or 0]
    least = run.least_workers[stateful_set]
    most = run.needed_workers[stateful_set]
    return least < most and least <= number <= most


def _warn_of_loss(run: RunView, warn: Warn) -> None:
    if loss := find_loss(run):
        warn(f"{loss}; the next run begins without it")


def keep_claims(cluster: Cluster, name: str, helm: Helm) -> list[str]:
    """Let `helm uninstall` leave the release's own PersistentVolumeClaims; returns their names.

    Those are the claims among the value extraObjects. Raises NoRunError and HelmError.
    """
    values = release_values(name, cluster.namespace, helm)
    objects = copy.deepcopy(values.get("extraObjects") or [])
    claims = [item for item in objects if item.get("kind") == "PersistentVolumeClaim"]
    for claim in claims:
        annotations = claim["metadata"].get("annotations") or {}
        claim["metadata"]["annotations"] = {**annotations, "helm.sh/resource-policy": "keep"}
    if claims:
        # Helm reads the annotation from the release that it has installed.
        _change(cluster, name, helm, {"extraObjects": objects}, values)
    return [str(claim["metadata"]["name"]) for claim in claims]


def _index_of(groups: list[Any], group: str | None, name: str) -> int | None:
    """The place of a group in workerGroups; None for a run without groups.

    Raises ClusterError for a name that no group has, and without one where there are several.
    """
    names = [str(item["name"]) for item in groups]
    if group is None and len(names) < 2:
        return 0 if names else None
    if group not in names:
        listed = ", ".join(names) or "none"
        wanted = "name one with --group" if group is None else f"{group!r} is none of them"
        raise ClusterError(f"run {name} has these groups of workers: {listed}; {wanted}")
    return names.index(group)


def _change(cluster: Cluster, name: str, helm: Helm, changes: Object, values: Object) -> None:
    """Upgrade the release with some values changed: one level of maps is merged.

    `values` are those that it was installed with.
    """
    changed = dict(values)
    for key, value in changes.items():
        if isinstance(value, dict):
            changed[key] = {**(changed.get(key) or {}), **value}
        else:
            changed[key] = value
    # The API server has accepted these fields before.
    upgrade(name, cluster.namespace, changed, helm, is_validated=False)
