"""Messages between a rank's client and the warm process."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvd_pods.rank import warm_wire
from tests.unit.hvd_pods.copies import FILES

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


@pytest.mark.parametrize("content", [b"\0\0", b"\0\0\0\2{]", b"\0\0\0\7{}"])
def test_message_that_is_cut_or_nonsense_leaves_no_open_file(pair: Pair, content: bytes) -> None:
    before = open_files()
    socket.send_fds(pair[0], [content], [0, 1])
    pair[0].shutdown(socket.SHUT_WR)
    with pytest.raises((ConnectionError, ValueError)):
        warm_wire.receive(pair[1])
    assert open_files() <= before


AFTER_THE_END = """
import os, signal, socket, sys
sys.path.insert(0, {files!r})
from hvd_pods.rank import warm_client, warm_wire
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
    code = AFTER_THE_END.format(files=str(FILES))
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "2\ngoes on\n"), done.stderr
