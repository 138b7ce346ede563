"""Which workers answer: real sockets, whatever listens there, and many workers at once."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from devtools.common.waiting import wait_until
from hvd_pods.cluster.addresses import Endpoint
from hvd_pods.master import prober
from hvd_pods.master.prober import DEFAULT_LIMITS, ProbeLimits, Prober
from hvd_pods.protocol.banner import find_banner_problem, format_banner
from hvd_pods.rules.events import WorkerAnswers, WorkerGone, WorkerProblem
from hvd_pods.shared.no_answer import NoAnswer
from hvd_pods.shared.run import Pod, Worker
from tests.support.fakes.faults import TIMEOUT
from tests.support.fakes.worker import FakeWorker
from tests.support.ports import find_port
from tests.unit.hvd_pods.rules.recorded_events import RecordedEvents
from tests.unit.hvd_pods.support.workers import Addresses

WORKER, OTHER = (Worker(f"w-{number}", f"w-{number}.hvd", 1, "w", "r1") for number in (0, 1))
LOCAL = "127.0.0.1"


class Probing(RecordedEvents):
    """A prober of the third attempt, endpoints that a test changes, and what is told."""

    def __init__(
        self, workers: list[Worker], port: int, lost_after_seconds: float, limits: ProbeLimits
    ) -> None:
        super().__init__()
        self.source = Addresses()
        self.prober = Prober(workers, port, self.source, self, 3, lost_after_seconds, limits)
        self.prober.start()

    def put(
        self, worker: Worker, address: str = LOCAL, is_serving: bool = False, uid: str = ""
    ) -> None:
        endpoint = Endpoint(address, is_serving, uid, "n1")
        self.source.known = {**self.source.known, worker.name: endpoint}
        self.prober.wake()

    def remove(self, worker: Worker) -> None:
        self.source.known = {n: e for n, e in self.source.known.items() if n != worker.name}
        self.prober.wake()

    def reasons(self, worker: Worker) -> list[str]:
        return [event.why.reason for event in self.of(WorkerProblem, worker=worker.name)]


Probe = Callable[..., Probing]


@pytest.fixture
def probe() -> Iterator[Probe]:
    """Starts probers, which end with the test."""
    started: list[Probing] = []

    def start(
        workers: list[Worker], port: int, lost_after_seconds: float = 0.0, **limits: Any
    ) -> Probing:
        started.append(
            Probing(workers, port, lost_after_seconds, DEFAULT_LIMITS._replace(**limits))
        )
        return started[-1]

    yield start
    for item in started:
        item.prober.close()


# What a server sends, and what of that is judged (tests/unit/hvd_pods/protocol/test_banner.py).
WRONG = {
    "stale": (b"HVD-AGENT-1 r0\n", "HVD-AGENT-1 r0"),
    "HTTP": (b"HTTP/1.1 400\r\n", "HTTP/1.1 400"),
    "no end": (b"\xff" * 300, chr(0xFFFD) * 256),
    "nothing": (b"", ""),
}


@pytest.fixture
def two(probe: Probe) -> Iterator[tuple[Probing, Any, Any]]:
    """Two workers that can be lost and have answered."""
    with (
        FakeWorker(format_banner("r1"), "127.0.1.1") as first,
        FakeWorker(format_banner("r1"), "127.0.1.2", first.port) as second,
    ):
        current = probe(
            [WORKER, OTHER], first.port, lost_after_seconds=15.0, suspect_interval_seconds=0.02
        )
        current.put(WORKER, "127.0.1.1")
        current.put(OTHER, "127.0.1.2")
        current.wait_for(WorkerAnswers, 2)
        yield current, first, second


@pytest.mark.parametrize(("sent", "banner"), WRONG.values(), ids=WRONG)
def test_what_listens_is_judged_by_its_first_line(probe: Probe, sent: bytes, banner: str) -> None:
    with FakeWorker(sent) as worker:
        current = probe([WORKER], worker.port)
        current.put(WORKER)
        current.wait_for(WorkerProblem, why=find_banner_problem(banner, worker.port, "r1"))
        assert not current.of(WorkerAnswers)


def test_server_that_sends_nothing_has_not_answered(probe: Probe) -> None:
    with FakeWorker(None) as worker:
        current = probe([WORKER], worker.port, answer_timeout_seconds=0.05)
        current.put(WORKER)
        timed_out = NoAnswer(f"port {worker.port} does not answer: timed out")
        current.wait_for(WorkerProblem, why=timed_out)
        assert not current.of(WorkerAnswers)


@pytest.mark.parametrize("address", [LOCAL, "::1"])
def test_worker_that_answers_is_reported_with_its_pod(probe: Probe, address: str) -> None:
    port = find_port()
    current = probe([WORKER], port)
    current.put(WORKER, address, uid="u1")
    current.wait_for(
        WorkerProblem, why=NoAnswer(f"port {port} does not answer: Connection refused")
    )
    with FakeWorker(format_banner("r1"), address, port):
        current.wait_for(WorkerAnswers)
    assert current.of(WorkerAnswers) == [WorkerAnswers(3, "w-0", Pod(address, "u1", "n1"))]
    # Each reason is told once, however often it is met.
    assert [(event.attempt, event.why.reason) for event in current.of(WorkerProblem)] == [
        (3, "no address"),
        (3, "it has not responded yet"),
        (3, f"port {port} does not answer: Connection refused"),
    ]


def test_new_pod_at_the_address_of_an_old_one_is_asked_anew(probe: Probe) -> None:
    """On the network of its node, a pod has the node's address."""
    with FakeWorker(format_banner("r1")) as worker:
        current = probe([WORKER, OTHER], worker.port)
        current.put(WORKER)
        current.wait_for(WorkerAnswers)
        # DNS does not tell the UID: this is news of the same pod.
        current.put(WORKER, uid="1")
        current.put(OTHER)
        current.wait_for(WorkerAnswers, worker="w-1")
        assert not current.of(WorkerGone)
        current.put(WORKER, uid="2")
        current.wait_for(WorkerAnswers, 2, worker="w-0")
        assert current.of(WorkerGone) == [WorkerGone(3, "w-0")]
        assert current.of(WorkerAnswers, worker="w-0")[1].pod == Pod(LOCAL, "2", "n1")
        current.remove(WORKER)
        current.wait_for(WorkerGone, 2)
        current.wait(lambda: current.reasons(WORKER)[-1] == "no address")


