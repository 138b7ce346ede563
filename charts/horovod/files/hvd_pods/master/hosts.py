"""Waits until enough hosts answer, and explains which are missing and why."""

from __future__ import annotations

import threading
import time
from typing import Callable, Collection, Mapping, Sequence

from hvd_pods.common.errors import (
    ConfigurationError,
    HostsTimeoutError,
    InterruptedRunError,
    RunError,
)
from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host, Pod, Run
from hvd_pods.common.ssh import STALE
from hvd_pods.master.addresses import DnsAddresses, Endpoint, SliceAddresses
from hvd_pods.master.kube import Api
from hvd_pods.master.missing import Diagnoses, PodCheck, describe
from hvd_pods.master.probing import Prober
from hvd_pods.master.spares import choose_hosts, count_missing_workers

# Seconds until the pods of missing hosts are read: soon at first, because an upgrade may have left
# pods that will never answer; then seldom, because each is a request to the API server.
FIRST_REPORT_AFTER, REPORT_EVERY = 1.0, 5.0
# An unchanged report is repeated after this many seconds, to show that the master still waits.
REPEAT_REPORT_AFTER = 60.0
# A signal to end the pod wakes no thread that waits for hosts: look for it this often, in seconds.
STOP_CHECK_EVERY = 1.0
# Seconds that a run which was training already waits for more hosts than it needs: each that joins
# later interrupts the ranks.
RESUME_WITHIN = 10.0
NOT_YET = "it has not responded yet"


