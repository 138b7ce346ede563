"""Requests to the API server of a cluster; the only module that imports the Kubernetes client.

It uses the client's lower layer: kubeconfigs, credentials, connections. The client's classes for
the parts of the API import all their models, which takes 1.9 s, and decode each answer into them.
Here, objects are plain dicts in the API's own form, and those of any version of Kubernetes are
read. docs/adr/0013 has the measurements.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes import config
from kubernetes.client.api_client import ApiClient
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from hvdchart.errors import ClusterError
from hvdchart.run.release import Object

# The client's configuration has no types.
_config: Any = config
# How long to wait for a list or an object: a busy API server needs seconds, and a person waits.
TIMEOUT_SECONDS = 30
# What the client raises for a kubeconfig that it can read but not use: a list, a binary file, a
# folder, broken base64, a missing key, a program for credentials that fails.
_UNUSABLE = (
    *(ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError),
)


class RefusedError(ClusterError):
    """The API server refused a request with this HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """A connection to an API server, and the namespace of its kubeconfig's context.

    `path` is a resource's, such as `api/v1/namespaces/team/pods`; `what` describes the request in
    errors: "list pods in namespace team". Each method raises ClusterError.
    """

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client: Any = client
        self.namespace = namespace

    @staticmethod
    def connect(context: str | None = None) -> Api:
        """Connect with the kubeconfig's context (default: its current one).

        Without a kubeconfig, connect to the cluster of the pod that this runs in.
        """
        # The client itself reads KUBECONFIG only once, when it is imported.
        file = os.environ.get("KUBECONFIG") or _config.KUBE_CONFIG_DEFAULT_LOCATION
        paths = [Path(path).expanduser() for path in file.split(os.pathsep) if path]
        if context is None and not any(path.exists() for path in paths):
            return Api._connect_in_cluster(file)
        try:
            contexts, current = _config.list_kube_config_contexts(config_file=file)
            named = next((known for known in contexts if known["name"] == context), None)
            chosen = named if context else current
            if chosen is not None:
                client = _config.new_client_from_config(config_file=file, context=chosen["name"])
                host = client.configuration.host
                if not str(host).startswith(("http://", "https://")):
                    raise ConfigException(f"the cluster's server is {host!r}, which is no URL")
                return Api(client, chosen["context"].get("namespace") or "default")
        except _UNUSABLE as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ClusterError(
                f"the kubeconfig {file} cannot be used: {reason}; correct it, or set KUBECONFIG to "
                "another file"
            ) from error
        names = ", ".join(known["name"] for known in contexts) or "none"
        raise ClusterError(f"the kubeconfig has no context {context!r}; its contexts: {names}")

    @staticmethod
    def _connect_in_cluster(file: str) -> Api:
        try:
            _config.load_incluster_config()
        except ConfigException as error:
            raise ClusterError(
                f"no cluster: there is no kubeconfig {file}; set KUBECONFIG to a kubeconfig file"
            ) from error
        return Api(ApiClient(), "default")

    def get(self, what: str, path: str, query: dict[str, str] | None = None) -> Object:
        """Read an object or a list."""
        return _parse(what, self._send(what, "GET", path, query))

    def list(self, what: str, path: str, labels: str = "") -> list[Object]:
        """Read the objects of a list that match a label selector."""
        items: list[Object] = self.get(what, path, {"labelSelector": labels})["items"]
        return items

    def create(self, what: str, path: str, body: Object) -> Object:
        """Create an object."""
        return _parse(what, self._send(what, "POST", path, body=body))

    def merge_patch(self, what: str, path: str, body: Object) -> Object:
        """Change some fields of an object."""
        form = "application/merge-patch+json"
        return _parse(what, self._send(what, "PATCH", path, body=body, form=form))

    def delete(self, what: str, path: str, query: dict[str, str] | None = None) -> Object:
        """Delete an object."""
        return _parse(what, self._send(what, "DELETE", path, query))

    def watch(
        self, what: str, path: str, seconds: int, query: dict[str, str]
    ) -> Iterator[tuple[str, Object]]:
        """Yield the present objects, then their changes, for so many seconds.

        Each with the type of the change: ADDED, MODIFIED or DELETED.
        """
        query = {**query, "watch": "true", "timeoutSeconds": str(seconds)}
        for line in self.lines(what, path, query):
            with _wrap_errors(what):
                event = json.loads(line)
            if event["type"] == "ERROR":
                status = event["object"]
                code = int(status.get("code", 0))
                raise RefusedError(f"cannot {what}: {_reason(code, status.get('message'))}", code)
            yield event["type"], event["object"]

    def lines(self, what: str, path: str, query: dict[str, str]) -> Iterator[str]:
        """Yield the lines of an answer as they come."""
        response = self._send(what, "GET", path, query, timeout=None).response
        with _wrap_errors(what):
            rest = b""
            try:
                for chunk in response.stream(decode_content=False):
                    *lines, rest = (rest + chunk).split(b"\n")
                    yield from (line.decode("utf-8", "replace") for line in lines)
            finally:
                response.close()
        if rest:
            yield rest.decode("utf-8", "replace")

    def _send(
        self,
        what: str,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        form: str = "application/json",
        timeout: int | None = TIMEOUT_SECONDS,
    ) -> Any:
        with _wrap_errors(what):
            request = self._client.param_serialize(
                method,
                f"/{path}",
                query_params=[(name, value) for name, value in (query or {}).items() if value],
                header_params={"Accept": "application/json", "Content-Type": form},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = self._client.call_api(*request, _request_timeout=timeout)
            if not 200 <= response.status <= 299:
                try:
                    message = json.loads(response.read())["message"]
                except (TypeError, ValueError, KeyError):
                    message = response.reason
                reason = _reason(response.status, message)
                raise RefusedError(f"cannot {what}: {reason}", response.status)
        return response


def _parse(what: str, response: Any) -> Object:
    """The document of a response."""
    with _wrap_errors(what):
        answer: Object = json.loads(response.read())
    return answer


@contextmanager
def _wrap_errors(what: str) -> Iterator[None]:
    """Raise what happens to a connection as ClusterError."""
    try:
        yield
    except (HTTPError, OSError) as error:
        raise ClusterError(f"cannot {what}: the API server does not answer: {error}") from error
    except ValueError as error:
        raise ClusterError(f"cannot {what}: the answer is not Kubernetes' own: {error}") from error


def _reason(status: int, message: Any) -> str:
    if status == 401:
        return (
            f"the API server does not accept your credentials ({message}); renew those in the "
            "kubeconfig"
        )
    if status == 403:
        return f"you are not allowed to ({message}); ask for a role with that permission"
    return f"{message} (HTTP {status})"