def test_worker_whose_address_is_frozen_stays_while_others_come(probe: Probe) -> None:
    with FakeWorker(format_banner("r1")) as worker:
        current = probe([WORKER, OTHER], worker.port)
        current.put(WORKER, uid="u1")
        current.wait_for(WorkerAnswers, worker=WORKER.name)
        current.prober.freeze([WORKER.name])
        current.remove(WORKER)
        current.put(OTHER, uid="u2")
        current.wait_for(WorkerAnswers, worker=OTHER.name)
        assert not current.of(WorkerGone)


@pytest.mark.parametrize("lost_after_seconds", [0.0, 60.0], ids=["closed", "kept"])
def test_workers_that_have_answered_leave_room_for_others(
    probe: Probe, lost_after_seconds: float
) -> None:
    """Whether or not their connections are kept."""
    workers = [Worker(f"w-{number}", f"w-{number}.hvd", 1, "w", "r1") for number in range(9)]
    with FakeWorker(format_banner("r1")) as worker:
        current = probe(workers, worker.port, lost_after_seconds, most_open=3)

        def put_all(uid: str) -> None:
            current.source.known = {worker.name: Endpoint(LOCAL, uid=uid) for worker in workers}
            current.prober.wake()

        put_all("a")
        current.wait_for(WorkerAnswers, 9)
        # Now, other pods have the same addresses.
        put_all("b")
        current.wait_for(WorkerAnswers, 18)
        assert {event.pod.uid for event in current.of(WorkerAnswers)[9:]} == {"b"}


def test_worker_that_the_kubelet_has_seen_listen_is_asked_at_once(probe: Probe) -> None:
    port = find_port()
    current = probe(
        [WORKER], port, first_delay_seconds=2 * TIMEOUT, longest_delay_seconds=2 * TIMEOUT
    )
    current.put(WORKER)
    current.wait_for(
        WorkerProblem, why=NoAnswer(f"port {port} does not answer: Connection refused")
    )
    with FakeWorker(format_banner("r1"), port=port):
        current.put(WORKER, is_serving=True)
        current.wait_for(WorkerAnswers)


Two = tuple[Probing, FakeWorker, FakeWorker]


def test_silence_of_a_worker_is_reported_again_and_again_until_it_answers(two: Two) -> None:
    current, first, _ = two
    before = len(current.of(WorkerProblem, worker="w-0"))
    first.close()
    current.wait(lambda: len(current.of(WorkerProblem, worker="w-0")) >= before + 4)
    problems = current.of(WorkerProblem, worker="w-0")[before:]
    # A connection that breaks says less than a worker that does not accept another one.
    assert problems[0].silent == 0.0
    assert problems[0].why.reason == f"port {first.port} closed the connection"
    assert all(later.silent > earlier.silent for earlier, later in pairwise(problems))
    assert problems[-1].silent >= 2 * 0.02
    assert not any(problem.all_workers_silent for problem in problems), "the other worker is heard"
    with FakeWorker(format_banner("r1"), first.address, first.port):
        current.wait_for(WorkerAnswers, 2, worker="w-0")
    assert not current.of(WorkerGone)


