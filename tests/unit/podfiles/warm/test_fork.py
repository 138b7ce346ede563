"""What a fork's guard does with the signals of its client, and with what the fork has started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hvd_pods.common.fast_start import PR_SET_CHILD_SUBREAPER
from hvd_pods.common.fence import GUARD
from hvd_pods.warm import fork, wire


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (7, [("group", signal.SIGTERM), ("rank", signal.SIGUSR1)]),
        (3, [("rank", signal.SIGTERM), ("rank", signal.SIGUSR1)]),
    ],
    ids=["its own", "another"],
)
def test_signals_that_launchers_send_to_groups_reach_the_group_of_the_rank(
    monkeypatch: pytest.MonkeyPatch, group: int, expected: list[tuple[str, int]]
) -> None:
    sent: list[tuple[str, int]] = []
    monkeypatch.setattr(os, "getpgid", lambda pid: group)
    monkeypatch.setattr(os, "killpg", lambda group, number: sent.append(("group", number)))
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(("rank", number)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(bytes([signal.SIGTERM, signal.SIGUSR1]))
        assert fork._pass_on(ours, 7)
    assert sent == expected


@pytest.mark.parametrize("unread", [b"", b"of the guard"])
def test_client_that_has_gone_is_noticed(unread: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(unread)
        theirs.close()
        assert not fork._pass_on(ours, 7)


def test_process_that_ends_meanwhile_does_not_save_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait(*_: int) -> None:
        raise ChildProcessError("none is left")

    with subprocess.Popen(["sleep", "600"]) as other:
        with monkeypatch.context() as patch:
            patch.setattr(fork, "descendants", lambda of: [2**22 + 1, other.pid])
            patch.setattr(os, "waitpid", wait)
            fork.kill_descendants()
        assert other.wait(20) == -signal.SIGKILL


STARTS_OTHERS = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
import basics, warm_fork
basics.set_process_option(basics.PR_SET_CHILD_SUBREAPER, 1)
start = ["sh", "-c", "setsid sleep 600 >&2 & echo up; exec sleep 600"]
child = subprocess.Popen(start, stdout=subprocess.PIPE)
child.stdout.readline()
print(len(warm_fork.descendants(os.getpid())))
warm_fork.kill_descendants()
print(warm_fork.descendants(os.getpid()))
"""


def test_nothing_is_left_of_what_a_rank_has_started() -> None:
    """In whichever session: also no process that has ended and was not reaped."""
    command = [sys.executable, "-I", "-c", STARTS_OTHERS, str(Path(fork.__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "2\n[]\n", done.stderr


def test_guard_that_fails_ends_and_does_not_become_a_warm_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forked: list[int] = []
    fork = os.fork

    def note_fork() -> int:
        forked.append(fork())
        return forked[0]

    def fail(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fork", note_fork)
    monkeypatch.setattr(fork, "_guard", fail)
    ours, theirs = socket.socketpair()
    here = os.getpid()
    with ours, theirs:
        try:
            is_rank = fork.fork_rank(ours, theirs.fileno(), -1, [])
        finally:
            if os.getpid() != here:
                os._exit(99)
    assert not is_rank, "this is the warm process"
    assert os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]) == 1


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a process would do to itself to become a guard or a rank, and does not in a test."""
    noted: list[Any] = []

    def note(name: str, *words: object) -> None:
        noted.append((name, *words))

    (tmp_path / "comm").write_text("python3")
    monkeypatch.setattr(fork, "COMM", tmp_path / "comm")
    for module, name in (
        (os, "setsid"), (os, "setpgid"), (signal, "set_wakeup_fd"), (signal, "signal"),
        (fork, "set_process_option"), (fork, "die_with_parent"), (fork, "_watch"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, partial(note, name))
    return noted


def test_guard_keeps_no_file_of_its_rank(
    calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads a pipe of the rank would wait for the guard as well."""
    monkeypatch.setattr(os, "fork", lambda: 4321)
    monkeypatch.setattr(os, "pipe2", lambda flags: (600, 601))
    client, connection = socket.socketpair()
    readers, writers = zip(os.pipe(), os.pipe(), strict=True)
    with client, connection:
        client.settimeout(20)
        client.sendall(wire.GO)
        fork._guard(connection, 602, list(writers))
        for reader in readers:
            os.set_blocking(reader, False)
            assert os.read(reader, 1) == b""
        assert wire.receive(client) == ({"pid": 4321}, [])
        assert calls[-1] == ("_watch", connection, 600, 4321)
    for reader in readers:
        os.close(reader)
    assert (tmp_path / "comm").read_text() == GUARD
    assert calls[:-1] == [
        ("setsid",),
        ("set_process_option", PR_SET_CHILD_SUBREAPER, 1),
        ("set_wakeup_fd", 601),
        ("signal", signal.SIGCHLD, fork._do_nothing),
    ]


def test_rank_leads_its_own_group_and_keeps_no_file_of_its_guard(
    calls: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fork", lambda: 0)
    client, connection = socket.socketpair()
    alive, of_the_guard = os.pipe()
    with client:
        client.settimeout(20)
        client.sendall(wire.GO)
        assert fork._guard(connection, of_the_guard, [])
        assert client.recv(1) == b""
    os.set_blocking(alive, False)
    assert os.read(alive, 1) == b""
    os.close(alive)
    assert connection.fileno() == -1
    assert (tmp_path / "comm").read_text() == "python3"
    assert calls[-3:] == [
        ("set_wakeup_fd", -1),
        ("die_with_parent", os.getpid()),
        ("setpgid", 0, 0),
    ]


def test_guard_whose_client_was_killed_before_starts_no_rank(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it has forked"))
    client, connection = socket.socketpair()
    client.close()
    with connection, pytest.raises(SystemExit):
        fork._guard(connection, 602, [])
    assert calls == []
