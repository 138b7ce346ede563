"""Waits for all hosts in parallel, and explains which are missing and why."""

from __future__ import annotations

import socket
import threading
import time
from typing import Callable

from addresses import DnsAddresses, SliceAddresses
from kube import Api, ApiError
from podstatus import Diagnosis, diagnose, diagnose_refusal
from settings import ConfigurationError, Host, InterruptedRunError, Run, RunError, log
from ssh import BANNER_MARK
from statefulsets import creation_failure, scale_up_from_zero

# Threads mostly wait; Python's default stack would reserve gigabytes for a thousand hosts.
THREAD_STACK = 256 * 1024
# Seconds until the pods of missing hosts are read: soon at first, because an upgrade may have left
# pods that will never answer; then seldom, because each is a request to the API server.
FIRST_REPORT_AFTER, REPORT_EVERY = 1.0, 5.0
HOSTS_PER_REPORT = 8
# An unchanged report is repeated after this many seconds, to show that the master still waits.
REPEAT_REPORT_AFTER = 60.0
# A signal to end the pod wakes no thread that waits for hosts: look for it this often, in seconds.
STOP_CHECK_EVERY = 1.0
# Seconds between attempts on a host that has no address; an address that comes ends the pause.
ADDRESS_CHECK_EVERY = 0.5
# Seconds that a host has to accept a connection, and again to send its banner.
PROBE_TIMEOUT = 2.0
STALE = "from before the last upgrade"


class HostRendezvous:
    """Waits for the hosts of a run, with a thread for each host that tries to reach it.

    In an elastic run the threads go on until `close`, so that `answering` follows hosts that come
    and go. The condition `changed` guards `answering` and `reasons`, why a host does not answer.
    `deadline` is by time.monotonic().
    """

    def __init__(self, run: Run, api: Api | None, is_stopped: Callable[[], bool]) -> None:
        self.run = run
        self.api = api
        self.answering: dict[Host, str] = {}
        self.reasons: dict[Host, str] = {}
        self._is_stopped = is_stopped
        self.deadline = time.monotonic() + run.hosts_timeout
        self._source = start_address_source(run, api)
        self.changed = self._source.changed
        self._replaced: set[str] = set()
        self._reported, self._reported_at = "", 0.0
        self._closed = False

    def wait(self) -> dict[Host, str]:
        """Return the addresses, in the run's order, as soon as enough hosts answer.

        Raises RunError at the deadline, and when this pod is asked to end.
        """
        default_stack = threading.stack_size(THREAD_STACK)
        for host in self.run.hosts:
            threading.Thread(target=self._follow_host, args=(host,), daemon=True).start()
        threading.stack_size(default_stack)
        if not self._wait_for_enough():
            raise self._missing_error(self._missing())
        return self.addresses()

    def close(self) -> None:
        """End the threads."""
        self._source.close()
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def addresses(self) -> dict[Host, str]:
        """Return the hosts that answer now, in the run's order."""
        with self.changed:
            return {host: self.answering[host] for host in self.run.hosts if host in self.answering}

    def wait_for_change(self, known: dict[Host, str]) -> dict[Host, str] | None:
        """Return the hosts that answer as soon as they differ from `known`; None after `close`."""
        with self.changed:
            self.changed.wait_for(lambda: self._closed or self.answering != known)
            return None if self._closed else self.addresses()

    def is_enough(self) -> bool:
        """Whether the run can start."""
        return sum(host.slots for host in self.answering) >= self.run.ranks

    def _missing(self) -> list[Host]:
        """Return those of the hosts to start with that do not answer."""
        return [host for host in self.run.hosts if host not in self.answering and not host.optional]

    def _wait_for_enough(self) -> bool:
        """Whether enough hosts answer before the deadline."""
        report_at = time.monotonic() + FIRST_REPORT_AFTER
        while True:
            now = time.monotonic()
            wake_at = min(report_at, self.deadline, now + STOP_CHECK_EVERY)
            with self.changed:
                self.changed.wait_for(self.is_enough, wake_at - now)
                if self.is_enough() or time.monotonic() >= self.deadline:
                    return self.is_enough()
            if self._is_stopped():
                raise InterruptedRunError("asked to end while waiting for hosts")
            if time.monotonic() >= report_at:
                # The last host may have answered since.
                missing = self._missing()
                if missing:
                    self._report(missing)
                report_at = time.monotonic() + REPORT_EVERY

    def _report(self, missing: list[Host]) -> None:
        """Log why hosts are missing; pods that an upgrade left are replaced on the way."""
        reasons = [
            f"{host.name}: {self._diagnose(host).reason}" for host in missing[:HOSTS_PER_REPORT]
        ]
        if len(missing) > HOSTS_PER_REPORT:
            reasons.append(f"and {len(missing) - HOSTS_PER_REPORT} more")
        report = f"waiting for {len(missing)} of {len(self.run.hosts)} hosts: {'; '.join(reasons)}"
        now = time.monotonic()
        if report != self._reported or now - self._reported_at > REPEAT_REPORT_AFTER:
            log(f"{report} ({self.deadline - now:.0f} s left)")
            self._reported, self._reported_at = report, now

    def _diagnose(self, host: Host) -> Diagnosis:
        """Explain why a host does not answer: its pod's status, and what a connection met."""
        reason = self.reasons.get(host, self._source.missing)
        if self.api is None:
            return Diagnosis(reason)
        try:
            pod = self.api.get(f"core/pods/{host.name}", patience=0.0)
        except ApiError as problem:
            if problem.status == 404:
                return _diagnose_absent_pod(self.api, self.run, host)
            return Diagnosis(f"{reason}; its pod cannot be read: {problem}")
        labels = pod["metadata"].get("labels", {})
        if labels.get("horovod/revision") != host.revision:
            # It may never answer, and nothing but the master replaces it.
            self._replace_stale(host)
            return Diagnosis(STALE)
        diagnosis = diagnose(pod)
        if diagnosis.queued:
            # launch.hostsTimeoutSeconds begins when the queue has admitted the workers.
            self.deadline = time.monotonic() + self.run.hosts_timeout
        return diagnosis._replace(reason=f"{diagnosis.reason}; {reason}")

    def _follow_host(self, host: Host) -> None:
        """Wait for a host; in an elastic run, wait for it again whenever its address changes."""
        while self._wait_for_host(host) and self.run.elastic:
            with self.changed:
                self.changed.wait_for(
                    lambda: self._closed or self._source.find(host) != self.answering[host]
                )
                del self.answering[host]
                self.changed.notify_all()

    def _wait_for_host(self, host: Host) -> bool:
        """Return True when the host answers as a worker of this run, False at the deadline."""
        while not self._closed and (self.run.elastic or time.monotonic() < self.deadline):
            address = self._source.find(host)
            reason: str | None = self._source.missing
            if address is not None:
                reason = probe(address, self.run.ssh_port, host.revision)
                if reason is None:
                    with self.changed:
                        self.answering[host] = address
                        self.changed.notify_all()
                    return True
                if reason.startswith(STALE):
                    self._replace_stale(host)
            with self.changed:
                self.reasons[host] = str(reason)
                # Nothing announces that a host listens from now on: ask again soon.
                self.changed.wait(self._source.poll_seconds if address else ADDRESS_CHECK_EVERY)
        return False

    def _replace_stale(self, host: Host) -> None:
        """Delete a worker of an earlier revision, once: its StatefulSet creates a new one."""
        if self.api is None or host.name in self._replaced:
            return
        self._replaced.add(host.name)
        log(f"{host.name} is {STALE}: replacing it")
        try:
            self.api.delete(f"core/pods/{host.name}", patience=0.0)
        except ApiError as problem:
            if problem.status != 404:
                log(f"cannot replace {host.name}: {problem}")

    def _missing_error(self, missing: list[Host]) -> RunError:
        diagnoses = {host.name: self._diagnose(host) for host in missing}
        remedies = [diagnosis.remedy for diagnosis in diagnoses.values() if diagnosis.remedy]
        lines = [
            f"{len(missing)} of {len(self.run.hosts)} hosts did not answer "
            f"within launch.hostsTimeoutSeconds={self.run.hosts_timeout:.0f}:",
            *(f"  {name}: {diagnosis.reason}" for name, diagnosis in diagnoses.items()),
            *(f"what to do: {remedy}" for remedy in dict.fromkeys(remedies)),
        ]
        is_hopeless = any(diagnosis.hopeless for diagnosis in diagnoses.values())
        return (ConfigurationError if is_hopeless else RunError)("\n".join(lines))


