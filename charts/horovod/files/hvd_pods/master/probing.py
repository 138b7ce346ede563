"""Asks many hosts at once whether they answer as workers of this run, in one thread.

Nothing announces that a host listens from now on, so that it is asked again and again: every 50 ms
at first, then with pauses of a tenth of the time that it has had its address. So no start takes
more than a tenth longer than it must, and hosts whose image is pulled for minutes are asked every
two seconds. When the kubelet has seen a host listen (its endpoint is `serving`), it is asked at
once.

The connection to a host that answered stays open (files/liveness.py). When it breaks, the host is
asked again. It still counts as answering until it has been silent for `lost_after` seconds.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import math
import os
import selectors
import socket
import threading
import time
from collections import deque
from typing import Callable, Mapping, Sequence

from hvd_pods.common.reporting import log
from hvd_pods.common.run import Host
from hvd_pods.common.ssh import STALE, find_banner_problem
from hvd_pods.master import liveness
from hvd_pods.master.addresses import Endpoint

# Seconds between two attempts on a host: at least, at most, and as a part of its time so far.
FIRST_PAUSE, LONGEST_PAUSE, PART_OF_TIME = 0.05, 2.0, 0.1
# Attempts a second on all hosts together, beyond the first one on each.
HIGHEST_RATE = 1000.0
# Seconds that a host has to accept a connection and to send its banner.
PROBE_TIMEOUT = 2.0
# Connections that are open at once: many systems allow a process 1024 files.
MOST_OPEN = 400
LONGEST_BANNER = 256
# Seconds between two attempts on a host that answered and is silent, and between two connections.
SUSPECT_EVERY = 1.0


class Target:
    """A host, and where the attempts on it stand."""

    def __init__(self, number: int, host: Host) -> None:
        self.number = number
        self.host = host
        self.endpoint: Endpoint | None = None
        self.since = 0.0
        # When to try, or until when the attempt that is under way may take; None: not at all.
        self.due: float | None = None
        self.is_queued = False
        self.connection: socket.socket | None = None
        self.received = b""
        # The connection was kept after an answer, and since when.
        self.is_held = False
        self.held_since = 0.0
        # Since when a host that answered has been silent; infinite while it is not.
        self.silent_since = math.inf


class Prober:
    """Follows which hosts answer, in a thread from `start` to `close`.

    The condition `changed` guards `answering`, the hosts' addresses, and `reasons`, why a host does
    not answer. A host that has both may be lost soon. `wake` has to be called when endpoints have
    changed. With `lost_after` 0, a host that answered is not looked at again.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        port: int,
        endpoints: Callable[[], Mapping[str, Endpoint]],
        changed: threading.Condition,
        lost_after: float = 0.0,
    ) -> None:
        self._lost_after = lost_after
        self.changed = changed
        self.answering: dict[Host, str] = {}
        self.reasons: dict[Host, str] = {}
        self._targets = [Target(number, host) for number, host in enumerate(hosts)]
        self._port = port
        self._endpoints = endpoints
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        # (due, number of the target); entries that no longer match the target's `due` are skipped.
        self._timers: list[tuple[float, int]] = []
        # Those to try as soon as there are fewer connections.
        self._queue: deque[Target] = deque()
        # How many hosts have an address and do not answer, and how many have an open connection.
        self._waiting = self._held = 0
        self._has_news = False
        # All hosts are silent, and that was logged.
        self._is_alone = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="probe-hosts", daemon=True)

    def start(self) -> None:
        """Begin to ask the hosts."""
        self._thread.start()

    def wake(self) -> None:
        """Look at the endpoints, which have changed."""
        # A full pipe wakes as well, and after the end there is nobody to wake.
        with contextlib.suppress(BlockingIOError, OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self.wake()

    def _run(self) -> None:
        self._follow_endpoints()
        while not self._closed:
            self._handle_due()
            for key, _ in self._selector.select(self._seconds_to_wait()):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        while self._woken.recv(4096):
                            pass
                    self._follow_endpoints()
                elif key.fileobj is key.data.connection:
                    self._receive(key.data)
            if self._has_news:
                self._has_news = False
                with self.changed:
                    self.changed.notify_all()
        for target in self._targets:
            self._disconnect(target)
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _follow_endpoints(self) -> None:
        """Try hosts that have a new address or have begun to serve; forget those that are gone."""
        endpoints = self._endpoints()
        now = time.monotonic()
        for target in self._targets:
            before, target.endpoint = target.endpoint, endpoints.get(target.host.name)
            if target.endpoint == before:
                continue
            target.since = now
            if not (before and before.is_same_pod(target.endpoint)):
                self._disconnect(target)
                self._forget(target)
                with self.changed:
                    self.reasons.pop(target.host, None)
            if target.host not in self.answering and not target.connection:
                self._set_timer(target, now if target.endpoint else None)
        known = sum(1 for target in self._targets if target.endpoint)
        self._waiting = known - len(self.answering)

    def _forget(self, target: Target) -> None:
        """Count a host as one that does not answer."""
        target.silent_since = math.inf
        with self.changed:
            if self.answering.pop(target.host, None):
                self._has_news = True
                self._waiting += 1

    def _set_timer(self, target: Target, due: float | None) -> None:
        target.due = due
        if due is not None:
            heapq.heappush(self._timers, (due, target.number))

    def _seconds_to_wait(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _handle_due(self) -> None:
        """Begin the attempts that are due, and end those that took too long."""
        while self._timers and self._timers[0][0] <= time.monotonic():
            due, number = heapq.heappop(self._timers)
            target = self._targets[number]
            if target.due != due:
                continue
            if target.connection:
                self._end_attempt(target, self._no_answer(socket.timeout("timed out")))
            elif not target.is_queued:
                target.is_queued = True
                self._queue.append(target)
        # The selector's first file is the one that wakes it.
        while self._queue and len(self._selector.get_map()) - 1 - self._held < MOST_OPEN:
            target = self._queue.popleft()
            target.is_queued = False
            if target.endpoint:
                self._connect(target)

    def _connect(self, target: Target) -> None:
        assert target.endpoint  # noqa: S101
        address = target.endpoint.address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            target.connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError as problem:
            self._end_attempt(target, self._no_answer(problem))
            return
        target.connection.setblocking(False)
        if self._lost_after:
            liveness.watch(target.connection, self._lost_after)
        code = target.connection.connect_ex((address, self._port))
        if code not in (0, errno.EINPROGRESS):
            self._end_attempt(target, self._no_answer(OSError(code, os.strerror(code))))
            return
        # A connection that fails becomes readable, too.
        self._selector.register(target.connection, selectors.EVENT_READ, target)
        self._set_timer(target, time.monotonic() + PROBE_TIMEOUT)

    def _receive(self, target: Target) -> None:
        assert target.connection  # noqa: S101
        try:
            data = target.connection.recv(LONGEST_BANNER)
        except BlockingIOError:
            return
        except OSError as problem:
            self._end_attempt(target, self._no_answer(problem))
            return
        if target.is_held:
            if not data:
                self._end_attempt(target, f"port {self._port} closed the connection")
            return
        target.received += data
        is_complete = b"\n" in target.received or len(target.received) >= LONGEST_BANNER
        if is_complete or not data:
            line = target.received.partition(b"\n")[0][:LONGEST_BANNER]
            banner = line.decode("ascii", "replace").strip()
            self._end_attempt(target, find_banner_problem(banner, self._port, target.host.revision))

    def _no_answer(self, problem: OSError) -> str:
        return f"port {self._port} does not answer: {problem.strerror or problem}"

    def _end_attempt(self, target: Target, reason: str | None) -> None:
        """Keep the result of an attempt; `reason` is None when the host answered as it should."""
        if reason is None:
            self._hold(target)
            return
        now, was_held = time.monotonic(), target.is_held
        heard = now
        if was_held and target.connection:
            heard -= liveness.silence(target.connection)
        self._disconnect(target)
        with self.changed:
            self.reasons[target.host] = reason
            was_answering = target.host in self.answering
        if reason.startswith(STALE):
            self._has_news = True
        if not was_answering:
            pause = min(max(FIRST_PAUSE, (now - target.since) * PART_OF_TIME), LONGEST_PAUSE)
            self._set_timer(target, now + max(pause, self._waiting / HIGHEST_RATE))
            return
        target.silent_since = min(target.silent_since, heard)
        if not was_held and self._is_lost(target, now):
            self._forget(target)
        is_first = was_held and now - target.held_since > SUSPECT_EVERY
        self._set_timer(target, now if is_first else now + SUSPECT_EVERY)

    def _is_lost(self, target: Target, now: float) -> bool:
        silent, limit = now - target.silent_since, self._lost_after
        held = (item.connection for item in self._targets if item.is_held)
        if silent >= limit and not liveness.is_any_responding(held):
            limit *= liveness.ALL_LOST_AFTER
            if not self._is_alone:
                log(f"no host responds: this pod may have lost the network; waiting {limit:.0f} s")
            self._is_alone = True
        return silent >= limit

    def _hold(self, target: Target) -> None:
        """Note that a host answers, and keep its connection to see when it no longer does."""
        assert target.endpoint  # noqa: S101
        target.silent_since, target.received = math.inf, b""
        with self.changed:
            self.reasons.pop(target.host, None)
            if target.host not in self.answering:
                self.answering[target.host] = target.endpoint.address
                self._has_news = True
                self._waiting -= 1
        self._set_timer(target, None)
        self._is_alone = False
        if self._lost_after:
            target.is_held, target.held_since = True, time.monotonic()
            self._held += 1
        else:
            self._disconnect(target)

    def _disconnect(self, target: Target) -> None:
        self._held -= target.is_held
        target.is_held = False
        if target.connection:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(target.connection)
            target.connection.close()
            target.connection, target.received = None, b""
