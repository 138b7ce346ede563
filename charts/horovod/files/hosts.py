"""Wait until every host answers, all at once, and say which do not and why."""

from __future__ import annotations

import socket
import threading
import time
from typing import Callable

from addresses import DnsAddresses, SliceAddresses
from kube import Api, ApiError
from podstatus import describe, is_hopeless
from settings import ConfigurationError, Host, InterruptedRunError, Run, RunError, log
from ssh import BANNER_MARK
from statefulsets import refusal, wake

# Threads mostly wait; Python's default stack would reserve gigabytes for a thousand hosts.
THREAD_STACK = 256 * 1024
# Seconds until the pods of missing hosts are looked at: soon at first, for an upgrade may have left
# pods that will never answer; then seldom, for each is a request to the API server.
FIRST_LOOK, LOOK_EVERY, LOOK_AT = 1.0, 5.0, 8
# An unchanged report is repeated after this many seconds, to show that the master is alive.
REPEAT_AFTER = 60.0
STALE = "from before the last upgrade"


class Gathering:
    """The hosts of a run as they come up: a thread each, sharing under one condition.

    In an elastic run the threads go on, so that `found` follows hosts that come and go.
    """

    def __init__(self, run: Run, api: Api | None, stopped: Callable[[], bool]) -> None:
        self.run = run
        self._stopped = stopped
        self.api = api
        self.found: dict[Host, str] = {}
        self.reasons: dict[Host, str] = {}
        self._deadline = time.monotonic() + run.hosts_timeout
        self._source = _addresses(run, api)
        self.changed = self._source.changed
        self._replaced: set[str] = set()
        self._reported, self._reported_at = "", 0.0

    def wait(self) -> dict[Host, str]:
        """Addresses, in the run's order, of enough hosts.

        Raises RunError at the deadline, and when this pod is asked to end.
        """
        threading.stack_size(THREAD_STACK)
        for host in self.run.hosts:
            threading.Thread(target=self._keep, args=(host,), daemon=True).start()
        self._wait_for_enough()
        if not self.enough():
            raise self._missing_error(self._missing())
        return self.addresses()

    def addresses(self) -> dict[Host, str]:
        """The hosts that answer now, in the run's order."""
        with self.changed:
            return {host: self.found[host] for host in self.run.hosts if host in self.found}

    def wait_for_change(self, known: dict[Host, str]) -> dict[Host, str]:
        """Await hosts that differ from those known, and return them."""
        with self.changed:
            self.changed.wait_for(lambda: self.found != known)
            return self.addresses()

    def enough(self) -> bool:
        """Can the run start?"""
        return sum(host.slots for host in self.found) >= self.run.ranks

    def _missing(self) -> list[Host]:
        """Those of the hosts to start with that do not answer."""
        return [host for host in self.run.hosts if host not in self.found and not host.optional]

    def _wait_for_enough(self) -> None:
        look_at = time.monotonic() + FIRST_LOOK
        while True:
            now = time.monotonic()
            with self.changed:
                # No longer than a second: a signal to end wakes nobody here.
                self.changed.wait_for(self.enough, min(look_at, self._deadline, now + 1) - now)
                if self.enough() or time.monotonic() >= self._deadline:
                    return
            if self._stopped():
                raise InterruptedRunError("asked to end while waiting for hosts")
            if time.monotonic() >= look_at:
                self._look(self._missing())
                look_at = time.monotonic() + LOOK_EVERY

    def _look(self, missing: list[Host]) -> None:
        """Look at the pods of missing hosts, replace those that an upgrade left, and report."""
        shown = "; ".join(f"{host.name}: {self._reason(host)}" for host in missing[:LOOK_AT])
        more = f"; and {len(missing) - LOOK_AT} more" if len(missing) > LOOK_AT else ""
        report = f"waiting for {len(missing)} of {len(self.run.hosts)} hosts: {shown}{more}"
        now = time.monotonic()
        if report != self._reported or now - self._reported_at > REPEAT_AFTER:
            log(f"{report} ({self._deadline - now:.0f} s left)")
            self._reported, self._reported_at = report, now

    def _reason(self, host: Host) -> str:
        """Why a host does not answer: its pod's status, and what was seen from outside."""
        seen = self.reasons.get(host, self._source.missing)
        if self.api is None:
            return seen
        try:
            pod = self.api.get(f"core/pods/{host.name}")
        except (ApiError, OSError) as problem:
            gone = isinstance(problem, ApiError) and problem.status == 404
            return _unmade(self.api, self.run, host) if gone else f"{seen}; its pod: {problem}"
        labels = pod["metadata"].get("labels", {})
        if labels.get("horovod/revision") != host.revision:
            # It may never answer, and nothing but the master replaces it.
            self._replace_stale(host)
            return STALE
        return f"{describe(pod)}; {seen}"

    def _keep(self, host: Host) -> None:
        """One host's thread."""
        while self._gather(host) and self.run.elastic:
            with self.changed:
                self.changed.wait_for(lambda: self._source.find(host) != self.found[host])
                del self.found[host]
                self.changed.notify_all()

    def _gather(self, host: Host) -> bool:
        """Until the host answers as a worker of this run (True), or the time is up."""
        while self.run.elastic or time.monotonic() < self._deadline:
            address = self._source.find(host)
            reason = self._source.missing
            if address is not None:
                answer = probe(address, self.run.ssh_port, host.revision)
                if answer is None:
                    with self.changed:
                        self.found[host] = address
                        self.changed.notify_all()
                    return True
                reason = answer
                if answer.startswith(STALE):
                    self._replace_stale(host)
            with self.changed:
                self.reasons[host] = reason
                # A refused connection announces no change: ask again. No address: await one.
                self.changed.wait(self._source.poll_seconds if address else 0.5)
        return False

    def _replace_stale(self, host: Host) -> None:
        """Delete a worker of an earlier revision, once: its StatefulSet makes it anew."""
        if self.api is None or host.name in self._replaced:
            return
        self._replaced.add(host.name)
        log(f"{host.name} is {STALE}: replacing it")
        try:
            self.api.delete(f"core/pods/{host.name}")
        except ApiError as problem:
            if problem.status != 404:
                log(f"cannot replace {host.name}: {problem}")

    def _missing_error(self, missing: list[Host]) -> RunError:
        reasons = {host.name: self._reason(host) for host in missing}
        message = (
            f"{len(missing)} of {len(self.run.hosts)} hosts did not answer "
            f"within launch.hostsTimeoutSeconds={self.run.hosts_timeout:.0f}:\n"
            + "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
        )
        hopeless = any(is_hopeless(reason) for reason in reasons.values())
        return ConfigurationError(message) if hopeless else RunError(message)


