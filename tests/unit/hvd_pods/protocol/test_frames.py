"""The protocol of an agent's connection: both ends of one in this process."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_pods.protocol import frames
from hvd_pods.protocol.frames import Channel
from hvd_pods.protocol.keys import Keys, has_name
from tests.support.release_keys import ReleaseKeys

Frames = list[tuple[bytes, bytes]]


class Both:
    """The two ends of a connection, after the handshake."""

    def __init__(self, worker: Keys, master: Keys) -> None:
        own, other = socket.socketpair()
        self.worker = Channel(own, worker.server())
        self.master = Channel(other, master.client(), master.peer_name)
        self.received: dict[Channel, Frames] = {self.worker: [], self.master: []}

    def __enter__(self) -> Both:
        self.master.begin()
        while not (self.worker.is_open and self.master.is_open):
            self.step()
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.close()
        self.master.close()

    def step(self) -> None:
        """Let both ends read what has come."""
        for end, frames_of in self.received.items():
            frames_of.extend(end.receive())

    def pass_on(self, number: int) -> Frames:
        """Return so many frames of the worker's, when they have come to the master."""
        while len(self.received[self.master]) < number:
            self.step()
        return self.received[self.master]


class RawWorker:
    """A worker that sends any bytes in TLS, and its master."""

    def __init__(self, worker: Keys, master: Keys) -> None:
        own, other = socket.socketpair()
        self.worker = worker.server().wrap_socket(
            own, server_side=True, do_handshake_on_connect=False
        )
        self.master = Channel(other, master.client(), master.peer_name)
        self.received: Frames = []

    def __enter__(self) -> RawWorker:
        self.master.begin()
        self.worker.setblocking(False)
        with suppress(ssl.SSLWantReadError):
            self.worker.do_handshake()
        while not self.master.is_open:
            self.received.extend(self.master.receive())
        self.worker.setblocking(True)
        self.worker.do_handshake()
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.close()
        self.master.close()

    def send_each(self, parts: Iterable[bytes]) -> None:
        """Send each part by itself, and let the master read it."""
        for part in parts:
            self.worker.sendall(part)
            self.received.extend(self.master.receive())

    def pass_on(self, number: int) -> Frames:
        """Return so many frames, when they have come to the master."""
        while len(self.received) < number:
            self.received.extend(self.master.receive())
        return self.received


@pytest.fixture(scope="session")
def ends(tmp_path_factory: pytest.TempPathFactory, release: ReleaseKeys) -> tuple[Keys, Keys]:
    """The keys of a worker and of its master."""
    folder = tmp_path_factory.mktemp("ends")
    return release.of_worker(folder / "worker"), release.of_master(folder / "master")


@pytest.fixture
def both(ends: tuple[Keys, Keys]) -> Iterator[Both]:
    with Both(*ends) as made:
        yield made


@pytest.fixture
def raw(ends: tuple[Keys, Keys]) -> Iterator[RawWorker]:
    with RawWorker(*ends) as made:
        yield made


def read_to_the_end(end: Channel) -> tuple[Frames, OSError]:
    """Return all frames that come, and why there are no more."""
    found: Frames = []
    for _ in range(100):
        try:
            found.extend(end.receive())
        except OSError as problem:
            return found, problem
    raise AssertionError(f"the connection continues after {found}")


def test_both_ends_show_their_certificates(both: Both, release: ReleaseKeys) -> None:
    assert has_name(both.worker.certificate(), release.master_name)
    assert has_name(both.master.certificate(), release.worker_name)


@pytest.mark.parametrize("content", [b"", b"x", os.urandom(frames.MAX_FRAME_BYTES)])
def test_frame_arrives_as_it_was_sent(both: Both, content: bytes) -> None:
    both.worker.send(frames.HELLO, content)
    assert both.pass_on(1) == [(frames.HELLO, content)]


def test_long_content_comes_as_several_frames(both: Both) -> None:
    content = os.urandom(3 * frames.MAX_FRAME_BYTES + 5)
    both.worker.send(frames.OUTPUT, content)
    received = both.pass_on(4)
    assert {kind for kind, _ in received} == {frames.OUTPUT}
    assert b"".join(part for _, part in received) == content


def test_what_waits_is_what_the_other_end_has_not_passed_on(both: Both) -> None:
    both.worker.send(frames.OUTPUT, bytes(40_000))
    both.worker.send(frames.ERRORS, bytes(10_000))
    both.worker.send(frames.EXIT, bytes(4))
    both.pass_on(3)
    assert both.worker.waiting == 50_000
    both.master.acknowledge(10_000)
    assert both.worker.waiting == 50_000, "few bytes are not told"
    both.master.acknowledge(30_000)
    both.step()
    assert both.worker.waiting == 10_000
    assert both.received[both.worker] == [], "it is no frame for the caller"