class HostRendezvous:
    """Waits for the hosts of a run: one thread asks them, one looks at the pods of those missing.

    `answering` follows hosts that come and go until `close`; once a run has begun that is not
    elastic, those that go. The condition `changed` guards it and `reasons`, why a host does not
    answer. `deadline` is by time.monotonic(). `announce` is told of problems that do not pass by
    themselves.
    """

    def __init__(
        self,
        run: Run,
        api: Api | None,
        is_stopped: Callable[[], bool],
        announce: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.run = run
        self.changed = threading.Condition()
        self._reset_deadline()
        self._resume_at = time.monotonic() + RESUME_WITHIN
        self._is_stopped = is_stopped
        self._announce = announce
        self._source: SliceAddresses | DnsAddresses = (
            SliceAddresses(api, run, self._wake) if api else DnsAddresses(run.hosts, self._wake)
        )
        self._prober = Prober(
            run.hosts, run.ssh_port, self._find_endpoints, self.changed, run.lost_after
        )
        self.answering, self.reasons = self._prober.answering, self._prober.reasons
        self._pods = PodCheck(run, api, lambda: self._closed or is_stopped())
        self._failure: RunError | None = None
        # Hosts that have answered once.
        self._arrived: set[Host] = set()
        # Stale hosts that were looked at, and reasons that were announced.
        self._seen: set[Host] = set()
        self._announced: set[str] = set()
        self._reported, self._reported_at = "", 0.0
        # Those with which a run began that is not elastic.
        self._last_endpoints: Mapping[str, Endpoint] = {}
        # No more hosts are looked for, and none is followed either.
        self._is_waiting, self._closed, self.ended = True, False, False

    def wait(self) -> dict[Host, str]:
        """Return the addresses, in the run's order, as soon as enough hosts answer.

        Raises RunError when no further host has come within launch.hostsTimeoutSeconds, when a
        problem lasts that does not pass by itself, and when this pod is asked to end.
        """
        self._prober.start()
        self._source.start()
        threading.Thread(target=self._check_pods, name="check-pods", daemon=True).start()
        while True:
            with self.changed:
                left = self.deadline - time.monotonic()
                self.changed.wait_for(
                    lambda: self.is_enough() or self._failure or self._has_new_hosts(),
                    min(left, STOP_CHECK_EVERY),
                )
                if self.is_enough():
                    return self._begin()
                if self._has_new_hosts():
                    # An autoscaler may bring one node after the other.
                    self._arrived.update(self.answering)
                    self._reset_deadline()
            if self._closed or self._is_stopped():
                raise InterruptedRunError("terminated while waiting for hosts")
            if self._failure:
                raise self._failure
            if time.monotonic() >= self.deadline:
                what = (
                    f"did not answer within launch.hostsTimeoutSeconds={self.run.hosts_timeout:.0f}"
                )
                diagnoses = self._diagnose(self._missing())
                raise self._missing_error(diagnoses, what, HostsTimeoutError)

    def _reset_deadline(self) -> None:
        until = time.monotonic() + self.run.hosts_timeout
        self.deadline = min(until, self.run.wait_until)

    def _has_new_hosts(self) -> bool:
        return not self.answering.keys() <= self._arrived

    def _begin(self) -> dict[Host, str]:
        """Return the hosts to start with. Only an elastic run has a use for others later.

        Another master may replace the workers while this one ends: it must not do the same to them.
        """
        self._is_waiting = False
        if self.run.elastic:
            return self.addresses()
        # A pod that is to end is still there until its grace period is over.
        self._last_endpoints = self._source.endpoints()
        self._stop_looking()
        return choose_hosts(self.run, self.answering)

    def close(self) -> None:
        """End the threads."""
        self._prober.close()
        self.ended = True
        self._stop_looking()

    def _find_endpoints(self) -> Mapping[str, Endpoint]:
        return self._last_endpoints or self._source.endpoints()

    def _stop_looking(self) -> None:
        self._source.close()
        if not self.run.lost_after:
            self._prober.close()
        with self.changed:
            self._closed = True
            self.changed.notify_all()

    def addresses(self) -> dict[Host, str]:
        """Return the hosts that answer now, in the run's order."""
        with self.changed:
            return {host: self.answering[host] for host in self.run.hosts if host in self.answering}

    def pods(self, addresses: Mapping[Host, str]) -> dict[Host, Pod]:
        """Return the pods of hosts that answer at these addresses."""
        known, found = self._find_endpoints(), {}
        for host, address in addresses.items():
            endpoint = known.get(host.name)
            if endpoint is None or endpoint.address != address:
                endpoint = Endpoint(address)
            found[host] = Pod(address, endpoint.uid, endpoint.node)
        return found

    def wait_for_change(
        self, known: dict[Host, str], seconds: float | None = None
    ) -> dict[Host, str] | None:
        """The hosts that answer once they differ from `known` or `seconds` pass; None if closed."""
        with self.changed:
            self.changed.wait_for(lambda: self._closed or self.answering != known, seconds)
            return None if self._closed else self.addresses()

    def wait_for_loss(self, hosts: Collection[Host]) -> dict[Host, str]:
        """Return those of the hosts that are lost, and why, as soon as some are; {} after `close`.

        They are silent for launch.lostAfterSeconds.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.ended or not self.answering.keys() >= set(hosts))
            return {} if self.ended else self.broken(hosts)

    def broken(self, hosts: Collection[Host]) -> dict[Host, str]:
        """Return those of the hosts that do not answer at this moment, and why."""
        with self.changed:
            return {host: self.reasons[host] for host in hosts if host in self.reasons}

    def explain(self, broken: Mapping[Host, str]) -> str:
        """Report what the API server says about the pods of hosts that do not answer."""
        return "; ".join(describe(self._pods.check(list(broken), broken)))

    def is_enough(self) -> bool:
        """Whether the run can start."""
        if not self.run.elastic:
            return not count_missing_workers(self.run, self.answering)
        slots = sum(host.slots for host in self.answering)
        is_resumed = self.run.resumed and time.monotonic() >= self._resume_at
        return slots >= (self.run.ranks_to_start if is_resumed else self.run.ranks)

    def _wake(self) -> None:
        self._prober.wake()

    def _missing(self) -> list[Host]:
        """Return the hosts that do not answer, of groups that need more; spares are among them."""
        lacking = count_missing_workers(self.run, self.answering)
        return [
            host
            for host in self.run.hosts
            if host not in self.answering
            and (not host.optional if self.run.elastic else host.stateful_set in lacking)
        ]

    def _count_missing(self, missing: Sequence[Host]) -> str:
        """Report how many of the hosts to start with are missing: spares may replace them."""
        needed = sum(self.run.needed_workers.values())
        with self.changed:
            lacking = sum(count_missing_workers(self.run, self.answering).values())
        number = len(missing) if self.run.elastic else min(lacking, len(missing))
        return f"{number} of {needed} hosts"

    def _stale(self) -> set[Host]:
        """Return the hosts that answer as workers of an earlier revision."""
        return {host for host, reason in self.reasons.items() if reason.startswith(STALE)}

    def _check_pods(self) -> None:
        """Look at the pods of missing hosts while the run waits, and when a stale worker answers.

        A thread of its own: an API server that does not answer must not delay the start.
        """
        pause = FIRST_REPORT_AFTER
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._closed or self._stale() - self._seen, pause)
                if self._closed or self._is_stopped():
                    return
                stale = self._stale()
                missing = self._missing() if self._is_waiting else []
            if missing or stale:
                self._report(missing, self._diagnose([*missing, *(stale - set(missing))]))
            pause, self._seen = REPORT_EVERY, stale

    def _diagnose(self, missing: Sequence[Host]) -> Diagnoses:
        known = self._find_endpoints()
        with self.changed:
            reasons = {
                host: self.reasons.get(
                    host, NOT_YET if host.name in known else self._source.missing
                )
                for host in missing
            }
        return self._pods.check(missing, reasons)

    def _report(self, missing: Sequence[Host], diagnoses: Diagnoses) -> None:
        """Log why hosts are missing, and let the run fail for a problem that lasts."""
        with self.changed:
            # Some may have answered since.
            missing = [host for host in missing if host not in self.answering]
        if not missing:
            return
        found = {host: diagnoses[host] for host in missing}
        if any(item.queued for item in found.values()):
            # launch.hostsTimeoutSeconds begins when they are admitted, and have their data.
            self._reset_deadline()
        text = "; ".join(describe(found))
        report = f"waiting for {self._count_missing(missing)}: {text}"
        now = time.monotonic()
        if report != self._reported or now - self._reported_at > REPEAT_REPORT_AFTER:
            log(f"{report} ({self.deadline - now:.0f} s left)")
            self._reported, self._reported_at = report, now
        stuck = {host: item for host, item in found.items() if item.wait_seconds is not None}
        if any(item.reason not in self._announced for item in stuck.values()):
            self._announced |= {item.reason for item in stuck.values()}
            self._announce("; ".join([*describe(stuck), *_remedies(stuck)]))
        if self._is_too_few(self._pods.find_lasting(stuck)):
            with self.changed:
                self._failure = self._missing_error(found, "cannot start", RunError)
                self.changed.notify_all()

    def _is_too_few(self, lasting: Collection[Host]) -> bool:
        """Whether a group has more hosts with problems that last than spares."""
        for name in self.run.stateful_sets:
            spares = self.run.initial_workers[name] - self.run.needed_workers[name]
            if sum(host.stateful_set == name for host in lasting) > spares:
                return True
        return False

    def _missing_error(self, diagnoses: Diagnoses, what: str, kind: type[RunError]) -> RunError:
        lines = [
            f"{self._count_missing(list(diagnoses))} {what}:",
            *(f"  {line}" for line in describe(diagnoses)),
            *_remedies(diagnoses),
        ]
        is_permanent = any(found.permanent for found in diagnoses.values())
        return (ConfigurationError if is_permanent else kind)("\n".join(lines))


def _remedies(diagnoses: Diagnoses) -> list[str]:
    remedies = dict.fromkeys(found.remedy for found in diagnoses.values() if found.remedy)
    return [f"what to do: {remedy}" for remedy in remedies]
