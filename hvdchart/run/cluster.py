"""The cluster, read: the only importer of the Kubernetes client. Objects come as plain dicts.

Every refusal, time-out and missing object becomes a ClusterError that says what was asked for.
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
# Long enough for a busy API server, short enough for a person who waits.
TIMEOUT_SECONDS = 30
# For a pod that is made to answer a question: its image may have to be pulled.
POD_SECONDS = 600


class Cluster:
    """One namespace of a cluster, and its nodes."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self._core: Any = client.CoreV1Api(api)
        self._batch: Any = client.BatchV1Api(api)
        self._apps: Any = client.AppsV1Api(api)

    @staticmethod
    def connect(context: str | None = None, namespace: str | None = None) -> Cluster:
        """The cluster of the current kubeconfig, or of the pod that this runs in."""
        # Said here, since the client looks at KUBECONFIG only when it is imported.
        file = os.environ.get("KUBECONFIG") or _config.KUBE_CONFIG_DEFAULT_LOCATION
        try:
            contexts, current = _config.list_kube_config_contexts(config_file=file)
            found = next((c for c in contexts if c["name"] == context), None)
            chosen = found if context else current
            if chosen is None:
                names = ", ".join(known["name"] for known in contexts) or "none"
                raise ClusterError(f"no context {context!r} in the kubeconfig; it has: {names}")
            api = _config.new_client_from_config(config_file=file, context=chosen["name"])
            default = chosen["context"].get("namespace", "default")
        except ConfigException as error:
            if context is not None:
                raise ClusterError(f"the kubeconfig cannot be used: {error}") from error
            return Cluster._inside(namespace, error)
        return Cluster(api, namespace or default)

    @staticmethod
    def _inside(namespace: str | None, outside: ConfigException) -> Cluster:
        try:
            _config.load_incluster_config()
        except ConfigException:
            raise ClusterError(
                f"no cluster: {outside}; set KUBECONFIG to a kubeconfig file"
            ) from outside
        return Cluster(client.ApiClient(), namespace or "default")

    def nodes(self, labels: str = "") -> list[Object]:
        """All nodes that a label selector takes."""
        return self._list("list nodes", self._core.list_node, labels)

    def pods_of_all_namespaces(self) -> list[Object]:
        """Every pod of the cluster."""
        return self._list("list pods in all namespaces", self._core.list_pod_for_all_namespaces)

    def release(self, name: str) -> Release:
        """Everything of one release of the chart that tells how it is doing."""
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
        """What the release's record holds; nothing when there is none."""
        name = record_name(release)
        with _explained(f"read configmap {name} in namespace {self.namespace}"):
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
        """A release's pods now, then as they change, for `seconds`: (ADDED, MODIFIED or DELETED,
        pod).
        """
        yield from self._watch("pods", self._core.list_namespaced_pod, release, seconds)

    def watch_jobs(self, release: str, seconds: int) -> Iterator[tuple[str, Object]]:
        """As `watch_pods`, for Jobs."""
        yield from self._watch("jobs", self._batch.list_namespaced_job, release, seconds)

    def watch_events(self, seconds: int) -> Iterator[tuple[str, Object]]:
        """As `watch_pods`, for the events of the whole namespace."""
        yield from self._watch("events", self._core.list_namespaced_event, "", seconds)

    def log(
        self, pod: str, container: str, *, follow: bool, tail: int | None = None
    ) -> Iterator[str]:
        """The lines of a container's log, as they come when it is followed."""
        with _explained(f"read the log of pod {pod} in namespace {self.namespace}"):
            response = self._core.read_namespaced_pod_log(
                pod, self.namespace, container=container, follow=follow,
                tail_lines=tail, _preload_content=False,
            )  # fmt: skip
            left = b""
            for chunk in response.stream(decode_content=False):
                *lines, left = (left + chunk).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in lines)
            if left:
                yield left.decode("utf-8", "replace")

    def output_of(self, pod: Object) -> str:
        """What a pod of one container prints; it is made for that, awaited and removed again.

        Raises ClusterError when it is refused, and with what is wrong with it when it does not
        start.
        """
        where = f"in namespace {self.namespace}"
        with _explained(f"make a pod {where}"):
            made = self._core.create_namespaced_pod(self.namespace, pod).metadata.name
        try:
            self._await_end(made)
            (container,) = pod["spec"]["containers"]
            return "\n".join(self.log(made, container["name"], follow=False))
        finally:
            with _explained(f"remove pod {made} {where}"):
                self._core.delete_namespaced_pod(made, self.namespace, grace_period_seconds=0)

    def _await_end(self, name: str) -> None:
        """Return when a pod has ended; ClusterError when something keeps it from starting."""
        watching = _watch.Watch()
        with _explained(f"watch pod {name} in namespace {self.namespace}"):
            for event in watching.stream(
                self._core.list_namespaced_pod, self.namespace,
                field_selector=f"metadata.name={name}", timeout_seconds=POD_SECONDS,
            ):  # fmt: skip
                pod = event["raw_object"]
                if pod["status"].get("phase") in ("Succeeded", "Failed"):
                    return
                problem = problem_of(pod, [])
                if problem:
                    raise ClusterError(f"pod {name}: {problem.reason}; {problem.advice}")
        raise ClusterError(f"pod {name} did not end within {POD_SECONDS} s")

    def _watch(
        self, what: str, call: Callable[..., Any], release: str, seconds: int
    ) -> Iterator[tuple[str, Object]]:
        watching = _watch.Watch()
        with _explained(f"watch {what} in namespace {self.namespace}"):
            for event in watching.stream(
                call,
                self.namespace,
                label_selector=selector(release) if release else "",
                timeout_seconds=seconds,
            ):
                if event["type"] == "ERROR":
                    raise ClusterError(f"watching {what}: {event['raw_object'].get('message')}")
                yield event["type"], event["raw_object"]

    @staticmethod
    def _list(
        what: str, call: Callable[..., Any], labels: str = "", namespace: str | None = None
    ) -> list[Object]:
        arguments = [] if namespace is None else [namespace]
        with _explained(what):
            # Undecoded: building the client's models takes longer than the API server does.
            response = call(
                *arguments, label_selector=labels, _preload_content=False,
                _request_timeout=TIMEOUT_SECONDS,
            )  # fmt: skip
            items: list[Object] = json.loads(response.data)["items"]
        return items


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what the client raises into one message about `what` was being done."""
    try:
        yield
    except ApiException as error:
        raise ClusterError(f"cannot {what}: {_reason(error)}") from error
    except HTTPError as error:
        raise ClusterError(f"cannot {what}: the API server does not answer: {error}") from error


def _reason(error: ApiException) -> str:
    try:
        said = json.loads(error.body or "")["message"]
    except (TypeError, ValueError, KeyError):
        said = error.reason
    if error.status == 401:
        return f"the API server does not know you ({said}); renew the kubeconfig's credentials"
    if error.status == 403:
        return f"you are not allowed to ({said}); ask for a role with that right"
    return f"{said} (HTTP {error.status})"
