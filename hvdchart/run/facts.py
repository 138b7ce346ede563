"""Reads what a namespace and its cluster offer, as far as the user is allowed to, for `doctor`."""

from __future__ import annotations

from functools import partial

from hvdchart.run.api import Api, unless_refused
from hvdchart.run.release import Object

_AUTHORIZATION = "apis/authorization.k8s.io/v1"
_DNS = "k8s-app=kube-dns"
_PLACES = {"nodes": "api/v1", "storageclasses": "apis/storage.k8s.io/v1"}


class Facts:
    """One namespace. A method returns None for what the user may not read or the cluster lacks.

    Each raises ClusterError when the API server does not answer.
    """

    def __init__(self, api: Api, namespace: str | None = None) -> None:
        self.namespace = namespace or api.namespace
        self._api = api

    def version(self) -> str:
        """The version of Kubernetes."""
        return str(self._api.get("read the cluster's version", "version").get("gitVersion", ""))

    def namespace_object(self) -> Object | None:
        """The namespace; an empty map if it does not exist."""
        path = f"api/v1/namespaces/{self.namespace}"
        missing: Object = {}
        read = partial(self._api.get, f"read namespace {self.namespace}", path)
        return unless_refused(lambda: unless_refused(read, missing, [404]), None)

    def rules(self) -> tuple[list[Object], bool]:
        """The rules of what this user may do in the namespace, and whether these are all."""
        body = {"spec": {"namespace": self.namespace}}
        what = f"read your rights in namespace {self.namespace}"
        status = self._api.create(what, f"{_AUTHORIZATION}/selfsubjectrulesreviews", body)["status"]
        return status.get("resourceRules") or [], not status.get("incomplete", False)

    def may(self, verb: str, group: str, resource: str) -> bool:
        """Whether this user may do one thing in the namespace."""
        resource, _, subresource = resource.partition("/")
        attributes = {
            "namespace": self.namespace, "verb": verb, "group": group, "resource": resource,
            "subresource": subresource,
        }  # fmt: skip
        what = f"read your rights in namespace {self.namespace}"
        path = f"{_AUTHORIZATION}/selfsubjectaccessreviews"
        review = self._api.create(what, path, {"spec": {"resourceAttributes": attributes}})
        return bool(review["status"].get("allowed"))

    def all_of(self, kind: str) -> list[Object] | None:
        """The namespace's objects of a kind of the core API, or those of the cluster (_PLACES)."""
        place = _PLACES.get(kind, f"api/v1/namespaces/{self.namespace}")
        return self._list(kind, f"{place}/{kind}")

    def claim(self, name: str) -> Object | None:
        """A PersistentVolumeClaim of the namespace."""
        path = f"api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{name}"
        return unless_refused(lambda: self._api.get(f"read claim {name}", path), None)

    def dns_endpoints(self) -> int | None:
        """How many servers of the cluster's DNS are ready; None where none can be seen."""
        path = "apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
        slices = self._list("endpointslices of kube-system", path, _DNS)
        if not slices:
            return None
        endpoints = [each for item in slices for each in item.get("endpoints") or []]
        return sum(1 for each in endpoints if (each.get("conditions") or {}).get("ready", True))

    def _list(self, what: str, path: str, labels: str = "") -> list[Object] | None:
        return unless_refused(lambda: self._api.list(f"list {what}", path, labels), None)
