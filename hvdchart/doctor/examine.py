"""Examine a cluster step by step; each step uses the findings of earlier steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from hvdchart.doctor.findings import Finding
from hvdchart.doctor.namespace_checks import (
    examine_claims,
    examine_classes,
    examine_security,
    examine_workers,
)
from hvdchart.doctor.needs import CLAIM, PodNeeds, Values, find_claims, objects_named, pod_needs
from hvdchart.doctor.node_capacity import examine_fit
from hvdchart.doctor.node_checks import examine_gpus, examine_images
from hvdchart.doctor.policies import examine_policies
from hvdchart.doctor.quotas import examine_quotas
from hvdchart.doctor.rights import examine_rights
from hvdchart.errors import ClusterError, HelmError
from hvdchart.run.helm import Helm
from hvdchart.run.kube.api import unless_refused
from hvdchart.run.kube.cluster import Cluster
from hvdchart.run.kube.runs import newest_runs
from hvdchart.run.state.view import RunView
from hvdchart.spec.values_schema import default_values
from hvdchart.text import join_names
from hvdchart.values.merge import merge_values

# With at most so many nodes, read all their pods before a run. On larger clusters, daemons rarely
# decide whether a run fits.
_POD_LIST_MAX_NODES = 100
_UNSEEN = "you are not allowed to read it"


def examine_tools(helm: str) -> Iterator[Finding]:
    """Find the programs that commands call: Helm, and for some of them kubectl."""
    try:
        yield Finding("Helm", "ok", f"{helm} is version {Helm(helm).version()}")
    except HelmError as error:
        yield Finding("Helm", "problem", error.problem, error.remedy)
    kubectl = shutil.which("kubectl")
    if kubectl:
        yield Finding("kubectl", "ok", kubectl)
    else:
        callers = "exec, stack, top, watch, tensorboard, timeline and hvdchart.launch"
        remedy = f"{callers} call it: install it"
        yield Finding("kubectl", "unknown", "not on PATH", remedy)


def examine_cluster(
    context: str | None, namespace: str | None, values: Values | None, prober: str = ""
) -> Iterator[Finding]:
    """Examine the cluster and the namespace, for a run with these complete values if given.

    With `prober`, two pods of this image test whether NetworkPolicies are enforced.
    """
    try:
        cluster = Cluster.connect(context, namespace)
        version = cluster.version()
        yield Finding("cluster", "ok", f"Kubernetes {version}")
        yield from _examine_namespace(cluster, version, values, prober)
    except ClusterError as error:
        yield Finding("cluster", "problem", str(error))


def _examine_namespace(
    cluster: Cluster, version: str, values: Values | None, prober: str
) -> Iterator[Finding]:
    namespace = cluster.namespace
    details = cluster.namespace_object()
    if details == {}:
        yield Finding(
            "namespace",
            "problem",
            f"there is no namespace {namespace}",
            "deploy with --create-namespace, or choose another with --namespace",
        )
        return
    yield Finding("namespace", "ok" if details else "unknown", namespace if details else _UNSEEN)
    yield from examine_rights(namespace, values, cluster.is_allowed)
    if details:
        yield examine_security(details, version, values or default_values())
    yield from _examine_room(cluster, values)
    runs: list[tuple[str, RunView]] = unless_refused(partial(newest_runs, cluster), [])
    yield from examine_workers([run.status for _, run in runs], namespace)
    if prober:
        yield examine_policies(cluster, prober)


def _examine_room(cluster: Cluster, values: Values | None) -> Iterator[Finding]:
    needs = pod_needs(values) if values else None
    quotas = cluster.list_or_none("resourcequotas")
    ranges = cluster.list_or_none("limitranges")
    if quotas is None or ranges is None:
        yield Finding("quotas", "unknown", _UNSEEN)
    else:
        yield from examine_quotas(quotas, ranges, needs)
    ready = cluster.dns_endpoints()
    if ready is None:
        yield Finding("DNS", "unknown", "no servers of k8s-app=kube-dns can be seen in kube-system")
    elif ready:
        yield Finding("DNS", "ok", f"{ready} servers are ready")
    else:
        yield Finding("DNS", "problem", "no server is ready", "see the pods of kube-system")
    yield from _examine_storage(cluster, values, needs)
    yield from _examine_nodes(cluster, values, needs)


def _examine_storage(
    cluster: Cluster, values: Values | None, needs: Sequence[PodNeeds] | None
) -> Iterator[Finding]:
    classes = cluster.list_or_none("storageclasses")
    if values:
        claims = {name: cluster.claim(name) for name in find_claims(values)}
        workers = sum(pod.number for pod in needs or [] if pod.name != "master")
        yield from examine_claims(claims, classes, workers)
        # A missing claim has its own finding.
        others = [
            named_object for named_object in objects_named(values) if named_object[0] != CLAIM
        ]
        for missing in _find_missing(cluster, others):
            yield Finding(missing, "problem", "it does not exist", "create it")
    if classes is None:
        yield Finding("storage", "unknown", _UNSEEN)
    else:
        yield examine_classes(classes)


def _examine_nodes(
    cluster: Cluster, values: Values | None, needs: Sequence[PodNeeds] | None
) -> Iterator[Finding]:
    nodes = cluster.list_or_none("nodes")
    if nodes is None:
        yield Finding("GPUs", "unknown", "you are not allowed to list nodes")
    else:
        yield from examine_gpus(nodes, needs)
        if values:
            yield examine_fit(nodes, cluster.seen_pods(), values)
        if values and values.get("image"):
            yield from examine_images(nodes, values)


def check_before_install(
    cluster: Cluster, chosen: Values, word: Callable[[str], str] = str
) -> None:
    """Raise ClusterError for a run that could never start, however long it waits.

    Such a run's pods refer to an object that does not exist, or the nodes can never run them.
    `chosen` are its values without the chart's defaults. `word` replaces keys by the options of the
    command. A user who may not read the objects or list nodes gets the error from the run.
    """
    values = merge_values(default_values(), chosen)
    missing = _find_missing(cluster, objects_named(values))
    if missing:
        force = word("`--force` where something else creates it later")
        scope = f"in namespace {cluster.namespace}"
        raise ClusterError(f"there is no {join_names(missing)} {scope}; create it, or {force}")
    nodes = cluster.list_or_none("nodes")
    if not nodes:
        return
    fit = examine_fit(nodes, [], values)
    if fit.state == "ok" and len(nodes) <= _POD_LIST_MAX_NODES:
        fit = examine_fit(nodes, cluster.seen_pods(), values)
    if fit.state == "problem":
        grows = word("`--force` where the cluster will grow")
        raise ClusterError(f"{fit.text}; {fit.remedy}, or {grows}")


def _find_missing(cluster: Cluster, named: Iterable[tuple[str, str]]) -> list[str]:
    """Return the kind and the name of each of these objects that does not exist."""
    return [f"{kind} {name}" for kind, name in named if cluster.lacks(f"{kind.lower()}s", name)]