def _diagnose_absent_pod(api: Api, run: Run, host: Host) -> Diagnosis:
    """Explain why a host has no pod. Workers that were scaled to 0 are scaled up again."""
    try:
        if scale_up_from_zero(api, host.stateful_set, run.initial_workers(host.stateful_set)):
            log(f"{host.stateful_set} was scaled to 0: scaling it up again")
        message = creation_failure(api, host.stateful_set, host.name)
    except ApiError as problem:
        message = str(problem)
    return diagnose_refusal(message)


def start_address_source(run: Run, api: Api | None) -> DnsAddresses | SliceAddresses:
    """Follow the EndpointSlices of the run's Service, or use DNS where they cannot be read."""
    if api is None:
        return DnsAddresses()
    source = SliceAddresses(api, run.service)
    try:
        source.start()
    except ApiError as problem:
        log(f"EndpointSlices cannot be read ({problem}): asking DNS for the hosts instead")
        return DnsAddresses()
    return source


def probe(address: str, port: int, revision: str) -> str | None:
    """Return None if an SSH server of this revision answers, else what happened instead."""
    # An IPv6 address has colons of its own.
    where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    try:
        with socket.create_connection((address, port), timeout=PROBE_TIMEOUT) as connection:
            banner = connection.makefile("rb").readline(256).decode("ascii", "replace").strip()
    except OSError as problem:
        return f"{where} does not answer: {problem.strerror or problem}"
    if not banner.startswith("SSH-2.0-"):
        return f"{where} is not an SSH server: it sent {banner!r}"
    if not banner.endswith(BANNER_MARK + revision):
        return f"{STALE}: {where} sent {banner!r}, this run needs {BANNER_MARK}{revision}"
    return None
