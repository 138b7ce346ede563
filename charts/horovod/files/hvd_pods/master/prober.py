"""Probes many workers at once in one thread: whether each answers as a worker of this run.

No event announces that a worker listens, so the prober connects repeatedly: every 50 ms at first,
then with pauses of a tenth of the time that the worker has had its address. No start takes more
than a tenth longer than necessary, and workers whose image is pulled for minutes are probed every
two seconds. When the kubelet has seen a worker listen (its endpoint is serving), the prober
connects at once.

The connection to a worker that answered stays open, to detect the loss of the worker. It carries no
data. The kernels probe each other after some idle seconds (TCP keepalive), and a kernel responds
however busy its worker is. That costs no CPU time on the workers; a TLS handshake every few seconds
would. When the connection breaks, the worker is probed again each second. The prober renews the
connection before the agent's timeout for a silent client. For a worker that has answered, only its
kernel counts: an accepted connection shows that the worker is there, whatever its agent then sends.
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
from typing import Collection, Mapping, NamedTuple, Sequence

from hvd_pods.cluster.addresses import DnsAddresses, Endpoint, SliceAddresses
from hvd_pods.pod.threads import start_thread
from hvd_pods.protocol.banner import MAX_BANNER_BYTES, find_banner_problem
from hvd_pods.rules.events import EventSink, WorkerAnswers, WorkerGone, WorkerProblem
from hvd_pods.rules.missing_workers import SILENT_WORKER
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.run import Pod, Worker

# The pause between two attempts to connect to a worker, as a fraction of its time so far.
CONNECT_DELAY_SHARE = 0.1
# Attempts per second to connect to all workers together, beyond the first one for each.
MAX_CONNECTS_PER_SECOND = 1000.0
# TCP keepalive: idle seconds before the first probe, and between probes; SHORT_KEEPALIVE_SECONDS
# replaces both if a worker counts as lost sooner than after MIN_KEEPALIVE_PATIENCE_SECONDS.
PROBER_KEEPALIVE_IDLE_SECONDS = 3
PROBER_KEEPALIVE_INTERVAL_SECONDS = 2
SHORT_KEEPALIVE_SECONDS = 1
MIN_KEEPALIVE_PATIENCE_SECONDS = 8.0
# A live worker has responded within this many times the idle seconds of the keepalive.
SILENCE_FACTOR = 2
# Timeout in seconds for one more connection to a worker that was silent for long enough.
LAST_CONNECT_TIMEOUT_SECONDS = 0.5
# The member tcpi_last_ack_recv of the kernel's struct tcp_info: milliseconds.
LAST_HEARD_OFFSET = 56
TCP_INFO_SIZE = 104


class ProbeLimits(NamedTuple):
    """Seconds, and a number of connections. Tests have smaller ones."""

    # Between two attempts to connect to a worker: the minimum and the maximum.
    first_delay_seconds: float = 0.05
    longest_delay_seconds: float = 2.0
    # For a worker to accept a connection and to send its banner.
    answer_timeout_seconds: float = 2.0
    # Between two attempts for a worker that answered and is silent, and between two connections.
    suspect_interval_seconds: float = 1.0
    # Until a kept connection is renewed: sooner than `silence_timeout_seconds` of worker/limits.py.
    renew_interval_seconds: float = 60.0
    # Connections that are open at once: many systems allow a process 1024 files.
    most_open: int = 400


DEFAULT_LIMITS = ProbeLimits()


class ProbedWorker:
    """A worker, and the state of the attempts to connect to it."""

    def __init__(self, number: int, worker: Worker) -> None:
        self.number = number
        self.worker = worker
        self.endpoint: Endpoint | None = None
        self.since = 0.0
        # The time of the next attempt, or the deadline of the present one; None: no attempt.
        self.due: float | None = None
        self.is_queued = False
        # The connection of the present attempt.
        self.connection: socket.socket | None = None
        self.received = b""
        # The connection that is kept, and the time since which it is kept.
        self.kept_connection: socket.socket | None = None
        self.kept_since = 0.0
        # Whether the worker has answered at this address, and whether that is its last report.
        self.has_answered = self.is_reported = False
        # Since when a worker that answered has been silent; infinite while it is not.
        self.silent_since = math.inf
        # The problem that was reported last.
        self.last_problem: NoAnswer | None = None


class Prober:
    """Reports which workers answer, from `start` to `close`.

    With `lost_after_seconds` 0, it reports each once.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        port: int,
        source: SliceAddresses | DnsAddresses,
        put: EventSink,
        attempt: int,
        lost_after_seconds: float = 0.0,
        limits: ProbeLimits = DEFAULT_LIMITS,
    ) -> None:
        self.attempt = attempt
        self._limits = limits
        self._lost_after = lost_after_seconds
        self._probed = [ProbedWorker(number, worker) for number, worker in enumerate(workers)]
        self._port = port
        self._source = source
        self._put = put
        # The fixed addresses of workers, possibly of all, whose endpoints are no longer followed.
        self._frozen: Mapping[str, Endpoint] = {}
        self._is_frozen = False
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        # (due, number of the worker); entries that no longer match its `due` are skipped.
        self._timers: list[tuple[float, int]] = []
        # Workers to try as soon as there are fewer connections.
        self._queue: deque[ProbedWorker] = deque()
        # How many workers have an address and do not answer, and how many have an open connection.
        self._unanswered_count = self._kept_count = 0
        self.is_closed = False
        # The time after which workers are lost has changed since the connections were made.
        self._is_changed = False

    def start(self) -> None:
        start_thread("probe-workers", self._run)
        self._source.start(self.wake)

    def freeze(self, workers: Collection[str] | None = None) -> None:
        """Keep the present addresses of these workers, or of all workers.

        If all addresses are kept, workers that cannot be lost are no longer probed.
        """
        endpoints = self._source.endpoints()
        if workers is not None:
            self._frozen = {name: endpoints[name] for name in workers if name in endpoints}
            return
        self._frozen = endpoints
        self._is_frozen = True
        self._source.close()
        if not self._lost_after:
            self.close()

    def lose_after(self, seconds: float) -> None:
        """Detect from now on within so many seconds that a worker is silent."""
        self._lost_after = seconds
        self._is_changed = True
        self.wake()

    def wake(self) -> None:
        """Wake the thread: the endpoints have changed."""
        # A full pipe wakes the thread, too, and after the end there is no thread to wake.
        with contextlib.suppress(BlockingIOError, OSError):
            self._waker.send(b"\0")

    def close(self) -> None:
        """Stop probing."""
        self.is_closed = True
        self._source.close()
        self.wake()

    def _run(self) -> None:
        for probed in self._probed:
            self._report(probed, self._source.missing)
        self._follow_endpoints()
        while not self.is_closed:
            self._handle_due()
            due = self._timers[0][0] if self._timers else None
            seconds_left = None if due is None else max(0.0, due - time.monotonic())
            for key, _ in self._selector.select(seconds_left):
                ready: ProbedWorker | None = key.data
                if ready is None:
                    with contextlib.suppress(BlockingIOError):
                        while self._woken.recv(4096):
                            pass
                    self._follow_change()
                    self._follow_endpoints()
                elif ready.endpoint and ready.connection and key.fileobj is ready.connection:
                    self._receive(ready, ready.endpoint, ready.connection)
                elif ready.kept_connection and key.fileobj is ready.kept_connection:
                    self._receive_late(ready, ready.kept_connection)
        for probed in self._probed:
            self._disconnect(probed)
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def _follow_change(self) -> None:
        """Apply a changed time for lost workers to the kept connections."""
        if self._is_changed:
            self._is_changed = False
            for probed in self._probed:
                if probed.kept_connection:
                    watch_silence(probed.kept_connection, self._lost_after)

    def _report(self, probed: ProbedWorker, no_answer: NoAnswer, silent: float = 0.0) -> None:
        """Report why a worker does not answer: a new reason, or any if it answered before."""
        if no_answer == probed.last_problem and not probed.has_answered:
            return
        probed.last_problem = no_answer
        watched = (worker.kept_connection for worker in self._probed if worker.kept_connection)
        limit = SILENCE_FACTOR * keepalive_times(self._lost_after)[0]
        all_workers_silent = probed.has_answered and all(
            silence(connection) >= limit for connection in watched
        )
        self._put(
            WorkerProblem(self.attempt, probed.worker.name, no_answer, silent, all_workers_silent)
        )

    def _follow_endpoints(self) -> None:
        """Connect to workers that have a new address or begin to serve; forget removed ones."""
        endpoints = self._frozen
        if not self._is_frozen:
            endpoints = {**self._source.endpoints(), **self._frozen}
        now = time.monotonic()
        for probed in self._probed:
            before = probed.endpoint
            probed.endpoint = endpoints.get(probed.worker.name)
            if probed.endpoint == before:
                if probed.endpoint is None:
                    self._report(probed, self._source.missing)
                continue
            probed.since = now
            if not (before and before.is_same_pod(probed.endpoint)):
                self._disconnect(probed)
                if probed.has_answered:
                    probed.has_answered = probed.is_reported = False
                    self._put(WorkerGone(self.attempt, probed.worker.name))
                self._report(probed, SILENT_WORKER if probed.endpoint else self._source.missing)
            if not probed.has_answered and not probed.connection:
                self._set_timer(probed, now if probed.endpoint else None)
        self._unanswered_count = sum(
            1 for probed in self._probed if probed.endpoint and not probed.has_answered
        )

    def _set_timer(self, probed: ProbedWorker, due: float | None) -> None:
        probed.due = due
        if due is not None:
            heapq.heappush(self._timers, (due, probed.number))

    def _handle_due(self) -> None:
        """Start the attempts that are due, and end those that took too long."""
        while self._timers and self._timers[0][0] <= time.monotonic():
            due, number = heapq.heappop(self._timers)
            probed = self._probed[number]
            if probed.due != due:
                continue
            if probed.connection and probed.has_answered and _is_accepted(probed.connection):
                # The worker's kernel responds: the agent waits for CPU time, memory or a disk.
                self._keep_connection(probed)
            elif probed.connection:
                self._note_failure(probed, self._no_answer(socket.timeout("timed out")))
            elif not probed.is_queued:
                probed.is_queued = True
                self._queue.append(probed)
        # The selector's first file is the one that wakes it.
        while (
            self._queue
            and len(self._selector.get_map()) - 1 - self._kept_count < self._limits.most_open
        ):
            probed = self._queue.popleft()
            probed.is_queued = False
            if probed.endpoint:
                self._connect(probed, probed.endpoint.address)

    def _connect(self, probed: ProbedWorker, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            probed.connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError as problem:
            self._note_failure(probed, self._no_answer(problem))
            return
        probed.connection.setblocking(False)
        if self._lost_after:
            watch_silence(probed.connection, self._lost_after)
        code = probed.connection.connect_ex((address, self._port))
        if code not in (0, errno.EINPROGRESS):
            self._note_failure(probed, self._no_answer(OSError(code, os.strerror(code))))
            return
        # A connection that fails becomes readable, too.
        self._selector.register(probed.connection, selectors.EVENT_READ, probed)
        now = time.monotonic()
        lost_at = max(now + LAST_CONNECT_TIMEOUT_SECONDS, probed.silent_since + self._lost_after)
        self._set_timer(probed, min(now + self._limits.answer_timeout_seconds, lost_at))

    def _receive(self, probed: ProbedWorker, endpoint: Endpoint, connection: socket.socket) -> None:
        try:
            data = connection.recv(MAX_BANNER_BYTES)
        except BlockingIOError:
            return
        except OSError as problem:
            self._note_failure(probed, self._no_answer(problem))
            return
        probed.received += data
        is_complete = b"\n" in probed.received or len(probed.received) >= MAX_BANNER_BYTES
        if is_complete or not data:
            line = probed.received.partition(b"\n")[0][:MAX_BANNER_BYTES]
            banner = line.decode("ascii", "replace").strip()
            wrong = find_banner_problem(banner, self._port, probed.worker.revision)
            if probed.has_answered and not banner:
                self._end_attempt(probed)
                probed.silent_since = math.inf
                self._set_timer(probed, time.monotonic() + self._limits.suspect_interval_seconds)
            elif wrong:
                # Another server is at this address now.
                self._drop_kept_connection(probed)
                self._note_failure(probed, wrong)
            else:
                self._note_answer(probed, endpoint)

    def _receive_late(self, probed: ProbedWorker, connection: socket.socket) -> None:
        """Read from the connection that is kept: usually its end."""
        now = time.monotonic()
        no_answer = NoAnswer(f"port {self._port} closed the connection")
        try:
            if connection.recv(MAX_BANNER_BYTES):
                if not probed.is_reported and not probed.connection:
                    # A banner that comes late: the agent answers again.
                    self._set_timer(probed, now)
                return
        except BlockingIOError:
            return
        except OSError as problem:
            no_answer = self._no_answer(problem)
        probed.is_reported = False
        probed.silent_since = min(probed.silent_since, now - silence(connection))
        self._drop_kept_connection(probed)
        # A broken connection is weaker evidence than a new connection that is not accepted.
        self._report(probed, no_answer)
        if not probed.connection:
            is_first = now - probed.kept_since > self._limits.suspect_interval_seconds
            self._set_timer(
                probed, now if is_first else now + self._limits.suspect_interval_seconds
            )

    def _no_answer(self, problem: OSError) -> NoAnswer:
        return NoAnswer(f"port {self._port} does not answer: {problem.strerror or problem}")

    def _note_failure(self, probed: ProbedWorker, no_answer: NoAnswer) -> None:
        """Report that a worker does not answer, and try it again later."""
        now = time.monotonic()
        self._end_attempt(probed)
        if not probed.has_answered:
            self._report(probed, no_answer)
            pause = min(
                max(self._limits.first_delay_seconds, (now - probed.since) * CONNECT_DELAY_SHARE),
                self._limits.longest_delay_seconds,
            )
            self._set_timer(
                probed, now + max(pause, self._unanswered_count / MAX_CONNECTS_PER_SECOND)
            )
            return
        if not probed.kept_connection:
            probed.is_reported = False
            probed.silent_since = min(probed.silent_since, now)
            self._report(probed, no_answer, now - probed.silent_since)
        self._set_timer(probed, now + self._limits.suspect_interval_seconds)

    def _note_answer(self, probed: ProbedWorker, endpoint: Endpoint) -> None:
        """Report that a worker answers, and keep its connection to detect its loss."""
        probed.last_problem = None
        self._unanswered_count -= not probed.has_answered
        probed.has_answered = True
        if not probed.is_reported:
            pod = Pod(endpoint.address, endpoint.uid, endpoint.node)
            self._put(WorkerAnswers(self.attempt, probed.worker.name, pod))
        probed.is_reported = True
        if self._lost_after:
            self._keep_connection(probed)
        else:
            self._set_timer(probed, None)
            self._end_attempt(probed)

    def _keep_connection(self, probed: ProbedWorker) -> None:
        """Keep the connection of an attempt instead of the previous one."""
        self._drop_kept_connection(probed)
        probed.kept_connection = probed.connection
        probed.connection = None
        probed.received = b""
        probed.kept_since = time.monotonic()
        probed.silent_since = math.inf
        self._kept_count += 1
        self._set_timer(probed, probed.kept_since + self._limits.renew_interval_seconds)

    def _drop_kept_connection(self, probed: ProbedWorker) -> None:
        if probed.kept_connection:
            self._close(probed.kept_connection)
            probed.kept_connection = None
            self._kept_count -= 1

    def _end_attempt(self, probed: ProbedWorker) -> None:
        if probed.connection:
            self._close(probed.connection)
            probed.connection = None
            probed.received = b""

    def _disconnect(self, probed: ProbedWorker) -> None:
        self._end_attempt(probed)
        self._drop_kept_connection(probed)

    def _close(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()


def _is_accepted(connection: socket.socket) -> bool:
    """Return whether the other end's kernel has accepted a connection."""
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def keepalive_times(lost_after_seconds: float) -> tuple[int, int]:
    """Return TCP keepalive's idle seconds before the first probe, and those between probes."""
    if lost_after_seconds >= MIN_KEEPALIVE_PATIENCE_SECONDS:
        return PROBER_KEEPALIVE_IDLE_SECONDS, PROBER_KEEPALIVE_INTERVAL_SECONDS
    return SHORT_KEEPALIVE_SECONDS, SHORT_KEEPALIVE_SECONDS


def watch_silence(connection: socket.socket, lost_after_seconds: float) -> None:
    """Make the kernel end this connection when the other end is silent for about so long."""
    idle, interval = keepalive_times(lost_after_seconds)
    # The kernel accepts no larger number.
    count = min(127, max(1, int(lost_after_seconds - idle) // interval))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)


def silence(connection: socket.socket) -> float:
    """Return the seconds for which the other end has been silent."""
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
    milliseconds: int = struct.unpack_from("I", state, LAST_HEARD_OFFSET)[0]
    return milliseconds / 1000