def _unmade(api: Api, run: Run, host: Host) -> str:
    """Why a host has no pod. One that nobody asks for any more is asked for again."""
    try:
        if wake(api, host.stateful_set, run.number(host.stateful_set)):
            log(f"{host.stateful_set} was scaled to 0: asking for its workers again")
        said = refusal(api, host.stateful_set, host.name)
    except (ApiError, OSError) as problem:
        said = str(problem)
    return f"the pod does not exist: {said}" if said else "the pod does not exist"


def _addresses(run: Run, api: Api | None) -> DnsAddresses | SliceAddresses:
    if api is None:
        return DnsAddresses()
    source = SliceAddresses(api, run.service)
    try:
        source.start()
    except (ApiError, OSError) as problem:
        log(f"EndpointSlices cannot be read ({problem}): asking DNS for the hosts instead")
        return DnsAddresses()
    return source


def probe(address: str, port: int, revision: str) -> str | None:
    """None when an SSH server of this revision answers; else what came back instead."""
    # An IPv6 address has colons of its own.
    where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            banner = connection.makefile("rb").readline(256).decode("ascii", "replace").strip()
    except OSError as problem:
        return f"{where} does not answer: {problem.strerror or problem}"
    if not banner.startswith("SSH-2.0-"):
        return f"{where} is not an SSH server: it said {banner!r}"
    if not banner.endswith(BANNER_MARK + revision):
        return f"{STALE}: {where} says {banner!r}, this run needs {BANNER_MARK}{revision}"
    return None
