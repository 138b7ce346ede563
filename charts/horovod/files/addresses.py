"""The hosts' addresses: from the headless Service's EndpointSlices, or from DNS without the API.

EndpointSlices are watched rather than polled, and read from the API rather than through DNS: a name
that is looked up too early stays unknown for as long as the DNS server caches negative answers.
"""

from __future__ import annotations

import socket
import threading
from typing import Any, Dict, Iterable

from kube import Api, ApiError
from settings import Host, log

Slice = Dict[str, Any]
# Seconds between attempts to reach an API server that cannot be watched.
RECONNECT_EVERY = 1.0


class DnsAddresses:
    """Looks hosts up in DNS, each time it is asked."""

    poll_seconds = 0.5
    # What it means that `find` returns None.
    missing = "its name does not resolve"

    def __init__(self) -> None:
        self.changed = threading.Condition()

    def find(self, host: Host) -> str | None:
        """Return the host's address, or None."""
        try:
            answers = socket.getaddrinfo(host.address, None, type=socket.SOCK_STREAM)
        except socket.gaierror:
            return None
        # Of each family the resolver's first choice.
        addresses = {family: str(address[0]) for family, _, _, _, address in reversed(answers)}
        # IPv4 first, as in pod_addresses. The resolver's order may put IPv6 first.
        return addresses.get(socket.AF_INET) or addresses[socket.AF_INET6]

    def close(self) -> None:
        """Do nothing: there is no connection to close."""


class SliceAddresses:
    """Follows a Service's EndpointSlices in a thread; notifies `changed` of each change."""

    poll_seconds = 0.05
    missing = "it has no address yet"

    def __init__(self, api: Api, service: str) -> None:
        self.changed = threading.Condition()
        self._api = api
        self._query = {"labelSelector": f"kubernetes.io/service-name={service}"}
        self._slices: dict[str, Slice] = {}
        self._addresses: dict[str, str] = {}
        self._closed = threading.Event()

    def find(self, host: Host) -> str | None:
        """Return the host's address, or None."""
        return self._addresses.get(host.name)

    def start(self) -> None:
        """List the slices, raising ApiError when that fails, then follow them."""
        version = self._list()
        name = "follow-endpointslices"
        threading.Thread(target=self._follow, args=(version,), name=name, daemon=True).start()

    def close(self) -> None:
        """Stop following at the next event."""
        self._closed.set()

    def _list(self) -> str:
        """Read all slices and return the resource version to watch from."""
        slices, version = self._api.list_all(
            "discovery.k8s.io/endpointslices", self._query, patience=0.0
        )
        self._replace({item["metadata"]["name"]: item for item in slices})
        return version

    def _follow(self, version: str) -> None:
        """Watch, and list again when a watch ends: nothing that happened in between is missed."""
        while not self._closed.is_set():
            has_news = False
            try:
                has_news = self._watch(version or self._list())
            except ApiError as problem:
                if not self._closed.is_set():
                    log(f"cannot watch the hosts' addresses: {problem}; trying again")
            if not has_news:
                # A server that ends each watch at once must not be asked without a pause.
                self._closed.wait(RECONNECT_EVERY)
            version = ""

    def _watch(self, version: str) -> bool:
        """Apply events until the watch ends; whether there was any."""
        has_news = False
        query = {**self._query, "resourceVersion": version}
        for event in self._api.watch("discovery.k8s.io/endpointslices", query):
            if event["type"] == "ERROR" or self._closed.is_set():
                # The version is too old to watch from.
                return has_news
            has_news = True
            name = event["object"]["metadata"]["name"]
            slices = {key: item for key, item in self._slices.items() if key != name}
            if event["type"] != "DELETED":
                slices[name] = event["object"]
            self._replace(slices)
        return has_news

    def _replace(self, slices: dict[str, Slice]) -> None:
        with self.changed:
            self._slices = slices
            self._addresses = pod_addresses(slices.values())
            self.changed.notify_all()


def pod_addresses(slices: Iterable[Slice]) -> dict[str, str]:
    """Map pod names to addresses, leaving out endpoints that are terminating.

    A pod of a dual-stack Service is in a slice of each family. IPv4 wins: MPI often lacks IPv6.
    """
    ipv4_last = sorted(slices, key=lambda item: bool(item.get("addressType") == "IPv4"))
    return {
        endpoint["targetRef"]["name"]: endpoint["addresses"][0]
        for item in ipv4_last
        for endpoint in item.get("endpoints") or []
        if endpoint.get("targetRef", {}).get("kind") == "Pod"
        and not (endpoint.get("conditions") or {}).get("terminating")
    }
