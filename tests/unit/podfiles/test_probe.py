"""The prober: real sockets, what else than an SSH server may listen, and many hosts at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from hvd_pods.common.run import Host
from hvd_pods.master import probing
from hvd_pods.master.addresses import Endpoint
from tests.fakes.faults import TIMEOUT
from tests.unit.podfiles.fake_worker import FakeWorker, ssh_banner
from tests.unit.podfiles.rendezvous import fail_on_thread_exceptions
from tests.unit.podfiles.threads import join_threads, record_threads
from tests.waiting import wait_until

pytestmark = fail_on_thread_exceptions

HOST = Host("hvd-worker-0", "hvd-worker-0.hvd", 1, "hvd-worker", "r1")


class Probing:
    """A prober, and endpoints that a test changes."""

    def __init__(self, hosts: list[Host], port: int) -> None:
        self.endpoints: dict[str, Endpoint] = {}
        self.changed = threading.Condition()
        self.prober = probing.Prober(hosts, port, lambda: self.endpoints, self.changed)

    def put(self, host: Host, address: str, serving: bool = False, uid: str = "") -> None:
        self.endpoints = {**self.endpoints, host.name: Endpoint(address, serving, uid)}
        self.prober.wake()

    def wait(self, condition: Callable[[], object]) -> None:
        def is_met() -> bool:
            return bool(condition())

        with self.changed:
            assert self.changed.wait_for(is_met, TIMEOUT), self.prober.reasons


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[Host], int], Probing]]:
    """Starts a prober, which the test's end closes, with its thread and its connections."""
    threads = record_threads(monkeypatch, probing)
    # Every attempt is news: tests wait for failures, too.
    end_attempt = probing.Prober._end_attempt

    def end_and_announce(self: probing.Prober, target: probing.Target, reason: str | None) -> None:
        end_attempt(self, target, reason)
        self._has_news = True

    monkeypatch.setattr(probing.Prober, "_end_attempt", end_and_announce)
    started: list[Probing] = []

    def start(hosts: list[Host], port: int) -> Probing:
        started.append(Probing(hosts, port))
        started[-1].prober.start()
        return started[-1]

    yield start
    for item in started:
        item.prober.close()
    join_threads(threads)
    assert all(target.connection is None for item in started for target in item.prober._targets)


