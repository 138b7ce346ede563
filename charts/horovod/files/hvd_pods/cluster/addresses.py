"""The workers' addresses: from the headless Service's EndpointSlices, or from DNS without the API.

EndpointSlices are watched rather than polled, and read from the API rather than through DNS: a name
that is looked up too early stays unknown for as long as the DNS server caches negative answers.
"""

from __future__ import annotations

import functools
import socket
import threading
import time
from http import HTTPStatus
from typing import Any, Callable, Dict, Iterable, Iterator, NamedTuple, Sequence

from hvd_pods.cluster.kube import Api, ApiError, make_pauses
from hvd_pods.pod.reporting import log
from hvd_pods.pod.threads import start_thread
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.run import Run, Worker

Slice = Dict[str, Any]
# A watch that lasted this many seconds was successful: the next one begins without a long pause.
MIN_WATCH_SECONDS = 5.0
DNS_THREADS = 8
# Why a worker without an endpoint in any EndpointSlice does not answer.
NO_ADDRESS_YET = NoAnswer("it has no address yet")


class Pauses(NamedTuple):
    """How often addresses are read, in seconds: the first pause, and the longest one."""

    # Until the next try after a failed watch.
    first_reconnect: float = 0.2
    longest_reconnect: float = 10.0
    # Between two lookups of all names in DNS: doubled while no address changes.
    first_lookup: float = 0.5
    longest_lookup: float = 2.0


PAUSES = Pauses()


class Endpoint(NamedTuple):
    """A worker's address, whether the kubelet has seen it listen, its pod and its node.

    DNS has only the address: `is_serving` is then False, and `uid` and `node` are empty.
    """

    address: str
    is_serving: bool = False
    uid: str = ""
    node: str = ""

    def is_same_pod(self, other: Endpoint | None) -> bool:
        """Return whether both belong to one pod, as far as is known.

        A new pod may have an old address. Without both UIDs, the address decides. None belongs to
        no pod.
        """
        if other is None or other.address != self.address:
            return False
        return other.uid == self.uid or not (other.uid and self.uid)


class DnsAddresses:
    """Looks up workers in DNS repeatedly, in a few threads."""

    # The reason why a worker is not among the endpoints.
    missing = NoAnswer("its name does not resolve")

    def __init__(self, workers: Sequence[Worker], pauses: Pauses = PAUSES) -> None:
        self._workers = workers
        self._first_pause = pauses.first_lookup
        self._longest_pause = pauses.longest_lookup
        self._on_change: Callable[[], None] = lambda: None
        self._endpoints: dict[str, Endpoint] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def start(self, on_change: Callable[[], None]) -> None:
        """Start to look up workers, and call `on_change` for each change, from several threads.

        A lookup blocks: one thread would take too long.
        """
        self._on_change = on_change
        for first in range(min(DNS_THREADS, len(self._workers))):
            share = self._workers[first::DNS_THREADS]
            start_thread("look-up-workers", functools.partial(self._follow, share))

    def endpoints(self) -> dict[str, Endpoint]:
        """Return what is known of each worker, by its name.

        A worker whose name does not resolve is left out. While the DNS server does not answer, a
        worker keeps what was found before.
        """
        with self._lock:
            return dict(self._endpoints)

    def close(self) -> None:
        """End the threads after their present lookup."""
        self._closed.set()

    def _follow(self, workers: Sequence[Worker]) -> None:
        pause = self._first_pause
        while not self._closed.is_set():
            changes = [self._look_up(worker) for worker in workers if not self._closed.is_set()]
            pause = self._first_pause if any(changes) else min(pause * 2, self._longest_pause)
            self._closed.wait(pause)

    def _look_up(self, worker: Worker) -> bool:
        """Look up a worker. Return whether its address has changed."""
        try:
            address = resolve(worker.address)
        except socket.gaierror as problem:
            if problem.errno == socket.EAI_AGAIN:
                # The DNS server did not respond: this is no evidence about the worker.
                return False
            address = None
        with self._lock:
            before = self._endpoints.pop(worker.name, None)
            if address:
                self._endpoints[worker.name] = Endpoint(address)
        address_before = before.address if before else None
        is_changed = address != address_before
        if is_changed:
            self._on_change()
        return is_changed


def resolve(name: str) -> str:
    """Return the name's first address; IPv4 first, as in pod_endpoints.

    Raises socket.gaierror for a name without an address. Its `errno` is EAI_AGAIN when the DNS
    server did not answer.
    """
    answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    # Keep the resolver's first choice for each family.
    addresses = {family: str(address[0]) for family, _, _, _, address in reversed(answers)}
    return addresses.get(socket.AF_INET) or addresses[socket.AF_INET6]


