"""Where the hosts are: the headless Service's EndpointSlices, or DNS where the API is not allowed.

Slices are watched, not polled, and come straight from the API: a name asked of DNS too early stays
unknown there for as long as the server keeps negative answers.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Dict, Iterable

from kube import Api, ApiError
from settings import Host, log

Slice = Dict[str, Any]


class DnsAddresses:
    """Ask DNS each time."""

    poll_seconds = 0.5

    def __init__(self) -> None:
        self.changed = threading.Condition()

    def find(self, host: Host) -> str | None:
        """The host's address now, or None."""
        try:
            answers = socket.getaddrinfo(host.address, None, type=socket.SOCK_STREAM)
        except socket.gaierror:
            return None
        addresses = {family: str(address[0]) for family, _, _, _, address in reversed(answers)}
        # As in pod_addresses. Sorting is the resolver's business, and it may put IPv6 first.
        return addresses.get(socket.AF_INET) or addresses[socket.AF_INET6]

    @property
    def missing(self) -> str:
        """What it means when find gives None."""
        return "its name does not resolve"


class SliceAddresses:
    """Follow the Service's EndpointSlices in a thread; `changed` is notified at each change."""

    poll_seconds = 0.05

    def __init__(self, api: Api, service: str) -> None:
        self.changed = threading.Condition()
        self._api = api
        self._query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        self._slices: dict[str, Slice] = {}
        self._addresses: dict[str, str] = {}

    @property
    def missing(self) -> str:
        """What it means when find gives None."""
        return "it has no address yet"

    def find(self, host: Host) -> str | None:
        """The host's address now, or None."""
        return self._addresses.get(host.name)

    def start(self) -> None:
        """Read the slices once, raising ApiError when that is not allowed, then follow them."""
        version = self._list()
        threading.Thread(target=self._follow, args=(version,), daemon=True).start()

    def _list(self) -> str:
        listed = self._api.get("discovery.k8s.io/endpointslices", self._query)
        self._replace({item["metadata"]["name"]: item for item in listed["items"]})
        return str(listed["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> None:
        while True:
            try:
                self._watch(version)
                version = self._list()
            except (ApiError, OSError, ValueError) as problem:
                log(f"cannot watch the hosts' addresses: {problem}; trying again")
                # The API server is not there: nothing can be awaited, so ask again in a while.
                time.sleep(1)

    def _watch(self, version: str) -> None:
        query = {**self._query, "resourceVersion": version}
        for event in self._api.watch("discovery.k8s.io/endpointslices", query):
            if event["type"] == "ERROR":
                # The version is too old to go on from: the caller lists anew.
                return
            name = event["object"]["metadata"]["name"]
            slices = {key: item for key, item in self._slices.items() if key != name}
            if event["type"] != "DELETED":
                slices[name] = event["object"]
            self._replace(slices)

    def _replace(self, slices: dict[str, Slice]) -> None:
        with self.changed:
            self._slices = slices
            self._addresses = pod_addresses(slices.values())
            self.changed.notify_all()


def pod_addresses(slices: Iterable[Slice]) -> dict[str, str]:
    """Pod name -> first address, of all endpoints that are not on their way out.

    A pod of a dual-stack Service is in a slice of each family. IPv4 wins: MPI often lacks IPv6.
    """
    ordered = sorted(slices, key=lambda item: bool(item.get("addressType") == "IPv4"))
    return {
        endpoint["targetRef"]["name"]: endpoint["addresses"][0]
        for item in ordered
        for endpoint in item.get("endpoints") or []
        if endpoint.get("targetRef", {}).get("kind") == "Pod"
        and not (endpoint.get("conditions") or {}).get("terminating")
    }
