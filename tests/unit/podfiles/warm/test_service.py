"""The warm process itself: how often it is started, whom it answers, and what it says."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvd_pods.rank import ranks
from hvd_pods.warm import fork, script, service, wire

Pair = tuple[socket.socket, socket.socket]
REQUEST = {"program": {"kind": "code", "target": "", "arguments": []}, "rank": 3}
NOT_IN_THE_TEST = 99


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """The socket of a worker. Its path must be short."""
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        made = socket.socket(socket.AF_UNIX)
        number = made.fileno()
        made.bind(f"{name}/warm.sock")
        made.listen()
        yield made
        # Ranks leave its descriptor open.
        made.detach()
        os.close(number)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both sides of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(20)
        yield ours, theirs


@pytest.fixture
def only_here() -> Iterator[None]:
    """A process that the test has forked does not go on with the tests."""
    here = os.getpid()
    yield
    if os.getpid() != here:
        os._exit(NOT_IN_THE_TEST)


def is_at_end(reader: int) -> bool:
    """Whether no process has the other end of a pipe any more."""
    return bool(select.select([reader], [], [], 20)[0]) and not os.read(reader, 1)


def connect(listener: socket.socket) -> socket.socket:
    """A client of the warm process."""
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(20)
    made.connect(listener.getsockname())
    return made


def make_state(reason: str | None = None, asked: list[Any] | None = None) -> Any:
    """A warm process that has this reason to refuse ranks."""

    def find_reason(request: dict[str, Any], path0: str | None) -> str | None:
        if asked is not None:
            asked.append((str(Path.cwd()), request["folder"], path0))
        return reason

    return SimpleNamespace(find_reason=find_reason)


@pytest.mark.slow
def test_warm_process_that_is_killed_again_and_again_is_started_three_times(
    listener: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    only_here: None,
) -> None:
    here = os.getpid()

    def serve(*_: object) -> None:
        assert os.getpid() != here
        os._exit(2)

    monkeypatch.setattr(service, "serve", serve)
    service.ready_file(listener).touch()
    assert service.supervise(listener, []) is None
    assert not service.ready_file(listener).exists(), "ranks would wait for its answer"
    assert capsys.readouterr().out.splitlines() == [
        "[hvd] the warm process ended (wait status 512), start 1 of 3",
        "[hvd] the warm process ended (wait status 512), start 2 of 3",
        "[hvd] the warm process ended (wait status 512), start 3 of 3",
        "[hvd] ranks start cold from now on",
    ]


def test_rank_that_asks_while_others_end_is_refused_and_its_files_are_closed(
    listener: socket.socket, background: Callable[..., Future[None]]
) -> None:
    alive, guard = os.pipe()
    reader, writer = os.pipe()
    waits = background(service.wait_for_ranks, listener, alive)
    # One that was killed meanwhile.
    connect(listener).close()
    with connect(listener) as client:
        wire.send(client, REQUEST, [writer])
        os.close(writer)
        assert wire.receive(client) == ({"cold": "the warm process was killed"}, [])
    assert is_at_end(reader), "who reads from the rank waits for all that could write"
    assert not waits.done(), "a guard still runs"
    os.close(guard)
    waits.result(20)
    os.close(alive)
    os.close(reader)


@pytest.mark.parametrize("problem", [None, "cannot import framework: ImportError: it"])
def test_warm_process_says_what_it_has_imported_and_serves_one_rank_after_the_other(
    listener: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problem: str | None,
) -> None:
    imported: list[str] = []
    state = SimpleNamespace(load=imported.extend, problem=problem)
    clock = iter([10.0, 12.5])
    asked = []

    def answer(connection: socket.socket, *arguments: object) -> service.Rank | None:
        asked.append((connection.recv(1), arguments, signal.getsignal(signal.SIGCHLD)))
        return ({"rank": 3}, [5]) if len(asked) == 2 else None

    monkeypatch.setattr(service, "WarmState", lambda: state)
    monkeypatch.setattr(service, "answer", answer)
    monkeypatch.setattr(service, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    before, number = signal.getsignal(signal.SIGCHLD), listener.fileno()
    with connect(listener) as first, connect(listener) as second:
        first.send(b"a")
        second.send(b"b")
        ready = service.ready_file(listener)
        assert service.serve(listener, 7, ["framework", "other"]) == ({"rank": 3}, [5])
    assert (imported, ready.exists()) == (["framework", "other"], True)
    arguments = (state, number, 7)
    assert asked == [(b"a", arguments, signal.SIG_IGN), (b"b", arguments, signal.SIG_IGN)]
    assert signal.getsignal(signal.SIGCHLD) == before, "the rank may wait for its own processes"
    assert listener.fileno() == -1, "the rank does not close it for the warm process"
    assert capsys.readouterr().out == (
        f"[hvd] ranks start cold: {problem} (launch.preload)\n"
        if problem
        else "[hvd] imported framework, other in 2.5 s: ranks are forks of this\n"
    )


@pytest.mark.parametrize("forks", [False, True])
def test_request_that_is_granted_is_answered_before_the_fork(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: bool
) -> None:
    ours, theirs = pair
    forked: list[Any] = []

    def fork_rank(connection: socket.socket, *arguments: object) -> bool:
        forked.append((connection, connection.gettimeout(), arguments))
        return forks

    monkeypatch.setattr(fork, "fork_rank", fork_rank)
    reader, writer = os.pipe()
    folder = os.open(tmp_path, os.O_RDONLY)
    wire.send(ours, REQUEST, [writer, folder])
    os.close(writer)
    os.close(folder)
    asked: list[Any] = []
    here = Path.cwd()
    rank = service.answer(theirs, make_state(None, asked), 7, 8)
    assert wire.receive(ours) == ({}, [])
    ((connection, limit, (listener, alive, received)),) = forked
    assert (connection, limit, listener, alive) == (theirs, None, 7, 8)
    assert asked == [(str(tmp_path), str(tmp_path), "")], "the folder of the rank"
    assert Path.cwd() == here
    if forks:
        assert rank == ({**REQUEST, "folder": str(tmp_path)}, received)
        for descriptor in received:
            os.close(descriptor)
    else:
        assert rank is None
    assert is_at_end(reader), "the warm process keeps no file of the rank"
    os.close(reader)


def test_request_that_is_refused_is_told_the_reason_and_its_files_are_closed(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    monkeypatch.setattr(fork, "fork_rank", lambda *_: pytest.fail("it has forked"))
    reader, writer = os.pipe()
    folder = os.open(tmp_path, os.O_RDONLY)
    wire.send(ours, REQUEST, [writer, folder])
    os.close(writer)
    os.close(folder)
    assert service.answer(theirs, make_state("it differs"), 7, 8) is None
    assert wire.receive(ours) == ({"cold": "it differs"}, [])
    assert is_at_end(reader)
    os.close(reader)


@pytest.mark.parametrize("content", [b"", b"\0\0\0\2{]", b"\0\0\0\2{}"])
def test_request_that_is_nonsense_is_logged(
    pair: Pair, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    ours, theirs = pair
    ours.sendall(content)
    ours.shutdown(socket.SHUT_WR)
    assert service.answer(theirs, make_state(), 7, 8) is None
    assert capsys.readouterr().out.startswith("[hvd] a rank's request failed: ")


def test_process_of_another_user_is_not_listened_to(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = pair
    monkeypatch.setattr(wire, "peer_uid", lambda _: os.geteuid() + 1)
    wire.send(ours, REQUEST)
    assert service.answer(theirs, make_state("it differs"), 7, 8) is None
    assert capsys.readouterr().out == "[hvd] refused a process of another user\n"
    ours.settimeout(0)
    with pytest.raises(BlockingIOError):
        ours.recv(1)


@pytest.mark.parametrize("rank", [None, ({"command": ["python3"], "program": 1, "rank": 3}, [9])])
def test_modules_of_the_chart_are_hidden_before_any_other_is_imported(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, rank: service.Rank | None
) -> None:
    """A script may have modules of these names."""
    seen: list[Any] = []

    def supervise(own: socket.socket, modules: list[str]) -> service.Rank | None:
        seen.append((own.getsockname(), modules))
        own.detach()
        return rank

    # Only a copy: this process still needs them.
    monkeypatch.setattr(sys, "modules", {**sys.modules, "__main__": wire})
    words = ["warm_server.py", str(listener.fileno()), "framework", "other", " " * 9]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(service, "die_with_parent", seen.append)
    monkeypatch.setattr(service, "supervise", supervise)
    monkeypatch.setattr(ranks, "open_stack_file", lambda number: number + 500)
    monkeypatch.setattr(faulthandler, "register", lambda *words: seen.append(words))
    for name in ("take_over", "set_up_python", "set_title", "run"):
        note = partial(lambda name, *words: seen.append((name, *words)), name)
        monkeypatch.setattr(script, name, note)
    namespace = {"__name__": "__main__"}
    if rank:
        rank[0]["environment"] = {"A": "1"}
    service.main(namespace)
    assert not {"warm_service", "warm_wire", "basics", "ranks"} & sys.modules.keys()
    assert {"__main__", "sys", "socket", "pytest"} <= sys.modules.keys()
    parent, supervised, *rest = seen
    assert parent == os.getppid()
    assert supervised == (listener.getsockname(), ["framework", "other"])
    if rank is None:
        assert rest == [], "it ends with the last start"
        return
    request = rank[0]
    *before, (last, program, main, raised) = rest
    assert before == [
        ("take_over", request, [9]),
        ("set_up_python", request),
        (ranks.STACK_SIGNAL, 503),
        ("set_title", ["python3"]),
    ]
    assert (last, program) == ("run", 1)
    assert main is namespace
    assert raised.args == ({"A": "1"}, 3), "the exception of which rank"
