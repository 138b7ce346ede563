"""The master's pod of calls: its server and its ranks are processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import cloudpickle

from devtools.common.waiting import wait_until
from hvdchart.calls.connection import Connection
from hvdchart.calls.in_pod import rank

# The functions travel by value, as those of a notebook do: the ranks do not have this module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
SECRET = "0123456789abcdef"
# Starts two ranks as mpirun does: it prints a box, it passes on pieces of their output up to its
# end, it ends all ranks when one fails, and with them at SIGTERM.
MPIRUN = """\
import os, signal, subprocess, sys, threading, time
edge = 74 * "-"
box = f"{edge}\\nmpirun noticed that process rank 1 exited on signal 9 (Killed).\\n{edge}\\n"
print(box, end="", file=sys.stderr, flush=True)
ranks = []
threads = []
def pass_on(source, target):
    while True:
        piece = os.read(source.fileno(), 1000)
        if not piece:
            break
        os.write(target, piece)
for number in range(2):
    rank = subprocess.Popen(
        sys.argv[1:],
        env={**os.environ, "RANK": str(number)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    ranks.append(rank)
    for source, target in ((rank.stdout, 1), (rank.stderr, 2)):
        threads.append(threading.Thread(target=pass_on, args=(source, target)))
        threads[-1].start()
def end(*_):
    for rank in ranks:
        rank.kill()
signal.signal(signal.SIGTERM, end)
while any(rank.poll() is None for rank in ranks):
    if any(rank.poll() for rank in ranks):
        end()
    time.sleep(0.01)
for thread in threads:
    thread.join()
sys.exit(max(abs(rank.returncode) for rank in ranks))
"""
SERVER = """\
import sys
from hvdchart.calls.in_pod import call_server, wire
wire.HEARTBEAT_INTERVAL_SECONDS, wire.SILENCE_TIMEOUT_SECONDS = 0.1, float(sys.argv[1])
call_server.CALLS_SOCKET = sys.argv[2]
sys.exit(call_server.serve(float(sys.argv[3]), sys.argv[4:]))
"""
CLIENT = """\
import sys
from hvdchart.calls.in_pod import call_server
call_server.CALLS_SOCKET = sys.argv[1]
sys.exit(call_server.connect())
"""


class Pod:
    """The master's pod: the server's process, and the connections to it."""

    def __init__(self, folder: Path) -> None:
        self._environment = {
            **os.environ,
            "HVD_NOTICES": f"127.0.0.1,1,{SECRET}",
        }
        self.folder = folder
        self._socket = str(folder / "calls.sock")
        self.log = folder / "log"
        (folder / "mpirun.py").write_text(MPIRUN)

    def start(
        self,
        idle: float = 60.0,
        silent: float = 120.0,
        start: Sequence[str] = (sys.executable, rank.__file__),
    ) -> subprocess.Popen[bytes]:
        """Start the call server, which waits for `silent` seconds for a caller's next word.

        `start` starts a rank.
        """
        line = [sys.executable, str(self.folder / "mpirun.py"), *start]
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", SERVER, str(silent), self._socket, str(idle), *line],
                env=self._environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def command(self) -> list[str]:
        """What `kubectl exec` does."""
        return [sys.executable, "-c", CLIENT, self._socket]

    def connect(self, **seconds: float) -> Connection:
        return Connection(self.command(), **seconds)


def own_rank() -> int:
    return int(os.environ["RANK"])


def give_back(value: object) -> object:
    return value


def write_pid_and_wait(folder: str) -> None:
    Path(folder, str(own_rank())).write_text(str(os.getpid()))
    time.sleep(60)


def assert_ended(folder: Path) -> None:
    """Wait until the ranks that have written their process IDs are gone."""
    pids = [pid for file in folder.iterdir() if (pid := file.read_text())]
    assert pids
    wait_until(lambda: not any(Path("/proc", pid).exists() for pid in pids), 20, "the ranks end")