class SliceAddresses:
    """Follows a Service's EndpointSlices in a thread.

    DNS is used until the slices have been read once: permanently if reading is not allowed, else
    until the API server responds.
    """

    def __init__(self, api: Api, run: Run, pauses: Pauses = PAUSES) -> None:
        self._api = api
        self._pauses = pauses
        self._on_change: Callable[[], None] = lambda: None
        self._service = run.service
        self._query = {"labelSelector": f"kubernetes.io/service-name={run.service}"}
        # By name; None until they have been read. The thread replaces it and does not change it.
        self._slices: dict[str, Slice] | None = None
        # The endpoints of the last existing slices: a deleted Service is no evidence about its
        # pods.
        self._endpoints: dict[str, Endpoint] = {}
        # Why the slices could not be read the last time.
        self._trouble = ""
        self._dns = DnsAddresses(run.workers, pauses)
        self._uses_dns = False
        self._closed = threading.Event()

    @property
    def missing(self) -> NoAnswer:
        """Return the present reason why a worker is not among the endpoints."""
        if self._slices is None:
            return self._dns.missing
        if not self._slices:
            # The controller keeps an empty slice for a Service without pods.
            reason = f"there is no EndpointSlice of Service {self._service}"
            return NoAnswer(reason, lacks_service=True)
        return NO_ADDRESS_YET

    def start(self, on_change: Callable[[], None]) -> None:
        """Start to follow the slices, and call `on_change` for each change, from other threads.

        If the API server is unavailable already, DNS is used at once.
        """
        self._on_change = on_change
        if self._api.is_away:
            self._use_dns()
        start_thread("follow-endpointslices", self._follow)

    def endpoints(self) -> dict[str, Endpoint]:
        """Return what is known of each worker, by its name; callers do not change it."""
        return self._dns.endpoints() if self._slices is None else self._endpoints

    def close(self) -> None:
        """Stop following. The thread ends with the watch's next event, or with the watch."""
        self._closed.set()
        self._dns.close()

    def _follow(self) -> None:
        """List and watch again when a watch ends, so that no change is missed."""
        waits = self._reconnect_pauses()
        while not self._closed.is_set():
            began = time.monotonic()
            asked_to_wait = 0.0
            has_news = False
            try:
                has_news = self._watch(self._list())
            except ApiError as problem:
                asked_to_wait = problem.retry_after_seconds
                if not self._closed.is_set() and not self._can_continue_after(problem):
                    return
            if has_news or time.monotonic() - began > MIN_WATCH_SECONDS:
                waits = self._reconnect_pauses()
            if not has_news:
                # Pause before the next request: a server may end each watch at once.
                self._closed.wait(max(next(waits), asked_to_wait))

    def _reconnect_pauses(self) -> Iterator[float]:
        return make_pauses(self._pauses.first_reconnect, self._pauses.longest_reconnect)

    def _can_continue_after(self, problem: ApiError) -> bool:
        """Log a failure, and use DNS while the slices have not been read.

        Return False if they cannot be read: the API server refuses that, or does not know them. DNS
        is then used permanently.
        """
        is_final = self._slices is None and problem.status in (
            HTTPStatus.FORBIDDEN,
            HTTPStatus.NOT_FOUND,
        )
        if is_final:
            log(f"cannot read EndpointSlices ({problem}): using DNS instead")
        elif str(problem) != self._trouble:
            log(f"cannot watch the workers' addresses: {problem}; trying again")
        self._trouble = str(problem)
        if self._slices is None:
            self._use_dns()
        return not is_final

    def _use_dns(self) -> None:
        if not self._uses_dns:
            self._uses_dns = True
            self._dns.start(self._on_change)

    def _list(self) -> str:
        """Read all slices and return the resource version to watch from. Raises ApiError."""
        slices, version = self._api.list_all(
            "discovery.k8s.io/endpointslices", self._query, retry_seconds=0.0
        )
        self._replace(
            {endpoint_slice["metadata"]["name"]: endpoint_slice for endpoint_slice in slices}
        )
        self._trouble = ""
        self._dns.close()
        return version

    def _watch(self, version: str) -> bool:
        """Apply events until the watch ends. Return whether there was any.

        Raises ApiError for a watch that fails before its first event.
        """
        has_news = False
        query = {**self._query, "resourceVersion": version}
        try:
            for event in self._api.watch("discovery.k8s.io/endpointslices", query):
                if event["type"] == "ERROR" or self._closed.is_set():
                    # The version is too old to watch from.
                    return has_news
                has_news = True
                name = event["object"]["metadata"]["name"]
                slices = dict(self._slices or {})
                slices.pop(name, None)
                if event["type"] != "DELETED":
                    slices[name] = event["object"]
                self._replace(slices)
        except ApiError:
            if not has_news:
                raise
        return has_news

    def _replace(self, slices: dict[str, Slice]) -> None:
        self._slices = slices
        if slices:
            self._endpoints = pod_endpoints(slices.values())
        self._on_change()


def pod_endpoints(slices: Iterable[Slice]) -> dict[str, Endpoint]:
    """Map pod names to endpoints, leaving out those that are terminating.

    A pod of a dual-stack Service is in a slice of each family. IPv4 wins: MPI often lacks IPv6.
    """
    ipv4_last = sorted(
        slices, key=lambda endpoint_slice: endpoint_slice.get("addressType") == "IPv4"
    )
    endpoints = {}
    for endpoint_slice in ipv4_last:
        for endpoint in endpoint_slice.get("endpoints", []):
            conditions = endpoint.get("conditions", {})
            target = endpoint.get("targetRef", {})
            if target.get("kind") != "Pod" or conditions.get("terminating"):
                continue
            endpoints[target["name"]] = Endpoint(
                address=endpoint["addresses"][0],
                is_serving=bool(conditions.get("serving")),
                uid=target.get("uid", ""),
                node=endpoint.get("nodeName", ""),
            )
    return endpoints
