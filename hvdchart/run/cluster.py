"""Reads the cluster; the only module that imports the Kubernetes client.

Objects are returned as plain dicts in the API's own form. Every refusal, time-out and missing
object raises a ClusterError that names the request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from hvdchart.errors import ClusterError
from hvdchart.run.pod_problems import problem_of
from hvdchart.run.release import Object, Release, event_order, is_about, record_name, selector

# Parts of the client have no types.
_config: Any = config
_watch: Any = watch
# How long to wait for a list or an object: a busy API server needs seconds, and a person waits.
TIMEOUT_SECONDS = 30
# How long a pod of `run_pod` may take to end: its image may have to be pulled first.
POD_SECONDS = 600


class Cluster:
    """One namespace of a cluster, and its nodes."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self._core: Any = client.CoreV1Api(api)
        self._batch: Any = client.BatchV1Api(api)
        self._apps: Any = client.AppsV1Api(api)
        self._custom: Any = client.CustomObjectsApi(api)

    @staticmethod
    def connect(context: str | None = None, namespace: str | None = None) -> Cluster:
        """Connect with the kubeconfig's `context` (default: the current one) to its `namespace`
        (default: the context's); without a kubeconfig, to the cluster of the pod that this runs in.
        """
        # The client itself reads KUBECONFIG only once, when it is imported.
        file = os.environ.get("KUBECONFIG") or _config.KUBE_CONFIG_DEFAULT_LOCATION
        try:
            contexts, current = _config.list_kube_config_contexts(config_file=file)
            named = next((known for known in contexts if known["name"] == context), None)
            chosen = named if context else current
            if chosen is None:
                names = ", ".join(known["name"] for known in contexts) or "none"
                raise ClusterError(
                    f"the kubeconfig has no context {context!r}; its contexts: {names}"
                )
            api = _config.new_client_from_config(config_file=file, context=chosen["name"])
            default = chosen["context"].get("namespace", "default")
        except ConfigException as error:
            if context is not None:
                raise ClusterError(f"the kubeconfig cannot be used: {error}") from error
            return Cluster._connect_in_cluster(namespace, error)
        return Cluster(api, namespace or default)

    @staticmethod
    def _connect_in_cluster(namespace: str | None, outside: ConfigException) -> Cluster:
        try:
            _config.load_incluster_config()
        except ConfigException:
            raise ClusterError(
                f"no cluster: {outside}; set KUBECONFIG to a kubeconfig file"
            ) from outside
        return Cluster(client.ApiClient(), namespace or "default")

    def nodes(self, labels: str = "") -> list[Object]:
        """The nodes that match a label selector; all nodes when it is empty."""
        return self._list("list nodes", self._core.list_node, labels)

    def all_pods(self) -> list[Object]:
        """The pods of all namespaces."""
        return self._list("list pods in all namespaces", self._core.list_pod_for_all_namespaces)

    def node_topologies(self) -> list[Object]:
        """The NodeResourceTopology objects; none where nothing publishes them, or without access.

        They are published by node-feature-discovery's topology updater, among others.
        """
        with _wrap_errors("list node resource topologies"):
            try:
                response = self._custom.list_cluster_custom_object(
                    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies",
                    _preload_content=False, _request_timeout=TIMEOUT_SECONDS,
                )  # fmt: skip
            except ApiException as error:
                if error.status in (403, 404):
                    return []
                raise
            items: list[Object] = json.loads(response.data)["items"]
        return items

    def release(self, name: str) -> Release:
        """The objects of one release of the chart that show its state."""
        where = f"in namespace {self.namespace}"
        jobs, sets, pods = (
            self._list(f"list {what} {where}", call, selector(name), self.namespace)
            for what, call in (
                ("jobs", self._batch.list_namespaced_job),
                ("statefulsets", self._apps.list_namespaced_stateful_set),
                ("pods", self._core.list_namespaced_pod),
            )
        )
        record = {} if jobs else self._record(name)
        return Release(name, jobs, sets, pods, self.events(name), record)

    def _record(self, release: str) -> dict[str, str]:
        """The data of the release's record, the ConfigMap; empty when there is none."""
        name = record_name(release)
        with _wrap_errors(f"read configmap {name} in namespace {self.namespace}"):
            try:
                response = self._core.read_namespaced_config_map(
                    name, self.namespace, _preload_content=False, _request_timeout=TIMEOUT_SECONDS
                )
            except ApiException as error:
                if error.status == 404:
                    return {}
                raise
            data: dict[str, str] = json.loads(response.data).get("data") or {}
        return data

    def events(self, release: str) -> list[Object]:
        """The events of a release's objects, oldest first."""
        listed = self._list(
            f"list events in namespace {self.namespace}",
            self._core.list_namespaced_event,
            "",
            self.namespace,
        )
        own = [event for event in listed if is_about(event, release)]
        return sorted(own, key=event_order)

    def watch_pods(self, release: str, seconds: int) -> Iterator[tuple[str, Object]]:
        """The release's present pods, then their changes, for `seconds`.

        Yields the type of the change (ADDED, MODIFIED or DELETED) and the pod.
        """
        labels, call = selector(release), self._core.list_namespaced_pod
        yield from self._watch("pods", call, seconds, label_selector=labels)

    def watch_jobs(self, release: str, seconds: int) -> Iterator[tuple[str, Object]]:
        """Like `watch_pods`, for Jobs."""
        labels, call = selector(release), self._batch.list_namespaced_job
        yield from self._watch("jobs", call, seconds, label_selector=labels)

    def watch_events(self, seconds: int) -> Iterator[tuple[str, Object]]:
        """Like `watch_pods`, for all events of the namespace."""
        yield from self._watch("events", self._core.list_namespaced_event, seconds)

    def log(
        self, pod: str, container: str, *, follow: bool, tail: int | None = None
    ) -> Iterator[str]:
        """The lines of a container's log; with `follow`, as they come until the container ends."""
        with _wrap_errors(f"read the log of pod {pod} in namespace {self.namespace}"):
            response = self._core.read_namespaced_pod_log(
                pod, self.namespace, container=container, follow=follow,
                tail_lines=tail, _preload_content=False,
            )  # fmt: skip
            rest = b""
            for chunk in response.stream(decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines)
            if rest:
                yield rest.decode("utf-8", "replace")

    def suspend_jobs(self, release: str) -> None:
        """End the pods of a release's Jobs, and keep the Jobs; the workers stay."""
        for job in self.release(release).jobs:
            name = job["metadata"]["name"]
            with _wrap_errors(f"suspend job {name} in namespace {self.namespace}"):
                self._batch.patch_namespaced_job(
                    name, self.namespace, {"spec": {"suspend": True}},
                    _preload_content=False, _request_timeout=TIMEOUT_SECONDS,
                )  # fmt: skip

    def run_pod(self, pod: Object) -> str:
        """Create a pod of one container, wait for its end, delete it, and return what it printed.

        Raises ClusterError when the API server refuses it or it does not start.
        """
        where = f"in namespace {self.namespace}"
        with _wrap_errors(f"create a pod {where}"):
            response = self._core.create_namespaced_pod(
                self.namespace, pod, _preload_content=False, _request_timeout=TIMEOUT_SECONDS
            )
            name = json.loads(response.data)["metadata"]["name"]
        try:
            self._wait_for_end(name)
            (container,) = pod["spec"]["containers"]
            return "\n".join(self.log(name, container["name"], follow=False))
        finally:
            with _wrap_errors(f"delete pod {name} {where}"):
                self._core.delete_namespaced_pod(
                    name, self.namespace, grace_period_seconds=0, _preload_content=False
                )

    def _wait_for_end(self, name: str) -> None:
        """Return when a pod has ended; raise ClusterError when it cannot start."""
        for _, pod in self._watch(
            f"pod {name}", self._core.list_namespaced_pod, POD_SECONDS,
            field_selector=f"metadata.name={name}",
        ):  # fmt: skip
            if pod["status"].get("phase") in ("Succeeded", "Failed"):
                return
            problem = problem_of(pod, [])
            if problem:
                raise ClusterError(f"pod {name}: {problem.reason}; {problem.advice}")
        raise ClusterError(f"pod {name} did not end within {POD_SECONDS} s")

    def _watch(
        self, what: str, call: Callable[..., Any], seconds: int, **selectors: str
    ) -> Iterator[tuple[str, Object]]:
        with _wrap_errors(f"watch {what} in namespace {self.namespace}"):
            # The client decodes into models by the return type that a function documents: a lambda
            # has none. The client raises ERROR events as ApiException.
            for event in _watch.Watch().stream(
                lambda **options: call(self.namespace, **options),
                timeout_seconds=seconds, **selectors,
            ):  # fmt: skip
                yield event["type"], event["raw_object"]

    @staticmethod
    def _list(
        what: str, call: Callable[..., Any], labels: str = "", namespace: str | None = None
    ) -> list[Object]:
        arguments = [] if namespace is None else [namespace]
        with _wrap_errors(what):
            # Undecoded: to build the client's models takes longer than the request itself, and
            # they refuse objects that another version of Kubernetes sends.
            response = call(
                *arguments, label_selector=labels, _preload_content=False,
                _request_timeout=TIMEOUT_SECONDS,
            )  # fmt: skip
            items: list[Object] = json.loads(response.data)["items"]
        return items


@contextmanager
def _wrap_errors(request: str) -> Iterator[None]:
    """Raise the client's errors as ClusterError: cannot `request`, and the reason."""
    try:
        yield
    except ApiException as error:
        raise ClusterError(f"cannot {request}: {_reason(error)}") from error
    except HTTPError as error:
        raise ClusterError(f"cannot {request}: the API server does not answer: {error}") from error


def _reason(error: ApiException) -> str:
    try:
        message = json.loads(error.body or "")["message"]
    except (TypeError, ValueError, KeyError):
        message = error.reason
    if error.status == 401:
        return (
            f"the API server does not accept your credentials ({message}); renew those in the "
            "kubeconfig"
        )
    if error.status == 403:
        return f"you are not allowed to ({message}); ask for a role with that permission"
    return f"{message} (HTTP {error.status})"
