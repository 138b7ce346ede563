"""Reads the objects of a cluster as plain dicts in the API's own form.

Every refusal, time-out and missing object raises a ClusterError that names the request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial

from hvd_pods.common.contract import INSTANCE_LABEL
from hvdchart.errors import ClusterError, NoRunError
from hvdchart.run.kube.api import Api, RefusedError, unless_refused
from hvdchart.run.kube.pods import POD_SECONDS
from hvdchart.run.state.pod_problems import problem_of
from hvdchart.run.state.release import (
    CHART_SELECTOR,
    Object,
    Release,
    event_order,
    is_about,
    lacks_image,
    prefix_of,
    selector,
)
from hvdchart.run.state.view import RunView
from hvdchart.text import join_names

# The part of the API that has each kind of object that the chart creates. Where two parts have a
# kind of one name, each has its part behind a dot.
_GROUPS = {
    "jobs": "apis/batch/v1",
    "statefulsets": "apis/apps/v1",
    "deployments": "apis/apps/v1",
    "configmaps": "api/v1",
    "secrets": "api/v1",
    "services": "api/v1",
    "serviceaccounts": "api/v1",
    "roles": "apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "apis/rbac.authorization.k8s.io/v1",
    "networkpolicies": "apis/networking.k8s.io/v1",
    "poddisruptionbudgets": "apis/policy/v1",
    "podgroups.scheduling.volcano.sh": "apis/scheduling.volcano.sh/v1beta1",
    "podgroups.scheduling.x-k8s.io": "apis/scheduling.x-k8s.io/v1alpha1",
    "podgroups.scheduling.k8s.io": "apis/scheduling.k8s.io/v1beta1",
    "podmonitors": "apis/monitoring.coreos.com/v1",
    "prometheusrules": "apis/monitoring.coreos.com/v1",
}
_CLUSTER_WIDE = {
    "namespaces": "api/v1",
    "nodes": "api/v1",
    "storageclasses": "apis/storage.k8s.io/v1",
}
# Of so many releases, each one's record is read for a list.
_FEW = 50


class Cluster:
    """One namespace of a cluster, and its nodes."""

    def __init__(self, api: Api, namespace: str | None = None) -> None:
        self.namespace = namespace or api.namespace
        self._api = api

    @staticmethod
    def connect(context: str | None = None, namespace: str | None = None) -> Cluster:
        """Connect as a kubeconfig's context says; without one, to the cluster that this runs in.

        Without a namespace, it is that of the context. Raises ClusterError when there is no such
        context, or its credentials cannot be had.
        """
        return Cluster(Api.connect(context), namespace)

    def nodes(self, labels: str = "") -> list[Object]:
        """The nodes that match a label selector; all nodes when it is empty."""
        return self._api.list("list nodes", "api/v1/nodes", labels)

    def has_image(self, reference: str) -> bool:
        """Whether all nodes have an image; False where one may not read nodes."""
        nodes: list[Object] = unless_refused(self.nodes, [])
        return bool(nodes) and not any(lacks_image(node, reference) for node in nodes)

    def all_pods(self) -> list[Object]:
        """The pods of all namespaces."""
        return self._api.list("list pods in all namespaces", "api/v1/pods")

    def seen_pods(self) -> list[Object]:
        """The pods of all namespaces; none without the right to list them."""
        return unless_refused(self.all_pods, [])

    def node_topologies(self) -> list[Object]:
        """The NodeResourceTopology objects; none where nothing publishes them, or access."""
        path = "apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
        return unless_refused(lambda: self._api.list("list node resource topologies", path), [])

    def release(self, name: str) -> Release:
        """The objects of one release of the chart that show its state.

        A release that does not exist has none of them.
        """
        jobs = self._list("jobs", selector(name))
        stateful_sets = self._list("statefulsets", selector(name))
        pods = self._list("pods", selector(name))
        prefix = prefix_of(jobs, name)
        return Release(name, jobs, stateful_sets, pods, self._events(prefix), self._record(prefix))

    def newest_run(self, name: str) -> RunView:
        """The newest run of a release, as it is now; its state may be that there is none."""
        return RunView(self.release(name))

    def present_run(self, name: str) -> RunView:
        """As `newest_run`; raises NoRunError when the release has no objects."""
        run = self.newest_run(name)
        if not run.release.exists:
            raise NoRunError(name, self.namespace)
        return run

    def only_run(self) -> str:
        """The name of the only run of the namespace that has not ended, or else of the only run.

        Raises ClusterError where that names no run, or several.
        """
        runs = [run for _, run in self.newest_runs()]
        if not runs:
            raise ClusterError(f"there is no run in namespace {self.namespace}")
        chosen = [run for run in runs if not run.status.over] or runs
        if len(chosen) > 1:
            names = join_names([run.release.name for run in chosen])
            raise ClusterError(f"namespace {self.namespace} has the runs {names}: name one of them")
        return chosen[0].release.name

    def newest_runs(self, *, everywhere: bool = False) -> list[tuple[str, RunView]]:
        """The newest run of each release in the namespace, or in all, each with its namespace.

        They are sorted by namespace and name, and without their events.
        """
        by_release: dict[tuple[str, str], dict[str, list[Object]]] = {}
        where = "in all namespaces" if everywhere else f"in namespace {self.namespace}"
        for kind in ("jobs", "statefulsets", "pods"):
            root = _GROUPS.get(kind, "api/v1")
            path = f"{root}/{kind}" if everywhere else self._path(kind)
            for item in self._api.list(f"list {kind} {where}", path, CHART_SELECTOR):
                metadata = item["metadata"]
                name = metadata["labels"].get(INSTANCE_LABEL, "")
                place = metadata.get("namespace", self.namespace)
                by_release.setdefault((place, name), {}).setdefault(kind, []).append(item)
        runs = []
        has_few = len(by_release) <= _FEW
        for (place, name), objects in sorted(by_release.items()):
            jobs = objects.get("jobs", [])
            stateful_sets = objects.get("statefulsets", [])
            pods = objects.get("pods", [])
            # Without its Job, only the record says how a run has ended. It also has the progress.
            needs_record = has_few or not jobs
            own = Cluster(self._api, place)
            record = own._record(prefix_of(jobs, name)) if needs_record else {}
            release = Release(name, jobs, stateful_sets, pods, [], record)
            runs.append((place, RunView(release)))
        return runs

    def readable_runs(self) -> tuple[list[tuple[str, RunView]], bool]:
        """Those of all namespaces that one may read, and whether these are all there are."""
        everywhere = unless_refused(lambda: self.newest_runs(everywhere=True), None, [403])
        if everywhere is not None:
            return everywhere, True
        found: list[tuple[str, RunView]] = []
        names = [str(item["metadata"]["name"]) for item in self.list_or_none("namespaces") or []]
        for name in sorted({*names, self.namespace}):
            found += unless_refused(Cluster(self._api, name).newest_runs, [], [403])
        return found, False

    def _record(self, prefix: str) -> dict[str, str]:
        """What the master has written about the release's last run; empty before it does."""
        record = unless_refused(lambda: self.config_map(f"{prefix}-run"), Object(), [404])
        return record.get("data") or {}

    def config_map(self, name: str) -> Object:
        """A ConfigMap. Raises RefusedError when there is none."""
        what = f"read configmap {name} in namespace {self.namespace}"
        return self._api.get(what, self._path("configmaps", name))

    def _events(self, prefix: str) -> list[Object]:
        """The events of a release's objects, oldest first; empty where Kubernetes has none left."""
        own = [event for event in self._list("events") if is_about(event, prefix)]
        return sorted(own, key=event_order)

    def services(self, release: str) -> list[Object]:
        """The Services of a release."""
        return self._list("services", selector(release))

    def watch(
        self, kind: str, seconds: int, release: str = "", field: str = ""
    ) -> Iterator[tuple[str, Object]]:
        """The present objects of a kind, then their changes, for `seconds`.

        Only those of a release, or that a field selector names. Yields the type of the change
        (ADDED, MODIFIED or DELETED) and the object.
        """
        what = f"watch {kind} in namespace {self.namespace}"
        labels = selector(release) if release else ""
        query = {"labelSelector": labels, "fieldSelector": field}
        return self._api.watch(what, self._path(kind), seconds, query)

    def log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool,
        tail: int | None = None,
        since: int | None = None,
    ) -> Iterator[str]:
        """The lines of a container's log; with `follow`, as they come until the container ends.

        `tail` is the number of last lines, `since` the age of the oldest one in seconds.
        """
        query = {"container": container}
        if follow:
            query["follow"] = "true"
        if tail is not None:
            query["tailLines"] = str(tail)
        if since is not None:
            query["sinceSeconds"] = str(since)
        what = f"read the log of pod {pod} in namespace {self.namespace}"
        return self._api.lines(what, f"{self._path('pods', pod)}/log", query)

    def leftovers(self, release: str) -> list[tuple[str, Object]]:
        """What Helm has created for a release and not deleted: the kind and the object of each.

        Kinds that one may not list are left out, as are objects that are being deleted, and those
        that their annotation helm.sh/resource-policy keeps.
        """
        rest = []
        for kind in _GROUPS:
            items: list[Object] = unless_refused(partial(self._list, kind, selector(release)), [])
            for item in items:
                notes = item["metadata"].get("annotations") or {}
                is_own = (
                    notes.get("meta.helm.sh/release-name") == release
                    and notes.get("meta.helm.sh/release-namespace") == self.namespace
                )
                is_kept = notes.get("helm.sh/resource-policy") == "keep"
                if is_own and not is_kept and "deletionTimestamp" not in item["metadata"]:
                    rest.append((kind, item))
        return rest

    def annotate_job(self, job: Object, annotations: dict[str, str]) -> None:
        """Set annotations of this very Job, and not of another one of its name."""
        metadata = job["metadata"]
        what = f"annotate job {metadata['name']} in namespace {self.namespace}"
        changed = {"uid": metadata.get("uid"), "annotations": annotations}
        self._api.merge_patch(what, self._path("jobs", metadata["name"]), {"metadata": changed})

    def delete(self, kind: str, name: str) -> None:
        """Delete an object, and the pods of a Job with it."""
        what = f"delete {kind} {name} in namespace {self.namespace}"
        self._api.delete(what, self._path(kind, name), {"propagationPolicy": "Background"})

    def scale(self, stateful_set: str, number: int) -> None:
        """Set the number of a StatefulSet's pods."""
        what = f"scale statefulset {stateful_set} in namespace {self.namespace}"
        path = f"{self._path('statefulsets', stateful_set)}/scale"
        self._api.merge_patch(what, path, {"spec": {"replicas": number}})

    @contextmanager
    def present(self, kind: str, item: Object) -> Iterator[Object]:
        """Create an object, whose name is its own, and delete it when the block ends, however.

        Yields what was created. A ClusterError of the creation or the block comes before one of the
        deletion, which often has the same cause.
        """
        where = f"in namespace {self.namespace}"
        name = item["metadata"]["name"]
        problem: ClusterError | None = None
        try:
            yield self._api.create(f"create {kind} {name} {where}", self._path(kind), item)
        except ClusterError as error:
            problem = error
            raise
        finally:
            # Also where the answer to the creation was lost, or a signal came before it.
            now = {"gracePeriodSeconds": "0"}
            what = f"delete {kind} {name} {where}"
            delete = partial(self._api.delete, what, self._path(kind, name), now)
            try:
                unless_refused(delete, Object(), [404])
            except ClusterError:
                if problem is None:
                    raise

    def wait_for_pod(self, name: str, phases: Collection[str]) -> Object:
        """Wait until a pod is in one of these phases; the pod.

        Raises ClusterError when it cannot start, and when it is in none after POD_SECONDS.
        """
        for _, pod in self.watch("pods", POD_SECONDS, field=f"metadata.name={name}"):
            if pod["status"].get("phase") in phases:
                return pod
            problem = problem_of(pod, [])
            if problem:
                raise ClusterError(f"pod {name}: {problem.reason}; {problem.remedy}")
        raise ClusterError(f"pod {name} is not {' or '.join(phases)} after {POD_SECONDS} s")

    def run_pod(self, pod: Object) -> str:
        """Create a pod of one container, wait for its end, delete it; returns what it printed.

        Raises ClusterError as `wait_for_pod` does. How the pod has ended does not matter.
        """
        name = pod["metadata"]["name"]
        with self.present("pods", pod):
            self.wait_for_pod(name, ("Succeeded", "Failed"))
            (container,) = pod["spec"]["containers"]
            return "\n".join(self.log(name, container["name"], follow=False))

    def version(self) -> str:
        """The version of Kubernetes, such as v1.34.1; empty if the API server does not say it."""
        return str(self._api.get("read the cluster's version", "version").get("gitVersion", ""))

    def namespace_object(self) -> Object | None:
        """The namespace; an empty map if it does not exist, None without the right to read it."""
        path = f"api/v1/namespaces/{self.namespace}"
        read = partial(self._api.get, f"read namespace {self.namespace}", path)
        read_if_present = partial(unless_refused, read, Object(), [404])
        return unless_refused(read_if_present, None)

    def is_allowed(self, group: str, resource: str, verb: str) -> bool:
        """Whether this user may do one thing in the namespace.

        `group` is that of the API, empty for the core; `resource` may have a subresource, as in
        pods/log.
        """
        resource, _, subresource = resource.partition("/")
        attributes = {
            "namespace": self.namespace,
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
        }
        what = f"read your rights in namespace {self.namespace}"
        path = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        review = self._api.create(what, path, {"spec": {"resourceAttributes": attributes}})
        return bool((review.get("status") or {}).get("allowed"))

    def list_or_none(self, kind: str) -> list[Object] | None:
        """The namespace's or the cluster's objects of a kind; None without the right to list it."""
        root = _CLUSTER_WIDE.get(kind)
        path = f"{root}/{kind}" if root else self._path(kind)
        return unless_refused(lambda: self._api.list(f"list {kind}", path), None)

    def lacks(self, kind: str, name: str) -> bool:
        """Whether there is no such object; False where one may not read it."""
        what = f"read {kind} {name} in namespace {self.namespace}"
        try:
            self._api.get(what, self._path(kind, name))
        except RefusedError as error:
            if error.status not in (403, 404):
                raise
            return error.status == 404
        return False

    def claim(self, name: str) -> Object | None:
        """A PersistentVolumeClaim; None where there is none, or without the right to read it."""
        path = self._path("persistentvolumeclaims", name)
        return unless_refused(lambda: self._api.get(f"read claim {name}", path), None)

    def dns_endpoints(self) -> int | None:
        """How many servers of the cluster's DNS are ready; None where none can be seen.

        The label k8s-app=kube-dns is that of CoreDNS, too.
        """
        path = "apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
        read = partial(
            self._api.list, "list endpointslices of kube-system", path, "k8s-app=kube-dns"
        )
        slices: list[Object] = unless_refused(read, [])
        if not slices:
            return None
        ready = 0
        for item in slices:
            for endpoint in item.get("endpoints") or []:
                # An endpoint whose condition is not known counts as ready: the API says so.
                if (endpoint.get("conditions") or {}).get("ready", True):
                    ready += 1
        return ready

    def _path(self, kind: str, name: str = "") -> str:
        """The path of a kind in the namespace, or of one object of it."""
        root = _GROUPS.get(kind, "api/v1")
        path = f"{root}/namespaces/{self.namespace}/{kind.partition('.')[0]}"
        return f"{path}/{name}" if name else path

    def _list(self, kind: str, labels: str = "") -> list[Object]:
        what = f"list {kind} in namespace {self.namespace}"
        return self._api.list(what, self._path(kind), labels)
