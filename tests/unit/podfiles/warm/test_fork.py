"""What a fork's guard does with the signals of its client, and with what the fork has started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import warm_fork


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
        assert warm_fork._pass_on(ours, 7)
    assert sent == expected


@pytest.mark.parametrize("unread", [b"", b"of the guard"])
def test_client_that_has_gone_is_noticed(unread: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(unread)
        theirs.close()
        assert not warm_fork._pass_on(ours, 7)


def test_process_that_ends_meanwhile_does_not_save_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait(*_: int) -> None:
        raise ChildProcessError("none is left")

    with subprocess.Popen(["sleep", "600"]) as other:
        with monkeypatch.context() as patch:
            patch.setattr(warm_fork, "descendants", lambda of: [2**22 + 1, other.pid])
            patch.setattr(os, "waitpid", wait)
            warm_fork.kill_descendants()
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
    command = [sys.executable, "-I", "-c", STARTS_OTHERS, str(Path(warm_fork.__file__).parent)]
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
    monkeypatch.setattr(warm_fork, "_guard", fail)
    ours, theirs = socket.socketpair()
    here = os.getpid()
    with ours, theirs:
        try:
            is_rank = warm_fork.fork_rank(ours, theirs.fileno(), -1, [])
        finally:
            if os.getpid() != here:
                os._exit(99)
    assert not is_rank, "this is the warm process"
    assert os.waitstatus_to_exitcode(os.waitpid(forked[0], 0)[1]) == 1
