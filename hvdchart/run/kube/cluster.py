"""Read the objects of a cluster as plain dicts in the API's own form.

Every refusal, timeout and missing object raises a ClusterError that names the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus

from hvdchart.errors import ClusterError
from hvdchart.run.kube.api import ApiClient, Lines, RefusedError, unless_refused
from hvdchart.run.state.release import Object, lacks_image, release_selector

# The API group of each kind of object that the chart creates. If two groups have a kind of the same
# name, the group follows the name after a dot.
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
    "podgroups.scheduling.k8s.io": "apis/scheduling.k8s.io/v1beta1",
    "podmonitors": "apis/monitoring.coreos.com/v1",
    "prometheusrules": "apis/monitoring.coreos.com/v1",
}
# The duration in seconds of a watch that is opened again when it ends.
WATCH_SECONDS = 300
CHARTS_KINDS = tuple(_GROUPS)
_CLUSTER_WIDE = {
    "namespaces": "api/v1",
    "nodes": "api/v1",
    "storageclasses": "apis/storage.k8s.io/v1",
}


class Cluster:
    """One namespace of a cluster, and its nodes."""

    def __init__(self, api: ApiClient, namespace: str | None = None) -> None:
        self.namespace = namespace or api.namespace
        self._api = api

    @staticmethod
    def connect(context: str | None = None, namespace: str | None = None) -> Cluster:
        """Connect with a kubeconfig's context; without one, to the cluster that this runs in.

        Without a namespace, use that of the context. Raises ClusterError when there is no such
        context, or its credentials cannot be read.
        """
        return Cluster(ApiClient.connect(context), namespace)

    def in_namespace(self, namespace: str) -> Cluster:
        """Return another namespace of the same cluster."""
        return Cluster(self._api, namespace)

    def nodes(self, labels: str = "") -> list[Object]:
        """Return the nodes that match a label selector; all nodes if it is empty."""
        return self._api.list("list nodes", "api/v1/nodes", labels)

    def has_image(self, reference: str) -> bool:
        """Return whether all nodes have an image; False if the user may not read nodes."""
        nodes: list[Object] = unless_refused(self.nodes, [])
        return bool(nodes) and not any(lacks_image(node, reference) for node in nodes)

    def all_pods(self) -> list[Object]:
        """Return the pods of all namespaces."""
        return self._api.list("list pods in all namespaces", "api/v1/pods")

    def seen_pods(self) -> list[Object]:
        """Return the pods of all namespaces; none without the right to list them."""
        return unless_refused(self.all_pods, [])

    def node_topologies(self) -> list[Object]:
        """Return NodeResourceTopology objects; none if not published, or without access."""
        path = "apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
        return unless_refused(lambda: self._api.list("list node resource topologies", path), [])

    def pod(self, name: str) -> Object:
        """Return a pod. Raises RefusedError if there is none."""
        action = f"read pod {name} in namespace {self.namespace}"
        return self._api.get(action, self._path("pods", name))

    def config_map(self, name: str) -> Object:
        """Return a ConfigMap. Raises RefusedError if there is none."""
        action = f"read configmap {name} in namespace {self.namespace}"
        return self._api.get(action, self._path("configmaps", name))

    def services(self, release: str) -> list[Object]:
        """Return the Services of a release."""
        return self.objects("services", release_selector(release))

    def watch(
        self, kind: str, seconds: int, release: str = "", field: str = ""
    ) -> Iterator[tuple[str, Object]]:
        """Return the existing objects of a kind, then their changes, for `seconds`.

        Only objects of a release, or objects that match a field selector. Each comes with the type
        of the change (ADDED, MODIFIED or DELETED).
        """
        action = f"watch {kind} in namespace {self.namespace}"
        labels = release_selector(release) if release else ""
        query = {"labelSelector": labels, "fieldSelector": field}
        return self._api.watch(action, self._path(kind), seconds, query)

    def log(
        self, pod: str, container: str, *, tail: int | None = None, since: int | None = None
    ) -> Iterator[str]:
        """Return the lines of a container's log.

        `tail` is the number of last lines, `since` the age of the oldest one in seconds.
        """
        return self._log(pod, container, _selection(tail, since)).lines

    def follow_log(
        self,
        pod: str,
        container: str,
        silence_seconds: float,
        *,
        tail: int | None = None,
        since: int | None = None,
        second: str = "",
        has_end: bool,
    ) -> Lines:
        """Return the lines of a container's log, and new ones until the container ends.

        Each has its time in RFC 3339 before it. `silence_seconds` is the maximum time between
        two lines. `tail` and `since` select as in `log`; with a `second`, only the lines of this
        second and later ones. Unless the log `has_end`, the connection may end in the middle of a
        line, which is then left out.
        """
        selection = {"sinceTime": second} if second else _selection(tail, since)
        query = {"follow": "true", "timestamps": "true", **selection}
        return self._log(pod, container, query, silence_seconds, has_end=has_end)

    def _log(
        self,
        pod: str,
        container: str,
        query: dict[str, str],
        silence_seconds: float | None = None,
        *,
        has_end: bool = True,
    ) -> Lines:
        action = f"read the log of pod {pod} in namespace {self.namespace}"
        path = f"{self._path('pods', pod)}/log"
        return self._api.lines(
            action, path, {"container": container, **query}, silence_seconds, has_end=has_end
        )

    def annotate_job(self, job: Object, annotations: dict[str, str]) -> None:
        """Set annotations of this Job; do not change another Job of the same name."""
        metadata = job["metadata"]
        action = f"annotate job {metadata['name']} in namespace {self.namespace}"
        changed = {"uid": metadata.get("uid"), "annotations": annotations}
        self._api.merge_patch(action, self._path("jobs", metadata["name"]), {"metadata": changed})

    def delete(self, kind: str, name: str) -> bool:
        """Delete an object, and the pods of a Job; return False if there is no such object."""
        action = f"delete {kind} {name} in namespace {self.namespace}"
        query = {"propagationPolicy": "Background"}
        delete = partial(self._api.delete, action, self._path(kind, name), query)
        return unless_refused(delete, None, [HTTPStatus.NOT_FOUND]) is not None

    def scale(self, stateful_set: str, number: int) -> None:
        """Set the number of a StatefulSet's pods."""
        action = f"scale statefulset {stateful_set} in namespace {self.namespace}"
        path = f"{self._path('statefulsets', stateful_set)}/scale"
        self._api.merge_patch(action, path, {"spec": {"replicas": number}})

    @contextmanager
    def present(self, kind: str, item: Object) -> Iterator[Object]:
        """Create an object with a unique name, and delete it when the block ends in any way.

        Yields the created object. A ClusterError of the creation or the block takes precedence over
        one of the deletion, which often has the same cause.
        """
        scope = f"in namespace {self.namespace}"
        name = item["metadata"]["name"]
        problem: ClusterError | None = None
        try:
            yield self._api.create(f"create {kind} {name} {scope}", self._path(kind), item)
        except ClusterError as error:
            problem = error
            raise
        finally:
            # Delete it even if the response to the creation was lost, or a signal interrupted the
            # request.
            now = {"gracePeriodSeconds": "0"}
            action = f"delete {kind} {name} {scope}"
            delete = partial(self._api.delete, action, self._path(kind, name), now)
            try:
                unless_refused(delete, Object(), [HTTPStatus.NOT_FOUND])
            except ClusterError:
                if problem is None:
                    raise

    def version(self) -> str:
        """Return the version of Kubernetes, such as v1.34.1; empty if the API server has none."""
        return str(self._api.get("read the cluster's version", "version").get("gitVersion", ""))

    def namespace_object(self) -> Object | None:
        """Return the namespace; an empty map if it is missing, None if it may not be read."""
        path = f"api/v1/namespaces/{self.namespace}"
        read = partial(self._api.get, f"read namespace {self.namespace}", path)
        read_if_present = partial(unless_refused, read, Object(), [HTTPStatus.NOT_FOUND])
        return unless_refused(read_if_present, None)

    def is_allowed(self, group: str, resource: str, verb: str) -> bool:
        """Return whether this user may do one thing in the namespace.

        `group` is the API group, empty for the core; `resource` may have a subresource, as in
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
        action = f"read your rights in namespace {self.namespace}"
        path = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        review = self._api.create(action, path, {"spec": {"resourceAttributes": attributes}})
        return bool((review.get("status") or {}).get("allowed"))

    def list_or_none(self, kind: str) -> list[Object] | None:
        """Return the namespace's or cluster's objects of a kind; None if it may not be listed."""
        root = _CLUSTER_WIDE.get(kind)
        path = f"{root}/{kind}" if root else self._path(kind)
        return unless_refused(lambda: self._api.list(f"list {kind}", path), None)

    def lacks(self, kind: str, name: str) -> bool:
        """Return whether there is no such object; False if the user may not read it."""
        action = f"read {kind} {name} in namespace {self.namespace}"
        try:
            self._api.get(action, self._path(kind, name))
        except RefusedError as error:
            if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                raise
            return error.status == HTTPStatus.NOT_FOUND
        return False

    def claim(self, name: str) -> Object | None:
        """Return a PersistentVolumeClaim; None if it is missing, or may not be read."""
        path = self._path("persistentvolumeclaims", name)
        return unless_refused(lambda: self._api.get(f"read claim {name}", path), None)

    def dns_endpoints(self) -> int | None:
        """Return the number of ready DNS servers of the cluster; None if none is visible.

        CoreDNS also has the label k8s-app=kube-dns.
        """
        path = "apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
        read = partial(
            self._api.list, "list endpointslices of kube-system", path, "k8s-app=kube-dns"
        )
        slices: list[Object] = unless_refused(read, [])
        if not slices:
            return None
        ready = 0
        for endpoint_slice in slices:
            for endpoint in endpoint_slice.get("endpoints") or []:
                # An endpoint with an unknown condition counts as ready, as the API defines it.
                if (endpoint.get("conditions") or {}).get("ready", True):
                    ready += 1
        return ready

    def objects(self, kind: str, labels: str = "", *, everywhere: bool = False) -> list[Object]:
        """Return the objects of a kind that match a label selector, also those of other namespaces.

        Raises RefusedError without the right to list them, and for a kind that does not exist.
        """
        if everywhere:
            action = f"list {kind} in all namespaces"
            return self._api.list(action, f"{self._root(kind)}/{kind.partition('.')[0]}", labels)
        return self._api.list(
            f"list {kind} in namespace {self.namespace}", self._path(kind), labels
        )

    def _path(self, kind: str, name: str = "") -> str:
        """Return the path of a kind in the namespace, or of one object of it."""
        path = f"{self._root(kind)}/namespaces/{self.namespace}/{kind.partition('.')[0]}"
        return f"{path}/{name}" if name else path

    def _root(self, kind: str) -> str:
        """Return the path of a kind's API group."""
        return _GROUPS.get(kind, "api/v1")


def _selection(tail: int | None, since: int | None) -> dict[str, str]:
    """Return the part of a query for a log that selects its last lines."""
    selected = {"tailLines": tail, "sinceSeconds": since}
    return {name: str(number) for name, number in selected.items() if number is not None}