@pytest.mark.parametrize(
    ("number", "waiting"), [(-1, 40_000), (-(1 << 31), 40_000), ((1 << 31) - 1, 0)]
)
def test_number_that_cannot_be_lets_nothing_wait_for_ever(
    both: Both, number: int, waiting: int
) -> None:
    both.worker.send(frames.OUTPUT, bytes(40_000))
    both.master.send(frames.TAKEN, frames.NUMBER.pack(number))
    both.pass_on(1)
    both.step()
    assert both.worker.waiting == waiting


def test_frame_that_would_be_too_long_is_refused_before_it_comes(raw: RawWorker) -> None:
    raw.worker.sendall(frames.FRAME_HEADER.pack(frames.OUTPUT, frames.MAX_FRAME_BYTES + 1))
    with pytest.raises(frames.ProtocolError):
        raw.pass_on(1)


def test_frames_before_a_problem_are_taken(raw: RawWorker) -> None:
    raw.worker.sendall(frames.FRAME_HEADER.pack(frames.OUTPUT, 4) + b"good")
    raw.worker.sendall(frames.FRAME_HEADER.pack(frames.OUTPUT, frames.MAX_FRAME_BYTES + 1))
    found, problem = read_to_the_end(raw.master)
    assert found == [(frames.OUTPUT, b"good")]
    assert isinstance(problem, frames.ProtocolError)


def test_frames_before_the_end_of_the_connection_are_taken(both: Both) -> None:
    both.worker.send(frames.OUTPUT, b"last")
    both.worker.close()
    found, problem = read_to_the_end(both.master)
    assert found == [(frames.OUTPUT, b"last")]
    assert isinstance(problem, ConnectionResetError)


def test_frames_are_taken_although_nothing_can_be_sent_any_more(both: Both) -> None:
    """A worker refuses, and ends the connection, while its master still sends."""
    both.worker.send(frames.REFUSED, b"why")
    both.worker.close()
    both.master.send(frames.INPUT, bytes(300_000))
    assert next(both.master.receive()) == (frames.REFUSED, b"why")


FRAMES = st.lists(
    st.tuples(st.sampled_from([b"h", b"r", b"i", b"s", b"y", b"o", b"\0"]), st.binary()),
    max_size=5,
)


@pytest.mark.fuzz
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda ends, own: Channel(own, ends[0].server()), id="worker"),
        pytest.param(
            lambda ends, own: Channel(own, ends[1].client(), ends[1].peer_name), id="master"
        ),
    ],
)
@given(content=st.binary(max_size=4096))
def test_any_bytes_instead_of_a_handshake_raise_only_errors_of_a_connection(
    ends: tuple[Keys, Keys],
    make: Callable[[tuple[Keys, Keys], socket.socket], Channel],
    content: bytes,
) -> None:
    own, other = socket.socketpair()
    with own, other:
        channel = make(ends, own)
        other.sendall(content)
        other.shutdown(socket.SHUT_WR)
        assert read_to_the_end(channel)[0] == []
        assert not channel.is_open


@pytest.mark.fuzz
@given(content=st.binary(max_size=4096))
def test_any_bytes_instead_of_frames_raise_only_errors_of_a_connection(
    ends: tuple[Keys, Keys], content: bytes
) -> None:
    with RawWorker(*ends) as raw:
        raw.worker.sendall(content)
        raw.worker.close()
        found, _ = read_to_the_end(raw.master)
        assert sum(frames.FRAME_HEADER.size + len(part) for _, part in found) <= len(content)


@pytest.mark.fuzz
@given(sent=FRAMES, cut=st.integers(1, 50))
def test_frames_in_any_parts_arrive_as_they_were_sent(
    ends: tuple[Keys, Keys], sent: Frames, cut: int
) -> None:
    with RawWorker(*ends) as worker:
        content = b"".join(frames.FRAME_HEADER.pack(kind, len(part)) + part for kind, part in sent)
        parts = [content[start : start + cut] for start in range(0, len(content), cut)]
        worker.send_each(parts)
        assert worker.pass_on(len(sent)) == sent


@pytest.mark.fuzz
@given(content=st.binary(max_size=300), place=st.integers(0, 2000))
@pytest.mark.promise("any bytes within a connection raise only errors of a connection")
def test_any_bytes_within_a_connection_raise_only_errors_of_a_connection(
    ends: tuple[Keys, Keys], content: bytes, place: int
) -> None:
    """Whoever can write to the network but has no key can only end the connection."""
    with Both(*ends) as both:
        both.worker.send(frames.OUTPUT, b"x" * place)
        both.pass_on(1)
        both.worker.connection.send(content)
        both.worker.connection.shutdown(socket.SHUT_WR)
        assert read_to_the_end(both.master)[0] == []
