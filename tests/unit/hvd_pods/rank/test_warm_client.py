"""A rank's side of a warm start."""

from __future__ import annotations

import subprocess
import sys

from tests.unit.hvd_pods.copies import FILES

AFTER_THE_END = """
import os, signal, socket, sys
sys.path.insert(0, {files!r})
from hvd_pods.rank import warm_client
ours, theirs = socket.socketpair()
warm_client.send(theirs, {{"pid": 1}})
warm_client.send(theirs, {{"status": 2}})
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
