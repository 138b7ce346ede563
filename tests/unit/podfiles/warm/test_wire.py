"""Messages between a rank's client and the warm process."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.warm import client, wire
from hvd_pods.warm.checks import ColdStart, Program

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both sides of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(20)
        yield ours, theirs


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_message_arrives_with_its_descriptors(pair: Pair) -> None:
    reader, writer = os.pipe()
    wire.send(pair[0], {"a": "ü"}, [writer])
    message, (copy,) = wire.receive(pair[1])
    assert message == {"a": "ü"}
    assert not os.get_inheritable(copy)
    os.write(copy, b"x")
    assert os.read(reader, 2) == b"x"
    wire.send(pair[0], {})
    assert wire.receive(pair[1]) == ({}, [])
    for descriptor in (reader, writer, copy):
        os.close(descriptor)


def test_message_may_come_in_pieces(pair: Pair) -> None:
    content = b'{"key": "value"}'
    whole = struct.pack("!I", len(content)) + content
    # The end of one message and the beginning of the next one.
    for piece in (whole[:2],):
        pair[0].sendall(piece)
    rest = threading.Timer(0.05, lambda: pair[0].sendall(whole[2:] + whole))
    rest.start()
    for _ in range(2):
        assert wire.receive(pair[1]) == ({"key": "value"}, [])
    rest.join()


@pytest.mark.parametrize("content", [b"\0\0", b"\0\0\0\2{]", b"\0\0\0\7{}"])
def test_message_that_is_cut_or_nonsense_leaves_no_open_file(pair: Pair, content: bytes) -> None:
    before = open_files()
    socket.send_fds(pair[0], [content], [0, 1])
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises((ConnectionError, ValueError)):
        wire.receive(pair[1])
    assert open_files() <= before


def test_user_on_the_other_side_is_known(pair: Pair) -> None:
    assert wire.peer_uid(pair[0]) == os.getuid()


@pytest.mark.parametrize(("number", "is_asked"), [(252, True), (253, False)])
def test_rank_with_more_files_than_a_message_has_starts_cold(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, number: int, is_asked: bool
) -> None:
    """One more is its folder."""
    monkeypatch.setattr(client, "inheritable_descriptors", lambda: [0] * number)
    # An answer that is there already.
    wire.send(pair[1], {})
    program = Program("code", "", [], unbuffered=False)
    if is_asked:
        client._ask(pair[0], 0, ["python3"], program)
        request, received = wire.receive(pair[1])
        assert (len(request["descriptors"]), len(received)) == (number, number + 1)
        for descriptor in received:
            os.close(descriptor)
        return
    with pytest.raises(ColdStart, match="the rank has 253 open files"):
        client._ask(pair[0], 0, ["python3"], program)


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\2{]"])
def test_rank_starts_cold_when_the_answer_is_cut_or_nonsense(pair: Pair, answer: bytes) -> None:
    pair[1].sendall(answer)
    pair[1].shutdown(socket.SHUT_WR)
    with pytest.raises(ColdStart, match="the warm process does not answer: "):
        client._ask(pair[0], 0, ["python3"], Program("code", "", [], unbuffered=False))


GUARD_IS_GONE = """
import socket, sys
sys.path.insert(0, {files!r})
import warm_client
for answer in (None, b"", b"\\0\\0\\0\\2{{]"):
    ours, theirs = socket.socketpair()
    if answer is None:
        theirs.close()
    else:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
    print(warm_client._follow(ours, print))
"""


def test_rank_whose_guard_is_gone_was_killed() -> None:
    """Before the rank is told to begin, or while it runs."""
    code = GUARD_IS_GONE.format(files=str(Path(client.__file__).parent))
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"-9\n-9\n-9\n"), done.stderr.decode()


AFTER_THE_END = """
import os, signal, socket, sys
sys.path.insert(0, {files!r})
import warm_client, warm_wire
ours, theirs = socket.socketpair()
warm_wire.send(theirs, {{"pid": 1}})
warm_wire.send(theirs, {{"status": 2}})
print(warm_client._follow(ours, lambda pid: None))
ours.close()
os.kill(os.getpid(), signal.SIGTERM)
print("goes on")
"""


def test_signal_after_the_end_of_the_rank_is_not_an_error() -> None:
    """The launcher sends one while this process tells the master how the rank has ended."""
    code = AFTER_THE_END.format(files=str(Path(client.__file__).parent))
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "2\ngoes on\n"), done.stderr


def test_no_more_is_read_than_the_message_has() -> None:
    """However it is cut: what follows is the next message."""
    stream = BytesIO(b"body1 body2 ")
    connection: Any = SimpleNamespace(recv=lambda size: stream.read(min(size, 4)))
    assert [wire._read(connection, 6) for _ in range(2)] == [b"body1 ", b"body2 "]
    with pytest.raises(ConnectionResetError, match="the other side closed the connection"):
        wire._read(connection, 1)


def test_group_and_process_of_the_other_side_are_not_taken_for_its_user() -> None:
    credentials = struct.pack("3i", 4321, 1000, 2000)
    connection: Any = SimpleNamespace(getsockopt=lambda *_: credentials)
    assert wire.peer_uid(connection) == 1000


NO_CORE = """
import resource, signal, sys
sys.path.insert(0, {files!r})
import warm_client
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("last", end="")
warm_client.exit_like_rank(-signal.SIGTERM)
"""


@pytest.mark.slow
def test_client_ends_by_the_signal_of_its_rank_where_no_core_may_be_written() -> None:
    code = NO_CORE.format(files=str(Path(client.__file__).parent))
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-15, "last", "")


def test_rank_starts_cold_where_no_warm_process_of_its_user_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        monkeypatch.setattr(client, "SOCKET", f"{name}/warm.sock")
        with pytest.raises(ColdStart, match=r"the warm process does not answer: .*No such file"):
            client._connect()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(client.SOCKET)
            listener.listen()
            with client._connect() as connection:
                assert connection.gettimeout() == client.WAIT_SECONDS
            monkeypatch.setattr(wire, "peer_uid", lambda _: os.geteuid() + 1)
            with pytest.raises(ColdStart, match=r"warm\.sock belongs to another user"):
                client._connect()