def test_kept_connection_stays_until_another_one_has_a_banner(probe: Probe) -> None:
    """The agent ends connections that ask for nothing for long; each renewal tells nothing."""
    times = {"renew_interval_seconds": 0.05, "answer_timeout_seconds": TIMEOUT}
    with FakeWorker(None) as worker:
        current = probe([WORKER], worker.port, lost_after_seconds=15.0, **times)
        current.put(WORKER)
        wait_until(lambda: worker.connections, TIMEOUT, "a connection", 0.01)
        worker.connections[0].sendall(format_banner("r1"))
        current.wait_for(WorkerAnswers)
        wait_until(lambda: len(worker.connections) >= 2, TIMEOUT, "another one", 0.01)
        first, second = worker.connections[:2]
        first.settimeout(0.1)
        with pytest.raises(TimeoutError):
            first.recv(1)
        second.sendall(format_banner("r1"))
        first.settimeout(TIMEOUT)
        assert first.recv(1) == b""
        assert len(current.of(WorkerAnswers)) == 1
        assert "closed" not in "".join(current.reasons(WORKER))


@pytest.mark.slow
@pytest.mark.parametrize("banner", [None, b""], ids=["silent", "closes"])
@pytest.mark.promise("worker whose kernel accepts connections is there whatever its agent says")
def test_worker_whose_kernel_accepts_connections_is_there_whatever_its_agent_says(
    probe: Probe, banner: bytes | None
) -> None:
    """As without CPU time, memory or a further process, or with too many connections of others.

    Otherwise, whoever connects often enough could end a training. Old connections end meanwhile.
    """
    times = dict.fromkeys(
        ("suspect_interval_seconds", "answer_timeout_seconds", "renew_interval_seconds"), 0.05
    )
    with FakeWorker(format_banner("r1")) as worker:
        current = probe([WORKER], worker.port, lost_after_seconds=15.0, **times)
        current.put(WORKER)
        current.wait_for(WorkerAnswers)
        worker.banner = banner

        def seven_have_ended() -> bool:
            """Ends each connection as soon as another one is there."""
            for connection in worker.connections[:-1]:
                connection.close()
            return len(worker.connections) > 7

        wait_until(seven_have_ended, TIMEOUT, "connections are renewed", 0.01)
        assert not any(event.silent for event in current.of(WorkerProblem))
        # It is told again when the agent answers.
        worker.banner = format_banner("r1")
        current.wait_for(WorkerAnswers, 2)


def test_connections_that_are_kept_follow_a_shorter_time(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of workers whose ranks keep their state, which is known when they have been training."""
    current, _, _ = two
    given: list[float] = []
    set_times = prober.watch_silence

    def watch_silence(connection: socket.socket, lost_after_seconds: float) -> None:
        given.append(lost_after_seconds)
        set_times(connection, lost_after_seconds)

    monkeypatch.setattr(prober, "watch_silence", watch_silence)
    current.prober.lose_after(3.0)
    wait_until(lambda: given == [3.0, 3.0], TIMEOUT, "both have it", 0.01)


def test_all_workers_are_silent_when_no_other_one_is_heard(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when this pod has lost its own network, which says nothing about the workers."""
    current, first, second = two
    second.close()
    current.wait_for(WorkerProblem, worker="w-1", all_workers_silent=False)
    first.close()
    current.wait_for(WorkerProblem, worker="w-0", all_workers_silent=True)
    current.wait_for(WorkerProblem, worker="w-1", all_workers_silent=True)


@pytest.mark.parametrize(
    ("lost_after_seconds", "times"),
    [(12.0, (3, 2, 4)), (60.0, (3, 2, 28)), (3.0, (1, 1, 2)), (1.0, (1, 1, 1))],
)
def test_the_kernel_asks_an_idle_worker_and_gives_it_up_within_the_time(
    lost_after_seconds: float, times: tuple[int, int, int]
) -> None:
    """Three seconds may have passed since the last answer when the network is cut."""
    with socket.socket() as connection:
        prober.watch_silence(connection, lost_after_seconds)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert times == tuple(
            connection.getsockopt(socket.IPPROTO_TCP, option) for option in options
        )
