"""Asks many workers at once whether they answer as those of this run, in one thread.

Nothing announces that a worker listens from now on, so that it is asked again and again: every 50
ms at first, then with pauses of a tenth of the time that it has had its address. So no start takes
more than a tenth longer than it must, and workers whose image is pulled for minutes are asked every
two seconds. When the kubelet has seen a worker listen (its endpoint is `serving`), it is asked at
once.

The connection to a worker that answered stays open, to see that it is still there. Nothing is sent
on it. The kernels ask each other after some idle seconds (TCP keepalive), and a kernel answers
however busy its worker is. That costs no CPU time on the workers, where a TLS handshake every few
seconds would. When it breaks, the worker is asked again each second; and it is replaced by another
one before the agent's time for a silent client is over. Of a worker that has answered, only its
kernel counts: a connection that is accepted shows that it is there, whatever its agent then says.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import math
import os
import selectors
import socket
import struct
import time
from collections import deque
from typing import Collection, Mapping, Sequence

from hvd_pods.agent.banner import LONGEST_BANNER, NoAnswer, find_banner_problem
from hvd_pods.cluster.addresses import DnsAddresses, Endpoint, SliceAddresses
from hvd_pods.cluster.spawn import spawn
from hvd_pods.common.run import Pod, Worker
from hvd_pods.rules.diagnosis import NO_ANSWER
from hvd_pods.rules.events import Put, WorkerAnswers, WorkerGone, WorkerProblem

# Seconds between two attempts on a worker: at least, at most, and as a part of its time so far.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
PART_OF_TIME = 0.1
# Attempts a second on all workers together, beyond the first one on each.
HIGHEST_RATE = 1000.0
# Seconds that a worker has to accept a connection and to send its banner.
PROBE_TIMEOUT = 2.0
# Connections that are open at once: many systems allow a process 1024 files.
MOST_OPEN = 400
# Seconds between two attempts on a worker that answered and is silent, and between two connections.
SUSPECT_EVERY = 1.0
# Seconds until a kept connection is renewed: before `silent_within` of worker/limits.py is over.
RENEW_EVERY = 60.0
# TCP keepalive: idle seconds before the first probe, and between probes; SHORT stands for both if
# a worker counts as lost sooner than after PATIENT seconds.
IDLE = 3
INTERVAL = 2
SHORT = 1
PATIENT = 8.0
# A live worker was heard from within this many times the idle seconds of the keepalive.
HEARD_WITHIN = 2
# Seconds that a worker which was silent for long enough has to accept one more connection.
LAST_TRY = 0.5
# The member tcpi_last_ack_recv of the kernel's struct tcp_info: milliseconds.
LAST_HEARD = 56
TCP_INFO_SIZE = 104


class Target:
    """A worker, and where the attempts on it stand."""

    def __init__(self, number: int, worker: Worker) -> None:
        self.number = number
        self.worker = worker
        self.endpoint: Endpoint | None = None
        self.since = 0.0
        # When to try, or until when the attempt that is under way may take; None: not at all.
        self.due: float | None = None
        self.is_queued = False
        # The attempt that is under way.
        self.connection: socket.socket | None = None
        self.received = b""
        # The connection that is kept, and since when.
        self.held: socket.socket | None = None
        self.held_since = 0.0
        # The worker has answered at this address, and nothing else was reported since.
        self.has_answered = self.is_reported = False
        # Since when a worker that answered has been silent; infinite while it is not.
        self.silent_since = math.inf
        # What was reported last.
        self.why: NoAnswer | None = None


class Prober:
    """Tells which workers answer, from `start` to `close`; with `lost_after` 0, each only once."""

    def __init__(
        self,
        workers: Sequence[Worker],
        port: int,
        source: SliceAddresses | DnsAddresses,
        put: Put,
        attempt: int,
        lost_after: float = 0.0,
    ) -> None:
        self.attempt = attempt
        self._lost_after = lost_after
        self._targets = [Target(number, worker) for number, worker in enumerate(workers)]
        self._port = port
        self._source = source
        self._put = put
        # The addresses of workers that are followed no longer, which may be all.
        self._frozen: Mapping[str, Endpoint] = {}
        self._is_frozen = False
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        # (due, number of the target); entries that no longer match the target's `due` are skipped.
        self._timers: list[tuple[float, int]] = []
        # Targets to try as soon as there are fewer connections.
        self._queue: deque[Target] = deque()
        # How many workers have an address and do not answer, and how many have an open connection.
        self._waiting = self._held = 0
        self.is_closed = False
        # The time after which workers are lost is another one since the connections were made.
        self._is_changed = False

    def start(self) -> None:
        spawn("probe-workers", self._run)
        self._source.start(self.wake)

    def freeze(self, workers: Collection[str] | None = None) -> None:
        """Keep the addresses of these workers, or of all, that are known now.

        With all of them, workers that cannot be lost are asked no longer.
        """
        known = self._source.endpoints()
        if workers is not None:
            self._frozen = {name: known[name] for name in workers if name in known}
            return
        self._frozen = known
        self._is_frozen = True
        self._source.close()
        if not self._lost_after:
            self.close()

    def lose_after(self, seconds: float) -> None:
        """Notice from now on within so many seconds that a worker is silent."""
        self._lost_after = seconds
        self._is_changed = True
        self.wake()

    def wake(self) -> None:
        """Look at the endpoints, which have changed."""
        # A full pipe wakes as well, and after the end there is nobody to wake.
        with contextlib.suppress(BlockingIOError, OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Ask no longer."""
        self.is_closed = True
        self._source.close()
        self.wake()

    def _run(self) -> None:
        for target in self._targets:
            self._report(target, self._source.missing)
        self._follow_endpoints()
        while not self.is_closed:
            self._handle_due()
            due = self._timers[0][0] if self._timers else None
            left = None if due is None else max(0.0, due - time.monotonic())
            for key, _ in self._selector.select(left):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        while self._woken.recv(4096):
                            pass
                    self._follow_change()
                    self._follow_endpoints()
                elif key.fileobj is key.data.connection:
                    self._receive(key.data)
                elif key.fileobj is key.data.held:
                    self._watch(key.data)
        for target in self._targets:
            self._disconnect(target)
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _follow_change(self) -> None:
        """Let the kernel end the kept connections within the time that holds now."""
        if self._is_changed:
            self._is_changed = False
            for target in self._targets:
                if target.held:
                    keep_alive(target.held, self._lost_after)

    def _report(self, target: Target, why: NoAnswer, silent: float = 0.0) -> None:
        """Report why a worker does not answer, if that is news, and each time of one that did."""
        if why == target.why and not target.has_answered:
            return
        target.why = why
        held = (item.held for item in self._targets if item.held)
        limit = HEARD_WITHIN * keepalive_times(self._lost_after)[0]
        all_workers_silent = target.has_answered and all(silence(one) >= limit for one in held)
        self._put(WorkerProblem(self.attempt, target.worker.name, why, silent, all_workers_silent))

    def _follow_endpoints(self) -> None:
        """Try workers that have a new address or begin to serve; forget those that are gone."""
        endpoints = self._frozen
        if not self._is_frozen:
            endpoints = {**self._source.endpoints(), **self._frozen}
        now = time.monotonic()
        for target in self._targets:
            before = target.endpoint
            target.endpoint = endpoints.get(target.worker.name)
            if target.endpoint == before:
                if target.endpoint is None:
                    self._report(target, self._source.missing)
                continue
            target.since = now
            if not (before and before.is_same_pod(target.endpoint)):
                self._disconnect(target)
                if target.has_answered:
                    target.has_answered = target.is_reported = False
                    self._put(WorkerGone(self.attempt, target.worker.name))
                self._report(target, NO_ANSWER if target.endpoint else self._source.missing)
            if not target.has_answered and not target.connection:
                self._set_timer(target, now if target.endpoint else None)
        self._waiting = sum(1 for t in self._targets if t.endpoint and not t.has_answered)

    def _set_timer(self, target: Target, due: float | None) -> None:
        target.due = due
        if due is not None:
            heapq.heappush(self._timers, (due, target.number))

    def _handle_due(self) -> None:
        """Begin the attempts that are due, and end those that took too long."""
        while self._timers and self._timers[0][0] <= time.monotonic():
            due, number = heapq.heappop(self._timers)
            target = self._targets[number]
            if target.due != due:
                continue
            if target.connection and target.has_answered and _is_accepted(target.connection):
                # The agent waits for CPU time, memory or a disk.
                self._keep(target)
            elif target.connection:
                self._fail(target, self._no_answer(socket.timeout("timed out")))
            elif not target.is_queued:
                target.is_queued = True
                self._queue.append(target)
        # The selector's first file is the one that wakes it.
        while self._queue and len(self._selector.get_map()) - 1 - self._held < MOST_OPEN:
            target = self._queue.popleft()
            target.is_queued = False
            if target.endpoint:
                self._connect(target, target.endpoint.address)

    def _connect(self, target: Target, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            target.connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError as problem:
            self._fail(target, self._no_answer(problem))
            return
        target.connection.setblocking(False)
        if self._lost_after:
            keep_alive(target.connection, self._lost_after)
        code = target.connection.connect_ex((address, self._port))
        if code not in (0, errno.EINPROGRESS):
            self._fail(target, self._no_answer(OSError(code, os.strerror(code))))
            return
        # A connection that fails becomes readable, too.
        self._selector.register(target.connection, selectors.EVENT_READ, target)
        now = time.monotonic()
        lost_at = max(now + LAST_TRY, target.silent_since + self._lost_after)
        self._set_timer(target, min(now + PROBE_TIMEOUT, lost_at))

    def _receive(self, target: Target) -> None:
        assert target.connection  # noqa: S101
        try:
            data = target.connection.recv(LONGEST_BANNER)
        except BlockingIOError:
            return
        except OSError as problem:
            self._fail(target, self._no_answer(problem))
            return
        target.received += data
        is_complete = b"\n" in target.received or len(target.received) >= LONGEST_BANNER
        if is_complete or not data:
            line = target.received.partition(b"\n")[0][:LONGEST_BANNER]
            banner = line.decode("ascii", "replace").strip()
            wrong = find_banner_problem(banner, self._port, target.worker.revision)
            if target.has_answered and not banner:
                self._end_attempt(target)
                target.silent_since = math.inf
                self._set_timer(target, time.monotonic() + SUSPECT_EVERY)
            elif wrong:
                # Another server is at this address now.
                self._release(target)
                self._fail(target, wrong)
            else:
                self._hold(target)

    def _watch(self, target: Target) -> None:
        """Read from the connection that is kept: mostly, that it has ended."""
        assert target.held  # noqa: S101
        now = time.monotonic()
        why = NoAnswer(f"port {self._port} closed the connection")
        try:
            if target.held.recv(LONGEST_BANNER):
                if not target.is_reported and not target.connection:
                    # A banner that comes late: the agent answers again.
                    self._set_timer(target, now)
                return
        except BlockingIOError:
            return
        except OSError as problem:
            why = self._no_answer(problem)
        target.is_reported = False
        target.silent_since = min(target.silent_since, now - silence(target.held))
        self._release(target)
        # A connection that breaks says less than a worker that does not accept another one.
        self._report(target, why)
        if not target.connection:
            is_first = now - target.held_since > SUSPECT_EVERY
            self._set_timer(target, now if is_first else now + SUSPECT_EVERY)

    def _no_answer(self, problem: OSError) -> NoAnswer:
        return NoAnswer(f"port {self._port} does not answer: {problem.strerror or problem}")

    def _fail(self, target: Target, why: NoAnswer) -> None:
        """Report that a worker does not answer, and try it again later."""
        now = time.monotonic()
        self._end_attempt(target)
        if not target.has_answered:
            self._report(target, why)
            pause = min(max(FIRST_PAUSE, (now - target.since) * PART_OF_TIME), LONGEST_PAUSE)
            self._set_timer(target, now + max(pause, self._waiting / HIGHEST_RATE))
            return
        if not target.held:
            target.is_reported = False
            target.silent_since = min(target.silent_since, now)
            self._report(target, why, now - target.silent_since)
        self._set_timer(target, now + SUSPECT_EVERY)

    def _hold(self, target: Target) -> None:
        """Report that a worker answers, and keep its connection to see when it no longer does."""
        assert target.endpoint  # noqa: S101
        target.why = None
        self._waiting -= not target.has_answered
        target.has_answered = True
        where = target.endpoint
        pod = Pod(where.address, where.uid, where.node)
        if not target.is_reported:
            self._put(WorkerAnswers(self.attempt, target.worker.name, pod))
        target.is_reported = True
        if self._lost_after:
            self._keep(target)
        else:
            self._set_timer(target, None)
            self._end_attempt(target)

    def _keep(self, target: Target) -> None:
        """Keep the connection of an attempt in place of the one before."""
        self._release(target)
        target.held = target.connection
        target.connection = None
        target.received = b""
        target.held_since = time.monotonic()
        target.silent_since = math.inf
        self._held += 1
        self._set_timer(target, target.held_since + RENEW_EVERY)

    def _release(self, target: Target) -> None:
        if target.held:
            self._close(target.held)
            target.held = None
            self._held -= 1

    def _end_attempt(self, target: Target) -> None:
        if target.connection:
            self._close(target.connection)
            target.connection = None
            target.received = b""

    def _disconnect(self, target: Target) -> None:
        self._end_attempt(target)
        self._release(target)

    def _close(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()


def _is_accepted(connection: socket.socket) -> bool:
    """Whether the other end's kernel has accepted a connection."""
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def keepalive_times(lost_after: float) -> tuple[int, int]:
    """Return TCP keepalive's idle seconds before the first probe, and those between probes."""
    return (IDLE, INTERVAL) if lost_after >= PATIENT else (SHORT, SHORT)


def keep_alive(connection: socket.socket, lost_after: float) -> None:
    """Let the kernel end this connection when the other end has been silent for about so long."""
    idle, interval = keepalive_times(lost_after)
    # The kernel takes no larger number.
    count = min(127, max(1, int(lost_after - idle) // interval))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)


def silence(connection: socket.socket) -> float:
    """Return the seconds for which the other end has been silent."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
    milliseconds: int = struct.unpack_from("I", state, LAST_HEARD)[0]
    return milliseconds / 1000
