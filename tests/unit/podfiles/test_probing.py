"""When the prober asks which hosts: without its thread, and with a clock of its own."""

from __future__ import annotations

import errno
import socket
import threading
from itertools import pairwise

import pytest

from hvd_pods.common.run import Host
from hvd_pods.master import liveness, probing
from hvd_pods.master.addresses import Endpoint
from tests.unit.podfiles.test_probe import HOST, Probing


class Clock:
    """Stands for the module `time`; a selector that waits lets it pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def count_attempts(
    number: int, seconds: float, monkeypatch: pytest.MonkeyPatch, serving_at: float = 1e9
) -> list[float]:
    """The times at which hosts are asked that refuse connections, by a clock that is simulated."""
    clock = Clock()
    monkeypatch.setattr(probing, "time", clock)
    hosts = [Host(f"w-{n}", f"w-{n}.hvd", 1, "w", "r1") for n in range(number)]
    endpoints = {host.name: Endpoint("127.0.0.1") for host in hosts}
    # Nothing connects to the port: `refuse` ends the attempts.
    prober = probing.Prober(hosts, 22, lambda: endpoints, threading.Condition())
    attempts: list[float] = []

    def refuse(target: probing.Target) -> None:
        attempts.append(clock.now)
        prober._end_attempt(target, "refused")

    monkeypatch.setattr(prober, "_connect", refuse)
    prober._follow_endpoints()
    while clock.now < seconds:
        prober._handle_due()
        wait = prober._seconds_to_wait()
        assert wait is not None
        clock.now += wait
        if clock.now >= serving_at:
            serving_at = 1e9
            endpoints = {host.name: Endpoint("127.0.0.1", serving=True) for host in hosts}
            prober._follow_endpoints()
    prober._woken.close()
    prober._waker.close()
    prober._selector.close()
    return attempts


def test_a_host_that_starts_is_asked_every_50_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = count_attempts(2, 0.5, monkeypatch)
    assert len([at for at in attempts if at < 0.5 - 1e-6]) == 2 * 10


def test_a_host_is_found_at_most_a_tenth_late(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = count_attempts(1, 600, monkeypatch)
    pauses = {earlier: later - earlier for earlier, later in pairwise(attempts)}
    assert all(pause <= max(0.05, at * 0.1) + 1e-6 for at, pause in pauses.items())
    assert max(pauses.values()) == pytest.approx(2.0)


def test_many_hosts_whose_image_is_pulled_are_asked_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "HIGHEST_RATE", 100.0)
    attempts = count_attempts(100, 42, monkeypatch)
    # The first on each, a hundred a second, then one on each every two seconds.
    assert 500 <= len([at for at in attempts if at < 5]) <= 600
    assert 900 <= len([at for at in attempts if 22 <= at < 42]) <= 1100


def test_a_host_that_the_kubelet_has_seen_listen_is_asked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = count_attempts(1, 102, monkeypatch, serving_at=100)
    after = [at for at in attempts if at >= 100]
    at_the_change = [earlier for earlier in attempts if earlier <= 100][-1]
    assert after[0] - at_the_change <= 2
    assert len(after) > 5, "and often from then on"


def make_prober(number: int, monkeypatch: pytest.MonkeyPatch, lost_after: float) -> Probing:
    """A prober without a thread, whose connections stay open and get no answer."""
    hosts = [Host(f"w-{n}", f"w-{n}.hvd", 1, "w", "r1") for n in range(number)]
    current = Probing(hosts, 22)
    current.prober._lost_after = lost_after
    current.endpoints = {host.name: Endpoint("127.0.0.1") for host in hosts}

    def connect(target: probing.Target) -> None:
        assert target.connection is None, "the connection before is left open"
        target.connection = socket.socket()
        current.prober._selector.register(target.connection, 1, target)

    monkeypatch.setattr(current.prober, "_connect", connect)
    return current


def finish(current: Probing) -> None:
    for target in current.prober._targets:
        current.prober._disconnect(target)
    for closed in (current.prober._woken, current.prober._waker, current.prober._selector):
        closed.close()


def test_connections_that_are_held_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "MOST_OPEN", 3)
    current = make_prober(9, monkeypatch, lost_after=60.0)
    prober, targets = current.prober, current.prober._targets

    def count() -> tuple[int, int, int]:
        """Hosts that are asked, those that have answered, and those that wait to be asked."""
        asked = [target for target in targets if target.connection and not target.is_held]
        return len(asked), sum(target.is_held for target in targets), len(prober._queue)

    prober._follow_endpoints()
    prober._handle_due()
    assert count() == (3, 0, 6)
    # News of hosts that wait: they are asked once all the same.
    current.endpoints = {name: Endpoint("127.0.0.1", True) for name in current.endpoints}
    prober._follow_endpoints()
    prober._handle_due()
    assert count() == (3, 0, 6)
    for target in targets[:2]:
        prober._end_attempt(target, None)
    prober._handle_due()
    assert count() == (3, 2, 4)
    assert (len(prober.answering), prober._waiting) == (2, 7)
    # One that answered is gone.
    del current.endpoints["w-0"]
    prober._follow_endpoints()
    prober._handle_due()
    assert count() == (3, 1, 4)
    assert (len(prober.answering), prober._waiting) == (1, 7)
    finish(current)


def test_host_that_has_answered_is_not_asked_again_where_none_can_be_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current = make_prober(1, monkeypatch, lost_after=0.0)
    prober, (target,) = current.prober, current.prober._targets
    prober._follow_endpoints()
    prober._handle_due()
    prober._end_attempt(target, None)
    assert target.connection is None
    current.endpoints = {"w-0": Endpoint("127.0.0.1", True)}
    prober._follow_endpoints()
    assert target.due is None
    prober._forget(target)
    assert (prober.answering, prober._waiting) == ({}, 1)
    finish(current)


def test_any_number_of_changes_wakes_a_prober_that_is_busy() -> None:
    current = Probing([HOST], 22)
    for _ in range(2000):
        current.prober.wake()
    finish(current)


def test_host_has_two_seconds_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(probing, "time", clock)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        current = Probing([HOST], silent.getsockname()[1])
        current.endpoints = {HOST.name: Endpoint("127.0.0.1")}
        current.prober._follow_endpoints()
        current.prober._handle_due()
        connection = current.prober._targets[0].connection
        assert connection
        assert not connection.getblocking(), "it would keep the other hosts waiting"
        for now, reasons in ((0.0, 0), (1.9, 0), (2.0, 1)):
            clock.now = now
            current.prober._handle_due()
            assert len(current.prober.reasons) == reasons
        assert current.prober.reasons[HOST].endswith("does not answer: timed out")
        finish(current)


def silent_prober(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Probing:
    """Asks one host, which counts as lost after ten seconds; no host is heard."""
    monkeypatch.setattr(probing, "time", clock)
    monkeypatch.setattr(liveness, "is_any_responding", lambda held: False)
    monkeypatch.setattr(liveness, "silence", lambda connection: 0.0)
    current = make_prober(1, monkeypatch, lost_after=10.0)
    current.prober._follow_endpoints()
    current.prober._handle_due()
    return current


def test_silence_of_all_hosts_is_logged_once_each_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    current = silent_prober(monkeypatch, clock)
    for began in (0.0, 1000.0):
        clock.now = began
        current.prober._end_attempt(current.prober._targets[0], None)
        lines = []
        for clock.now in (began + 1, began + 10, began + 11, began + 12):
            current.prober._end_attempt(current.prober._targets[0], "it is silent")
            lines.append(capsys.readouterr().out.count("no host responds"))
        assert lines == [0, 0, 1, 0]
        assert len(current.prober.answering) == 1, "all hosts have five times as long"
    clock.now = 1051.0
    current.prober._end_attempt(current.prober._targets[0], "it is silent")
    assert current.prober.answering == {}
    finish(current)


@pytest.mark.parametrize(("cut_after", "asked_after"), [(0.5, 1.0), (5.0, 0.0)])
def test_host_whose_connections_end_early_is_asked_once_a_second(
    monkeypatch: pytest.MonkeyPatch, cut_after: float, asked_after: float
) -> None:
    clock = Clock()
    clock.now = 100.0
    current = silent_prober(monkeypatch, clock)
    (target,) = current.prober._targets
    current.prober._end_attempt(target, None)
    clock.now += cut_after
    current.prober._end_attempt(target, "port 22 closed the connection")
    assert target.due == clock.now + asked_after
    finish(current)


@pytest.mark.parametrize(("lost_after", "is_watched"), [(0.0, 0), (60.0, 1)])
def test_kernel_looks_after_connections_where_hosts_can_be_lost(
    lost_after: float, is_watched: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        current = Probing([HOST], listener.getsockname()[1])
        current.prober._lost_after = lost_after
        current.endpoints = {HOST.name: Endpoint("127.0.0.1")}
        current.prober._follow_endpoints()
        current.prober._handle_due()
        (target,) = current.prober._targets
        assert target.connection
        option = target.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert option == is_watched
        # It was said to be readable and is not, which sockets may do.
        current.prober._receive(target)
        assert (target.received, current.prober.reasons) == (b"", {})
        finish(current)


@pytest.mark.parametrize(("length", "is_judged"), [(255, False), (256, True)])
def test_line_without_an_end_is_judged_by_its_first_256_bytes(length: int, is_judged: bool) -> None:
    current = Probing([HOST], 22)
    (target,) = current.prober._targets
    target.connection, peer = socket.socketpair()
    with peer:
        peer.sendall(b"x" * length)
        current.prober._receive(target)
        assert (HOST in current.prober.reasons) == is_judged
        finish(current)


def test_host_is_asked_again_where_this_pod_has_no_socket_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current = Probing([HOST], 22)
    (target,) = current.prober._targets
    target.endpoint = Endpoint("127.0.0.1")

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", refuse)
        current.prober._connect(target)
    assert current.prober.reasons == {HOST: "port 22 does not answer: Too many open files"}
    assert target.due is not None, "another attempt follows"
    finish(current)