Probe = Callable[[list[Host], int], Probing]


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize(
    ("banner", "answer"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2 hvd-r1\r\n", None),
        (
            b"SSH-2.0-OpenSSH_9.2p1 hvd-r0\r\n",
            "from before the last upgrade: it sent 'SSH-2.0-OpenSSH_9.2p1 hvd-r0', "
            "this run needs hvd-r1",
        ),
        (b"HTTP/1.1 400\r\n", "port PORT is not an SSH server: it sent 'HTTP/1.1 400'"),
        (b"\xff" * 300, "port PORT is not an SSH server: it sent '" + "\ufffd" * 256 + "'"),
        (b"", "port PORT is not an SSH server: it sent ''"),
        (None, "port PORT does not answer: timed out"),
    ],
    ids=["right", "stale", "HTTP", "binary", "nothing", "silent"],
)
def test_what_listens_is_judged_by_its_first_line(
    probe: Probe,
    address: str,
    banner: bytes | None,
    answer: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if banner is None:
        monkeypatch.setattr(probing, "PROBE_TIMEOUT", 0.1)
    with FakeWorker(banner, address) as worker:
        current = probe([HOST], worker.port)
        current.put(HOST, address)
        if answer is None:
            current.wait(lambda: current.prober.answering == {HOST: address})
            assert current.prober.reasons == {}
            assert not current.prober._targets[0].is_held, "it is followed only where asked for"
        else:
            expected = answer.replace("PORT", str(worker.port))
            current.wait(lambda: current.prober.reasons == {HOST: expected})
            assert current.prober.answering == {}


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_closed_port_does_not_answer(probe: Probe, address: str) -> None:
    with FakeWorker(b"", address) as worker:
        worker.close()
    current = probe([HOST], worker.port)
    current.put(HOST, address)
    expected = f"port {worker.port} does not answer: Connection refused"
    current.wait(lambda: current.prober.reasons == {HOST: expected})


def test_a_banner_may_come_in_pieces(probe: Probe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        current = probe([HOST], listener.getsockname()[1])
        current.put(HOST, "127.0.0.1")
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"SSH-2.0-Open")
            connection.sendall(b"SSH hvd-r1\r\n")
            current.wait(lambda: HOST in current.prober.answering)


def test_a_new_pod_at_the_address_of_an_old_one_is_asked_anew(probe: Probe) -> None:
    """On the network of its node, a pod has the node's address."""
    with FakeWorker(ssh_banner("r1")) as worker:
        current = probe([HOST], worker.port)
        current.put(HOST, "127.0.0.1")
        current.wait(lambda: HOST in current.prober.answering)
        # DNS does not tell the uid: this is news of the same pod.
        current.put(HOST, "127.0.0.1", uid="1")
        target = current.prober._targets[0]
        wait_until(lambda: target.endpoint == current.endpoints[HOST.name], TIMEOUT, "it is seen")
        worker.close()
        assert HOST in current.prober.answering
    current.put(HOST, "127.0.0.1", uid="2")
    current.wait(lambda: HOST not in current.prober.answering)


def test_an_address_that_cannot_be_used_is_reported(probe: Probe) -> None:
    current = probe([HOST], 1)
    current.put(HOST, "255.255.255.255")
    current.wait(lambda: "does not answer: " in current.prober.reasons.get(HOST, ""))


@pytest.mark.slow
def test_more_hosts_than_connections_are_all_asked(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent hosts use up all connections; they make room when their time is over."""
    monkeypatch.setattr(probing, "MOST_OPEN", 4)
    monkeypatch.setattr(probing, "PROBE_TIMEOUT", 0.05)
    hosts = [Host(f"w-{n}", f"w-{n}.hvd", 1, "w", "r1") for n in range(12)]
    with FakeWorker(None, "127.0.1.1") as silent:
        answering = FakeWorker(ssh_banner("r1"), "127.0.1.2", silent.port)
        with answering:
            current = probe(hosts, silent.port)
            for host in hosts[:-1]:
                current.put(host, "127.0.1.1")
            current.put(hosts[-1], "127.0.1.2")
            current.wait(lambda: hosts[-1] in current.prober.answering)
            current.wait(lambda: len(current.prober.reasons) == 11)


@pytest.mark.slow
def test_a_thousand_hosts_are_asked_by_one_thread(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = [Host(f"w-{n}", f"w-{n}.hvd", 1, "w", "r1") for n in range(1000)]
    # All of them are at one address here, whose listener takes fewer connections at once.
    monkeypatch.setattr(probing, "MOST_OPEN", 50)
    with FakeWorker(ssh_banner("r1")) as worker:
        threads = {*threading.enumerate()}
        current = probe(hosts, worker.port)
        current.endpoints = {host.name: Endpoint("127.0.0.1") for host in hosts}
        current.prober.wake()
        current.wait(lambda: len(current.prober.answering) == 1000)
        (thread,) = {*threading.enumerate()} - threads
        assert thread.name == "probe-hosts"


def test_connections_to_hosts_that_answered_end_with_the_prober(probe: Probe) -> None:
    with FakeWorker(ssh_banner("r1")) as worker:
        current = probe([HOST], worker.port)
        current.prober._lost_after = 60.0
        current.put(HOST, "127.0.0.1")
        (target,) = current.prober._targets
        current.wait(lambda: HOST in current.prober.answering)
        wait_until(lambda: target.is_held, TIMEOUT, "its connection is kept")
        current.prober.close()
        wait_until(lambda: target.connection is None, TIMEOUT, "the connection has ended")
