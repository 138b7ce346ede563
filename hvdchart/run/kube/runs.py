"""Read runs from a cluster: the objects of releases of the chart.

Every refusal, timeout and missing object raises a ClusterError that names the request.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from http import HTTPStatus

from hvd_pods.shared.contract import INSTANCE_LABEL
from hvdchart.errors import ClusterError, NoRunError
from hvdchart.run.kube.api import unless_refused
from hvdchart.run.kube.cluster import CHARTS_KINDS, Cluster
from hvdchart.run.state.release import (
    CHART_SELECTOR,
    Object,
    Release,
    event_order,
    release_selector,
)
from hvdchart.run.state.view import RunView
from hvdchart.text import join_names

# With at most so many releases, a list reads the record of each.
_RECORDS_MAX_RELEASES = 50
# The labelled objects that show a run.
_RUN_KINDS = ("jobs", "statefulsets", "pods")


def read_release(cluster: Cluster, name: str) -> Release:
    """Return the objects of one release of the chart that show its state.

    A release that does not exist has no objects.
    """
    jobs, stateful_sets, pods = (
        cluster.objects(kind, release_selector(name)) for kind in _RUN_KINDS
    )
    release = Release(name, jobs, stateful_sets, pods)
    # Kubernetes deletes events after a time.
    events = sorted(filter(release.has_event, cluster.objects("events")), key=event_order)
    return replace(release, events=events, record=_read_record(cluster, release))


def _read_record(cluster: Cluster, release: Release) -> dict[str, str]:
    """Return the master's record of the release's last run; empty before the master writes it."""
    read = partial(cluster.config_map, f"{release.prefix}-run")
    return unless_refused(read, Object(), [HTTPStatus.NOT_FOUND]).get("data") or {}


def newest_run(cluster: Cluster, name: str) -> RunView:
    """Return the newest run of a release now; its state may be that there is none."""
    return RunView(read_release(cluster, name))


def present_run(cluster: Cluster, name: str) -> RunView:
    """Return the run as `newest_run` does; raise NoRunError when the release has no objects."""
    run = newest_run(cluster, name)
    if not run.release.exists:
        raise NoRunError(name, cluster.namespace)
    return run


def only_run(cluster: Cluster) -> str:
    """Return the name of the only run of the namespace that has not ended, or else of the only run.

    Raises ClusterError if there is no such run, or there are several.
    """
    runs = [run for _, run in newest_runs(cluster)]
    if not runs:
        raise ClusterError(f"there is no run in namespace {cluster.namespace}")
    chosen = [run for run in runs if not run.status.over] or runs
    if len(chosen) > 1:
        names = join_names([run.release.name for run in chosen])
        raise ClusterError(f"namespace {cluster.namespace} has the runs {names}: name one of them")
    return chosen[0].release.name


def newest_runs(cluster: Cluster, *, everywhere: bool = False) -> list[tuple[str, RunView]]:
    """Return the newest run of each release in the namespace, or in all, each with its namespace.

    They are sorted by namespace and name. Their events are not read.
    """
    by_release: dict[tuple[str, str], dict[str, list[Object]]] = {}
    for kind in _RUN_KINDS:
        for kube_object in cluster.objects(kind, CHART_SELECTOR, everywhere=everywhere):
            metadata = kube_object["metadata"]
            name = metadata["labels"].get(INSTANCE_LABEL, "")
            place = metadata.get("namespace", cluster.namespace)
            by_release.setdefault((place, name), {}).setdefault(kind, []).append(kube_object)
    runs = []
    has_few = len(by_release) <= _RECORDS_MAX_RELEASES
    for (place, name), objects in sorted(by_release.items()):
        jobs, stateful_sets, pods = (objects.get(kind, []) for kind in _RUN_KINDS)
        release = Release(name, jobs, stateful_sets, pods)
        # Without its Job, only the record says how a run ended. The record also has the progress.
        if has_few or not release.jobs:
            record = _read_record(cluster.in_namespace(place), release)
            release = replace(release, record=record)
        runs.append((place, RunView(release)))
    return runs


def readable_runs(cluster: Cluster) -> tuple[list[tuple[str, RunView]], bool]:
    """Return the runs of all readable namespaces, and whether these are all runs."""
    everywhere = unless_refused(
        partial(newest_runs, cluster, everywhere=True), None, [HTTPStatus.FORBIDDEN]
    )
    if everywhere is not None:
        return everywhere, True
    runs: list[tuple[str, RunView]] = []
    namespaces = cluster.list_or_none("namespaces") or []
    names = [str(namespace["metadata"]["name"]) for namespace in namespaces]
    for name in sorted({*names, cluster.namespace}):
        runs += unless_refused(
            partial(newest_runs, cluster.in_namespace(name)), [], [HTTPStatus.FORBIDDEN]
        )
    return runs, False


def find_leftovers(cluster: Cluster, release: str) -> list[tuple[str, Object]]:
    """Return the objects that Helm created for a release and did not delete: kind and object.

    Kinds that the user may not list are left out, as are objects that are being deleted, and
    objects that their annotation helm.sh/resource-policy keeps.
    """
    rest = []
    for kind in CHARTS_KINDS:
        objects: list[Object] = unless_refused(
            partial(cluster.objects, kind, release_selector(release)), []
        )
        for kube_object in objects:
            metadata = kube_object["metadata"]
            notes = metadata.get("annotations") or {}
            is_own = (
                notes.get("meta.helm.sh/release-name") == release
                and notes.get("meta.helm.sh/release-namespace") == cluster.namespace
            )
            is_kept = notes.get("helm.sh/resource-policy") == "keep"
            if is_own and not is_kept and "deletionTimestamp" not in metadata:
                rest.append((kind, kube_object))
    return rest
